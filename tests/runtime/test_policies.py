"""Whatever a policy does, the output is the target's own and the caches hold what was committed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotfish import runtime as pilotfish
from pilotfish.runtime import GenerationOptions, SamplingParams
from pilotfish.runtime.controller import Plan
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.rounds import Round
from pilotfish.runtime.tokenizer import REPLACEMENT, Tokenizer
from pilotfish.runtime.vocabulary import Vocabulary
from support.tiny_models import renumbered_bundle

PROMPTS = ("the pilot fish swims ahead", "1 2 3 1 2 3 1 2", "鮫の前を泳ぐ", "the pilot fish swims", "🦈")
SAMPLINGS = (
    SamplingParams(),
    SamplingParams(repetition_penalty=1.3, no_repeat_ngram=3),
    SamplingParams(temperature=0.8, top_p=0.95, seed=4),
    SamplingParams(temperature=8.0, top_k=40, seed=11),
    SamplingParams(temperature=30.0, min_p=0.01, frequency_penalty=0.5, seed=2),
)


class Texts:
    """The texts of token ids, without bytes that are no characters, which a draft with ids of its own cannot read."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._vocabulary = Vocabulary.of(tokenizer)

    def text(self, token_ids: Sequence[int]) -> str:
        data = b"".join(map(self._vocabulary.bytes_of, token_ids))
        return data.decode(errors="replace").replace(REPLACEMENT, "")


class Shadow:
    """The tokens that a decoder was fed and has not rolled back, kept beside its cache.

    `vocabulary` is there if they are of a vocabulary of its own.
    """

    def __init__(self, decoder: Decoder, vocabulary: Texts | None) -> None:
        self.vocabulary = vocabulary
        self._forward, self._decoder = decoder.forward, decoder
        self._token_ids: list[int] = []
        decoder.forward = self.forward

    def forward(self, token_ids: Sequence[int], *wanted: int):
        self._token_ids = [*self.token_ids, *token_ids]
        return self._forward(token_ids, *wanted)

    @property
    def token_ids(self) -> list[int]:
        return self._token_ids[: self._decoder.length]


class Capricious:
    """Another drafter, another number of tokens and another moment to stop each round, at random."""

    speculation = "on: at random"
    target_only_s = None

    def __init__(self, engine: Engine, shadows: Sequence[Shadow]) -> None:
        self.played: Counter[str] = Counter()
        self.reseed(0)
        self._context = engine._context
        self._shadows = shadows
        self._target = Texts(engine.tokenizer)

    def reseed(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def begin(self, num_prompt_tokens: int, max_length: int) -> None:
        """Nothing to prepare."""

    def plan(self, committed: Sequence[int], most: int) -> Plan:
        self.assert_invariant()
        name = self._rng.choice(["off", *self._context.drafters])
        stops_at = self._rng.randint(0, 2 * most)
        never_or_early: Callable[[Sequence[float]], bool] = lambda confidences: len(confidences) > stops_at  # noqa: E731
        return Plan(name, self._context.drafters.get(name), self._rng.randint(0, most), never_or_early)

    def observe(self, plan: Plan, round_: Round, target_s: float, draft_s: float, host_s: float) -> None:
        assert round_.num_drafted <= plan.num_draft_tokens
        self.played[round_.drafted_by] += 1
        self.assert_invariant()

    def assert_invariant(self) -> None:
        committed = self._context.committed
        for shadow in self._shadows:
            if shadow.vocabulary is None:
                assert len(shadow.token_ids) <= len(committed) - 1
                assert shadow.token_ids == committed[: len(shadow.token_ids)]
            else:
                assert self._target.text(committed[:-1]).startswith(shadow.vocabulary.text(shadow.token_ids))


@pytest.fixture(scope="module", params=["the target's ids", "a tokenizer of its own"])
def path(request: pytest.FixtureRequest, bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles whose drafts have these."""
    if request.param == "the target's ids":
        return bundle_path
    return renumbered_bundle(tmp_path_factory.mktemp("renumbered"), draft_noise=0.1)


@pytest.fixture(scope="module")
def plain_engine(path: Path) -> Iterator[Engine]:
    with pilotfish.load(path, context_length=128) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def capricious_engine(path: Path) -> Iterator[Engine]:
    """An engine that takes a `Capricious` for its controller, and keeps its caches from one example to the next."""
    with pilotfish.load(path, context_length=128, remembers=True) as loaded:
        own = loaded.bundle.manifest.draft_tokenizer
        vocabularies = {"draft": Texts(Tokenizer(loaded.bundle, own))} if own else {}
        decoders = loaded._context.decoders
        shadows = [Shadow(decoder, vocabularies.get(role)) for role, decoder in decoders.items()]
        loaded._controller = Capricious(loaded, shadows)
        yield loaded


def generated(engine: Engine, prompt: str, **options: object) -> tuple[list[int], str, str | None]:
    chunks = list(engine.generate(prompt, GenerationOptions(**options)))
    token_ids = [token_id for chunk in chunks for token_id in chunk.token_ids]
    return token_ids, "".join(chunk.text for chunk in chunks), chunks[-1].finish_reason


@settings(max_examples=120)
@given(
    seed=st.integers(0, 2**32),
    prompt=st.sampled_from(PROMPTS),
    sampling=st.sampled_from(SAMPLINGS),
    max_tokens=st.sampled_from([1, 2, 3, 9, 40, None]),
)
def test_a_capricious_policy_changes_no_token(
    plain_engine: Engine, capricious_engine: Engine, seed: int, prompt: str, sampling: SamplingParams,
    max_tokens: int | None,
):  # fmt: skip
    plain_engine.reset()
    expected = generated(plain_engine, prompt, draft="off", sampling=sampling, max_tokens=max_tokens)
    capricious_engine._controller.reseed(seed)
    assert generated(capricious_engine, prompt, sampling=sampling, max_tokens=max_tokens) == expected
    capricious_engine._controller.assert_invariant()


@pytest.mark.parametrize("rule", ["token", "block"])
def test_greedy_output_is_the_targets_under_every_rule(plain_engine: Engine, capricious_engine: Engine, rule: str):
    sampling = SamplingParams(acceptance=rule)
    for seed, prompt in enumerate(PROMPTS * 3):
        plain_engine.reset()
        expected = generated(plain_engine, prompt, draft="off", max_tokens=60)
        capricious_engine._controller.reseed(seed)
        assert generated(capricious_engine, prompt, sampling=sampling, max_tokens=60) == expected


def test_a_consumer_that_leaves_a_capricious_policy_does_no_harm(plain_engine: Engine, capricious_engine: Engine):
    for seed in range(12):
        capricious_engine._controller.reseed(seed)
        stream = capricious_engine.generate(PROMPTS[seed % 5], GenerationOptions(max_tokens=40))
        for _ in range(1 + seed % 4):
            next(stream)
        stream.close()
        capricious_engine._controller.assert_invariant()
        plain_engine.reset()
        expected = generated(plain_engine, PROMPTS[1], draft="off", max_tokens=20)
        assert generated(capricious_engine, PROMPTS[1], max_tokens=20) == expected


def test_the_policy_was_asked_and_had_its_way(capricious_engine: Engine):
    """Otherwise the tests above say nothing: each drafter must have drafted, and some of it must have stood."""
    policy = capricious_engine._controller
    policy.played.clear()
    num_accepted, num_drafted = Counter[str](), 0
    for seed, prompt in enumerate(PROMPTS * 4):
        policy.reseed(seed)
        generated(capricious_engine, prompt, max_tokens=60)
        for name, stats in capricious_engine.stats.drafters.items():
            num_accepted[name] += stats.num_accepted
        num_drafted += capricious_engine.stats.num_drafted
    assert sum(num_accepted.values()) < num_drafted
    assert min(policy.played[name] for name in ("", "model", "suffix", "lookup")) > 10
    assert min(num_accepted[name] for name in ("model", "suffix", "lookup")) > 10
