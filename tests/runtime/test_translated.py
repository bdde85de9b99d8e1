"""A draft of another tokenizer: what is proposed is what it wrote, and what it keeps is what was committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pilotfish import runtime as pilotfish
from pilotfish.runtime import GenerationOptions, SamplingParams
from pilotfish.runtime.drafters.proposal import Proposal, certain, never
from pilotfish.runtime.drafters.translated import LONGEST_END, LONGEST_PIECE, TranslatedDrafter
from pilotfish.runtime.engine import Engine
from pilotfish.runtime.sampling import Sampler
from pilotfish.runtime.vocabulary import Vocabulary
from support.tiny_models import renumbered_bundle, tiny_bundle, tiny_tokenizer
from support.vocabularies import KINDS, TEXT, byte_level

SAMPLER, RNG = Sampler(SamplingParams()), np.random.default_rng(0)
FILES = {"tiny": tiny_tokenizer(), **{name: make() for name, make in KINDS.items()}}
WIDTH = 400  # of the rows of proposals
TEXTS = st.text(max_size=30) | st.text(alphabet="aefst ŵ\n🦈鮫'1", max_size=60) | st.just(TEXT)


def vocabulary(kind: str, prefix: Sequence[int] = ()) -> Vocabulary:
    files = FILES[kind]
    return Vocabulary(files.tokenizer_json, files.eos_token_ids, "<|end|>", prefix)


class Writer:
    """Stands for a model that knows a text by heart: writes on behind what it has read."""

    origin = "model"

    def __init__(self, text: bytes, draft: Vocabulary) -> None:
        self.text, self._draft = text, draft
        self.length = 0
        self.num_fed = 0
        self.token_ids: list[int] = []
        self.written: bytes = b""

    def propose(self, committed, num_draft_tokens, sampler, rng, should_stop=never) -> Proposal:
        assert self.length < len(committed)  # there is always one to be fed
        assert self.token_ids[: self.length] == list(committed[: self.length])
        self.num_fed += len(committed) - self.length
        read = b"".join(map(self._draft.bytes_of, committed))
        behind = self.text[len(read) :].decode(errors="ignore")
        drafted = tuple(self._draft.encode(behind)[:num_draft_tokens])
        self.written = b"".join(map(self._draft.bytes_of, drafted))
        self.token_ids, self.length = [*committed, *drafted], len(committed) + max(len(drafted) - 1, 0)
        proposal = certain(drafted, WIDTH, self.origin)
        confidences = tuple(0.5 for _ in drafted)
        return Proposal(proposal.token_ids, proposal.probs, proposal.origins, confidences)

    def rollback(self, length: int) -> None:
        self.length = min(self.length, length)


def bytes_of(vocabulary: Vocabulary, token_ids: Sequence[int]) -> bytes:
    return b"".join(map(vocabulary.bytes_of, token_ids))


def holds_a_prefix(drafter: TranslatedDrafter, writer: Writer, draft: Vocabulary, committed: bytes) -> bool:
    cached = bytes_of(draft, writer.token_ids[: writer.length])
    return committed.startswith(cached) and writer.token_ids[: writer.length] == drafter._ids[: writer.length]


@pytest.mark.parametrize("draft_kind", ["tiny", "byte-level", "sentencepiece"])
@pytest.mark.parametrize("target_kind", ["tiny", "byte-level", "sentencepiece"])
@settings(max_examples=60)
@given(text=TEXTS, seed=st.integers(0, 2**32), num_draft_tokens=st.integers(1, 9))
@example(text="a🦈🦈 🦈\n\n\n    x = 1\n🦈", seed=3, num_draft_tokens=4)
def test_what_is_proposed_is_what_was_written_and_what_is_kept_was_committed(
    target_kind: str, draft_kind: str, text: str, seed: int, num_draft_tokens: int
):
    target, draft, rng = vocabulary(target_kind), vocabulary(draft_kind), np.random.default_rng(seed)
    committed_ids = target.encode(text)
    writer = Writer(bytes_of(target, committed_ids), draft)
    drafter = TranslatedDrafter(writer, target, draft, WIDTH)
    length = 1
    while length < len(committed_ids):
        committed = committed_ids[:length]
        proposal = drafter.propose(committed, num_draft_tokens, SAMPLER, RNG, never)
        said = bytes_of(target, proposal.token_ids)
        before = bytes_of(target, committed)
        assert len(proposal.token_ids) == len(proposal.confidences) <= num_draft_tokens
        assert all(0 < sure <= 1 for sure in proposal.confidences)
        if said and writer.text.startswith(bytes_of(draft, drafter._ids)):  # no normalizer changed what it reads
            assert (bytes_of(draft, drafter._ids) + writer.written).startswith(before + said)
        num_accepted = int(rng.integers(len(proposal.token_ids) + 1))
        stands = committed_ids[length : length + num_accepted] == list(proposal.token_ids[:num_accepted])
        num_accepted = num_accepted if stands else 0
        length += num_accepted + 1
        drafter.rollback(length - 1)
        if draft_kind != "byte-level":  # whose normalizer changes what it reads
            assert holds_a_prefix(drafter, writer, draft, bytes_of(target, committed_ids[: length - 1]))


@pytest.mark.parametrize("draft_kind", FILES)
@pytest.mark.parametrize("target_kind", FILES)
def test_a_draft_that_knows_the_text_is_mostly_accepted(target_kind: str, draft_kind: str):
    """Also across characters that are cut differently, and behind line ends."""
    target, draft = vocabulary(target_kind), vocabulary(draft_kind)
    known = TEXT if "unigram" not in (target_kind, draft_kind) else "Sharks are larger than pilot fish they swim " * 5
    token_ids = target.encode(known)
    writer = Writer(bytes_of(target, token_ids), draft)
    drafter = TranslatedDrafter(writer, target, draft, WIDTH)
    length, num_accepted = 1, 0
    while length < len(token_ids):
        proposal = drafter.propose(token_ids[:length], 6, SAMPLER, RNG, never)
        right = [a == b for a, b in zip(proposal.token_ids, token_ids[length:], strict=False)]
        stands = [*right, False].index(False)
        num_accepted, length = num_accepted + stands, length + stands + 1
        drafter.rollback(length - 1)
    assert num_accepted > 0.6 * len(token_ids)


def test_special_tokens_are_read_and_written_by_name_an_end_for_an_end_and_nothing_for_others():
    FILES["others"] = byte_level(specials=["<s>", "<|start|>", "<strange>", "</s>"])
    draft_files = FILES["others"]
    target = vocabulary("tiny")
    draft = Vocabulary(draft_files.tokenizer_json, draft_files.eos_token_ids, "</s>", prefix=(0,))
    writer = Writer(b"", draft)
    drafter = TranslatedDrafter(writer, target, draft, WIDTH)
    start, end = 0, 1
    committed = [start, *target.encode("user pilot"), end, start, *target.encode("x")]
    drafter.propose(committed, 1, SAMPLER, RNG, never)
    texts = [draft.bytes_of(i).decode() for i in drafter._ids]
    assert texts[:2] == ["<s>", "<|start|>"]
    assert "".join(texts) == "<s><|start|>user pilot</s><|start|>x"
    assert sum(i in draft.specials for i in drafter._ids) == 4

    def proposed(*drafted: str) -> str:
        by_text = {text: i for i, text in draft.specials.items()}
        ids = [i for text in drafted for i in ([by_text[text]] if text in by_text else draft.encode(text))]
        writer.propose = lambda *_: certain(tuple(ids), WIDTH, "model")
        found = drafter.propose(committed, 9, SAMPLER, RNG, never).token_ids
        assert all(i in target.specials for i in found if target.bytes_of(i).startswith(b"<"))
        return bytes_of(target, found).decode()

    assert proposed(" fish", "</s>") == " fish<|end|>"
    assert proposed(" fish", "<|start|>", "us") == " fish<|start|>us"
    assert proposed(" fish", "<strange>", "x") == " fish"
    assert proposed("<strange>") == ""


def test_a_wrong_beginning_and_a_half_character_are_not_proposed():
    target, draft = vocabulary("tiny"), vocabulary("byte-level")
    shark = target.encode("🦈x")
    assert len(shark) > 2  # cut inside
    cut = [*target.encode("x"), *target.encode("🦈")[:-1]]
    writer = Writer("x🦈 swims".encode(), draft)
    drafter = TranslatedDrafter(writer, target, draft, WIDTH)
    found = drafter.propose(cut, 9, SAMPLER, RNG, never).token_ids
    assert bytes_of(target, [*cut, *found]) == "x🦈 swims".encode()
    writer.text = "x鮫 swims".encode()
    assert drafter.propose(cut, 9, SAMPLER, RNG, never).token_ids == ()
    assert drafter.propose(cut[1:], 9, SAMPLER, RNG, never).token_ids == ()  # there is nothing to be read yet
    first = draft.encode("🦈")[:1]
    writer.propose = lambda *_: certain(tuple(first), WIDTH, "model")
    assert drafter.propose(target.encode("x"), 9, SAMPLER, RNG, never).token_ids == ()


@pytest.mark.parametrize("unit", ["pilot fish swim ahead. ", "鮫の前を泳ぐ魚", "🦈", "\xff" * 3, "    "])
def test_little_is_cut_and_read_again_each_round_however_long_the_text(unit: str):
    target, draft = vocabulary("tiny"), vocabulary("sentencepiece")
    token_ids = target.encode(unit * 2000)[:6000]
    writer = Writer(b"", draft)
    drafter = TranslatedDrafter(writer, target, draft, WIDTH)
    cut: list[int] = []
    encode = draft.encode
    draft.encode = lambda text: cut.append(len(text)) or encode(text)
    drafter.propose(token_ids[:5000], 1, SAMPLER, RNG, never)
    longest_token = max(len(target.bytes_of(i)) for i in token_ids)
    assert max(cut) <= (LONGEST_PIECE + 1) * longest_token
    cut.clear()
    for length in range(5001, 6000, 3):
        writer.num_fed, before = 0, sum(cut)
        drafter.rollback(length - 1)
        drafter.propose(token_ids[:length], 1, SAMPLER, RNG, never)
        assert sum(cut) - before <= 2 * LONGEST_END * longest_token
        assert writer.num_fed <= 2 * LONGEST_END * longest_token
    drafter.rollback(4500)  # another conversation, that begins alike
    writer.num_fed = 0
    drafter.propose([*token_ids[:4500], *token_ids[:9]], 1, SAMPLER, RNG, never)
    assert writer.num_fed <= (LONGEST_PIECE + 2 * LONGEST_END) * longest_token


@pytest.fixture(scope="module", params=["renumbered", "byte-level", "sentencepiece", "unigram"])
def translating(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("tiny")
    if request.param == "renumbered":
        path = renumbered_bundle(folder, draft_noise=0.05)
    else:
        path = tiny_bundle(folder, draft_tokenizer=FILES[request.param])
    with pilotfish.load(path, context_length=256) as engine:
        yield engine


def generated(
    engine: Engine, prompt: str | list[dict[str, str]], **options: object
) -> tuple[list[int], str, str | None]:
    chunks = list(engine.generate(prompt, GenerationOptions(**options)))
    token_ids = [token_id for chunk in chunks for token_id in chunk.token_ids]
    return token_ids, "".join(chunk.text for chunk in chunks), chunks[-1].finish_reason


@pytest.mark.parametrize("draft", ["model", "cascade", "auto"])
@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(temperature=2.0, seed=5)])
def test_the_output_is_the_targets_own_over_turns(translating: Engine, draft: str, sampling: SamplingParams):
    messages = [{"role": "user", "content": "the pilot fish 🦈"}]
    for turn in range(3):
        found = generated(translating, messages, draft=draft, sampling=sampling, max_tokens=30, num_draft_tokens=5)
        translating_again = generated(translating, messages, draft="off", sampling=sampling, max_tokens=30)
        assert found == translating_again
        messages += [{"role": "assistant", "content": found[1]}, {"role": "user", "content": f"and {turn} sharks?"}]


def test_a_stop_string_ends_it_at_the_same_place(translating: Engine):
    whole = generated(translating, "the shark", draft="off", max_tokens=40)[1]
    for stop in {whole[i : i + 2] for i in range(8, 30, 7)} - {""}:
        expected = generated(translating, "the shark", draft="off", max_tokens=40, stop=[stop])
        assert generated(translating, "the shark", draft="model", max_tokens=40, stop=[stop]) == expected


def test_the_draft_has_ids_of_its_own_and_is_asked(translating: Engine):
    generated(translating, "the pilot fish swims", draft="model", max_tokens=60)
    stats = translating.stats
    assert set(stats.drafters) <= {"model"}
    assert stats.draft_s > 0
    assert 0 <= translating.calibration.agreement <= 1


def test_saved_caches_are_the_targets_and_the_draft_reads_again(translating: Engine, tmp_path: Path):
    options = {"draft": "model", "max_tokens": 24}
    prompt = "the pilot fish swims ahead of the shark"
    expected = generated(translating, prompt, **options)
    translating.save_cache(tmp_path / "cache")
    generated(translating, "1 2 3", **options)
    translating.restore_cache(tmp_path / "cache")
    assert translating._context.draft.length == 0
    assert generated(translating, prompt, **options) == expected
    assert translating.stats.num_cached_tokens > 0


def test_a_twin_with_other_ids_is_nearly_always_right(tmp_path: Path):
    with pilotfish.load(renumbered_bundle(tmp_path)) as engine:
        num_drafted = num_accepted = 0
        for prompt in ("the pilot fish", "sharks swim", "1 2 3"):
            expected = generated(engine, prompt, draft="off", max_tokens=60)
            assert generated(engine, prompt, draft="model", max_tokens=60) == expected
            num_drafted, num_accepted = num_drafted + engine.stats.num_drafted, num_accepted + engine.stats.num_accepted
        assert num_accepted > 0.7 * num_drafted > 20
