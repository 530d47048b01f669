"""The best one-to-one matching between rows and columns of a small score matrix."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

_BRUTE_FORCE_SIZE = 3
"""Up to this size trying every matching is faster than asking (and importing) SciPy."""


def best_assignment(scores: Sequence[Sequence[float]]) -> list[int | None]:
    """Return, per row, the column it is matched with, so that the sum of the matched scores is greatest.

    Every column is used at most once; a row is None only where there are more rows than columns. ``scores`` is a
    rectangle, rows x columns, of finite numbers.
    """
    rows, columns = len(scores), len(scores[0]) if scores else 0
    if columns == 0:
        return [None] * rows
    if rows == 1:
        return [max(range(columns), key=scores[0].__getitem__)]
    if max(rows, columns) <= _BRUTE_FORCE_SIZE:
        # Padding with None lets rows go unmatched, which only pays where columns are short.
        choices: list[int | None] = [*range(columns), *[None] * max(0, rows - columns)]
        best = max(permutations(choices, rows), key=lambda chosen: _total(scores, chosen))
        return list(best)
    from scipy.optimize import linear_sum_assignment

    matched: list[int | None] = [None] * rows
    for row, column in zip(*linear_sum_assignment(scores, maximize=True), strict=True):
        matched[int(row)] = int(column)
    return matched


def _total(scores: Sequence[Sequence[float]], chosen: Sequence[int | None]) -> float:
    return sum(scores[row][column] for row, column in enumerate(chosen) if column is not None)
