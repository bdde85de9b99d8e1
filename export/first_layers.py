"""A draft made of the target's own first layers: a second graph over the target's weights, which are stored once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from pilotfish.export.checkpoint import Checkpoint
from pilotfish.export.passes import drop_unused
from pilotfish.export.quantize import Recipe
from pilotfish.export.reference import reference_logits
from pilotfish.export.sizes import GRAPH_BYTES
from pilotfish.export.sources import GRAPH_NAME, BuiltSource, Source, built_entry
from pilotfish.export.tokenizer_files import TokenizerFiles
from pilotfish.export.weights import Progress
from pilotfish.runtime.bundle import ModelEntry, TensorNames
from pilotfish.runtime.errors import OptionError

PREFIX = "layers:"  # of the text that stands for such a draft
HOME = "target"  # ONNX Runtime reads weights from the graph's own folder or below it, and nowhere else


def parse_layers(text: str) -> int | None:
    """N of `layers:N`; None if `text` names a model. `OptionError` if N is no number."""
    if not text.startswith(PREFIX):
        return None
    number = text.removeprefix(PREFIX)
    if not number.isdecimal():
        raise OptionError(f"the draft {text!r} has no number of layers; write {PREFIX}4 for the target's first four")
    return int(number)


def check_layers(num_layers: int, all_layers: int) -> None:
    """`OptionError` unless the first `num_layers` are a part of `all_layers`."""
    if not 1 <= num_layers < all_layers:
        raise OptionError(f"the target has {all_layers} layers; a draft of them has 1 to {all_layers - 1}")


def not_known_apart(name: str, num_layers: int) -> OptionError:
    """The refusal of a target that is traced."""
    return OptionError(
        f"{name} has no builder, so its layers are not known apart; choose another draft than {PREFIX}{num_layers}"
    )


def first_layers(target: Source, num_layers: int) -> FirstLayers:
    """The draft of a target's first layers; `OptionError` if it has fewer, or was traced."""
    if not isinstance(target, BuiltSource):
        raise not_known_apart(target.path.name, num_layers)
    check_layers(num_layers, target.checkpoint.config.num_layers)
    return FirstLayers(target, num_layers)


def made_again(source: Source, model: ModelEntry) -> Source:
    """Of the source of a bundle's model, what the model was made of: the first layers, or all."""
    return first_layers(source, int(model.source["layers"])) if "layers" in model.source else source


@dataclass(frozen=True, slots=True)
class FirstLayers:
    """A `Source` that is written behind its target: the first layers, the last norm and the head, in its recipe."""

    target: BuiltSource
    num_layers: int

    @property
    def path(self) -> Path:
        """The target's."""
        return self.target.path

    @property
    def recipe(self) -> Recipe:
        """The target's."""
        return self.target.recipe

    @property
    def tokenizer(self) -> TokenizerFiles:
        """The target's."""
        return self.target.tokenizer

    @property
    def reference(self) -> str:
        """As in `Source`."""
        return self.target.reference

    @property
    def num_weights(self) -> int:
        """As in `Source`."""
        return replace(self.target, checkpoint=self._checkpoint).num_weights

    @property
    def num_bytes(self) -> int:
        """The graph alone."""
        return GRAPH_BYTES

    def write(self, folder: Path, role: str, progress: Progress) -> tuple[Mapping[str, str], ModelEntry]:
        """As in `Source`: writes a graph beside the target's, which is there already."""
        graph_path = folder / HOME / f"{role}.onnx"
        model = onnx.load(folder / HOME / GRAPH_NAME, load_external_data=False)
        _cut(model.graph, self.target.checkpoint.config.num_layers, self.num_layers)
        graph_path.write_bytes(model.SerializeToString())
        progress(self.num_weights)
        entry = built_entry(self._checkpoint.config, self.recipe, graph_path.relative_to(folder).as_posix())
        return {}, replace(entry, source={"layers": str(self.num_layers)})

    def logits(self, token_ids: Sequence[int], progress: Progress) -> NDArray[np.float32]:
        """As in `Source`."""
        return reference_logits(self._checkpoint, token_ids, progress)

    def close(self) -> None:
        """The target closes its files."""

    @property
    def _checkpoint(self) -> Checkpoint:
        """The target's weights without those of the other layers."""
        whole = self.target.checkpoint
        tensors = {place: tensor for place, tensor in whole.tensors.items() if place[1] < self.num_layers}
        return Checkpoint(whole.path, replace(whole.config, num_layers=self.num_layers), whole.tokenizer, tensors)


def _cut(graph: onnx.GraphProto, num_layers: int, num_kept: int) -> None:
    """Feeds the last norm of a graph of `graph.py` from an earlier layer, and drops the layers behind, in place."""
    for node in graph.node:
        if node.name.startswith("asked."):
            node.input[0] = node.input[0].replace(f"layer{num_layers - 1}.", f"layer{num_kept - 1}.", 1)
    names = TensorNames()
    for values, templates in (
        (graph.input, (names.past_key, names.past_value)),
        (graph.output, (names.present_key, names.present_value)),
    ):
        dropped = {each.format(layer=layer) for each in templates for layer in range(num_kept, num_layers)}
        kept = [value for value in values if value.name not in dropped]
        del values[:]
        values.extend(kept)
    drop_unused(graph)
