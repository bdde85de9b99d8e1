"""The `pilotfish` program: its frame, and the commands that need nothing but the runtime.

The other packages add their commands through the entry point group `pilotfish.commands`, so the program has what is
installed and the runtime imports none of them.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal

from pilotfish.runtime.bench.command import bench
from pilotfish.runtime.bundle import by_role
from pilotfish.runtime.doctor import doctor
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.errors import OptionError, PilotfishError
from pilotfish.runtime.flags import GenerationFlags, LoadFlags, expanded
from pilotfish.runtime.generation import Chunk, GenerationOptions
from pilotfish.runtime.terminal import print_stream, summary

FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130

BundlePath = Annotated[Path, typer.Argument(help="A bundle folder, as `pilotfish export` writes it.")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the program and exits: 0 done, 1 failed, 2 wrong input, 130 interrupted."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the program on `arguments` (default: the process's) and returns its exit code."""
    app = typer.Typer(add_completion=False, no_args_is_help=True, help="Speculative decoding for ONNX Runtime.")
    for entry_point in sorted(entry_points(group="pilotfish.commands"), key=lambda point: point.name):
        entry_point.load()(app)
    command = typer.main.get_command(app)
    try:
        result = command.main(arguments, prog_name="pilotfish", standalone_mode=False)
    except PilotfishError as error:
        return _fail(str(error), WRONG_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads; the interpreter must not complain while it flushes
        return FAILED
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):  # typer carries a click of its own, unnamed outside
            error.show()
            return int(error.exit_code)
        logging.getLogger(__name__).debug("the command failed", exc_info=True)
        return _fail(f"{type(error).__name__}: {error}", FAILED)
    return result if isinstance(result, int) else 0


def register(app: typer.Typer) -> None:
    """Adds `generate`, `chat`, `calibrate`, `bench` and `doctor` to the program."""
    app.command()(expanded(generate))
    app.command()(expanded(chat))
    app.command()(expanded(calibrate))
    app.command()(expanded(bench))
    app.command()(doctor)


def generate(
    bundle: BundlePath,
    generation: GenerationFlags,
    loading: LoadFlags,
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", help="Default: standard input.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text; no chat template.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
    logprobs: Annotated[int | None, typer.Option(help="With --json: log-probabilities, and so many rivals.")] = None,
    prompt_cache: Annotated[Path | None, typer.Option(help="File that keeps the prompt's cache between calls.")] = None,
) -> None:
    """Answers one prompt."""
    text = sys.stdin.read() if prompt is None else prompt
    if not text.strip():
        raise OptionError("the prompt is empty; give one with -p or on standard input")
    options = generation.options(logprobs)
    with loading.load(bundle) as engine:
        if prompt_cache is not None and prompt_cache.exists():
            engine.restore_cache(prompt_cache)
        chunks = engine.generate(text if raw else [{"role": "user", "content": text}], options)
        if as_json:
            print(json.dumps(_result(list(chunks), engine), ensure_ascii=False))  # noqa: T201
        else:
            for chunk in chunks:
                print(chunk.text, end="", flush=True)  # noqa: T201
            print()  # noqa: T201
        if prompt_cache is not None:
            engine.save_cache(prompt_cache)


def chat(
    bundle: BundlePath,
    generation: GenerationFlags,
    loading: LoadFlags,
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None,
) -> None:
    """Talks in the terminal. Drafted text is underlined; Ctrl-C stops a reply, Ctrl-D leaves."""
    console = Console(highlight=False)
    options = generation.options()
    messages = [{"role": "system", "content": system}] if system else []
    with loading.load(bundle) as engine:
        while (text := _read_line(console)) is not None:
            if text.strip():
                messages.append({"role": "user", "content": text})
                messages.append({"role": "assistant", "content": _reply(console, engine, messages, options)})


def calibrate(bundle: BundlePath, loading: LoadFlags) -> None:
    """Measures again what passes cost on this machine and how well the draft fits; else the first load does it."""
    with loading.load(bundle) as engine:
        measured, memory_by_role = engine.calibrate(), engine.memory
    costs = by_role(measured.target_costs, [draft.costs for draft in measured.drafts])
    widths = list(measured.target_costs.to_dict())
    print("tokens in a pass" + "".join(f"{width:>9}" for width in widths))  # noqa: T201
    for role, found in costs.items():
        durations = "".join(f"{1e3 * found.seconds(int(width)):>9.1f}" for width in widths)
        print(f"{role + ', ms':<16}{durations}")  # noqa: T201
    for (role, writer), draft in zip(pairwise(costs), measured.drafts, strict=True):
        print(f"the {role} would accept {draft.agreement:.0%} of the {writer}'s tokens in a sample text")  # noqa: T201
    for role, memory in memory_by_role.items():
        weights, caches = decimal(memory.weight_bytes), decimal(memory.cache_bytes)
        print(f"the {role} takes {weights} of weights and {caches} of caches on {memory.device}")  # noqa: T201
    print(f"passes of {', '.join(map(str, measured.exact_widths))} tokens give bit-identical rows")  # noqa: T201


def _reply(console: Console, engine: Engine, messages: list[dict[str, str]], options: GenerationOptions) -> str:
    texts: list[str] = []

    def remembered() -> Iterator[Chunk]:
        for chunk in engine.generate(messages, options):
            texts.append(chunk.text)
            yield chunk

    try:
        print_stream(console, remembered())
    except KeyboardInterrupt:
        console.print("\n[dim]stopped[/dim]")
    console.print(summary(engine.stats), style="dim")
    return "".join(texts)


def _read_line(console: Console) -> str | None:
    try:
        return console.input("[bold]> [/bold]")
    except EOFError:
        return None


def _result(chunks: list[Chunk], engine: Engine) -> dict[str, object]:
    result: dict[str, object] = {
        "text": "".join(chunk.text for chunk in chunks),
        "token_ids": [token_id for chunk in chunks for token_id in chunk.token_ids],
        "finish_reason": chunks[-1].finish_reason,
        "stats": engine.stats.to_dict(),
    }
    if chunks[0].logprobs:
        result["logprobs"] = [asdict(entry) for chunk in chunks for entry in chunk.logprobs]
    return result


def _fail(message: str, code: int) -> int:
    print(f"pilotfish: {message}", file=sys.stderr)  # noqa: T201
    return code
