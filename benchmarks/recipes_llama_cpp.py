"""The half of `recipes.py` that llama.cpp runs, in an environment of its own; `recipes.py --llama-cpp PYTHON` calls it.

Usage: python benchmarks/recipes_llama_cpp.py version
       python benchmarks/recipes_llama_cpp.py quantize SOURCE.gguf TYPE OUTPUT.gguf
       python benchmarks/recipes_llama_cpp.py logits MODEL.gguf IDS.npy OUTPUT.npy [--threads 2]
       python benchmarks/recipes_llama_cpp.py times MODEL.gguf IDS.npy [--threads 2]

The environment is made once, from `benchmarks/peers/llama_cpp.txt`, whose first lines say how. Results go to the file
`OUTPUT` or, as JSON, to standard output. Caches, attention and weights' layouts are llama.cpp's defaults.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray
from pass_times import pass_times

CONTEXT_LENGTH = 512


class Model:
    """A loaded GGUF and its cache. It is never freed: the process ends with its one task."""

    def __init__(self, path: Path, num_threads: int) -> None:
        """Raises `RuntimeError` if llama.cpp cannot load `path`."""
        model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        if not model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = CONTEXT_LENGTH
        params.n_threads = params.n_threads_batch = num_threads
        self._context = llama_cpp.llama_init_from_model(model, params)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(CONTEXT_LENGTH, 0, 1)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self._length = 0

    def forward(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """Appends N tokens; the logits after each, float32 (N, V), are a view that the next call overwrites."""
        batch = self._batch
        batch.n_tokens = len(token_ids)
        for row, token_id in enumerate(token_ids):
            batch.token[row], batch.pos[row], batch.logits[row] = token_id, self._length + row, 1
            batch.n_seq_id[row], batch.seq_id[row][0] = 1, 0
        if code := llama_cpp.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode returned {code}")
        self._length += len(token_ids)
        logits = llama_cpp.llama_get_logits(self._context)  # waits for the result
        return np.ctypeslib.as_array(logits, (len(token_ids), self._vocab_size))

    def rollback(self, length: int) -> None:
        """Makes the cache hold exactly its first `length` tokens."""
        llama_cpp.llama_memory_seq_rm(self._memory, 0, length, -1)
        self._length = length


def quantize(source: Path, type_name: str, output: Path) -> None:
    """Writes `source` again with its weights, already quantized or not, as `type_name`, such as `Q4_K_M`."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{type_name}")
    params.allow_requantize = True
    if code := llama_cpp.llama_model_quantize(str(source).encode(), str(output).encode(), params):
        raise RuntimeError(f"llama_model_quantize returned {code}")


def main() -> None:
    """Does one task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = parser.add_subparsers(dest="task", required=True)
    tasks.add_parser("version")
    quantizing, logits, times = (tasks.add_parser(task) for task in ("quantize", "logits", "times"))
    quantizing.add_argument("source", type=Path)
    quantizing.add_argument("type_name")
    quantizing.add_argument("output", type=Path)
    for running in (logits, times):
        running.add_argument("model", type=Path)
        running.add_argument("ids", type=Path)
        running.add_argument("--threads", type=int, default=2)
    logits.add_argument("output", type=Path)
    arguments = parser.parse_args()
    llama_cpp.llama_backend_init()
    if arguments.task == "version":
        print(json.dumps(f"llama-cpp-python {llama_cpp.__version__}"))
    elif arguments.task == "quantize":
        quantize(arguments.source, arguments.type_name, arguments.output)
    else:
        model, token_ids = Model(arguments.model, arguments.threads), np.load(arguments.ids).tolist()
        if arguments.task == "logits":
            np.save(arguments.output, model.forward(token_ids))
        else:
            print(json.dumps(pass_times(model.forward, model.rollback, token_ids)))


if __name__ == "__main__":
    main()
