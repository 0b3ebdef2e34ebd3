"""Metrics: what the exposition counts is what the trails say, whoever names the models."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from guard import Guard, background
from guard.errors import ConfigError
from guard.policy import Policy
from guard.verdict import GuardTrail, Window
from guard.watch import writer
from guard.watch.metrics import MOST_MODELS, NONE, OTHER
from tests.scripted import Scripted, failing

ROOT = Path(__file__).parents[2]
Labels = tuple[tuple[str, str], ...]


def exposed(registry: CollectorRegistry) -> dict[str, dict[Labels, float]]:
    """The samples of an exposition by name and labels, once all is counted."""
    assert background.flush()
    return parsed(generate_latest(registry).decode())


def parsed(page: str) -> dict[str, dict[Labels, float]]:
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                labels = tuple(sorted(sample.labels.items()))
                found.setdefault(sample.name, {})[labels] = sample.value
    return found


def of(samples: dict[Labels, float], *names: str) -> Counter[Any]:
    """The samples summed by the labels of these names."""
    sums: Counter[Any] = Counter()
    for labels, value in samples.items():
        sums[tuple(dict(labels)[name] for name in names)] += value
    return +sums


def session_of(guard: Guard, model: str) -> Any:
    from dataclasses import replace

    return replace(guard.session(), model=model, request_id="req-0123456789")


SENTENCES = ("All is well. ", "BIAS is here. ", "Une phrase en français. ", "It fails. ")


class Mixed(Scripted):
    """Finds bias, cannot read French, and fails, by the sentence."""

    def score(self, window: Window) -> Any:
        from guard.verdict import Scores

        if "français" in window.text:
            return Scores(unjudged="language")
        if "fails" in window.text:
            raise RuntimeError
        return super().score(window)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=6), max_size=5),
    st.sampled_from(["terminate", "redact", "flag"]),
    st.sampled_from(["open", "closed"]),
)
def test_the_exposition_counts_what_the_trails_say(
    texts: list[list[str]], action: Any, failure: Any
) -> None:
    registry = CollectorRegistry()
    policy = Policy(action=action, failure=failure, breaker_failures=None)
    guard = Guard(policy, detector=Mixed(), metrics=registry)
    trails: list[GuardTrail] = []
    for text in texts:
        stream = guard.stream(text)
        list(stream)
        trails.append(stream.guard)
    found = exposed(registry)
    decisions = [d for trail in trails for d in trail]
    verdicts = [d.verdict for d in decisions]
    kinds = ("unjudged" if v.unjudged else "biased" if v.biased else "unbiased" for v in verdicts)
    assert of(found.get("guard_segments_total", {}), "verdict") == Counter((k,) for k in kinds)
    acts = ((d.action, d.verdict.bias_type or NONE) for d in decisions if d.counted)
    assert of(found.get("guard_decisions_total", {}), "action", "bias_type") == Counter(acts)
    reasons = ((v.unjudged,) for v in verdicts if v.unjudged)
    assert of(found.get("guard_unjudged_segments_total", {}), "reason") == Counter(reasons)
    ends = (("stopped" if trail.stopped else "completed",) for trail in trails)
    assert of(found.get("guard_responses_total", {}), "outcome") == Counter(ends)
    assert found["guard_verdict_seconds_count"] == {(): len(decisions)}
    withheld = of(found.get("guard_withheld_characters_count", {}), "door")
    assert sum(withheld.values()) == len(trails)


def test_a_model_named_by_its_caller_makes_no_series_without_end() -> None:
    registry = CollectorRegistry()
    guard = Guard(Policy(), detector=Scripted(), metrics=registry)
    from guard.doors.plain import TextStream

    for number in range(4 * MOST_MODELS):
        list(TextStream(["Fine."], session_of(guard, f"model-{number}")))
    list(guard.stream(["Fine."]))
    counted = of(exposed(registry)["guard_responses_total"], "model")
    assert len(counted) == MOST_MODELS + 2
    assert counted[(OTHER,)] == 3 * MOST_MODELS
    assert counted[(NONE,)] == 1
    page = generate_latest(registry).decode()
    assert "req-" not in page


def test_guards_of_one_registry_count_together_and_the_default_is_the_clients() -> None:
    from prometheus_client import REGISTRY

    registry = CollectorRegistry()
    for _ in range(2):
        list(Guard(Policy(), detector=Scripted(), metrics=registry).stream(["Fine."]))
    assert sum(exposed(registry)["guard_responses_total"].values()) == 2
    before = exposed(REGISTRY).get("guard_responses_total", {})
    list(Guard(Policy(), detector=Scripted(), metrics=True).stream(["Fine."]))
    after = exposed(REGISTRY)["guard_responses_total"]
    assert sum(after.values()) == sum(before.values()) + 1
    list(Guard(Policy(), detector=Scripted(), metrics=False).stream(["Fine."]))
    assert exposed(REGISTRY)["guard_responses_total"] == after


def test_the_delay_is_that_of_the_first_text(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    guard = Guard(Policy(), detector=Scripted(), metrics=registry)
    stream = guard.stream(["", "All is ", "well. ", "And so on."])
    assert next(stream) == ""
    assert stream.guard.first_release_ms is None  # no text
    assert next(stream) == "All is "
    held = stream.guard.first_release_ms
    assert held is not None
    assert held > 0
    list(stream)
    assert stream.guard.first_release_ms == held
    found = exposed(registry)
    assert found["guard_first_release_seconds_count"] == {(("door", "plain"),): 1}
    assert found["guard_first_release_seconds_sum"] == {(("door", "plain"),): held / 1000}
    guard.trail("A whole text.")
    assert (
        found["guard_first_release_seconds_count"]
        == exposed(registry)["guard_first_release_seconds_count"]
    )


def test_a_stream_that_is_collected_while_a_lock_is_held_waits_for_nobody() -> None:
    """As where the garbage collector runs within the Prometheus client."""
    registry = CollectorRegistry()
    guard = Guard(Policy(), detector=Scripted(), metrics=registry)
    list(guard.stream(["Fine."]))
    found = exposed(registry)
    counter = guard.recorder.recorders[0]._responses  # type: ignore[union-attr]
    (child,) = counter._metrics.values()

    def leave() -> None:
        stream = guard.stream(["One is fine. ", "Two is fine. "])
        next(stream)
        with counter._lock, child._value._lock:
            stream.close()

    leaving = threading.Thread(target=leave, daemon=True)
    leaving.start()
    leaving.join(60)
    assert not leaving.is_alive()
    after = of(exposed(registry)["guard_responses_total"], "outcome")
    assert after == of(found["guard_responses_total"], "outcome") + Counter({("left",): 1})


def test_events_that_are_dropped_by_many_threads_are_all_counted(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "QUEUE", 0)
    registry = CollectorRegistry()
    guard = Guard(Policy(), detector=Scripted(), events=sqlite, metrics=registry)
    monkeypatch.setattr(sys, "getswitchinterval", sys.getswitchinterval)
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=lambda: [list(guard.stream(["Fine."])) for _ in range(50)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(0.005)
    events: Any = guard.recorder.recorders[0]  # type: ignore[union-attr]
    assert events.writer.dropped == 8 * 50 * 2
    assert exposed(registry)["guard_events_dropped_total"] == {(): 8 * 50 * 2}


MAKE = """
import os, sys
from guard import Guard
from guard.policy import Policy
from tests.scripted import Scripted
guard = Guard(Policy(), detector=Scripted(), metrics=True)
"""


def run(code: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", MAKE + code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    return done.stdout


def test_several_processes_count_in_one_folder(tmp_path: Path) -> None:
    """Prometheus' multiprocess mode, which LiteLLM's proxy uses with several workers."""
    each = "for _ in range(10): list(guard.stream(['Fine. BIAS is here.']))"
    for _ in range(2):
        run(each, PROMETHEUS_MULTIPROC_DIR=str(tmp_path))
    page = """
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
print(generate_latest(registry).decode())
"""
    found = parsed(run(page, PROMETHEUS_MULTIPROC_DIR=str(tmp_path)))
    assert of(found["guard_responses_total"], "outcome") == {("stopped",): 20}
    assert of(found["guard_segments_total"], "verdict") == {("biased",): 20, ("unbiased",): 20}
    assert sum(found["guard_verdict_seconds_count"].values()) == 40


def test_a_fork_counts_on() -> None:
    code = """
from guard import background
from prometheus_client import REGISTRY
for _ in range(3): list(guard.stream(['Of the parent.']))
pid = os.fork()
if not pid:
    list(guard.stream(['Of the child.']))
background.flush()
labels = {'door': 'plain', 'model': 'none', 'outcome': 'completed'}
print(int(REGISTRY.get_sample_value('guard_responses_total', labels)), flush=True)
if pid:
    os.waitpid(pid, 0)
"""
    counts = list(map(int, run(code).split()))
    counts.remove(3)  # of the parent alone
    (child,) = counts
    assert child in (1, 2, 3, 4)  # with what its parent had counted by then


def test_a_detector_that_fails_is_a_reason() -> None:
    registry = CollectorRegistry()
    guard = Guard(Policy(failure="open"), detector=Scripted(before=failing), metrics=registry)
    list(guard.stream(["Fine."]))
    found = exposed(registry)
    assert of(found["guard_unjudged_segments_total"], "reason") == {("failure",): 1}


@pytest.mark.parametrize("setting", ["metrics", "traces"])
@pytest.mark.parametrize(("given", "on"), [("true", True), ("false", False)])
def test_one_switch_in_a_file_or_a_variable(
    setting: str, given: str, on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Guard(detector=Scripted()).recorder is None
    (tmp_path / "guard.toml").write_text(f"{setting} = {given}\n")
    assert (Guard(detector=Scripted()).recorder is not None) is on
    (tmp_path / "guard.toml").unlink()
    monkeypatch.setenv(f"BIASGUARD_{setting.upper()}", given)
    assert (Guard(detector=Scripted()).recorder is not None) is on


@pytest.mark.parametrize("setting", ["metrics", "traces"])
def test_what_is_no_switch_is_refused(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: Any = {setting: "sometimes"}
    with pytest.raises(ConfigError, match=f"Guard: {setting} takes true, false or a"):
        Guard(Policy(), detector=Scripted(), **settings)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(f"BIASGUARD_{setting.upper()}", "sometimes")
    with pytest.raises(ConfigError, match=f"{setting} takes true or false, got 'sometimes'"):
        Guard(detector=Scripted())


@pytest.mark.parametrize("package", ["prometheus_client", "opentelemetry"])
def test_a_package_that_is_missing_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = "metrics" if package == "prometheus_client" else "traces"
    for name in [n for n in sys.modules if re.match(rf"{package}(\.|$)", n)]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    settings: Any = {setting: True}
    with pytest.raises(ConfigError, match=rf"{setting}: they need .*; run: pip install"):
        Guard(Policy(), detector=Scripted(), **settings)
