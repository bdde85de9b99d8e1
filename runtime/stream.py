"""One generation: plays rounds until something ends it, and turns what they commit into chunks."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from pilotfish.runtime.context import Context
from pilotfish.runtime.controller import NOBODY, Policy
from pilotfish.runtime.decoder import MAX_WIDTH
from pilotfish.runtime.errors import Cancelled
from pilotfish.runtime.filters import softmax
from pilotfish.runtime.generation import Chunk, GenerationOptions
from pilotfish.runtime.logprobs import TokenLogprob, token_logprobs
from pilotfish.runtime.metrics import Stats
from pilotfish.runtime.output import Output
from pilotfish.runtime.rounds import Limits, Round, play_round
from pilotfish.runtime.sampling import Sampler
from pilotfish.runtime.tokenizer import Tokenizer


class Stream:
    """A generation that has not begun, is running, or has ended; `stats` describes it so far."""

    def __init__(
        self, context: Context, tokenizer: Tokenizer, token_ids: Sequence[int], options: GenerationOptions,
        sampler: Sampler, policy: Policy,
    ) -> None:  # fmt: skip
        """`policy` decides before each round who drafts."""
        self.stats = Stats(num_prompt_tokens=len(token_ids))
        self._context = context
        self._token_ids = list(token_ids)
        self._options = options
        self._sampler = sampler
        self._policy = policy
        self._output = Output(tokenizer, options.stop)
        self._max_draft_tokens = context.max_width - 1
        self._vocab_size = min(tokenizer.num_tokens, context.target.vocab_size)
        self._max_length = context.target.context_length
        self._stops_short = False
        if options.max_tokens is not None and len(token_ids) + options.max_tokens <= self._max_length:
            self._max_length, self._stops_short = len(token_ids) + options.max_tokens, True
        self._rng = np.random.default_rng(options.sampling.seed)
        self._started = 0.0

    def chunks(self) -> Generator[Chunk, None, None]:
        """Runs the generation. The last chunk has the finish reason; the context is valid whenever this is left."""
        self._started = time.perf_counter()
        self._context.begin(self._token_ids)
        self._policy.begin(len(self._token_ids), self._max_length)
        self.stats = replace(self.stats, num_cached_tokens=self._context.target.length)
        try:
            finish_reason = self._prefill()
            if finish_reason is not None:
                yield Chunk("", (), "target", finish_reason)
            while finish_reason is None:
                chunks = self._chunks(self._round())
                finish_reason = chunks[-1].finish_reason
                yield from chunks
        except Cancelled:
            yield Chunk(self._output.flush(), (), "target", "cancelled")

    def _prefill(self) -> str | None:
        """Reads the prompt up to what the first round takes in one pass; a finish reason if time ran out on the way."""
        target = self._context.target
        while len(self._token_ids) - target.length > MAX_WIDTH:
            target.forward(self._token_ids[target.length :][:MAX_WIDTH], 0)
            if self._is_out_of_time:
                return "time"
        return None

    def _round(self) -> Round:
        is_first, run_s, started = not self.stats.num_rounds, self._run_s(), time.perf_counter()
        # The first token is what the user waits for, so nobody drafts, and the draft reads the prompt after it.
        plan = NOBODY if is_first else self._policy.plan(self._context.committed, self._max_draft_tokens)
        round_ = play_round(
            self._context.committed, self._context.target, plan.drafter, plan.num_draft_tokens, self._vocab_size,
            Limits(self._max_length, self._output.commit), self._sampler, self._rng, plan.should_stop,
        )  # fmt: skip
        num_near_ties = self._num_near_ties(round_)
        ended, later_run_s = time.perf_counter(), self._run_s()
        if is_first:
            self.stats = replace(self.stats, time_to_first_token_s=ended - self._started)
            self.stats = self.stats.with_round(round_, num_near_ties, 0.0, 0.0, 0.0)
            return round_
        target_s, draft_s = later_run_s[0] - run_s[0], later_run_s[1] - run_s[1]
        self._policy.observe(plan, round_, target_s, draft_s, ended - started - target_s - draft_s)
        stats = self.stats.with_round(round_, num_near_ties, ended - started, target_s, draft_s)
        self.stats = replace(stats, speculation=self._policy.speculation, target_only_s=self._policy.target_only_s)
        return round_

    def _chunks(self, round_: Round) -> list[Chunk]:
        """What a round committed, apart by who wrote it; at least one chunk."""
        texts, logprobs, num_tokens = self._output.take(), self._logprobs(round_), len(round_.token_ids)
        origins = [*round_.origins, "target"][:num_tokens]
        starts = [i for i in range(num_tokens) if i == 0 or origins[i] != origins[i - 1]]
        parts = [slice(start, stop) for start, stop in zip(starts, [*starts[1:], num_tokens], strict=True)]
        chunks = [
            Chunk("".join(texts[part]), round_.token_ids[part], origins[part.start], logprobs=logprobs[part])
            for part in parts
        ]
        finish_reason = self._finish_reason()
        if finish_reason is not None:
            text = chunks[-1].text + self._output.flush()  # which can still complete a stop string
            finish_reason = self._output.finish_reason or finish_reason
            chunks[-1] = replace(chunks[-1], text=text, finish_reason=finish_reason)
        return chunks

    def _finish_reason(self) -> str | None:
        if self._output.finish_reason is not None:
            return self._output.finish_reason
        if len(self._context.committed) >= self._max_length:
            return "length" if self._stops_short else "context"
        if self._is_out_of_time:
            return "time"
        return "cancelled" if self._context.cancelled else None

    @property
    def _is_out_of_time(self) -> bool:
        limit = self._options.max_time_s
        return limit is not None and time.perf_counter() - self._started >= limit

    def _logprobs(self, round_: Round) -> tuple[TokenLogprob, ...]:
        if self._options.logprobs is None:
            return ()
        num_tokens = len(round_.token_ids)
        from_sampler = self._options.logprobs_from == "sampler"
        probs = round_.probs[:num_tokens] if from_sampler else softmax(round_.logits[:num_tokens])
        return token_logprobs(probs, round_.token_ids, self._options.logprobs)

    def _num_near_ties(self, round_: Round) -> int:
        if not self._context.near_tie_margin:
            return 0
        committed, num_tokens = self._context.committed, len(round_.token_ids)
        before, drafted = committed[:-num_tokens], committed[-num_tokens:-1]
        margins = self._sampler.margins(round_.logits[:num_tokens], before, drafted)
        return int((margins < self._context.near_tie_margin).sum())

    def _run_s(self) -> tuple[float, float]:
        return self._context.target.run_s, sum(draft.run_s for draft in self._context.drafts)
