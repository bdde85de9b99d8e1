"""How far measured shares may lie from their probabilities by chance, with a bound that is derived and not tuned."""

from __future__ import annotations

import numpy as np

FALSE_ALARM = 1e-6  # that chance alone fails any of the comparisons of all tests together
NUM_COMPARISONS = 300  # of which there are at most so many


def excess(shares: np.ndarray, probs: np.ndarray, num_runs: int) -> float:
    """The largest deviation of `shares` from `probs` in units of what chance explains; above 1 they differ.

    `shares` is the mean of `num_runs` independent arrays of non-negative numbers that sum to one (an outcome counts
    as a single 1), and `probs` what is claimed to be their mean. So a share p has variance at most p (1 − p) / n, and:

    - by Bernstein's inequality |share − p| ≥ t has at most the probability 2 exp(−n t² / (2 p (1 − p) + 2 t / 3));
    - the total variation has at most the mean Σ √(p (1 − p) / n) / 2, and one run moves it by at most 1 / n, so by
      McDiarmid's inequality it exceeds that mean by t with at most the probability exp(−2 n t²).

    Each comparison has an equal part of `FALSE_ALARM`, half of it for the total variation and half for the cells. What
    has no probability must never come: the generators of these tests cannot round it up from nothing.
    """
    if shares[probs == 0].any():
        return np.inf
    risk = FALSE_ALARM / NUM_COMPARISONS / 2
    variances = probs * (1 - probs) / num_runs
    rate = np.log(2 * probs.size / risk)
    cells = rate / (3 * num_runs) + np.sqrt((rate / (3 * num_runs)) ** 2 + 2 * rate * variances)
    variation = np.sqrt(variances).sum() / 2 + np.sqrt(np.log(1 / risk) / (2 * num_runs))
    deviations = np.abs(shares - probs)
    return float(max((deviations / cells).max(), deviations.sum() / 2 / variation))
