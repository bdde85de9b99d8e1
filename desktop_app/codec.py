"""Frozen dataclasses to JSON and back. What comes back is checked field by field, so that it can be trusted.

Fields are strings, numbers, booleans, None, dataclasses, `tuple[X, ...]` and mappings with string keys.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pilotfish.desktop_app.errors import FormatError

T = TypeVar("T")

_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false", types.NoneType: "null"}


def encoded(value: Any) -> Any:
    """`value` as JSON knows it: dataclasses become objects of those fields that their constructor takes."""
    if is_dataclass(value):
        return {field.name: encoded(getattr(value, field.name)) for field in fields(value) if field.init}
    if isinstance(value, Mapping):
        return {str(key): encoded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [encoded(each) for each in value]
    return value


def decoded(cls: type[T], values: object, where: str = "") -> T:
    """A `cls` of a JSON object. `FormatError` for a field that is unknown, missing or of another type.

    `where` is what the message calls the object. What `cls` itself refuses is raised as it is.
    """
    if not isinstance(values, dict):
        raise FormatError(f"{where or 'the whole'} is not an object")
    known = {field.name: field for field in fields(cls) if field.init}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise FormatError(f"{_inside(where, name)} is unknown (known: {', '.join(known)})")
    for name, field in known.items():
        if name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise FormatError(f"{_inside(where, name)} is missing")
    hints = get_type_hints(cls)
    return cls(**{name: _checked(hints[name], value, _inside(where, name)) for name, value in values.items()})


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text; `FormatError` if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"it is not valid JSON ({error or type(error).__name__})") from error


def _checked(kind: Any, value: object, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin in (Union, types.UnionType):
        chosen = next((each for each in arguments if each is not types.NoneType), None)
        return None if value is None and types.NoneType in arguments else _checked(chosen, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise FormatError(f"{where} is not a list")
        return tuple(_checked(arguments[0], each, f"{where}[{i}]") for i, each in enumerate(value))
    if origin is not None and issubclass(typing.cast("type", origin), Mapping):
        if not isinstance(value, dict):
            raise FormatError(f"{where} is not an object")
        return {key: _checked(arguments[1], each, _inside(where, key)) for key, each in value.items()}
    if is_dataclass(kind):
        return decoded(typing.cast("type", kind), value, where)
    return _plain(kind, value, where)


def _plain(kind: type, value: object, where: str) -> object:
    if kind is float and type(value) in (int, float):
        return _finite(value, where)
    if type(value) is not kind:
        raise FormatError(f"{where} is not {_NAMES[kind]}")
    if isinstance(value, str) and not _is_unicode(value):
        raise FormatError(f"{where} holds half of a surrogate pair, which is no character")
    return value


def _finite(value: Any, where: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise FormatError(f"{where} is not a finite number")
    return number


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _inside(where: str, name: str) -> str:
    shown = name if len(name) < 40 else f"{name[:40]}…"
    return f"{where}.{shown}" if where else shown
