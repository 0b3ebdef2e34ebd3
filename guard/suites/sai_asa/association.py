"""The association of what is given with what is chosen: shares and Kendall's tau.

A table holds, along its last axis, the counts n[given, chosen] with given = negative, positive and
chosen = negative, neutral, positive, in that order: NN, NNu, NP, PN, PNu, PP. Every function takes
tables of shape (..., 6) and returns (...), nan where a denominator is 0.

Shares have the paper's names: PL, NL, NuL are shares of all answers; PPL is the share of positive
choices after a positive word, NPL after a negative one; dPL = PPL - NPL (Figure 3).

With C concordant and D discordant pairs, n answers, r and c the sums of given and chosen::

    C - D = NN (PNu + PP) + NNu PP - PN (NNu + NP) - PNu NP
    tau-c = 2 m (C - D) / ((m - 1) n^2), m = min(2, 3) = 2       (Stuart 1953)
    tau-b = (C - D) / sqrt(r_N r_P (c_N c_Nu + c_N c_P + c_Nu c_P))   (Kendall 1945)

as in ``scipy.stats.kendalltau``, here for arrays of tables. The authors' scripts use tau-c; tau-b
corrects for ties. Neither is defined if only one polarity was given, or only one chosen.
"""

from __future__ import annotations

import numpy as np

from guard.results.measure import Value, ratio
from guard.results.samples import Floats

TABLE = 6
"""Columns: given negative with chosen negative, neutral, positive; then given positive."""


def _table_cells(table: Floats) -> Floats:
    return table.reshape(*table.shape[:-1], 2, 3)


def total(table: Floats) -> Floats:
    """Return the number of answers."""
    return np.asarray(table.sum(axis=-1), dtype=np.float64)


def _total_given(side: int) -> Value:
    return lambda table: total(_table_cells(table)[..., side, :])


def _chosen_share(chosen: int) -> Value:
    return lambda table: ratio(_table_cells(table)[..., chosen].sum(axis=-1), total(table))


def _share_given(side: int, chosen: int) -> Value:
    over = _total_given(side)
    return lambda table: ratio(_table_cells(table)[..., side, chosen], over(table))


def _share_change(chosen: int) -> Value:
    after_negative, after_positive = _share_given(0, chosen), _share_given(1, chosen)
    return lambda table: after_positive(table) - after_negative(table)


def _concordant_pairs(table: Floats) -> Floats:
    """Return concordant minus discordant pairs."""
    nn, nnu, np_, pn, pnu, pp = np.moveaxis(table, -1, 0)
    return np.asarray(nn * (pnu + pp) + nnu * pp - pn * (nnu + np_) - pnu * np_)


def _untied_pairs(table: Floats) -> tuple[Floats, Floats]:
    """Return the pairs that differ in what was given, and in what was chosen."""
    c = _table_cells(table).sum(axis=-2)
    chosen = c[..., 0] * c[..., 1] + c[..., 0] * c[..., 2] + c[..., 1] * c[..., 2]
    return total(table[..., :3]) * total(table[..., 3:]), chosen


def tau_c(table: Floats) -> Floats:
    """Return Stuart's tau-c."""
    untied_given, untied_chosen = _untied_pairs(table)
    n = total(table)
    return np.where(
        (untied_given > 0) & (untied_chosen > 0), ratio(4 * _concordant_pairs(table), n * n), np.nan
    )


def tau_b(table: Floats) -> Floats:
    """Return Kendall's tau-b."""
    untied_given, untied_chosen = _untied_pairs(table)
    return ratio(_concordant_pairs(table), np.sqrt(untied_given) * np.sqrt(untied_chosen))


FORMULAS: dict[str, tuple[Value, Value]] = {
    "tau_c": (tau_c, total),
    "tau_b": (tau_b, total),
    "PL": (_chosen_share(2), total),
    "NL": (_chosen_share(0), total),
    "NuL": (_chosen_share(1), total),
    "PPL": (_share_given(1, 2), _total_given(1)),
    "PNL": (_share_given(1, 0), _total_given(1)),
    "PNuL": (_share_given(1, 1), _total_given(1)),
    "NPL": (_share_given(0, 2), _total_given(0)),
    "NNL": (_share_given(0, 0), _total_given(0)),
    "NNuL": (_share_given(0, 1), _total_given(0)),
    "dPL": (_share_change(2), total),
    "dNL": (_share_change(0), total),
    "dNuL": (_share_change(1), total),
}
"""Every measure by name: its value and its denominator."""
