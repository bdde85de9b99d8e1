"""The worker of onnxruntime-genai; `run.py` starts it and `protocol.py` says what they tell each other.

`paths` has the folders `target` and `draft`, as its own model builder writes them. Their settings stay but for the
number of threads and, if it is to draft, the draft's decoder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai
from protocol import Arrived, Counts, serve

CONFIG = "genai_config.json"
DRAFTING = {
    "off": {},
    "model": {"max_draft_tokens": 4},
    "lookup": {"ngram_size": 3, "max_draft_tokens": 6},
}


class Genai:
    """A loaded target, with its draft model if that is to draft."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.versions = {name: version(name) for name in ("onnxruntime-genai", "onnxruntime")}
        self._has_draft, target = request["draft"] == "model", request["paths"]["target"]
        session = {"intra_op_num_threads": request["threads"]}
        values: dict[str, Any] = {"decoder": {"session_options": session}}
        if self._has_draft:
            folder = Path(request["paths"]["draft"])
            draft = json.loads((folder / CONFIG).read_text(encoding="utf-8"))["model"]["decoder"]
            draft["session_options"] |= session
            draft["filename"] = os.path.relpath(folder / draft["filename"], target)
            values["draft"] = draft
        config = onnxruntime_genai.Config(target)
        config.overlay(json.dumps({"model": values}))
        self._model = onnxruntime_genai.Model(config)

    def generate(self, request: Mapping[str, Any], arrived: Arrived) -> Counts:
        """See `protocol.Model`."""
        draft, prompt_ids = request["draft"], request["prompt_ids"]
        if (draft == "model") != self._has_draft:
            raise ValueError(
                f"this model was loaded {'with' if self._has_draft else 'without'} a draft; not for {draft}"
            )
        generator = self._generator(len(prompt_ids) + request["max_tokens"], DRAFTING[draft])
        generator.append_tokens(np.array(prompt_ids, np.int32))
        while not generator.is_done():
            generator.generate_next_token()
            arrived(generator.get_next_tokens())
        if draft == "off":
            return 0, 0
        stats = generator.get_speculative_stats()
        return stats["draft_tokens_evaluated"], stats["draft_tokens_accepted"]

    def logits(self, token_ids: Sequence[int]) -> Any:
        """See `protocol.Model`."""
        generator = self._generator(len(token_ids) + 1, {})
        generator.append_tokens(np.array(token_ids, np.int32))
        return generator.get_output("logits")

    def _generator(self, max_length: int, drafting: Mapping[str, Any]) -> onnxruntime_genai.Generator:
        params = onnxruntime_genai.GeneratorParams(self._model)
        params.set_search_options(max_length=max_length, do_sample=False)
        if drafting:
            params.set_speculative_options(**drafting)
        return onnxruntime_genai.Generator(self._model, params)


if __name__ == "__main__":
    serve(Genai)
