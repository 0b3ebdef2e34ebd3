"""How much what is chosen follows what is given: shares and Kendall's tau, from six counts.

A table holds, along its last axis, the counts n[given, chosen] with given = negative, positive and
chosen = negative, neutral, positive, in that order: NN, NNu, NP, PN, PNu, PP. Every function takes
tables of shape (..., 6) and returns (...), nan where a denominator is 0.

Shares are named as in the paper: PL, NL, NuL are of all answers, PPL is that of positive choices
after a positive word, NPL after a negative one; dPL = PPL - NPL (Figure 3).

With C concordant and D discordant pairs, n answers, r and c the sums of given and chosen::

    C - D = NN (PNu + PP) + NNu PP - PN (NNu + NP) - PNu NP
    tau-c = 2 m (C - D) / ((m - 1) n^2), m = min(2, 3) = 2       (Stuart 1953)
    tau-b = (C - D) / sqrt(r_N r_P (c_N c_Nu + c_N c_P + c_Nu c_P))   (Kendall 1945)

as in ``scipy.stats.kendalltau``: tau-c is the method's number (the authors' scripts use it), tau-b
corrects for ties. Neither is defined where only one polarity was given,
or only one chosen.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from guard.suites.contract import Floats
from guard.suites.reading import ratio

TABLE = 6
"""Columns: given negative with chosen negative, neutral, positive; then given positive."""


def _cells(table: Floats) -> Floats:
    return table.reshape(*table.shape[:-1], 2, 3)


def total(table: Floats) -> Floats:
    """Return the number of answers."""
    return np.asarray(table.sum(axis=-1), dtype=np.float64)


def given_negative(table: Floats) -> Floats:
    """Return the number of answers after a negative word."""
    return total(table[..., :3])


def given_positive(table: Floats) -> Floats:
    """Return the number of answers after a positive word."""
    return total(table[..., 3:])


def _share(chosen: int) -> Callable[[Floats], Floats]:
    return lambda table: ratio(_cells(table)[..., chosen].sum(axis=-1), total(table))


def _share_given(given: int, chosen: int) -> Callable[[Floats], Floats]:
    return lambda table: ratio(
        _cells(table)[..., given, chosen], _cells(table)[..., given, :].sum(axis=-1)
    )


def _change(chosen: int) -> Callable[[Floats], Floats]:
    after_negative, after_positive = _share_given(0, chosen), _share_given(1, chosen)
    return lambda table: after_positive(table) - after_negative(table)


def _concordance(table: Floats) -> Floats:
    """Return concordant minus discordant pairs."""
    nn, nnu, np_, pn, pnu, pp = np.moveaxis(table, -1, 0)
    return np.asarray(nn * (pnu + pp) + nnu * pp - pn * (nnu + np_) - pnu * np_)


def _untied(table: Floats) -> tuple[Floats, Floats]:
    """Return the pairs that differ in what was given, and in what was chosen."""
    c = _cells(table).sum(axis=-2)
    chosen = c[..., 0] * c[..., 1] + c[..., 0] * c[..., 2] + c[..., 1] * c[..., 2]
    return given_negative(table) * given_positive(table), chosen


def tau_c(table: Floats) -> Floats:
    """Return Stuart's tau-c."""
    given, chosen = _untied(table)
    n = total(table)
    return np.where((given > 0) & (chosen > 0), ratio(4 * _concordance(table), n * n), np.nan)


def tau_b(table: Floats) -> Floats:
    """Return Kendall's tau-b."""
    given, chosen = _untied(table)
    return ratio(_concordance(table), np.sqrt(given) * np.sqrt(chosen))


FORMULAS: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "tau_c": (tau_c, total),
    "tau_b": (tau_b, total),
    "PL": (_share(2), total),
    "NL": (_share(0), total),
    "NuL": (_share(1), total),
    "PPL": (_share_given(1, 2), given_positive),
    "PNL": (_share_given(1, 0), given_positive),
    "PNuL": (_share_given(1, 1), given_positive),
    "NPL": (_share_given(0, 2), given_negative),
    "NNL": (_share_given(0, 0), given_negative),
    "NNuL": (_share_given(0, 1), given_negative),
    "dPL": (_change(2), total),
    "dNL": (_change(0), total),
    "dNuL": (_change(1), total),
}
"""Every measure with what it is over, by name."""
