"""Greedy generation in rounds, with one exported graph as target and another as draft."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from pilotfish.runtime.bundle import ModelEntry
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.drafters.model import ModelDrafter
from pilotfish.runtime.exactness import exact_widths
from pilotfish.runtime.rounds import Limits, play_round
from pilotfish.runtime.sampling import Sampler, SamplingParams

NUM_PROMPT_TOKENS, NUM_TOKENS, NUM_DRAFT_TOKENS = 20, 48, 4
NOISES = (0.01, 1.0)  # of the copies: however much a model feels, one is right at times and one is wrong at times


@dataclass(frozen=True, slots=True)
class Generation:
    token_ids: tuple[int, ...]
    num_drafted: int
    num_accepted: int


def generated(target: Decoder, draft: Decoder | None) -> Generation:
    """What `target` says after a prompt, with `draft` proposing or alone."""
    prompt = np.random.default_rng(5).integers(0, target.vocab_size, NUM_PROMPT_TOKENS).tolist()
    committed, limits = list(prompt), Limits(len(prompt) + NUM_TOKENS, lambda token_id: False)
    drafter = ModelDrafter(draft, target.vocab_size) if draft else None
    for decoder in filter(None, (target, draft)):
        decoder.rollback(0)
    sampler, rng, rounds = Sampler(SamplingParams()), np.random.default_rng(0), []
    while len(committed) < limits.max_length:
        rounds.append(play_round(committed, target, drafter, NUM_DRAFT_TOKENS, target.vocab_size, limits, sampler, rng))
    num_drafted, num_accepted = (sum(getattr(r, name) for r in rounds) for name in ("num_drafted", "num_accepted"))
    return Generation(tuple(committed[len(prompt) :]), num_drafted, num_accepted)


def perturbed_graph(graph_path: Path, noise: float, path: Path) -> Path:
    """Writes the graph to `path` with noise on each matrix, of `noise` times its own spread."""
    model, rng = onnx.load(graph_path), np.random.default_rng(1)
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.ndim > 1:
            moved = array + rng.normal(0, noise * array.std(), array.shape).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
    onnx.save(model, path)
    return path


def assert_it_drafts_for_itself(model: ModelEntry, graph_path: Path, folder: Path) -> None:
    """With any draft the output is the target's own. All it drafts itself is accepted, a part of copies' drafts is."""

    def decoder(path: Path) -> Decoder:
        return Decoder(model, path, device="cpu", context_length=NUM_PROMPT_TOKENS + NUM_TOKENS)

    with decoder(graph_path) as target, decoder(graph_path) as twin:
        # One row is computed with other kernels than several, so a draft that is not padded may differ at a near-tie.
        target.exact_widths = twin.exact_widths = exact_widths(target)
        alone, by_twin = generated(target, None), generated(target, twin)
        assert by_twin.token_ids == alone.token_ids
        assert by_twin.num_accepted == by_twin.num_drafted > NUM_TOKENS // 2
        num_drafted = num_accepted = 0
        for noise in NOISES:
            with decoder(perturbed_graph(graph_path, noise, folder / f"noise-{noise}.onnx")) as draft:
                by_copy = generated(target, draft)
            assert by_copy.token_ids == alone.token_ids
            num_drafted, num_accepted = num_drafted + by_copy.num_drafted, num_accepted + by_copy.num_accepted
        assert 0 < num_accepted < num_drafted
