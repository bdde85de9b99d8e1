"""Compares drafts that are made at export: trimmed heads of several sizes, and the target's own first layers.

Usage: python benchmarks/made_drafts.py TARGET DRAFT [--quant w8a8] [--draft-quant int4-b128] [-K 8192 16384]
           [--layers 7 14] [--frequency-text FILE ...] [--kinds code,chat] [--max-tokens 96]

Each trimmed head is made twice: by the order of the vocabulary, and by how frequent its tokens are in the texts, by
default the Python files of the standard library. The target answers the first prompt of each kind by itself; at every
token of the answers the draft's distribution is compared with the target's, both at temperature 1.

`pass` is a draft's pass of one token after 256, the median of many turns, each in another order; `÷ whole` is that
divided by the pass of the draft with its whole head. `agreement` is the part of the draft's tokens that the target
accepts, a = Σ min(draft, target); `same top` is how often the most likely tokens are the same; `lacks` is the part of
the answers' tokens that the head lacks. `gain` is what a round of 3 drafted tokens brings at this agreement, without
the host's time, compared with the target alone: (1 + a + a² + a³) · t(1 row) ÷ (3 · pass + t(4 rows)).
"""

from __future__ import annotations

import argparse
import random
import statistics
import sysconfig
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import common
import numpy as np
from numpy.typing import NDArray

from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.first_layers import first_layers
from pilotfish.export.frequency import frequent_ids
from pilotfish.export.pair_measure import with_draft
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sources import Source, open_source
from pilotfish.export.trimmed import Trimmed
from pilotfish.runtime.bundle import Bundle, ModelEntry, load_bundle
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.filters import softmax
from pilotfish.runtime.generation import GenerationOptions
from pilotfish.runtime.text_table import text_table

NUM_PAST, NUM_TURNS, NUM_DRAFTED, CONTEXT_LENGTH = 256, 41, 3, 1024
HEADINGS = ("draft", ">pass, ms", ">÷ whole", ">agreement", ">same top", ">lacks", ">gain")


@dataclass(frozen=True, slots=True)
class Answer:
    """Token ids of a prompt and its answer, where the answer begins, and the target's distributions along it (N, V)."""

    token_ids: list[int]
    first: int
    target_probs: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Draft:
    """An exported draft and what was measured of it."""

    name: str
    entry: ModelEntry
    decoder: Decoder
    seconds: list[float] = field(default_factory=list)
    overlaps: list[float] = field(default_factory=list)
    same_top: list[bool] = field(default_factory=list)
    lacks: list[bool] = field(default_factory=list)


def answers(target: Bundle, kinds: list[str], max_tokens: int) -> list[Answer]:
    """What the target says to the first prompt of each kind, greedily."""
    found = []
    prompts = {prompt.kind: prompt.text for prompt in reversed(common.prompts())}
    with Engine(target, context_length=CONTEXT_LENGTH) as engine:
        for kind in kinds or list(prompts):
            token_ids = engine.tokenizer.encode_chat([{"role": "user", "content": prompts[kind]}])
            output, _ = common.run(engine, prompts[kind], GenerationOptions(max_tokens))
            found.append((token_ids + output, len(token_ids)))
            print(f"{kind}: {len(output)} tokens", flush=True)
        manifest = target.manifest
        width = min(manifest.tokenizer.num_tokens, manifest.target.vocab_size)
        return [Answer(ids, first, probabilities(engine._context.target, ids, first, width)) for ids, first in found]


def probabilities(decoder: Decoder, token_ids: list[int], first: int, width: int) -> NDArray[np.float32]:
    """The distribution of each token from `first` on, over the first `width` columns."""
    decoder.rollback(0)
    decoder.forward(token_ids[: first - 1], 0)
    probs = softmax(decoder.forward(token_ids[first - 1 : -1], len(token_ids) - first)[:, :width])
    decoder.rollback(0)
    return probs


def compare(draft: Draft, answer: Answer) -> None:
    """Adds how the draft's distributions agree with the target's along an answer."""
    width = answer.target_probs.shape[1]
    ids = np.arange(width) if draft.decoder.head_ids is None else draft.decoder.head_ids
    probs = probabilities(draft.decoder, answer.token_ids, answer.first, len(ids))
    draft.overlaps.extend(np.minimum(probs, answer.target_probs[:, ids]).sum(axis=1).tolist())
    draft.same_top.extend((ids[probs.argmax(axis=1)] == answer.target_probs.argmax(axis=1)).tolist())
    draft.lacks.extend((~np.isin(answer.token_ids[answer.first :], ids)).tolist())


def pass_seconds(decoder: Decoder, num_tokens: int) -> float:
    """Seconds of one pass behind what the cache holds."""
    length = decoder.length
    started = time.perf_counter()
    decoder.forward([0] * num_tokens, num_tokens)
    seconds = time.perf_counter() - started
    decoder.rollback(length)
    return seconds


def sources(arguments: argparse.Namespace, draft: Source) -> dict[str, Source]:
    """The draft with its whole head and with each trimmed one, by name."""
    paths = arguments.frequency_text or sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in paths]
    print(f"{len(texts)} texts of {sum(map(len, texts)):,} characters", flush=True)
    found: dict[str, Source] = {"whole head": draft}
    for number in arguments.num_ids:
        found[f"{number:,} by order"] = Trimmed(draft, frequent_ids(draft.tokenizer, number))
        found[f"{number:,} by texts"] = Trimmed(draft, frequent_ids(draft.tokenizer, number, texts))
    return found


def main() -> None:
    """Exports, measures, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--quant", default="w8a8")
    parser.add_argument("--draft-quant", default="int4-b128")
    parser.add_argument("-K", "--num-ids", type=int, nargs="*", default=[8192, 16384, 32768, 65536])
    parser.add_argument("--layers", type=int, nargs="*", default=[4, 14, 24])
    parser.add_argument("--frequency-text", type=Path, nargs="*", default=[])
    parser.add_argument("--kinds", default="", help="separated by commas; default: all")
    parser.add_argument("--max-tokens", type=int, default=96)
    arguments = parser.parse_args()
    kinds = [kind for kind in arguments.kinds.split(",") if kind]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as resources:

        def opened(path: Path, recipe: str) -> Source:
            return resources.enter_context(closing(open_source(path, parse_recipe(recipe))))

        target = opened(arguments.target, arguments.quant)
        bundle = load_bundle(write_bundle(target, None, Path(folder) / "target", verify=False))
        found = answers(bundle, kinds, arguments.max_tokens)
        entries = {}
        for name, source in sources(arguments, opened(arguments.draft, arguments.draft_quant)).items():
            alone = write_bundle(source, None, Path(folder) / name, verify=False)
            entries[name] = with_draft(bundle, load_bundle(alone)).manifest.draft
        for number in arguments.layers:
            _, entry = first_layers(target, number).write(bundle.path, f"layers{number}", lambda _: None)
            entries[f"first {number} layers"] = entry
        drafts = [Draft(name, entry, open_decoder(resources, bundle, entry)) for name, entry in entries.items()]
        print(table(drafts, open_decoder(resources, bundle, bundle.manifest.target), found))


def open_decoder(resources: ExitStack, bundle: Bundle, entry: ModelEntry) -> Decoder:
    """A decoder that is closed with the others."""
    decoder = Decoder(entry, bundle.path / entry.graph, device="cpu", context_length=CONTEXT_LENGTH)
    return resources.enter_context(decoder)


def table(drafts: list[Draft], target: Decoder, found: list[Answer]) -> str:
    """Measures all drafts by turns; one row for each."""
    for draft in drafts:
        for answer in found:
            compare(draft, answer)
    past, alone, verified = (found[0].token_ids * NUM_PAST)[:NUM_PAST], list[float](), list[float]()
    for decoder in (target, *(draft.decoder for draft in drafts)):
        decoder.forward(past, 0)
    timed = [(draft.seconds, draft.decoder, 1) for draft in drafts]
    timed += [(alone, target, 2), (verified, target, NUM_DRAFTED + 1)]  # exact mode pads one row to two
    for turn in range(NUM_TURNS + 1):
        random.Random(turn).shuffle(timed)  # what a pass leaves in the caches slows the one behind it
        for seconds, decoder, width in timed:
            took = pass_seconds(decoder, width)
            if turn:  # the first one warms up
                seconds.append(took)
    times = statistics.median(alone), statistics.median(verified)
    rows = [row(draft, drafts[0], times) for draft in drafts]
    num_tokens = sum(len(answer.target_probs) for answer in found)
    target_ms = f"target: {times[0] * 1e3:.1f} ms alone, {times[1] * 1e3:.1f} ms for {NUM_DRAFTED + 1} rows"
    return f"\n{num_tokens} tokens of {len(found)} answers; {target_ms}\n{text_table(HEADINGS, rows)}"


def row(draft: Draft, whole: Draft, times: tuple[float, float]) -> tuple[str, ...]:
    """The cells of one draft."""
    seconds, accepted = statistics.median(draft.seconds), float(np.mean(draft.overlaps))
    tokens = sum(accepted**number for number in range(NUM_DRAFTED + 1))
    return (
        draft.name,
        f"{seconds * 1e3:.1f}",
        f"{seconds / statistics.median(whole.seconds):.2f}",
        f"{accepted:.3f}",
        f"{np.mean(draft.same_top):.3f}",
        f"{np.mean(draft.lacks):.1%}",
        f"{tokens * times[0] / (NUM_DRAFTED * seconds + times[1]):.2f}",
    )


if __name__ == "__main__":
    main()
