"""Output that matches a JSON schema, a regular expression or a Lark grammar, token by token, by way of llguidance.

Axis letters: `V` vocabulary. llguidance is optional (extra `grammar`) and is imported with the first grammar.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pilotfish.runtime.errors import GrammarError, OptionError
from pilotfish.runtime.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

GRAMMAR_KINDS = ("json-schema", "regex", "lark")
LONGEST_LINE = 120  # characters in a line of what llguidance says, which repeats the grammar

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Grammar:
    """What the output must match, as a whole: `kind` is `json-schema`, `regex` or `lark`, and `text` is its text."""

    kind: str
    text: str

    def __post_init__(self) -> None:
        if self.kind not in GRAMMAR_KINDS:
            raise OptionError(f"grammar kind is {self.kind!r}; choose one of {', '.join(GRAMMAR_KINDS)}")
        if self.kind == "json-schema":
            _require_schema(self.text)


class GrammarCompiler:
    """Compiles grammars for one tokenizer, whose vocabulary it prepares once, with the first grammar."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        """`vocab_size` is V, the width of the rows that a constraint gives."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size

    def constraint(self, grammar: Grammar) -> Constraint:
        """The grammar at the beginning of an output.

        `GrammarError` for a faulty grammar, with what llguidance says of it; `OptionError` without llguidance.
        """
        return Constraint(partial(_matcher, grammar, self._ll_tokenizer), self._tokenizer, self._vocab_size)

    @cached_property
    def _ll_tokenizer(self) -> LLTokenizer:
        try:
            from llguidance import LLTokenizer
        except ImportError as error:
            raise OptionError(
                f"a grammar needs llguidance ({error}); install it with `pip install 'pilotfish[grammar]'`"
            ) from error
        try:
            return LLTokenizer(self._tokenizer.to_json(), eos_token=sorted(self._tokenizer.end_token_ids))
        except ValueError as error:
            raise GrammarError(
                f"llguidance cannot read this model's tokenizer ({error}); generate without a grammar"
            ) from error


class Constraint:
    """A grammar on its way through one generation; `GrammarCompiler.constraint` makes it.

    Its matcher stands after the committed output. Drafted tokens move it for the length of a call only.
    """

    def __init__(self, compiled: Callable[[], LLMatcher], tokenizer: Tokenizer, vocab_size: int) -> None:
        """`compiled` makes a matcher that has consumed nothing yet; `vocab_size` is V."""
        self._compiled = compiled
        self._matcher = compiled()
        self._consumed: list[int] = []
        self._vocab_size = vocab_size
        self._num_usable = min(vocab_size, tokenizer.num_tokens)
        self._end_token_ids = [i for i in tokenizer.end_token_ids if i < self._num_usable]

    def allowed(self, output: Sequence[int], drafted: Sequence[int], num_rows: int) -> NDArray[np.bool_]:
        """Which tokens may come at the last `num_rows` positions of `output` + `drafted`: bool (num_rows, V), fresh.

        `output` are the committed tokens without the prompt. The last row stands after all of `drafted`, each row
        before it after one drafted token less, so there are at most `len(drafted) + 1`. Rows after a drafted token that
        the grammar forbids, or from which it cannot be completed, are all False. Rows after an end token equal the one
        before it. Elsewhere some token is allowed, and all end tokens are exactly where the output may end.

        `GrammarError` if `output` breaks the grammar, or if no token can follow it.
        """
        self._follow(output)
        rows = np.zeros((num_rows, self._vocab_size), np.bool_)
        if num_rows == len(drafted) + 1:
            self._fill(rows[0])
        self._fill_ahead(rows, drafted)
        return rows

    def _fill_ahead(self, rows: NDArray[np.bool_], drafted: Sequence[int]) -> None:
        """Writes the rows after drafted tokens, the last one after them all, and moves back."""
        num_moved, first = 0, len(drafted) + 1 - len(rows)
        try:
            for position, token_id in enumerate(drafted, 1):
                if not self._advance(token_id):
                    break
                num_moved += token_id not in self._end_token_ids
                if position >= first:
                    self._fill(rows[position - first])
        except GrammarError:
            pass  # it matters only if the drafted tokens are accepted, and then nothing can be drawn from their row
        if self._matcher.is_error():
            self._restart()
        else:
            self._matcher.rollback(num_moved)

    def _restart(self) -> None:
        # A matcher never leaves an error, and its copies share what it has run out of.
        self._matcher = self._compiled()
        self._consumed.clear()

    def _follow(self, output: Sequence[int]) -> None:
        """Makes the matcher stand after `output`, wherever it stood."""
        if list(output[: len(self._consumed)]) != self._consumed:
            self._restart()
        for token_id in output[len(self._consumed) :]:
            if not self._advance(token_id):
                raise GrammarError(
                    f"token {token_id} at position {len(self._consumed)} of the output breaks the grammar; commit only "
                    "tokens that the constraint allows"
                )
            self._consumed.append(token_id)

    def _advance(self, token_id: int) -> bool:
        """Moves over a token; False, and not moved, if the grammar forbids it."""
        # The matcher gets no end tokens: after a complete output it takes one without counting it in a rollback.
        if token_id in self._end_token_ids:
            return bool(self._matcher.is_accepting())
        if token_id >= self._num_usable:
            return False
        moved = bool(self._matcher.try_consume_tokens([token_id]) == 1)
        self._raise_if_stuck()
        return moved

    def _fill(self, row: NDArray[np.bool_]) -> None:
        """Writes what may come where the matcher stands into a row of False (V,), in place."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._raise_if_stuck()
        row[: self._num_usable] = np.unpackbits(bits, count=self._num_usable, bitorder="little")
        # The matcher would offer an end token as text too, if it is not marked as special.
        row[self._end_token_ids] = self._matcher.is_accepting()
        if not row.any():
            raise _stuck("no token of this model may come next")

    def _raise_if_stuck(self) -> None:
        if self._matcher.is_error():
            raise _stuck(f"llguidance says {_said(self._matcher)}")


def _stuck(reason: str) -> GrammarError:
    return GrammarError(
        f"the output cannot follow the grammar any further: {reason}; simplify the grammar, and let every output that "
        "it begins be completed"
    )


def _require_schema(text: str) -> None:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"the JSON schema is not valid JSON ({error}); give a JSON object, true or false") from error
    if not isinstance(schema, dict | bool):
        raise OptionError(f"the JSON schema is {text[:80]}; give a JSON object, true or false")


def _matcher(grammar: Grammar, tokenizer: LLTokenizer) -> LLMatcher:
    from llguidance import LLMatcher, LLParserLimits

    sources: dict[str, Callable[[str], str]] = {
        "json-schema": LLMatcher.grammar_from_json_schema,
        "regex": LLMatcher.grammar_from_regex,
        "lark": LLMatcher.grammar_from_lark,
    }
    try:
        source = sources[grammar.kind](grammar.text)
    except ValueError as error:
        raise GrammarError(f"the {grammar.kind} grammar cannot be read: {error}") from error
    # Verbose errors would append the state of the parser, and a log level above 0 prints.
    matcher = LLMatcher(tokenizer, source, log_level=0, limits=LLParserLimits(verbose_errors=False))
    if matcher.is_error():
        raise GrammarError(f"the {grammar.kind} grammar is faulty: {_said(matcher)}")
    for warning in matcher.get_grammar_warnings():
        _logger.warning("the %s grammar: %s", grammar.kind, warning)
    return matcher


def _said(matcher: LLMatcher) -> str:
    lines = matcher.get_error().removesuffix("<non-verbose/>").strip().splitlines()
    half = LONGEST_LINE // 2
    return "\n".join(line if len(line) <= LONGEST_LINE else f"{line[:half]} … {line[-half:]}" for line in lines)
