"""What draft an export is asked for: another model, or one that is made of the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pilotfish.export.first_layers import check_layers, first_layers, parse_layers
from pilotfish.export.outline import find_outline
from pilotfish.export.quantize import Recipe
from pilotfish.export.sizes import ModelSize
from pilotfish.export.sources import Source
from pilotfish.runtime.errors import OptionError


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """The draft of an export: the model that `text` names or, if `num_layers` is there, the target's first layers."""

    text: str
    num_layers: int | None = None

    def source(self, target: Source, opened: Callable[[str], Source]) -> Source:
        """The draft of `target`; `opened` opens the model that a text names."""
        return opened(self.text) if self.num_layers is None else first_layers(target, self.num_layers)

    def size(self, target: ModelSize, recipe: Recipe, downloads: Path) -> ModelSize:
        """What it would take; a model of its own is stored by `recipe`, and looked for among the `downloads`, too."""
        if self.num_layers is None:
            return ModelSize(find_outline(self.text, downloads), recipe)
        check_layers(self.num_layers, target.outline.config.num_layers)
        return ModelSize(target.outline, target.recipe, self.num_layers)


def planned_draft(text: str | None, quant: str | None) -> DraftPlan | None:
    """The plan for what `--draft` and `--draft-quant` were given; `OptionError` if they do not go together."""
    if text is None:
        return None
    num_layers = parse_layers(text)
    if num_layers is not None and quant is not None:
        raise OptionError(f"a draft of {text} reads the target's weights as they are stored; leave --draft-quant out")
    return DraftPlan(text, num_layers)
