"""SmolLM2-135M for real: PyTorch's logits, and the same greedy text with and without speculation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pilotfish.export.bundle_writer import write_bundle
from pilotfish.export.checkpoint import open_checkpoint
from pilotfish.export.quantize import parse_recipe
from pilotfish.export.sources import BuiltSource
from pilotfish.runtime import Engine, GenerationOptions, load
from pilotfish.runtime.bench.prompts import shipped_prompts
from support.references import exported_logits, pytorch_logits

pytestmark = pytest.mark.real_model

PROMPTS = [prompt.text for prompt in shipped_prompts() if prompt.length == "short"]


@pytest.fixture(scope="module")
def engine(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """The target in 8 bits, and a draft of the same weights in 4 bits that agrees only some of the time."""
    output = tmp_path_factory.mktemp("smollm2") / "bundle"
    with open_checkpoint(smollm2) as checkpoint:
        write_bundle(
            BuiltSource(checkpoint, parse_recipe("int8")), BuiltSource(checkpoint, parse_recipe("int4-b16")), output
        )
    with load(output) as loaded:
        yield loaded


def test_logits_equal_pytorch(smollm2: Path, tmp_path: Path):
    with open_checkpoint(smollm2) as checkpoint:
        ids = np.random.default_rng(0).integers(0, checkpoint.config.vocab_size, 64).tolist()
        expected = pytorch_logits(checkpoint, ids)
        np.testing.assert_allclose(exported_logits(checkpoint, ids, tmp_path), expected, atol=1e-3)


@pytest.mark.parametrize("number", range(8))
def test_greedy_text_is_the_same_with_and_without_speculation(engine: Engine, number: int):
    def tokens(**options: object) -> list[int]:
        engine.reset()
        chunks = engine.generate(
            [{"role": "user", "content": PROMPTS[number]}], GenerationOptions(max_tokens=64, **options)
        )
        return [token_id for chunk in chunks for token_id in chunk.token_ids]

    expected = tokens(draft="off")
    assert len(expected) > 20
    for draft, num_draft_tokens in (("lookup", 4), ("model", 1), ("model", 3), ("model", 6)):
        assert tokens(draft=draft, num_draft_tokens=num_draft_tokens) == expected, (draft, num_draft_tokens)
        assert draft == "lookup" or engine.stats.num_accepted > 0


def test_a_reply_makes_sense(engine: Engine):
    chunks = engine.generate([{"role": "user", "content": "Where is Paris?"}], GenerationOptions(max_tokens=12))
    assert "Paris is a city" in "".join(chunk.text for chunk in chunks)
