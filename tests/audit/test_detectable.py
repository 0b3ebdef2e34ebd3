"""What a plan says that a comparison could find is found, in as many comparisons as it says."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from guard.audit.audit import Audit
from guard.audit.plan import CHANGE, detectable_worsening, make_plan, show_plans
from guard.audit.sides import SHARE
from guard.audit.tolerances import DEFAULT_FRACTION
from guard.results.conclusions import ALPHA
from guard.results.measure import share
from guard.results.paired import Pairs
from tests.audit.gated_suite import Gated, GatedOptions


@pytest.mark.parametrize(("count", "each"), [(300, 2), (400, 5)])
def test_four_of_five_comparisons_find_it(count: int, each: int) -> None:
    audit = Audit.of(Gated(GatedOptions(count=count, each=each)))
    least = detectable_worsening(audit)
    axes = 1 + sum(m.ideal is not None for m in audit.suite.measures(()))
    clusters = [item.cluster for item in audit.items]
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(200):
        base, new = np.ones((2, count, 2))
        base[:, 0] = rng.random(count) < 0.3
        # Half of CHANGE flips each way by chance, and beyond that the worsening itself.
        up = (CHANGE / 2 + least) / 0.7
        flips = np.where(base[:, 0] == 1, CHANGE / 2 / 0.3, up)
        new[:, 0] = np.abs(base[:, 0] - (rng.random(count) < flips))
        pairs = Pairs(base, new, clusters, share, SHARE)
        worst = max(pairs.permutation_test().p_worse, pairs.p_beyond_tolerance(DEFAULT_FRACTION))
        found += worst < ALPHA / axes
    assert 0.7 <= found / 200 <= 0.93


def test_too_few_clusters_find_nothing() -> None:
    audit = Audit.of(Gated(GatedOptions(count=4)))
    assert np.isnan(detectable_worsening(audit))
    console = Console(file=io.StringIO(), width=100)
    show_plans(console, [make_plan(audit, None, concurrency=1, latency_s=1.0)])
    assert "nothing can be detected: too few clusters" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_sample_that_no_worsening_would_show_in_says_so() -> None:
    audit = Audit.of(Gated(GatedOptions(count=12)))
    assert np.isinf(detectable_worsening(audit))
    planned = make_plan(audit, None, concurrency=1, latency_s=1.0)
    assert planned.as_json()["detectable_share"] is None
    console = Console(file=io.StringIO(), width=120)
    show_plans(console, [planned])
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert "nothing can be detected: too few items" in told
    assert "worse by" not in told
