"""The worker of OpenVINO GenAI; `run.py` starts it and `protocol.py` says what they tell each other.

`paths` has the folders `target` and `draft`. Caches, precision and attention are the CPU plugin's defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai
from protocol import Arrived, Counts, serve

DRAFTING = {
    "off": {},
    "model": {"num_assistant_tokens": 4},
    "lookup": {"num_assistant_tokens": 5, "max_ngram_size": 3},
}


class OpenVino:
    """A pipeline for one way of drafting."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.versions = {name: version(name) for name in ("openvino", "openvino-genai")}
        self._paths, self._draft = request["paths"], request["draft"]
        self._options = {"INFERENCE_NUM_THREADS": request["threads"]}
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.enable_prefix_caching = False  # every answer is from cold caches
        scheduler.cache_size = 1  # GB
        scheduler.max_num_batched_tokens = request["context_length"]
        options = self._options | {"scheduler_config": scheduler}
        if self._draft == "model":
            options["draft_model"] = openvino_genai.draft_model(self._paths["draft"], "CPU", **self._options)
        if self._draft == "lookup":
            options["prompt_lookup"] = True
        self._pipeline = openvino_genai.LLMPipeline(self._paths["target"], "CPU", **options)

    def generate(self, request: Mapping[str, Any], arrived: Arrived) -> Counts:
        """See `protocol.Model`."""
        if request["draft"] != self._draft:
            raise ValueError(f"this pipeline was loaded for draft {self._draft}, not {request['draft']}")
        config = self._pipeline.get_generation_config()
        config.do_sample, config.max_new_tokens = False, request["max_tokens"]
        for name, value in DRAFTING[self._draft].items():
            setattr(config, name, value)
        ids = openvino.Tensor(np.array([request["prompt_ids"]], np.int64))
        inputs = openvino_genai.TokenizedInputs(ids, openvino.Tensor(np.ones(ids.shape, np.int64)))
        result = self._pipeline.generate(inputs, config, _Streamer(arrived))
        if self._draft == "off":
            return 0, 0
        metrics = result.extended_perf_metrics
        if metrics is None:  # prompt lookup counts nothing
            return None
        return metrics.get_num_draft_tokens(), metrics.get_num_accepted_tokens()

    def logits(self, token_ids: Sequence[int]) -> Any:
        """See `protocol.Model`."""
        path = Path(self._paths["target"]) / "openvino_model.xml"
        request = openvino.Core().compile_model(path, "CPU", self._options).create_infer_request()
        positions = np.arange(len(token_ids), dtype=np.int64)[None]
        values = {
            "input_ids": np.array([token_ids], np.int64),
            "attention_mask": np.ones_like(positions),
            "position_ids": positions,
            "beam_idx": np.zeros(1, np.int32),
        }
        names = {name for inputs in request.model_inputs for name in inputs.names}
        request.infer({name: value for name, value in values.items() if name in names})
        return request.get_tensor("logits").data


class _Streamer(openvino_genai.StreamerBase):
    """Passes token ids on."""

    def __init__(self, arrived: Arrived) -> None:
        super().__init__()
        self._arrived = arrived

    def write(self, token: int | Sequence[int]) -> openvino_genai.StreamingStatus:
        """Called with one new token, or with all of a round."""
        self._arrived([token] if isinstance(token, int) else token)
        return openvino_genai.StreamingStatus.RUNNING

    def end(self) -> None:
        """Called after the last token."""


if __name__ == "__main__":
    serve(OpenVino)
