"""Measures what a draft brings to a target, on a few prompts, with bundles that exist only for the measurement."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pilotfish.export.bundle_writer import Progress, write_alone
from pilotfish.export.pairing import pair_tokenizers
from pilotfish.export.quantize import Recipe
from pilotfish.export.staging import disk_errors, temporary_folder
from pilotfish.runtime.bundle import Bundle, load_bundle
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.errors import PilotfishError
from pilotfish.runtime.generation import GenerationOptions
from pilotfish.runtime.metrics import Stats

PROMPTS = (
    "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
    "Explain in a few sentences why the sky is blue.",
    "Fix the spelling and repeat the text in full: The pilot fish is a small fish that swims ahead of sharks, rays and "
    "sea turtles. The pilot fish eats parasites and leftovers, and the shark does not eat the pilot fsh.",
    "Plan a day in a city by the sea: morning, noon, evening.",
)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one way of drafting brought over all prompts, against the target alone in the same process.

    `num_equal` counts the prompts whose output was that of the target alone, token for token.
    """

    acceptance_rate: float
    tokens_per_s: float
    plain_tokens_per_s: float
    num_equal: int
    num_prompts: int

    @property
    def speed_up(self) -> float:
        """Tokens per second ÷ those of the target alone; 0 if nothing could be timed."""
        return self.tokens_per_s / self.plain_tokens_per_s if self.plain_tokens_per_s else 0.0


def measure(engine: Engine, draft: str, prompts: Sequence[str], options: GenerationOptions) -> Measurement:
    """Answers each prompt by the target alone and with `draft`, `model` or `lookup`, every time from cold caches."""
    plain_stats, draft_stats, num_equal = [], [], 0
    for prompt in prompts:
        plain_ids, stats = _answer(engine, prompt, replace(options, draft="off"))
        plain_stats.append(stats)
        draft_ids, stats = _answer(engine, prompt, replace(options, draft=draft))
        draft_stats.append(stats)
        num_equal += plain_ids == draft_ids
    num_drafted = sum(stats.num_drafted for stats in draft_stats)
    return Measurement(
        acceptance_rate=sum(stats.num_accepted for stats in draft_stats) / max(num_drafted, 1),
        tokens_per_s=_tokens_per_s(draft_stats),
        plain_tokens_per_s=_tokens_per_s(plain_stats),
        num_equal=num_equal,
        num_prompts=len(prompts),
    )


def with_draft(target: Bundle, draft: Bundle | None) -> Bundle:
    """The bundle of a target with the target of another bundle as its draft; both stay where they are.

    None drops the draft that there is. `PairingError` if drafts can pass neither as ids nor as text.
    """
    bare = replace(target.manifest, drafts=(), draft_tokenizer=None)
    if draft is None:
        return replace(target, manifest=bare)
    pairing = pair_tokenizers(*(_tokenizer_json(bundle) for bundle in (target, draft)))
    model, tokenizer = draft.manifest.target, draft.manifest.tokenizer
    # A path that is absolute stands for itself.
    graph = str((draft.path / model.graph).absolute())
    own = replace(tokenizer, file=str((draft.path / tokenizer.file).absolute()), chat_template=None)
    entry = replace(model, graph=graph, masked_ids=pairing.masked_ids)
    manifest = replace(bare, drafts=(entry,), draft_tokenizer=own if pairing.passes_text else None)
    return replace(target, manifest=manifest)


def measure_drafts(
    target: Path, drafts: Sequence[Path], recipes: tuple[Recipe, Recipe], cache: Path,
    measure_bundle: Callable[[Bundle, str], Measurement], progress: Progress, existing: Path | None = None,
) -> list[Measurement | str]:  # fmt: skip
    """Measures look-up, then each of `drafts`; where one cannot be exported or loaded, the reason stands instead.

    `existing` is a bundle of the target that saves its export. All else is written below `cache`, one draft at a time,
    and removed in any case. `StorageError` if the disk is too full for the target.
    """
    with disk_errors(cache), temporary_folder(cache) as folder:
        whole = (
            load_bundle(existing)
            if existing
            else write_alone(target, recipes[0], folder / "target", target.name, progress)
        )
        bundle = with_draft(whole, None)
        results: list[Measurement | str] = [measure_bundle(bundle, "lookup")]
        for draft in drafts:
            try:
                draft_bundle = write_alone(draft, recipes[1], folder / "draft", draft.name, progress)
                results.append(measure_bundle(with_draft(bundle, draft_bundle), "model"))
            except PilotfishError as error:
                results.append(str(error))
            shutil.rmtree(folder / "draft", ignore_errors=True)
    return results


def _answer(engine: Engine, prompt: str, options: GenerationOptions) -> tuple[list[int], Stats]:
    engine.reset()
    has_template = engine.bundle.manifest.tokenizer.chat_template is not None
    chunks = engine.generate([{"role": "user", "content": prompt}] if has_template else prompt, options)
    return [token_id for chunk in chunks for token_id in chunk.token_ids], engine.stats


def _tokens_per_s(measured: Sequence[Stats]) -> float:
    decode_s = sum(stats.decode_s for stats in measured)
    return sum(max(stats.num_tokens - 1, 0) for stats in measured) / decode_s if decode_s else 0.0


def _tokenizer_json(bundle: Bundle) -> str:
    return (bundle.path / bundle.manifest.tokenizer.file).read_text(encoding="utf-8")
