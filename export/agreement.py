"""How often a target accepts what its draft draws, on the shipped text sample, and what trimming can cost of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pilotfish.export.pairing import pair_tokenizers
from pilotfish.export.parity import parity_device, sample_ids, summary
from pilotfish.runtime.bundle import Bundle, ModelEntry
from pilotfish.runtime.calibration import FIRST_SCORED, measured_agreement
from pilotfish.runtime.decoder import MAX_WIDTH, Decoder
from pilotfish.runtime.drafters.of_bundle import drafter_of
from pilotfish.runtime.errors import OptionError
from pilotfish.runtime.filters import softmax
from pilotfish.runtime.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Agreement:
    """`accepted` is the part of the draft's tokens that the target accepts, as `measured_agreement` says.

    `most_lost` is the probability that the target gives to tokens which a trimmed head lacks, None if it is whole. A
    token brings Σ min(draft, target); trimming raises the draft's probability of those that stay, so it costs at most
    what the target gives to those that go.
    """

    accepted: float
    most_lost: float | None = None

    def __str__(self) -> str:
        text = f"draft agreement with the target on the sample: {self.accepted:.3f}"
        if self.most_lost is None:
            return text
        return f"{text} (whole vocabulary: at most {min(self.accepted + self.most_lost, 1):.3f})"


def report(bundle: Bundle) -> list[str]:
    """What an export says of the bundle that it wrote, in lines; the agreement only if the models were verified too."""
    manifest = bundle.manifest
    lines = [f"{role} {model.recipe}: {summary(model.parity)}" for role, model in manifest.models.items()]
    if manifest.draft_tokenizer is not None:
        files = (manifest.tokenizer.file, manifest.draft_tokenizer.file)
        lines.append(str(pair_tokenizers(*((bundle.path / file).read_text(encoding="utf-8") for file in files))))
    draft = manifest.draft
    is_verified = draft is not None and draft.parity is not None and draft.parity.verified
    return [*lines, str(measure_agreement(bundle))] if is_verified else lines


def measure_agreement(bundle: Bundle) -> Agreement:
    """Runs both models over the beginning of the sample; `OptionError` if the bundle has no draft."""
    manifest = bundle.manifest
    if manifest.draft is None:
        raise OptionError(f"{bundle.path} has no draft that could agree with its target")
    tokenizer = Tokenizer(bundle)
    token_ids = sample_ids(tokenizer, manifest.target)[:MAX_WIDTH]
    with ExitStack() as resources:

        def decoder(model: ModelEntry) -> Decoder:
            length = min(2 * len(token_ids) + 1, model.max_positions)  # a draft may cut the text into more tokens
            opened = Decoder(model, bundle.path / model.graph, device=parity_device(model), context_length=length)
            return resources.enter_context(opened)

        target, draft = decoder(manifest.target), decoder(manifest.draft)
        accepted = measured_agreement(target, drafter_of(bundle, tokenizer, draft), token_ids)
        if draft.head_ids is None or manifest.draft_tokenizer is not None:
            return Agreement(accepted)
        return Agreement(accepted, _probability_beside(target, token_ids, draft.head_ids, manifest.vocab_size))


def _probability_beside(
    target: Decoder, token_ids: Sequence[int], ids: NDArray[np.int64], vocab_size: int
) -> float:  # fmt: skip
    """The mean probability of all tokens but `ids`, where `measured_agreement` looks; the cache is empty afterwards."""
    token_ids = token_ids[: target.context_length - 1]
    logits = target.forward(token_ids, len(token_ids))[FIRST_SCORED - 1 : -1 : 2, :vocab_size]
    target.rollback(0)
    inside = softmax(logits)[:, ids[ids < vocab_size]].sum(axis=1)
    return float(np.clip(1 - inside.mean(), 0, 1))
