"""How likely drafted tokens are to stand, learned from the rounds so far; what was seen long ago fades."""

from __future__ import annotations

FADING = 0.97  # the weight of a round's evidence when another has come
PRIOR_WEIGHT = 2.0  # how many rounds' worth of evidence the first guess counts for
MEMORY = 0.3  # the weight that a generation's evidence has in the next one


class PositionOdds:
    """The chance that the i-th drafted token stands if those before it do.

    Positions share what they have learned: one with little evidence of its own takes the rate over all.
    """

    def __init__(self, guess: float) -> None:
        """`guess` is the rate before any evidence."""
        self._guess = guess
        self._num_tried: list[float] = []
        self._num_stood: list[float] = []

    @property
    def rate(self) -> float:
        """Tokens that stood ÷ tokens that were tried, over all positions."""
        return (sum(self._num_stood) + PRIOR_WEIGHT * self._guess) / (sum(self._num_tried) + PRIOR_WEIGHT)

    def chance(self, position: int) -> float:
        """The chance of the token at `position`, counted from 0."""
        tried = self._num_tried[position] if position < len(self._num_tried) else 0.0
        stood = self._num_stood[position] if position < len(self._num_stood) else 0.0
        return (stood + PRIOR_WEIGHT * self.rate) / (tried + PRIOR_WEIGHT)

    def expected_tokens(self, num_draft_tokens: int) -> list[float]:
        """Tokens that a round with 1, 2, … drafted tokens is expected to emit: those that stand, and the target's."""
        expected, total, reached = [], 1.0, 1.0
        for position in range(num_draft_tokens):
            reached *= self.chance(position)
            total += reached
            expected.append(total)
        return expected

    def observe(self, num_drafted: int, num_accepted: int) -> None:
        """Takes the outcome of a round."""
        self.fade(FADING)
        num_tried = min(num_accepted + 1, num_drafted)
        while len(self._num_tried) < num_tried:
            self._num_tried.append(0.0)
            self._num_stood.append(0.0)
        for position in range(num_tried):
            self._num_tried[position] += 1
            self._num_stood[position] += position < num_accepted

    def fade(self, weight: float) -> None:
        """Lets the evidence so far count for `weight` of what it did."""
        self._num_tried = [count * weight for count in self._num_tried]
        self._num_stood = [count * weight for count in self._num_stood]


class ConfidenceOdds:
    """The chance that a drafted token stands, by how sure its drafter was of it; ten bins."""

    def __init__(self) -> None:
        """Starts from a guess between "as sure as the drafter" and "always"."""
        self._num_tried = [0.0] * 10
        self._num_stood = [0.0] * 10
        self._all = PositionOdds(0.7)

    def chance(self, confidence: float) -> float:
        """The chance for a token that its drafter gave the probability `confidence`."""
        bin_ = _bin(confidence)
        guess = 0.15 + 0.8 * confidence
        return (self._num_stood[bin_] + PRIOR_WEIGHT * guess) / (self._num_tried[bin_] + PRIOR_WEIGHT)

    @property
    def mean(self) -> float:
        """The chance of a token of which nothing is known yet."""
        return self._all.rate

    def observe(self, confidence: float, stood: bool) -> None:
        """Takes the outcome of one token that was reached."""
        self._all.observe(1, int(stood))
        bin_ = _bin(confidence)
        self._num_tried[bin_] = self._num_tried[bin_] * FADING + 1
        self._num_stood[bin_] = self._num_stood[bin_] * FADING + stood


def _bin(confidence: float) -> int:
    return min(int(confidence * 10), 9)
