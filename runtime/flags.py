"""The options that several commands share, as groups of flags.

typer has no groups of its own: `expanded` turns a command that takes a group as one parameter into one that takes each
of its fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from typer import Option

from pilotfish.runtime.engine import Engine, load
from pilotfish.runtime.errors import OptionError
from pilotfish.runtime.generation import GenerationOptions
from pilotfish.runtime.grammar import Grammar
from pilotfish.runtime.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class LoadFlags:
    """How a bundle is loaded."""

    device: Annotated[str, Option(help="cpu, cuda or tensorrt.")] = "cpu"
    draft_device: Annotated[str | None, Option(help="Another device for the draft.")] = None
    context: Annotated[int | None, Option(help="Context length in tokens.")] = None
    threads: Annotated[int | None, Option(help="Threads; default: all physical cores.")] = None
    draft_threads: Annotated[int | None, Option(help="Another number of threads for the draft.")] = None
    exact: Annotated[bool, Option("--exact/--fast", help="Same greedy output with and without speculation.")] = True
    cuda_graphs: Annotated[bool, Option("--cuda-graphs", help="Record passes on cuda, and play them again.")] = False

    def load(self, bundle: Path) -> Engine:
        """The engine of a bundle folder."""
        return load(
            bundle, device=self.device, draft_device=self.draft_device, context_length=self.context,
            num_threads=self.threads, num_draft_threads=self.draft_threads, exact=self.exact,
            cuda_graphs=self.cuda_graphs,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class GenerationFlags:
    """How tokens are drawn, drafted and ended."""

    max_tokens: Annotated[int, Option(help="Most tokens to generate.")] = 1024
    max_time: Annotated[float | None, Option(help="Most seconds to generate for.")] = None
    stop: Annotated[list[str] | None, Option(help="End before this text; may be given several times.")] = None
    draft: Annotated[str, Option(help="Who drafts: auto, model, suffix, lookup, cascade, off.")] = "auto"
    num_draft_tokens: Annotated[int, Option("--num-draft-tokens", "-k", help="Tokens a round, unless auto.")] = 4
    temperature: Annotated[float, Option(help="0 is greedy.")] = 0.0
    top_k: Annotated[int, Option(help="Draw from the k most likely tokens only; 0 is off.")] = 0
    top_p: Annotated[float, Option(help="Draw from the most likely tokens that have this much mass.")] = 1.0
    min_p: Annotated[float, Option(help="Leave out tokens less likely than this share of the most likely.")] = 0.0
    repetition_penalty: Annotated[float, Option(help="Above 1: tokens that came before are less likely.")] = 1.0
    presence_penalty: Annotated[float, Option(help="Taken off the logits of tokens of the output.")] = 0.0
    frequency_penalty: Annotated[float, Option(help="The same, once for each time they occur.")] = 0.0
    no_repeat_ngram: Annotated[int, Option(help="No n-gram of this size twice; 0 is off.")] = 0
    min_tokens: Annotated[int, Option(help="No end before so many tokens.")] = 0
    seed: Annotated[int | None, Option(help="The same text again, whoever drafts; default: a fresh one.")] = None
    acceptance: Annotated[str, Option(help="Rule of acceptance: auto, token, block or seed.")] = "auto"
    json_schema: Annotated[Path | None, Option(help="File: the output is JSON that matches this schema.")] = None
    regex: Annotated[str | None, Option(help="The output matches this regular expression.")] = None
    lark: Annotated[Path | None, Option(help="File: the output follows this Lark grammar.")] = None

    def options(self, logprobs: int | None = None) -> GenerationOptions:
        """The same as the library takes it; reads the grammar's file."""
        sampling = SamplingParams(
            self.temperature, self.top_k, self.top_p, self.min_p, self.repetition_penalty, self.presence_penalty,
            self.frequency_penalty, self.no_repeat_ngram, self.min_tokens, {}, self.seed, self.acceptance,
        )  # fmt: skip
        return GenerationOptions(
            self.max_tokens, sampling, self.draft, self.num_draft_tokens, tuple(self.stop or ()), self.max_time,
            self._grammar(), logprobs,
        )  # fmt: skip

    def _grammar(self) -> Grammar | None:
        given = {"json-schema": self.json_schema, "regex": self.regex, "lark": self.lark}
        wanted = [(kind, value) for kind, value in given.items() if value is not None]
        if len(wanted) > 1:
            raise OptionError(f"{' and '.join(f'--{kind}' for kind, _ in wanted)} were given; choose one")
        return next((Grammar(kind, _text(value)) for kind, value in wanted), None)


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with each parameter that is a group of flags replaced by the fields of the group."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}

    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    parameters = [
        flag
        for parameter in inspect.signature(command).parameters.values()
        for flag in (
            _flags(groups[parameter.name])
            if parameter.name in groups
            else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[parameter.name])]
        )
    ]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _flags(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(f.name, kind, default=f.default, annotation=hints[f.name]) for f in fields(group)]


def _text(value: str | Path) -> str:
    if isinstance(value, str):
        return value
    try:
        return value.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"the grammar {value} cannot be read: {error}") from error
