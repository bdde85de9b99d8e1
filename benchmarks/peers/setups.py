"""The peers, with which weights each runs, and how it may draft: the rows of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.errors import OptionError

OURS = "pilotfish"
OFF, AUTO = "off", "auto"


@dataclass(frozen=True, slots=True)
class Peer:
    """A program with its weights.

    `environment` is the folder of its virtual environment, and the name of its requirements file; empty for the one
    that runs the driver. `loads` has the ways of drafting, grouped by what one process serves; the first is the
    target alone. `paths` are what its worker is told. `how` says in the report how it was set up.
    """

    name: str
    environment: str
    worker: str
    weights: str
    paths: Mapping[str, str]
    loads: tuple[tuple[str, ...], ...]
    how: str


@dataclass(frozen=True, slots=True)
class Setup:
    """A peer and a way of drafting."""

    peer: Peer
    draft: str

    @property
    def name(self) -> str:
        """How the report names it."""
        return f"{self.peer.name} {self.draft}"

    @property
    def load(self) -> tuple[str, str]:
        """Equal for setups that one process serves: the peer's name, and the draft that the process is started for."""
        return self.peer.name, next(drafts[0] for drafts in self.peer.loads if self.draft in drafts)


def peers_of(bundles: Sequence[Path], ggufs: Mapping[str, Path], models: Path, environments: Path) -> list[Peer]:
    """Pilotfish with each bundle, and all others. `ggufs` has `target` and `draft`, `models` what was made of them.

    `OptionError` if two bundles have a target of the same recipe, which names them.
    """
    ours = [_pilotfish(path) for path in bundles]
    if len({peer.name for peer in ours}) < len(ours):
        raise OptionError(f"two bundles are called the same among {', '.join(peer.name for peer in ours)}")
    server = str(environments / "llama_cpp" / "bin" / "llama-server")
    each = (("off",), ("model",), ("lookup",))
    return [
        *ours,
        Peer(
            "llama.cpp-Q4_K_M", "llama_cpp", "llama_cpp", "Q4_K_M, the GGUF file itself; draft the same",
            {"server": server, **{role: str(path) for role, path in ggufs.items()}}, each,
            "llama-server with native instructions, flash attention, caches of 16 bits; model: draft-simple, 4 tokens; "
            "lookup: ngram-simple, 3 tokens that match, 8 that are copied",
        ),
        Peer(
            "llama.cpp-Q8_0", "llama_cpp", "llama_cpp", "Q8_0, rounded once more by llama.cpp",
            {"server": server, "target": str(models / "q8_0-target.gguf"), "draft": str(ggufs["draft"])}, (("off",),),
            "the same",
        ),
        Peer(
            "OpenVINO-int8", "openvino", "openvino", "int8 by row (nncf); draft int4 in groups of 128",
            _folders(models, "openvino-int8-target", "openvino-int4-draft"), each,
            "LLMPipeline of OpenVINO GenAI, the plugin's own precision and attention; model: 4 tokens; lookup: 5 "
            "tokens after at most 3 that match",
        ),
        Peer(
            "OpenVINO-int4", "openvino", "openvino", "int4, symmetric, groups of 128 (nncf); draft the same",
            _folders(models, "openvino-int4-target", "openvino-int4-draft"), (("off",),), "the same",
        ),
        Peer(
            "genai-int8", "genai", "genai", "int8 in blocks of 32, MatMulNBits; draft int4 in blocks of 128",
            _folders(models, "genai-int8-target", "genai-int4-draft"), (("off", "lookup"), ("model",)),
            "onnxruntime-genai, graphs of its own model builder with accuracy level 4; model: 4 tokens; lookup: 6 "
            "tokens after 2 that match",
        ),
        Peer(
            "transformers-bf16", "transformers", "transformers", "bfloat16, of the dequantized GGUF files",
            _folders(models, "hf-target", "hf-draft"), (("off", "model", "lookup"),),
            "generate() with sdpa attention; model: assistant_model, 4 tokens; lookup: prompt_lookup_num_tokens 8",
        ),
        Peer(
            "optimum-int8", "optimum", "optimum", "int8 in blocks of 32, MatMulNBits",
            {"target": str(models / "optimum-int8-target")}, (("off",),),
            "ORTModelForCausalLM with IO binding, quantized by ONNX Runtime's tool with accuracy level 4; no assisted "
            "generation, as transformers cannot shorten its cache",
        ),
    ]  # fmt: skip


def chosen(peers: Sequence[Peer], only: Sequence[str]) -> list[Setup]:
    """The setups whose names begin with one of `only`, all if there are none; `OptionError` for one without any."""
    setups = [Setup(peer, draft) for peer in peers for drafts in peer.loads for draft in drafts]
    for name in only:
        if not any(setup.name.startswith(name) for setup in setups):
            known = ", ".join(setup.name for setup in setups)
            raise OptionError(f"no setup's name begins with {name!r}; there are {known}")
    return [setup for setup in setups if not only or setup.name.startswith(tuple(only))]


def _pilotfish(path: Path) -> Peer:
    manifest = load_bundle(path).manifest
    drafts = ("off", "auto")
    weights = manifest.target.recipe + (f"; draft {manifest.draft.recipe}" if manifest.draft else "; no draft model")
    how = "as it is by default, in exact mode; auto: the controller chooses who drafts how much"
    return Peer(
        f"{OURS}-{manifest.target.recipe}", "", "pilotfish", weights, {"bundle": str(path.resolve())}, (drafts,), how
    )


def _folders(models: Path, target: str, draft: str) -> dict[str, str]:
    return {"target": str(models / target), "draft": str(models / draft)}
