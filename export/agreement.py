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
from pilotfish.runtime.drafters.levels import Drafts
from pilotfish.runtime.drafters.model import DraftView
from pilotfish.runtime.errors import OptionError
from pilotfish.runtime.filters import softmax
from pilotfish.runtime.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Agreement:
    """`accepted` is the part of a draft's tokens that the model before it accepts, as `measured_agreement` says.

    `draft` and `verifier` are their roles; a draft of the target is meant unless they say otherwise. `most_lost` is the
    probability that the verifier gives to tokens which a trimmed head lacks, None if it is whole. A token brings
    Σ min(draft, verifier); trimming raises the draft's probability of those that stay, so it costs at most what the
    verifier gives to those that go.
    """

    accepted: float
    most_lost: float | None = None
    draft: str = "draft"
    verifier: str = "target"

    def __str__(self) -> str:
        text = f"{self.draft} agreement with the {self.verifier} on the sample: {self.accepted:.3f}"
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
    if any(draft.parity is None or not draft.parity.verified for draft in manifest.drafts):
        return lines
    return [*lines, *(str(measure_agreement(bundle, level)) for level in range(len(manifest.drafts)))]


def measure_agreement(bundle: Bundle, level: int = 0) -> Agreement:
    """Runs a draft, and the model that it drafts for, over the beginning of the sample.

    `level` 0 is the draft of the target, 1 the draft of that draft, and so on; `OptionError` if there is none.
    """
    manifest = bundle.manifest
    if level >= len(manifest.drafts):
        raise OptionError(f"{bundle.path} has no draft that could agree with its target")
    (verifier_role, verifier), (draft_role, _) = list(manifest.models.items())[level : level + 2]
    with ExitStack() as resources:

        def decoder(model: ModelEntry) -> Decoder:
            length = min(2 * MAX_WIDTH + 1, model.max_positions)  # a draft may cut the text into more tokens
            opened = Decoder(model, bundle.path / model.graph, device=parity_device(model), context_length=length)
            return resources.enter_context(opened)

        target, *drafts = (decoder(model) for model in manifest.models.values())
        measured = Drafts(bundle, Tokenizer(bundle), drafts).levels(target)[level]
        token_ids = sample_ids(measured.tokenizer, verifier)[:MAX_WIDTH]
        accepted = measured_agreement(measured.verifier, measured.drafter, token_ids)
        head_ids, most_lost = measured.decoder.head_ids, None
        if head_ids is not None and (level or manifest.draft_tokenizer is None):
            most_lost = _probability_beside(measured.verifier, token_ids, head_ids, manifest.vocab_size)
        return Agreement(accepted, most_lost, draft=draft_role, verifier=verifier_role)


def _probability_beside(
    target: Decoder | DraftView, token_ids: Sequence[int], ids: NDArray[np.int64], vocab_size: int
) -> float:  # fmt: skip
    """The mean probability of all tokens but `ids`, where `measured_agreement` looks; the cache is empty afterwards."""
    token_ids = token_ids[: target.context_length - 1]
    logits = target.forward(token_ids, len(token_ids))[FIRST_SCORED - 1 : -1 : 2, :vocab_size]
    target.rollback(0)
    inside = softmax(logits)[:, ids[ids < vocab_size]].sum(axis=1)
    return float(np.clip(1 - inside.mean(), 0, 1))
