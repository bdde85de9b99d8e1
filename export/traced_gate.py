"""The numeric gate: a traced graph must give the logits of the model that it was traced from, or it is refused.

The tokens are longer than the sliding window and pass the cache in a prefill, a block, single tokens, and a rollback
followed by other tokens. Axis letters: `N` tokens, `V` vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from pilotfish.runtime.bundle import ModelEntry, TensorNames
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.errors import CheckpointError
from pilotfish.runtime.session import import_onnxruntime

Logits = NDArray[np.float32]
Forward = Callable[[int, Sequence[int]], Logits]
"""Rolls back to a length, appends tokens, and returns the logits after each of them: (length, N ids) → (N, V)."""

TOLERANCE = 1e-3  # of the largest difference, in units of the logits' standard deviation
LEAST_CORRELATION = 0.5  # of quantized logits with exact ones: a wrong layout has none, the worst recipe more
WINDOW = 16  # wider windows are narrowed for the comparison, so that a short text is longer than they are
KEPT = 20  # tokens before the rollback's other ones
SPANS = ((0, 26), (26, 34), (34, 35), (35, 36), (36, 48))


class Reference:
    """Two texts with a common beginning, and the logits that PyTorch computes for each without a cache."""

    def __init__(self, model: PreTrainedModel, vocab_size: int) -> None:
        rng = np.random.default_rng(0)
        first, second = (rng.integers(0, vocab_size, SPANS[-1][1]).tolist() for _ in range(2))
        self.texts: tuple[list[int], list[int]] = (first, [*first[:KEPT], *second[KEPT:]])
        self.logits = tuple(eager_logits(model, text) for text in self.texts)
        self.spread = float(np.std(self.logits[0]))

    def compared(self, forward: Forward) -> tuple[Logits, Logits]:
        """(expected, found) logits, each (N, V), over all the ways that tokens pass the cache."""
        steps = [(0, start, stop) for start, stop in SPANS] + [(1, KEPT, KEPT + 9), (1, KEPT + 9, KEPT + 10)]
        found = [forward(start, self.texts[text][start:stop]) for text, start, stop in steps]
        expected = [self.logits[text][start:stop] for text, start, stop in steps]
        return np.concatenate(expected), np.concatenate(found)


def check_trace(
    model: PreTrainedModel, graph: onnx.ModelProto, weights: Mapping[str, NDArray[Any]], entry: ModelEntry,
    reference: Reference,
) -> None:  # fmt: skip
    """Compares the graph with the model it was traced from, whose logits `reference` has; no weight is copied.

    `CheckpointError` if they differ.
    """
    narrowed = onnx.ModelProto()
    narrowed.CopyFrom(graph)
    attributes = [attribute for node in narrowed.graph.node for attribute in node.attribute]
    wide = [item for item in attributes if item.name == "local_window_size" and item.i > WINDOW]
    for attribute in wide:
        attribute.i = WINDOW
    with _narrow_windows(model) as is_narrowed:
        if wide or is_narrowed:
            reference = Reference(model, entry.vocab_size)
    _check_difference(reference, _forward_of(narrowed, weights, entry), entry)


def check_bundle(model_path: Path, entry: ModelEntry, reference: Reference) -> None:
    """Compares what was written with `reference`; `CheckpointError` if it differs by more than its recipe explains."""
    with Decoder(entry, model_path, device="cpu", context_length=64) as decoder:

        def forward(length: int, token_ids: Sequence[int]) -> Logits:
            decoder.rollback(length)
            return decoder.forward(token_ids, len(token_ids)).copy()

        if entry.recipe == "fp32":
            return _check_difference(reference, forward, entry)
        expected, found = reference.compared(forward)
    correlation = float(np.corrcoef(expected.ravel(), found.ravel())[0, 1])
    if not correlation > LEAST_CORRELATION:
        raise CheckpointError(
            f"{entry.family} in recipe {entry.recipe}: the correlation of its logits with the model's is "
            f"{correlation:.2f}, at least {LEAST_CORRELATION} is needed; choose a recipe with more bits"
        )
    return None


def _check_difference(reference: Reference, forward: Forward, entry: ModelEntry) -> None:
    try:
        expected, found = reference.compared(forward)
    except Exception as error:  # ONNX Runtime raises a different class for each status code
        reason = str(error).strip().splitlines()[0]
        raise CheckpointError(f"{entry.family} cannot be exported: its graph does not run ({reason})") from error
    difference = float(np.abs(found - expected).max()) / max(reference.spread, 1e-30)
    if not difference <= TOLERANCE:
        raise CheckpointError(
            f"{entry.family} cannot be exported: its logits differ from the model's by up to {difference:.2g} of their "
            f"standard deviation, at most {TOLERANCE} is allowed; it computes something that tracing does not keep"
        )


def eager_logits(model: PreTrainedModel, token_ids: list[int]) -> Logits:
    """What PyTorch computes after each of N tokens, without a cache: (N, V)."""
    own = model.config._attn_implementation
    if model._can_set_attn_implementation():
        model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            logits: Logits = model(torch.tensor([token_ids]), use_cache=False).logits[0].numpy()
            return logits
    finally:
        if model._can_set_attn_implementation():
            model.set_attn_implementation(own)


@contextmanager
def _narrow_windows(model: PreTrainedModel) -> Iterator[bool]:
    """Limits windows of the model's modules and configurations to `WINDOW` tokens inside the block; whether any was."""
    modules: list[Any] = list(model.modules())
    owners: dict[int, Any] = {
        id(owner): owner for module in modules for owner in (module, getattr(module, "config", None))
    }
    wide = [(owner, owner.sliding_window) for owner in owners.values() if _window_of(owner) > WINDOW]
    try:
        for owner, _ in wide:
            owner.sliding_window = WINDOW
        yield bool(wide)
    finally:
        for owner, window in wide:
            owner.sliding_window = window


def _window_of(owner: object) -> int:
    window = getattr(owner, "sliding_window", None)
    return window if isinstance(window, int) else 0


def _forward_of(model: onnx.ModelProto, weights: Mapping[str, NDArray[Any]], entry: ModelEntry) -> Forward:
    """Runs a graph whose weights are inputs, bound to the memory where the model has them."""
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding, names, given = session.io_binding(), TensorNames(), {value.name for value in session.get_inputs()}
    binding.bind_output(names.logits)  # the first output
    held = []
    for name in given & weights.keys():
        held.append(ort.OrtValue.ortvalue_from_numpy(weights[name]))
        binding.bind_ortvalue_input(name, held[-1])
    for layer in range(entry.num_layers):
        for past, present in ((names.past_key, names.present_key), (names.past_value, names.present_value)):
            shape = (1, entry.num_kv_heads, 64, entry.head_dim)
            held.append(ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32)))
            binding.bind_ortvalue_input(past.format(layer=layer), held[-1])
            binding.bind_ortvalue_output(present.format(layer=layer), held[-1])

    def forward(length: int, token_ids: Sequence[int]) -> Logits:
        total = length + len(token_ids)
        small = {
            names.input_ids: np.array([token_ids], np.int64), names.logits_rows: np.arange(len(token_ids)),
            names.seqlens_k: np.array([total - 1], np.int32), names.total_sequence_length: np.array(total, np.int32),
        }  # fmt: skip
        for name in small.keys() & given:
            binding.bind_cpu_input(name, small[name])
        binding.bind_output(names.logits)
        session.run_with_iobinding(binding)
        logits: Logits = binding.get_outputs()[0].numpy()
        return logits

    return forward
