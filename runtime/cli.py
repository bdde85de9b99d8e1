"""The `pilotfish` program: its frame, and the commands that need nothing but the runtime.

The other packages add their commands through the entry point group `pilotfish.commands`, so the program has what is
installed and the runtime imports none of them.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pilotfish.runtime.engine import Engine, load
from pilotfish.runtime.errors import OptionError, PilotfishError
from pilotfish.runtime.generation import Chunk, GenerationOptions
from pilotfish.runtime.sampling import SamplingParams
from pilotfish.runtime.terminal import print_stream, summary

FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130

BundlePath = Annotated[Path, typer.Argument(help="A bundle folder, as `pilotfish export` writes it.")]
MaxTokens = Annotated[int, typer.Option(help="Most tokens to generate.")]
Temperature = Annotated[float, typer.Option(help="0 is greedy.")]
TopK = Annotated[int, typer.Option(help="Draw from the k most likely tokens only; 0 is off.")]
TopP = Annotated[float, typer.Option(help="Draw from the most likely tokens that have this much mass.")]
MinP = Annotated[float, typer.Option(help="Leave out tokens less likely than this share of the most likely.")]
RepetitionPenalty = Annotated[float, typer.Option(help="Above 1 makes tokens that came before less likely.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the random numbers; default: a fresh one.")]
Stop = Annotated[list[str] | None, typer.Option(help="End before this text; may be given several times.")]
Draft = Annotated[str, typer.Option(help="Who drafts: auto, model, lookup or off.")]
NumDraftTokens = Annotated[int, typer.Option("--num-draft-tokens", "-k", help="Tokens drafted in a round.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or tensorrt.")]
Context = Annotated[int | None, typer.Option("--context", help="Context length in tokens.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Threads; default: all physical cores.")]
Exact = Annotated[bool, typer.Option("--exact/--fast", help="Same greedy output with and without speculation.")]


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
    """Adds `generate` and `chat` to the program."""
    app.command()(generate)
    app.command()(chat)


def generate(
    bundle: BundlePath,
    prompt: Annotated[str | None, typer.Option("--prompt", "-p", help="Default: standard input.")] = None,
    max_tokens: MaxTokens = 512,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    repetition_penalty: RepetitionPenalty = 1.0,
    seed: Seed = None,
    stop: Stop = None,
    draft: Draft = "auto",
    num_draft_tokens: NumDraftTokens = 4,
    device: Device = "cpu",
    context: Context = None,
    threads: Threads = None,
    exact: Exact = True,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text; no chat template.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Answers one prompt."""
    text = sys.stdin.read() if prompt is None else prompt
    if not text.strip():
        raise OptionError("the prompt is empty; give one with -p or on standard input")
    sampling = SamplingParams(temperature, top_k, top_p, min_p, repetition_penalty, seed=seed)
    options = GenerationOptions(max_tokens, sampling, draft, num_draft_tokens, tuple(stop or ()))
    with load(bundle, device=device, context_length=context, num_threads=threads, exact=exact) as engine:
        chunks = engine.generate(text if raw else [{"role": "user", "content": text}], options)
        if as_json:
            print(json.dumps(_result(list(chunks), engine), ensure_ascii=False))  # noqa: T201
            return
        for chunk in chunks:
            print(chunk.text, end="", flush=True)  # noqa: T201
        print()  # noqa: T201


def chat(
    bundle: BundlePath,
    max_tokens: MaxTokens = 1024,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    repetition_penalty: RepetitionPenalty = 1.0,
    seed: Seed = None,
    draft: Draft = "auto",
    num_draft_tokens: NumDraftTokens = 4,
    device: Device = "cpu",
    context: Context = None,
    threads: Threads = None,
    exact: Exact = True,
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None,
) -> None:
    """Talks in the terminal. Drafted text is underlined; Ctrl-C stops a reply, Ctrl-D leaves."""
    console = Console(highlight=False)
    sampling = SamplingParams(temperature, top_k, top_p, min_p, repetition_penalty, seed=seed)
    options = GenerationOptions(max_tokens, sampling, draft, num_draft_tokens)
    messages = [{"role": "system", "content": system}] if system else []
    with load(bundle, device=device, context_length=context, num_threads=threads, exact=exact) as engine:
        while (text := _read_line(console)) is not None:
            if text.strip():
                messages.append({"role": "user", "content": text})
                messages.append({"role": "assistant", "content": _reply(console, engine, messages, options)})


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
    return {
        "text": "".join(chunk.text for chunk in chunks),
        "token_ids": [token_id for chunk in chunks for token_id in chunk.token_ids],
        "finish_reason": chunks[-1].finish_reason,
        "stats": engine.stats.to_dict(),
    }


def _fail(message: str, code: int) -> int:
    print(f"pilotfish: {message}", file=sys.stderr)  # noqa: T201
    return code
