"""Output matches its grammar token by token, and drafted tokens leave no trace."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import llguidance
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotfish.runtime.bundle import load_bundle
from pilotfish.runtime.errors import GrammarError, OptionError
from pilotfish.runtime.grammar import LONGEST_LINE, Constraint, Grammar, GrammarCompiler
from pilotfish.runtime.tokenizer import Tokenizer

VOCAB_SIZE = 320  # 20 more than there are tokens, as padded rows of logits have
START_ID, END_ID = 0, 1
FREE_TEXT = r"(?s:.*)"


@pytest.fixture(scope="module")
def tokenizer(bundle_path: Path) -> Tokenizer:
    return Tokenizer(load_bundle(bundle_path))


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> GrammarCompiler:
    return GrammarCompiler(tokenizer, VOCAB_SIZE)


@pytest.fixture
def two_ends(bundle_path: Path) -> Tokenizer:
    tokenizer = Tokenizer(load_bundle(bundle_path))
    tokenizer.end_token_ids = frozenset({START_ID, END_ID})
    return tokenizer


def regex(compiler: GrammarCompiler, text: str) -> Constraint:
    return compiler.constraint(Grammar("regex", text))


def ids_allowed(constraint: Constraint, output: list[int]) -> set[int]:
    return set(np.flatnonzero(constraint.allowed(output, (), 1)[0]).tolist())


def walk(constraint: Constraint, rng: np.random.Generator, num_free: int = 12) -> list[int]:
    """Tokens drawn evenly from the allowed ones up to the end token, which is taken early after `num_free`."""
    output: list[int] = []
    while END_ID not in output:
        ids = sorted(ids_allowed(constraint, output))
        early = len(output) >= num_free and END_ID in ids
        output.append(END_ID if early else int(rng.choice(ids)))
        assert len(output) < 2000
    return output


# --- what is allowed ---

WORDS = st.lists(st.text("thefis pl", min_size=1, max_size=9), min_size=1, max_size=5)


@given(WORDS, st.integers(0, 2**32))
def test_of_a_list_of_words_exactly_the_tokens_that_lead_to_one_are_allowed(tokenizer, compiler, words, seed):
    texts = [tokenizer.decode([i]) for i in range(tokenizer.num_tokens)]
    constraint = regex(compiler, "|".join(map(re.escape, words)))
    rng, output, text = np.random.default_rng(seed), [], ""
    while END_ID not in output:
        ids = {i for i, piece in enumerate(texts) if piece and any(w.startswith(text + piece) for w in words)}
        if text in words:
            ids.add(END_ID)
        allowed = ids_allowed(constraint, output)
        # Where the next character is certain, llguidance may insist on the token that the tokenizer would choose.
        certain = text not in words and len({w[: len(text) + 1] for w in words if w.startswith(text)}) == 1
        assert allowed == ids or (certain and len(allowed) == 1 and allowed < ids)
        output.append(int(rng.choice(sorted(allowed))))
        text = tokenizer.decode(output)


PIECES = st.sampled_from(["[a-c]", "the", "[0-9]", "(x|yz)", "[A-F]", " fish", "é", "🦈?"])
QUANTIFIERS = st.sampled_from(["", "?", "*", "+", "{2}", "{0,3}"])
SEQUENCES = st.lists(st.builds("({}){}".format, PIECES, QUANTIFIERS), min_size=1, max_size=4).map("".join)
REGEXES = st.lists(SEQUENCES, min_size=1, max_size=3).map("|".join)


@given(REGEXES, st.integers(0, 2**32))
def test_a_random_walk_matches_the_regex_when_it_ends(tokenizer, compiler, pattern, seed):
    output = walk(regex(compiler, pattern), np.random.default_rng(seed))
    assert re.fullmatch(pattern, tokenizer.decode(output))


def test_no_walk_ends_within_a_character(tokenizer, compiler):
    for seed in range(30):
        text = tokenizer.decode(walk(regex(compiler, "[^a-z]+"), np.random.default_rng(seed), num_free=0))
        assert "\N{REPLACEMENT CHARACTER}" not in text


def test_a_json_schema_gives_json_of_that_schema(tokenizer, compiler):
    schema = {
        "x-guidance": {"whitespace_flexible": False},
        "type": "object",
        "properties": {"fish": {"enum": ["pilot", "shark"]}, "ahead": {"type": "boolean"}},
        "required": ["fish", "ahead"],
        "additionalProperties": False,
    }
    constraint = compiler.constraint(Grammar("json-schema", json.dumps(schema)))
    seen = {tokenizer.decode(walk(constraint, np.random.default_rng(seed))) for seed in range(40)}
    fish, ahead = ("pilot", "shark"), (True, False)
    assert {(v["fish"], v["ahead"]) for v in map(json.loads, seen)} == {(f, a) for f in fish for a in ahead}


def test_a_lark_grammar_can_nest_as_no_regex_can(tokenizer, compiler):
    constraint = compiler.constraint(Grammar("lark", 'start: nest\nnest: "[" nest* "]"'))
    texts = {tokenizer.decode(walk(constraint, np.random.default_rng(seed), num_free=0)) for seed in range(20)}
    assert any(len(text) > 4 for text in texts)
    for text in texts:
        json.loads(text.replace("][", "],["))


@pytest.mark.parametrize("text", [FREE_TEXT, r"(?s:.)+"])
def test_free_text_allows_no_special_and_no_padding_token(tokenizer, compiler, text):
    row = regex(compiler, text).allowed([], (), 1)[0]
    assert row[2 : tokenizer.num_tokens].sum() > 200
    assert not row[START_ID]
    assert row[END_ID] == (text == FREE_TEXT)
    assert not row[tokenizer.num_tokens :].any()


def test_rows_are_as_wide_as_asked_and_leave_out_tokens_beyond(tokenizer):
    narrow = regex(GrammarCompiler(tokenizer, 80), "[a-z]*").allowed([], (), 1)
    wide = regex(GrammarCompiler(tokenizer, 1000), "[a-z]*").allowed([], (), 1)
    assert narrow.shape == (1, 80)
    assert wide.shape == (1, 1000)
    assert wide.dtype == np.bool_
    np.testing.assert_array_equal(narrow[0], wide[0, :80])
    assert wide[0, 80:300].any()
    assert not wide[0, 300:].any()


# --- committed and drafted tokens ---


@given(REGEXES, st.integers(0, 2**32))
def test_rows_equal_those_of_a_fresh_constraint_for_each_prefix(compiler, pattern, seed):
    rng = np.random.default_rng(seed)
    used = regex(compiler, pattern)
    path = walk(regex(compiler, pattern), rng)
    for num_committed in range(len(path)):
        num_drafted = int(rng.integers(0, len(path) - num_committed + 1))
        output, drafted = path[:num_committed], path[num_committed : num_committed + num_drafted]
        num_rows = int(rng.integers(1, num_drafted + 2))
        rows = used.allowed(output, tuple(drafted), num_rows)
        assert rows.shape == (num_rows, VOCAB_SIZE)
        for i, row in enumerate(rows):
            before = drafted[: num_drafted + 1 - num_rows + i]
            fresh = regex(compiler, pattern).allowed([*output, *before], (), 1)[0]
            np.testing.assert_array_equal(row, fresh)


@given(st.integers(0, 2**32))
def test_drafted_tokens_leave_no_trace(compiler, seed):
    rng = np.random.default_rng(seed)
    pattern = "(the|shark|ab?c?)( fish)?"
    output = walk(regex(compiler, pattern), rng)[:-1]
    constraint, expected = regex(compiler, pattern), regex(compiler, pattern).allowed(output, (), 1)
    for _ in range(5):
        proposal = walk(regex(compiler, pattern), rng)  # right, wrong, or with an end token in the middle
        drafted = [*proposal[int(rng.integers(0, len(proposal))) :], *rng.integers(0, VOCAB_SIZE, 2).tolist()]
        constraint.allowed(output, drafted, int(rng.integers(1, len(drafted) + 2)))
        np.testing.assert_array_equal(constraint.allowed(output, (), 1), expected)


@pytest.mark.parametrize("forbidden", ["x", START_ID, END_ID, 310, VOCAB_SIZE + 5])
def test_rows_after_a_forbidden_drafted_token_are_all_false(tokenizer, compiler, forbidden):
    a, b = tokenizer.encode("a") + tokenizer.encode("b")
    wrong = tokenizer.encode(forbidden)[0] if isinstance(forbidden, str) else forbidden
    constraint = regex(compiler, "aaab*")
    rows = constraint.allowed([a], [a, wrong, a, b], 5)
    assert rows.any(axis=1).tolist() == [True, True, False, False, False]
    assert not constraint.allowed([a], [a, wrong, a, b], 2).any()
    assert set(np.flatnonzero(constraint.allowed([a], [a, a], 1))) == {END_ID, b}


def test_an_output_that_is_no_extension_is_followed_from_its_beginning(tokenizer, compiler):
    constraint = regex(compiler, "ab(cd|ef)*x?")
    for text in ("abcdef", "abcd", "abcdx", "abefcd", "", "ab"):
        output = tokenizer.encode(text) if text else []
        for _ in range(2):
            np.testing.assert_array_equal(
                constraint.allowed(output, (), 1), regex(compiler, "ab(cd|ef)*x?").allowed(output, (), 1)
            )


def test_a_caller_may_write_into_the_rows(tokenizer, compiler):
    constraint = regex(compiler, "ab")
    constraint.allowed([], (), 1)[:] = True
    assert ids_allowed(constraint, []) == set(tokenizer.encode("a"))


def test_committing_what_the_grammar_forbids_is_an_error_each_time_and_harms_nothing(tokenizer, compiler):
    constraint = regex(compiler, "abc")
    a, b, x = (tokenizer.encode(c)[0] for c in "abx")
    for _ in range(2):
        with pytest.raises(GrammarError, match=f"token {x} at position 1 "):
            constraint.allowed([a, x], (), 1)
    with pytest.raises(GrammarError, match=f"token {END_ID} at position 1 "):
        constraint.allowed([a, END_ID], (), 1)
    assert ids_allowed(constraint, [a]) == {b}


# --- the end ---


def test_a_complete_grammar_allows_all_end_tokens_and_nothing_else(two_ends):
    constraint = regex(GrammarCompiler(two_ends, VOCAB_SIZE), "ab?")
    a, b = two_ends.encode("a") + two_ends.encode("b")
    assert ids_allowed(constraint, []) == {a}
    assert ids_allowed(constraint, [a]) == {b, START_ID, END_ID}
    assert ids_allowed(constraint, [a, b]) == {START_ID, END_ID}


@pytest.mark.parametrize("end", [START_ID, END_ID])
@pytest.mark.parametrize("text", ["a", "ab"])
def test_an_end_token_can_be_committed_and_drafted_and_taken_back(two_ends, end, text):
    compiler = GrammarCompiler(two_ends, VOCAB_SIZE)
    constraint = regex(compiler, "ab?")
    output = [i for c in text for i in two_ends.encode(c)]
    before = regex(compiler, "ab?").allowed(output, (), 1)
    rows = constraint.allowed(output[:1], [*output[1:], end, end], len(output) + 2)
    assert rows[len(output) - 1 :, [START_ID, END_ID]].all()
    np.testing.assert_array_equal(constraint.allowed(output, (), 1), before)
    np.testing.assert_array_equal(rows[len(output) :], np.repeat(before, 2, axis=0))
    np.testing.assert_array_equal(constraint.allowed([*output, end], (), 1), before)
    np.testing.assert_array_equal(constraint.allowed(output, (), 1), before)
    assert ids_allowed(constraint, output[:1]) == {*two_ends.encode("b"), START_ID, END_ID}


def test_an_end_token_that_is_not_special_is_never_text(two_ends):
    a, b = two_ends.encode("a") + two_ends.encode("b")
    two_ends.end_token_ids = frozenset({END_ID, a})
    constraint = regex(GrammarCompiler(two_ends, VOCAB_SIZE), "b[ab]")
    assert ids_allowed(constraint, [b]) == {b}
    assert ids_allowed(constraint, [b, b]) == {END_ID, a}
    assert not constraint.allowed([b], [a, b], 2).any()


def test_an_end_token_beyond_the_vocabulary_is_left_out(two_ends):
    two_ends.end_token_ids = frozenset({END_ID, 299})
    constraint = regex(GrammarCompiler(two_ends, 299), FREE_TEXT)
    assert constraint.allowed([], (), 1).shape == (1, 299)
    assert END_ID in ids_allowed(constraint, [])


# --- failures are closed ---


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("regex", "a(", "unclosed group"),
        ("regex", "a(?=b)", "look-ahead"),
        ("regex", "\ud800", "surrogates not allowed"),
        ("json-schema", '{"type": "objec"}', "Invalid type: objec"),
        ("json-schema", '{"not": {}}', 'Unimplemented keys: \\["not"\\]'),
        ("json-schema", "false", "Unsatisfiable"),
        ("lark", "start: x", 'unknown name: "x"'),
        ("lark", "", "Empty grammar"),
    ],
)
def test_a_faulty_grammar_is_refused_in_the_words_of_llguidance(compiler, kind, text, said):
    with pytest.raises(GrammarError, match=f"(?s)the {kind} grammar .*{said}"):
        compiler.constraint(Grammar(kind, text))


def test_the_message_does_not_repeat_a_huge_grammar(compiler):
    with pytest.raises(GrammarError, match=r"unclosed group|nest") as caught:
        regex(compiler, "(" * 10_000)
    assert max(map(len, str(caught.value).splitlines())) < LONGEST_LINE + 50


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("yaml", "x", "'yaml'; choose one of json-schema, regex, lark"),
        ("json-schema", "{", "not valid JSON"),
        ("json-schema", "[" * 100_000, "not valid JSON"),
        ("json-schema", "[1]", r"is \[1\]; give a JSON object"),
    ],
)
def test_a_grammar_that_is_none_is_an_option_error(kind, text, said):
    with pytest.raises(OptionError, match=said):
        Grammar(kind, text)


def test_a_boolean_is_a_schema(compiler):
    assert compiler.constraint(Grammar("json-schema", "true")).allowed([], (), 1).any()


def test_ignored_parts_of_a_lenient_schema_are_logged(compiler, caplog):
    compiler.constraint(Grammar("json-schema", '{"x-guidance": {"lenient": true}, "not": {}}'))
    assert "Unimplemented keys" in caplog.text


def test_a_dead_end_is_an_error_in_few_words(compiler):
    with pytest.raises(GrammarError, match=r"cannot follow the grammar any further: llguidance says \w+; simplify"):
        regex(compiler, r"[^\s\S]").allowed([], (), 1)


def test_a_dead_end_after_drafted_tokens_has_an_empty_row_and_leaves_no_trace(tokenizer):
    a, x = tokenizer.encode("a")[0], tokenizer.encode("x")[0]
    constraint = regex(GrammarCompiler(tokenizer, x), "a(x|y)|a?!")  # x, y and all after them are beyond the rows
    first = constraint.allowed([], (), 1)
    assert constraint.allowed([], [a], 2).any(axis=1).all()
    dead = regex(GrammarCompiler(tokenizer, x), "a(x|y)|!")
    assert dead.allowed([], [a, a], 3).any(axis=1).tolist() == [True, False, False]
    np.testing.assert_array_equal(dead.allowed([], (), 1), first)
    with pytest.raises(GrammarError, match="no token of this model"):
        dead.allowed([a], (), 1)


def limited(tokenizer, **limits) -> Constraint:
    lexicon = llguidance.LLTokenizer(tokenizer.to_json(), eos_token=[END_ID])
    limits = llguidance.LLParserLimits(verbose_errors=False, **limits)
    source = llguidance.LLMatcher.grammar_from_regex("(a|b)*a(a|b){6}")
    return Constraint(lambda: llguidance.LLMatcher(lexicon, source, log_level=0, limits=limits), tokenizer, VOCAB_SIZE)


def test_a_limit_of_llguidance_is_an_error(tokenizer):
    constraint = limited(tokenizer, step_lexer_fuel=1)
    for output in ([], tokenizer.encode("a"), []):
        with pytest.raises(GrammarError, match=r"llguidance says lexer error: too many [^<]*; simplify"):
            constraint.allowed(output, (), 1)


def test_a_limit_that_only_drafted_tokens_meet_leaves_no_trace(tokenizer):
    letters = [i for c in "abaabb" for i in tokenizer.encode(c)]
    expected = limited(tokenizer, max_lexer_states=5).allowed([], (), 1)
    constraint = limited(tokenizer, max_lexer_states=5)
    rows = constraint.allowed([], letters, len(letters) + 1)
    assert rows[0].any()
    assert not rows[-1].any()
    np.testing.assert_array_equal(constraint.allowed([], (), 1), expected)
    with pytest.raises(GrammarError, match="llguidance says lexer error"):
        constraint.allowed(letters, (), 1)


# --- llguidance itself ---


def test_without_llguidance_the_error_names_the_command(tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    compiler = GrammarCompiler(tokenizer, VOCAB_SIZE)
    with pytest.raises(OptionError, match=re.escape("pip install 'pilotfish[grammar]'")):
        regex(compiler, "a")


def test_llguidance_is_not_imported_before_the_first_grammar():
    code = "import sys; import pilotfish.runtime.grammar; print('llguidance' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_the_vocabulary_is_prepared_once(tokenizer, monkeypatch):
    made = []

    def make(*args: object, **options: object) -> llguidance.LLTokenizer:
        made.append(real(*args, **options))
        return made[-1]

    real = llguidance.LLTokenizer
    monkeypatch.setattr(llguidance, "LLTokenizer", make)
    compiler = GrammarCompiler(tokenizer, VOCAB_SIZE)
    assert made == []
    first, second = regex(compiler, "a"), regex(compiler, "b")
    assert len(made) == 1
    assert not (first.allowed([], (), 1) & second.allowed([], (), 1)).any()


def test_a_tokenizer_that_llguidance_cannot_read_is_named(two_ends):
    two_ends.end_token_ids = frozenset()
    with pytest.raises(GrammarError, match="cannot read this model's tokenizer"):
        regex(GrammarCompiler(two_ends, VOCAB_SIZE), "a")
