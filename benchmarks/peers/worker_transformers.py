"""The worker of transformers; `run.py` starts it and `protocol.py` says what they tell each other.

`paths` has the folders `target` and `draft`. Weights and activations are bfloat16, which the processor multiplies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import torch
import transformers
from protocol import Arrived, Counts, serve

DRAFTING = {"off": {}, "model": {"num_assistant_tokens": 4}, "lookup": {"prompt_lookup_num_tokens": 8}}


class Transformers:
    """A loaded pair of models, which serves every way of drafting."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.versions = {name: version(name) for name in ("transformers", "torch")}
        torch.set_num_threads(request["threads"])
        paths = request["paths"]
        self._target = transformers.AutoModelForCausalLM.from_pretrained(paths["target"], dtype=torch.bfloat16)
        self._assistant = transformers.AutoModelForCausalLM.from_pretrained(paths["draft"], dtype=torch.bfloat16)
        # Else the number of drafted tokens grows and shrinks from answer to answer.
        self._assistant.generation_config.num_assistant_tokens_schedule = "constant"
        self._assistant.generation_config.num_assistant_tokens = DRAFTING["model"]["num_assistant_tokens"]

    def generate(self, request: Mapping[str, Any], arrived: Arrived) -> Counts:
        """See `protocol.Model`."""
        draft = request["draft"]
        options = {"assistant_model": self._assistant} if draft == "model" else DRAFTING[draft]
        stream(self._target, request, arrived, options)
        return (0, 0) if draft == "off" else None

    def logits(self, token_ids: Sequence[int]) -> Any:
        """See `protocol.Model`."""
        with torch.inference_mode():
            return self._target(torch.tensor([token_ids])).logits.float().numpy()


def stream(model: Any, request: Mapping[str, Any], arrived: Arrived, options: Mapping[str, Any]) -> None:
    """Lets anything with the `generate` of transformers answer."""
    prompt_ids = torch.tensor([request["prompt_ids"]])
    with torch.inference_mode():
        model.generate(
            prompt_ids, attention_mask=torch.ones_like(prompt_ids), max_new_tokens=request["max_tokens"],
            do_sample=False, streamer=_Streamer(arrived), **options,
        )  # fmt: skip


class _Streamer:
    """Passes token ids on, but for the prompt, which comes first."""

    def __init__(self, arrived: Arrived) -> None:
        self._arrived, self._has_begun = arrived, False

    def put(self, value: torch.Tensor) -> None:
        """Called with the prompt, and then with what each round brings."""
        if self._has_begun:
            self._arrived(value.flatten().tolist())
        self._has_begun = True

    def end(self) -> None:
        """Called after the last token."""


if __name__ == "__main__":
    serve(Transformers)
