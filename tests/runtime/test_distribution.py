"""What is generated follows the target's own joint distribution, by every rule and whoever drafts.

Real rounds with the rows of real graphs. They can produce `V` ids only, so that the joint of the first tokens has few
cells. How far the shares of so many runs may lie from it is derived in `support.measure`.

Axis letters: `V` vocabulary.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pytest

from pilotfish.runtime.acceptance import RULES
from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.decoder import Decoder
from pilotfish.runtime.drafters.lookup import LookupDrafter
from pilotfish.runtime.drafters.model import ModelDrafter
from pilotfish.runtime.drafters.proposal import Drafter
from pilotfish.runtime.drafters.translated import TranslatedDrafter
from pilotfish.runtime.rounds import Limits, Round, play_round
from pilotfish.runtime.sampling import Sampler, SamplingParams
from pilotfish.runtime.vocabulary import Vocabulary
from support.measure import excess
from support.paper_rules import Table, block_table, everything_table, rule_of, token_table, unweighted, whole_target
from support.tiny_models import tiny_bundle
from support.vocabularies import characters

NUM_RUNS = 20_000
VOCAB_SIZE = 5
PROMPT = (2, 0, 1, 2, 4, 3, 2, 0)  # lookup finds what followed its last two tokens
CONTEXT_LENGTH = 32
HEAD_IDS = (1, 2, 4, *range(5, 100))  # of the trimmed draft, which misses two of the `V` ids
SAMPLINGS = {
    "temperature": {"temperature": 8.0},
    "filters": {"temperature": 10.0, "top_k": 4, "top_p": 0.9},
    "penalties": {
        "temperature": 8.0, "min_p": 0.05, "repetition_penalty": 1.2, "presence_penalty": 2.0,
        "frequency_penalty": 1.0, "logit_bias": {0: 3.0, 3: -3.0}, "no_repeat_ngram": 2,
    },
}  # fmt: skip


class RememberedDecoder:
    """Stands for a decoder and gives the rows of the real one, which runs once for each prefix."""

    def __init__(self, decoder: Decoder) -> None:
        self.vocab_size, self.context_length = decoder.vocab_size, decoder.context_length
        self.head_ids = decoder.head_ids
        self._decoder = decoder
        self._token_ids: list[int] = []
        self._rows: dict[tuple[int, ...], np.ndarray] = {}
        self._logits: dict[tuple[tuple[int, ...], int], np.ndarray] = {}

    @property
    def length(self) -> int:
        return len(self._token_ids)

    def rollback(self, length: int) -> None:
        assert 0 <= length <= self.length
        del self._token_ids[length:]

    def forward(self, token_ids: Sequence[int], num_logits: int, num_largest: int = 0) -> np.ndarray:
        self._token_ids.extend(token_ids)
        prefix = tuple(self._token_ids)
        if (prefix, num_logits) not in self._logits:
            ends = range(len(prefix) - num_logits + 1, len(prefix) + 1)
            self._logits[prefix, num_logits] = np.stack([self._row(prefix[:end]) for end in ends])
        return self._logits[prefix, num_logits].copy()

    def _row(self, prefix: tuple[int, ...]) -> np.ndarray:
        if prefix not in self._rows:
            self._decoder.rollback(0)
            self._rows[prefix] = self._decoder.forward(prefix, 1)[0].copy()
        return self._rows[prefix]


def remembered(distributions: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Stands for `Sampler.distributions`, which draws no random number: runs it once for the same arguments.

    At every hundredth call it runs again, and must give the same rows to the last bit.
    """
    known: dict[tuple, np.ndarray] = {}
    calls = itertools.count(1)

    def recalled(sampler: Sampler, logits: np.ndarray, prefix: Sequence[int], drafted: Sequence[int] = ()):
        key = (sampler.params.temperature, logits.tobytes(), tuple(prefix), tuple(drafted))
        if next(calls) % 100 == 0 or key not in known:
            rows = distributions(sampler, logits, prefix, drafted)
            rows.setflags(write=False)
            assert rows.tobytes() == known.setdefault(key, rows).tobytes()
        return known[key]

    return recalled


Models = dict[str, RememberedDecoder]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    bundle, trimmed = (
        load_bundle(tiny_bundle(tmp_path_factory.mktemp("tiny"), draft_noise=0.3, head_ids=head_ids))
        for head_ids in (None, HEAD_IDS)
    )
    entries = {
        "target": (bundle, bundle.manifest.target),
        "draft": (bundle, bundle.manifest.draft),
        "trimmed": (trimmed, trimmed.manifest.draft),
    }
    decoders = {
        name: Decoder(entry, where.path / entry.graph, device="cpu", context_length=CONTEXT_LENGTH, num_threads=1)
        for name, (where, entry) in entries.items()
    }
    yield {name: RememberedDecoder(decoder) for name, decoder in decoders.items()}
    for decoder in decoders.values():
        decoder.close()


def row(decoder: RememberedDecoder, params: SamplingParams, output: tuple[int, ...]) -> np.ndarray:
    """What the model alone draws the token after `output` from: (V,)."""
    decoder.rollback(0)
    prefix = [*PROMPT, *output]
    return Sampler(params, len(PROMPT)).distributions(decoder.forward(prefix, 1)[:, :VOCAB_SIZE], prefix)[0]


def outputs(num_tokens: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(VOCAB_SIZE), repeat=num_tokens))


def joint(target: RememberedDecoder, params: SamplingParams, num_tokens: int) -> np.ndarray:
    """The chance of each output of so many tokens: (V,) * num_tokens."""
    probs = np.ones((VOCAB_SIZE,) * num_tokens)
    for output in outputs(num_tokens):
        for i, token_id in enumerate(output):
            probs[output] *= row(target, params, output[:i])[token_id]
    return probs


def drafter_of(models: Models, name: str) -> Drafter:
    if name == "translated":
        # The draft has the letters in another order, and pairs of them that are two tokens to the target.
        target, draft = (Vocabulary(characters(texts)) for texts in ("a b c d e", "c a e b d ab ce ea"))
        model = ModelDrafter(RememberedDecoder(models["draft"]._decoder), draft.num_tokens)
        return TranslatedDrafter(model, target, draft, VOCAB_SIZE)
    if name == "lookup":
        return LookupDrafter(VOCAB_SIZE)
    if name == "model":
        return ModelDrafter(models["draft"], VOCAB_SIZE)
    if name == "trimmed":
        return ModelDrafter(models["trimmed"], VOCAB_SIZE, inner=LookupDrafter(VOCAB_SIZE))
    # Levels that often disagree with each other: the target's own weights draft for its draft.
    tiny = ModelDrafter(RememberedDecoder(models["target"]._decoder), VOCAB_SIZE, inner=LookupDrafter(VOCAB_SIZE))
    return ModelDrafter(models["draft"], VOCAB_SIZE, inner=tiny, num_inner_tokens=2)


def played(
    target: RememberedDecoder, drafter: Drafter, sampler: Sampler, num_draft_tokens: int, max_tokens: int,
    rng: np.random.Generator,
) -> Iterator[Round]:  # fmt: skip
    """The rounds of a generation of `max_tokens` tokens after the prompt."""
    committed, limits = list(PROMPT), Limits(len(PROMPT) + max_tokens, lambda token_id: False)
    target.rollback(min(target.length, len(PROMPT) - 1))
    drafter.rollback(len(PROMPT) - 1)
    while len(committed) < limits.max_length:
        yield play_round(committed, target, drafter, num_draft_tokens, VOCAB_SIZE, limits, sampler, rng)


def first_tokens(rounds: Iterator[Round], num_tokens: int) -> tuple[int, ...]:
    """Leaves a generation as soon as it has so many tokens."""
    output: tuple[int, ...] = ()
    while len(output) < num_tokens:
        output += next(rounds).token_ids
    return output[:num_tokens]


Measure = Callable[..., list[float]]


@pytest.fixture
def measure(models: Models, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """By how much the first two tokens of all runs together, and the first three, stray from the target's joint."""
    target = models["target"]

    def measured(rule: str, sampling: str, drafter: str, num_draft_tokens: int, max_tokens: int) -> list[float]:
        params, num_tokens = SamplingParams(**SAMPLINGS[sampling], acceptance=rule), min(max_tokens, 3)
        probs, counts = joint(target, params, num_tokens), np.zeros((VOCAB_SIZE,) * num_tokens)
        drafts, rng = drafter_of(models, drafter), np.random.default_rng(0)
        with monkeypatch.context() as patch:
            patch.setattr(Sampler, "distributions", remembered(Sampler.distributions))
            for run in range(NUM_RUNS):
                sampler = Sampler(params, len(PROMPT), noise_seed=run if rule == "seed" else None)
                rounds = played(target, drafts, sampler, num_draft_tokens, max_tokens, rng)
                counts[first_tokens(rounds, num_tokens)] += 1
        later = [tuple(range(n, num_tokens)) for n in range(2, num_tokens + 1)]
        return [excess(counts.sum(axis=a) / NUM_RUNS, probs.sum(axis=a), NUM_RUNS) for a in later]

    return measured


each_rule = pytest.mark.parametrize("rule", sorted(RULES))
each_sampling = pytest.mark.parametrize("sampling", SAMPLINGS)


@each_sampling
def test_rows_are_spread_and_the_draft_often_disagrees(models: Models, sampling: str):
    """Otherwise the measure would have little to see."""
    params, entropies, distances = SamplingParams(**SAMPLINGS[sampling]), [], []
    for output in itertools.chain.from_iterable(outputs(n) for n in range(3)):
        target, draft = (row(models[name], params, output) for name in ("target", "draft"))
        entropies.append(-np.sum(target * np.log2(target, where=target > 0, out=np.zeros_like(target))))
        distances.append(np.abs(target - draft).sum() / 2)
    assert min(entropies) > 0.8  # bits; a flat row has 2.3
    assert np.mean(entropies) > 1.4
    assert 0.25 < np.mean(distances) < 0.5


@pytest.mark.parametrize("drafter", ["model", "lookup"])
@pytest.mark.parametrize(("max_tokens", "num_drafted"), [(7, [1, 2, 3, 4]), (3, [1, 2, 2, 2]), (2, [1, 1, 1, 1])])
def test_as_many_tokens_are_drafted_as_asked_and_as_fit(
    models: Models, drafter: str, max_tokens: int, num_drafted: list[int]
):
    sampler, found = Sampler(SamplingParams(**SAMPLINGS["temperature"]), len(PROMPT)), []
    for k in (1, 2, 3, 4):
        rounds = list(
            played(models["target"], drafter_of(models, drafter), sampler, k, max_tokens, np.random.default_rng(k))
        )
        found.append(rounds[0].num_drafted)
        assert sum(len(round_.token_ids) for round_ in rounds) == max_tokens
    assert found == num_drafted


@each_rule
@each_sampling
@pytest.mark.parametrize("num_draft_tokens", [1, 2, 3, 4])
def test_output_drafted_by_a_model_follows_the_target(
    measure: Measure, rule: str, sampling: str, num_draft_tokens: int
):
    """Generations of three tokens at least, and of as many as the first round can give."""
    assert max(measure(rule, sampling, "model", num_draft_tokens, max(3, num_draft_tokens + 1))) <= 1


@each_rule
@each_sampling
def test_output_of_two_tokens_follows_the_target(measure: Measure, rule: str, sampling: str):
    assert max(measure(rule, sampling, "model", 4, 2)) <= 1


@each_rule
@each_sampling
def test_output_drafted_with_a_trimmed_head_follows_the_target(measure: Measure, rule: str, sampling: str):
    assert max(measure(rule, sampling, "trimmed", 3, 4)) <= 1


@each_rule
@each_sampling
def test_output_drafted_as_text_follows_the_target(measure: Measure, rule: str, sampling: str):
    assert max(measure(rule, sampling, "translated", 3, 4)) <= 1


@each_rule
@pytest.mark.parametrize("sampling", ["filters"])
@pytest.mark.parametrize("drafter", ["lookup", "levels"])
def test_output_drafted_by_lookup_or_by_levels_follows_the_target(
    measure: Measure, rule: str, sampling: str, drafter: str
):
    assert max(measure(rule, sampling, drafter, 3, 4)) <= 1


@pytest.mark.parametrize(
    ("rule", "table", "sampling", "num_draft_tokens"),
    [
        pytest.param("token", everything_table, "temperature", 1, id="everything stands"),
        pytest.param("block", everything_table, "penalties", 2, id="everything stands, of a block"),
        pytest.param("seed", everything_table, "temperature", 1, id="everything stands, by noise"),
        pytest.param("token", partial(token_table, residual=whole_target), "filters", 2, id="target for residual"),
        pytest.param("block", partial(block_table, residual=unweighted), "filters", 2, id="residual without weight"),
        pytest.param("block", partial(block_table, cap=np.inf), "temperature", 2, id="weight above 1"),
    ],
)
def test_the_same_measure_notices_a_wrong_rule(
    measure: Measure, monkeypatch: pytest.MonkeyPatch, rule: str, table: Table, sampling: str, num_draft_tokens: int
):
    monkeypatch.setattr("pilotfish.runtime.rounds.RULES", {rule: rule_of(table)})
    assert max(measure(rule, sampling, "model", num_draft_tokens, 3)) > 1
