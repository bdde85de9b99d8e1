"""The worker of llama.cpp; `run.py` starts it and `protocol.py` says what they tell each other.

`paths` has `server`, a llama-server of the same release as llama-cpp-python, and the GGUF files `target` and `draft`.
Answers come from the server, which alone knows all ways of drafting; logits from the bindings.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from protocol import Arrived, Counts, end_with_parent, serve

sys.path.append(str(Path(__file__).parents[1]))

START_S = 120
DRAFTING = {
    "off": (),
    "model": ("--spec-type", "draft-simple", "--spec-draft-n-max", "4"),
    # The defaults, 12 tokens that match and 48 that are copied, hardly ever draft in answers as short as these.
    "lookup": ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", "8"),
}


class LlamaServer:
    """A running llama-server with one slot. It ends with this process."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._paths, self._threads = request["paths"], request["threads"]
        self.versions = {"llama-cpp-python": version("llama_cpp_python"), "llama.cpp": self._version()}
        self._draft = request["draft"]
        self._port = _free_port()
        command = self._command(request["context_length"])
        self._server = subprocess.Popen(command, stdout=sys.stderr, preexec_fn=end_with_parent)
        self._wait()

    def generate(self, request: Mapping[str, Any], arrived: Arrived) -> Counts:
        """See `protocol.Model`."""
        if request["draft"] != self._draft:
            raise ValueError(f"this server was started for draft {self._draft}, not {request['draft']}")
        wanted = {
            "prompt": request["prompt_ids"], "n_predict": request["max_tokens"], "temperature": 0.0, "top_k": 1,
            "samplers": ["top_k"], "cache_prompt": False, "stream": True, "return_tokens": True,
        }  # fmt: skip
        last: dict[str, Any] = {}
        for event in self._events("completion", wanted):
            arrived(event.get("tokens", []))
            last = event
        timings = last["timings"]
        return timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)

    def logits(self, token_ids: Sequence[int]) -> Any:
        """See `protocol.Model`."""
        from recipes_llama_cpp import Model

        return Model(Path(self._paths["target"]), self._threads).forward(token_ids)

    def _command(self, context_length: int) -> list[str]:
        threads = str(self._threads)
        command = [
            self._paths["server"], "--model", self._paths["target"], "--host", "127.0.0.1", "--port", str(self._port),
            "--threads", threads, "--threads-batch", threads, "--ctx-size", str(context_length), "--parallel", "1",
            "--flash-attn", "on", "--no-warmup", "--cache-ram", "0", *DRAFTING[self._draft],
        ]  # fmt: skip
        if self._draft == "model":
            command += ["--spec-draft-model", self._paths["draft"], "--spec-draft-threads", threads]
        return command

    def _version(self) -> str:
        done = subprocess.run([self._paths["server"], "--version"], check=True, capture_output=True, text=True)
        lines = (done.stdout + done.stderr).splitlines()
        return next(line.removeprefix("version: ") for line in lines if line.startswith("version: "))

    def _wait(self) -> None:
        ends = time.monotonic() + START_S
        while time.monotonic() < ends and self._server.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/health"):
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        raise RuntimeError(f"llama-server did not start within {START_S} s, exit status {self._server.poll()}")

    def _events(self, path: str, body: Mapping[str, Any]) -> Any:
        url = f"http://127.0.0.1:{self._port}/{path}"
        headers = {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as response:
            for line in response:
                if line.startswith(b"data: {"):
                    yield json.loads(line.removeprefix(b"data: "))


def _free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    serve(LlamaServer)
