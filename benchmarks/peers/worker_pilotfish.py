"""The worker of pilotfish itself; `run.py` starts it and `protocol.py` says what they tell each other.

`paths` has `bundle`. The engine is loaded as `pilotfish` does it by default, in exact mode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from protocol import Arrived, Counts, serve

from pilotfish import runtime as pilotfish
from pilotfish.export.parity import logits_of
from pilotfish.runtime import GenerationOptions
from pilotfish.runtime.decoder import Decoder


class Pilotfish:
    """A loaded bundle."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.versions = {name: version(name) for name in ("pilotfish", "onnxruntime")}
        self._engine = pilotfish.load(
            request["paths"]["bundle"], context_length=request["context_length"], num_threads=request["threads"]
        )
        self._threads = request["threads"]

    def generate(self, request: Mapping[str, Any], arrived: Arrived) -> Counts:
        """See `protocol.Model`."""
        engine, messages = self._engine, [{"role": "user", "content": request["text"]}]
        if engine.tokenizer.encode_chat(messages) != request["prompt_ids"]:
            raise ValueError("the bundle's chat template gives other token ids than those that the peers get")
        engine.reset()
        for chunk in engine.generate(messages, GenerationOptions(request["max_tokens"], draft=request["draft"])):
            arrived(chunk.token_ids)
        return engine.stats.num_drafted, engine.stats.num_accepted

    def logits(self, token_ids: Sequence[int]) -> Any:
        """See `protocol.Model`."""
        bundle = self._engine.bundle
        target = bundle.manifest.target
        with Decoder(
            target, bundle.path / target.graph, device="cpu", context_length=len(token_ids), num_threads=self._threads
        ) as decoder:
            return logits_of(decoder, token_ids)


if __name__ == "__main__":
    serve(Pilotfish)
