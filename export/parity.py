"""How near an exported graph comes to its source and to itself, on a text sample that is shipped with pilotfish.

Axis letters: `N` tokens of the sample, `V` vocabulary, `C` columns of logits: V, or as many ids as a trimmed head has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pilotfish.export.quantize import Recipe
from pilotfish.export.sources import Source
from pilotfish.export.weights import Progress
from pilotfish.runtime.bundle import Bundle, ModelEntry, ParityReport
from pilotfish.runtime.decoder import MAX_WIDTH, Decoder
from pilotfish.runtime.errors import OptionError, ParityError
from pilotfish.runtime.tokenizer import Tokenizer

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

MAX_TOKENS = 384  # about what the sample has; some tokenizers cut it finer
NUM_REPEATED = 64  # tokens that are computed in blocks, one by one, and after a rollback
BLOCK = 5  # tokens of a block: about what a verification of drafted tokens has
ROWS_AT_A_TIME = 16  # rows in double precision at a time, since V can be large

# Mean KL in nats. Of SmolLM2-135M and Qwen2.5-Coder 0.5B and 1.5B the worst has, in this order: 0.0011, 0.0054, 0.0043,
# 0.051, 0.34 and 0.16. In fp32 it is 2e-11 but for GGUF files with a finer copy of a tied embedding, which is taken for
# both. A faulty graph has 1 or more, so the limits leave rounding room and still tell the two apart.
KL_LIMITS = {
    "fp32": 0.01, "fp16": 0.01, "bf16": 0.05, "int8": 0.05, "source": 0.05, "w8a16": 0.05, "w8a8": 0.25, "int4": 1.0,
    "int4-mixed": 1.0,
}  # fmt: skip
# Consistency as a part of the largest logit: of the same models the worst has 2e-6 in fp32, 0.04 with 8 or 4 bits and
# 0.09 in w8a8. A last-bit difference that tips the rounding of one activation grows from layer to layer.
TOLERANCES = {
    "fp32": 1e-4, "fp16": 0.05, "bf16": 0.15, "int8": 0.15, "source": 0.15, "w8a16": 0.15, "w8a8": 0.3, "int4": 0.15,
    "int4-mixed": 0.15,
}  # fmt: skip


def sample_ids(tokenizer: Tokenizer, model: ModelEntry) -> list[int]:
    """The token ids of the shipped sample that `model` knows, as many as it has positions for."""
    text = files("pilotfish.export").joinpath("sample.txt").read_text(encoding="utf-8")
    ids = [token_id for token_id in tokenizer.encode(text) if token_id < model.vocab_size]
    return ids[: min(MAX_TOKENS, model.max_positions)]


def measure_model(
    bundle: Bundle, model: ModelEntry, source: Source | None, progress: Progress = lambda num_weights: None
) -> ParityReport:
    """Measures one model of a bundle, against `source` if it is given; `progress` as in `Source.write`.

    `OptionError` if `source` has another number of token ids."""
    token_ids = sample_ids(Tokenizer(bundle, bundle.manifest.tokenizer_of(model)), model)
    if source is None:
        return measure(model, bundle.path / model.graph, token_ids)
    reference = source.logits(token_ids, progress)
    if reference.shape[1] != model.vocab_size:
        raise OptionError(
            f"{source.path} has {reference.shape[1]} token ids and {bundle.path / model.graph} has "
            f"{model.vocab_size}; give the model that the bundle was exported from"
        )
    return replace(measure(model, bundle.path / model.graph, token_ids, reference), reference=source.reference)


def measure(
    model: ModelEntry, graph_path: Path, token_ids: Sequence[int], reference: Floats | None = None
) -> ParityReport:
    """Runs the graph over `token_ids` on the CPU, or in bfloat16 on a GPU, and compares its logits.

    `reference` is float32 (N, V), the logits of the source weights. Numbers that are not finite are reported, not
    raised: `check` refuses them. Where the head was trimmed, all figures are over the ids that it has.
    """
    device = parity_device(model)
    with (
        np.errstate(all="ignore"),
        Decoder(model, graph_path, device=device, context_length=len(token_ids)) as decoder,
    ):
        head_ids = decoder.head_ids
        logits = logits_of(decoder, token_ids)
        report = ParityReport(
            verified=True,
            num_tokens=len(token_ids),
            perplexity=perplexity(logits, token_ids, head_ids),
            largest_logit=float(np.abs(logits).max()),
        )
        report = _with_consistency(report, decoder, token_ids[:MAX_WIDTH], logits[:MAX_WIDTH])
    if reference is None:
        return report
    if head_ids is not None:
        reference = reference[:, head_ids]
    divergence = divergences(reference, logits)
    return replace(
        report,
        mean_kl=float(divergence.mean()),
        max_kl=float(divergence.max()),
        top1_agreement=float(np.mean(reference.argmax(axis=1) == logits.argmax(axis=1))),
        reference_perplexity=perplexity(reference, token_ids, head_ids),
    )


def parity_device(model: ModelEntry) -> str:
    """Where a graph is measured: on the CPU, which has no attention in bfloat16, or else on a GPU."""
    return "cuda" if model.cache_dtype == "bfloat16" else "cpu"


def check(report: ParityReport, recipe: Recipe, role: str) -> None:
    """`ParityError` if the figures of a model, `role` in messages, are worse than its recipe explains."""
    figures = [getattr(report, field.name) for field in fields(report)]
    if not all(math.isfinite(figure) for figure in figures if isinstance(figure, float)):
        raise ParityError(
            f"the {role} computes logits that are not finite numbers, or so large that they overflow; fetch the source "
            "again and export once more"
        )
    if report.mean_kl is not None and report.mean_kl > KL_LIMITS[recipe.name]:
        raise ParityError(
            f"the {role} is too far from its source: {_distance(report)}, and {recipe} may have a mean KL of "
            f"{KL_LIMITS[recipe.name]:g}; {_remedy(recipe)}, or keep the bundle with --skip-verify"
        )
    limit = TOLERANCES[recipe.name] * (report.largest_logit or 0.0)
    for what, difference in (
        ("an uncached pass and of blocks after a cache", report.cached_equals_uncached),
        ("blocks and of single tokens", report.block_equals_single),
        ("blocks before and after a rollback", report.after_rollback),
    ):
        if difference is not None and difference > limit:
            raise ParityError(
                f"the {role} is not consistent with itself: logits of {what} differ by {difference:.3g}, and {recipe} "
                f"may by {limit:.3g}; this ONNX Runtime computes the graph wrongly: install another release of it"
            )


def summary(report: ParityReport | None) -> str:
    """The figures in one line."""
    if report is None or not report.verified:
        return "not verified"
    differences = (report.cached_equals_uncached, report.block_equals_single, report.after_rollback)
    most = max(difference or 0.0 for difference in differences)
    return (
        f"{_distance(report)}, cached, block and rollback within {most:.2g} of logits up to {report.largest_logit:.0f}"
    )


def _distance(report: ParityReport) -> str:
    if report.mean_kl is None or report.max_kl is None or report.top1_agreement is None:
        return f"perplexity {report.perplexity:.2f} on {report.num_tokens} tokens"
    return (
        f"mean KL {report.mean_kl:.2g} nats, maximum {report.max_kl:.2g}, the same top token at "
        f"{report.top1_agreement:.1%}, perplexity {report.perplexity:.2f} where the source has "
        f"{report.reference_perplexity:.2f}, on {report.num_tokens} tokens"
    )


def _remedy(recipe: Recipe) -> str:
    """What to try instead of a recipe that is too coarse for a model."""
    if recipe.name == "fp32":
        return "fp32 rounds nothing, so the export itself is at fault: report it with the model's name"
    if recipe.bits == 4:
        finer = "int4-mixed, " if recipe.name == "int4" else ""
        return f"try the recipe {finer}int8 or w8a16"
    if recipe.name == "w8a8":
        return "try the recipe w8a16"
    return "try the recipe " + ("fp32" if str(recipe) == "int8-b16" else "int8-b16")


def perplexity(logits: Floats, token_ids: Sequence[int], head_ids: NDArray[np.int64] | None = None) -> float:
    """exp of the mean surprise, in nats, of each token after the first, given the logits before it: (N, C), N ids.

    `head_ids` are the ids of the columns, None if the columns are the ids. Tokens without a column are left out; the
    perplexity is 1 if none has one.
    """
    columns = range(logits.shape[1]) if head_ids is None else head_ids.tolist()
    places = {token_id: place for place, token_id in enumerate(columns)}
    chosen = zip(_log_probs(logits[:-1]), token_ids[1:], strict=True)
    return math.exp(-np.mean([row[places[token_id]] for row, token_id in chosen if token_id in places] or [0.0]))


def divergences(reference: Floats, logits: Floats) -> Doubles:
    """Kullback-Leibler divergence of each row's softmax, Σ p_reference · ln(p_reference / p): (N, V), (N, V) → (N,)."""
    pairs = zip(_log_probs(reference), _log_probs(logits), strict=True)
    # Where the two are all but equal, rounding can make the sum a little less than zero.
    return np.array([max(np.exp(expected) @ (expected - actual), 0.0) for expected, actual in pairs])


def _log_probs(logits: Floats) -> Iterator[Doubles]:
    """The log-softmax of each row, in double precision."""
    for start in range(0, len(logits), ROWS_AT_A_TIME):
        rows = logits[start : start + ROWS_AT_A_TIME].astype(np.float64)
        rows -= rows.max(axis=1, keepdims=True)
        yield from rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


def _with_consistency(
    report: ParityReport, decoder: Decoder, token_ids: Sequence[int], uncached: Floats
) -> ParityReport:
    """Adds how far the last tokens' logits depend on how they are fed; `uncached` is of one pass over all of them."""
    start = max(len(token_ids) - NUM_REPEATED, 1)
    last = token_ids[start:]

    def repeated(width: int) -> Floats:
        decoder.rollback(start)
        return logits_of(decoder, last, width)

    blocks, singles = repeated(BLOCK), repeated(1)
    decoder.rollback(start)
    decoder.forward(last[::-1], 0)
    after_rollback = repeated(BLOCK)
    return replace(
        report,
        cached_equals_uncached=_difference(blocks, uncached[start:]),
        block_equals_single=_difference(blocks, singles),
        after_rollback=_difference(blocks, after_rollback),
    )


def logits_of(decoder: Decoder, token_ids: Sequence[int], width: int = MAX_WIDTH) -> Floats:
    """The logits after each of N tokens that are appended to the cache in passes of `width`: (N, V)."""
    blocks = [token_ids[start : start + width] for start in range(0, len(token_ids), width)]
    return np.concatenate([decoder.forward(block, len(block)).copy() for block in blocks])


def _difference(one: Floats, two: Floats) -> float:
    return float(np.abs(one - two).max())
