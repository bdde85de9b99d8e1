"""The worker of optimum's ORTModelForCausalLM; `run.py` starts it and `protocol.py` says what they tell each other.

`paths` has the folder `target`. There is no way to draft: optimum's cache is not one that transformers can shorten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import onnxruntime
import torch
from optimum.onnxruntime import ORTModelForCausalLM
from protocol import Arrived, Counts, serve
from worker_transformers import stream


class Optimum:
    """A loaded graph."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.versions = {name: version(name) for name in ("optimum-onnx", "transformers", "onnxruntime")}
        torch.set_num_threads(request["threads"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = request["threads"]
        self._model = ORTModelForCausalLM.from_pretrained(
            request["paths"]["target"], session_options=options, use_io_binding=True
        )

    def generate(self, request: Mapping[str, Any], arrived: Arrived) -> Counts:
        """See `protocol.Model`."""
        if request["draft"] != "off":
            raise ValueError(f"optimum does not draft, and {request['draft']} was asked for")
        stream(self._model, request, arrived, {})
        return 0, 0

    def logits(self, token_ids: Sequence[int]) -> Any:
        """See `protocol.Model`."""
        ids = torch.tensor([token_ids])
        return self._model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.numpy()


if __name__ == "__main__":
    serve(Optimum)
