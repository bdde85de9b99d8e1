"""What draft an export is asked for: another model, or one that is made of the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pilotfish.export.first_layers import check_layers, first_layers, not_known_apart, parse_layers
from pilotfish.export.frequency import check_num_ids, frequent_ids, read_texts
from pilotfish.export.outline import TracedOutline, find_outline
from pilotfish.export.quantize import Recipe
from pilotfish.export.sizes import ModelSize
from pilotfish.export.sources import Source
from pilotfish.export.trimmed import Trimmed
from pilotfish.runtime.errors import OptionError


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """The draft of an export: the model that `text` names or, if `num_layers` is there, the target's first layers.

    `num_head_ids` is how many tokens its head is trimmed to, by how frequent they are in the files `frequency_texts`;
    None keeps the head whole.
    """

    text: str
    num_layers: int | None = None
    num_head_ids: int | None = None
    frequency_texts: tuple[Path, ...] = ()

    def source(self, target: Source, opened: Callable[[str], Source]) -> Source:
        """The draft of `target`; `opened` opens the model that a text names. `OptionError` if it cannot be made."""
        texts = read_texts(self.frequency_texts)
        whole = opened(self.text) if self.num_layers is None else first_layers(target, self.num_layers)
        if self.num_head_ids is None:
            return whole
        return Trimmed(whole, frequent_ids(whole.tokenizer, self.num_head_ids, texts))

    def size(self, target: ModelSize, recipe: Recipe, downloads: Path) -> ModelSize:
        """What it would take; a model of its own is stored by `recipe`, and looked for among the `downloads`, too."""
        outline = target.outline if self.num_layers is not None else find_outline(self.text, downloads)
        if self.num_head_ids is not None:
            check_num_ids(outline.tokenizer, self.num_head_ids)
        if self.num_layers is None:
            return ModelSize(outline, recipe, num_head_ids=self.num_head_ids)
        if isinstance(target.outline, TracedOutline):
            raise not_known_apart(target.outline.name, self.num_layers)
        check_layers(self.num_layers, target.outline.config.num_layers)
        return ModelSize(target.outline, target.recipe, self.num_layers, self.num_head_ids)


def planned_drafts(
    texts: Sequence[str], quant: str | None, num_head_ids: int | None = None, frequency_texts: Sequence[Path] = ()
) -> tuple[DraftPlan, ...]:
    """A plan for each text that `--draft` was given; `OptionError` if the options of drafts do not go with them."""
    if not texts and num_head_ids is not None:
        raise OptionError("there is no draft whose vocabulary could be trimmed; add --draft")
    if texts and frequency_texts and num_head_ids is None:
        raise OptionError("a frequency text says which tokens a trimmed head keeps; add --draft-vocabulary")
    return tuple(_planned(text, quant, num_head_ids, frequency_texts) for text in texts)


def _planned(text: str, quant: str | None, num_head_ids: int | None, frequency_texts: Sequence[Path]) -> DraftPlan:
    num_layers = parse_layers(text)
    if num_layers is not None and quant is not None:
        raise OptionError(f"a draft of {text} reads the target's weights as they are stored; leave --draft-quant out")
    return DraftPlan(text, num_layers, num_head_ids, tuple(frequency_texts))
