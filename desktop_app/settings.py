"""What the user has set, as one value, and the file that it is kept in.

A file that is damaged or partly wrong costs only what is wrong in it: the rest is taken, each fault is told, and before
the file is written again a copy of it is kept. Keys that only a later release knows stay in the file.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from pilotfish.desktop_app.codec import decoded, encoded, parse_json
from pilotfish.desktop_app.errors import DesktopError, FormatError
from pilotfish.desktop_app.reply_options import ReplyOptions
from pilotfish.runtime.errors import OptionError
from pilotfish.runtime.providers import PROVIDERS
from pilotfish.runtime.whole_file import write_whole

T = TypeVar("T")

THEMES = ("system", "light", "dark")
MIN_ZOOM, MAX_ZOOM = 0.75, 2.0


@dataclass(frozen=True, slots=True)
class Preset:
    """A system prompt and reply options under a name."""

    name: str
    system_prompt: str = ""
    reply: ReplyOptions = field(default_factory=ReplyOptions)

    def __post_init__(self) -> None:
        """`OptionError` without a name."""
        if not self.name.strip():
            raise OptionError("the preset has no name; give it one")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded, as `EngineProcess.load` takes it; a change takes effect when it is loaded again."""

    device: str = "cpu"
    draft_device: str | None = None
    context_length: int | None = None
    num_threads: int | None = None
    exact: bool = True
    cuda_graphs: bool = False

    @property
    def is_on_cuda(self) -> bool:
        """Whether a model runs where CUDA graphs can be recorded."""
        return "cuda" in (self.device, self.draft_device)

    def __post_init__(self) -> None:
        """`OptionError` names the option that is out of range."""
        for device in (self.device, self.draft_device):
            if device is not None and device not in PROVIDERS:
                raise OptionError(f"unknown device {device!r}; choose one of {', '.join(PROVIDERS)}")
        if self.context_length is not None and self.context_length < 1:
            raise OptionError(f"context_length is {self.context_length}; it must be at least 1")
        if self.num_threads is not None and self.num_threads < 1:
            raise OptionError(f"num_threads is {self.num_threads}; it must be at least 1")


FIRST_PRESETS = (
    Preset("Balanced"),
    Preset("Precise", reply=ReplyOptions(temperature=0.0, top_p=1.0)),
    Preset("Inventive", reply=ReplyOptions(temperature=1.1, min_p=0.05, top_p=1.0)),
    Preset("Code", "You are a careful programmer. Answer with code first.", ReplyOptions(temperature=0.2)),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. `speculates` is the switch; `reply.draft` says who drafts while it is on."""

    reply: ReplyOptions = field(default_factory=ReplyOptions)
    system_prompt: str = ""
    speculates: bool = True
    presets: tuple[Preset, ...] = FIRST_PRESETS
    loading: LoadOptions = field(default_factory=LoadOptions)
    theme: str = "system"
    zoom: float = 1.0
    tints: bool = False
    shows_sidebar: bool = True
    shows_panel: bool = True

    def __post_init__(self) -> None:
        """`OptionError` names what is out of range."""
        if self.theme not in THEMES:
            raise OptionError(f"theme is {self.theme!r}; choose one of {', '.join(THEMES)}")
        if not MIN_ZOOM <= self.zoom <= MAX_ZOOM:
            raise OptionError(f"zoom is {self.zoom}; it must lie between {MIN_ZOOM} and {MAX_ZOOM}")
        names = [preset.name for preset in self.presets]
        for name in names:
            if names.count(name) > 1:
                raise OptionError(f"two presets are named {name!r}; give one another name")

    @property
    def reply_options(self) -> ReplyOptions:
        """The options of the next reply, with the switch in them."""
        return self.reply if self.speculates else replace(self.reply, draft="off")

    def needs_reload(self, loaded_with: LoadOptions) -> bool:
        """Whether a model that was loaded with these options does not run as set now."""
        return self.loading != loaded_with


def load_settings(path: Path) -> tuple[Settings, tuple[str, ...]]:
    """The settings of a file, and a sentence for each fault in it. Of what is wrong or missing the default is taken."""
    try:
        return _salvaged(path.read_bytes())
    except FileNotFoundError:
        return Settings(), ()
    except OSError as error:
        return Settings(), (f"{path} cannot be read ({error.strerror or error})",)


def save_settings(settings: Settings, path: Path) -> None:
    """Writes the file as a whole or not at all. `DesktopError` if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        values = _merged(_kept(path), encoded(settings))
        write_whole(path, json.dumps(values, ensure_ascii=False, indent=2))
    except OSError as error:
        said = error.strerror or error
        raise DesktopError(f"{path} cannot be written ({said}); make room, or check who owns it") from error


def _kept(path: Path) -> Any:
    """What the file holds now; if anything in it is wrong, a copy of it is kept beside it first."""
    if not path.exists():
        return None
    data = path.read_bytes()
    if _salvaged(data)[1]:
        copies = (path.with_name(f"{path.stem}.damaged-{number}{path.suffix}") for number in count(1))
        shutil.copyfile(path, next(copy for copy in copies if not copy.exists()))
    try:
        return parse_json(data)
    except FormatError:
        return None


def _salvaged(data: bytes) -> tuple[Settings, tuple[str, ...]]:
    try:
        values = parse_json(data)
    except FormatError as error:
        return Settings(), (str(error),)
    faults: list[str] = []
    settings = _taken(Settings(), values, "settings", faults)
    return settings, tuple(faults)


def _taken(start: T, values: object, where: str, faults: list[str]) -> T:
    """`start` with all of `values` that can be taken; unknown keys are those of a later release, and no fault."""
    if not isinstance(values, dict):
        faults.append(f"{where} is not an object")
        return start
    for each in fields(start):  # type: ignore[arg-type]
        if each.name not in values:
            continue
        old, value, inside = getattr(start, each.name), values[each.name], f"{where}.{each.name}"
        try:
            if is_dataclass(old):
                part: object = _taken(old, value, inside, faults)
            elif each.name == "presets" and isinstance(value, list):
                part = tuple(_presets(value, inside, faults))
            else:
                part = getattr(decoded(type(start), encoded(start) | {each.name: value}, where), each.name)
            start = replace(start, **{each.name: part})  # type: ignore[type-var]
        except (FormatError, OptionError) as error:
            faults.append(str(error))
    return start


def _presets(values: list[Any], where: str, faults: list[str]) -> Iterator[Preset]:
    names: set[str] = set()
    for number, value in enumerate(values):
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(name, str) or not name.strip() or name in names:
            faults.append(f"{where}[{number}] has no name of its own")
            continue
        names.add(name)
        yield _taken(Preset(name), value, f"{where}[{number}]", faults)


def _merged(old: Any, new: Any) -> Any:
    """`new`, with the keys that only `old` has; objects of a list are the same if their names are."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {key: _merged(old.get(key), value) for key, value in new.items()}
    if isinstance(old, list) and isinstance(new, list):
        named = {each["name"]: each for each in old if isinstance(each, dict) and isinstance(each.get("name"), str)}
        return [_merged(named.get(each["name"]), each) if isinstance(each, dict) else each for each in new]
    return new
