"""The dashboard of examples/grafana: every query runs on what real guarded streams have left."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIServer

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest, start_http_server

from guard import Guard, background
from guard.policy import Policy
from tests.scripted import Scripted, failing
from tests.watch.conftest import Server
from tests.watch.test_metrics import parsed

GRAFANA = Path(__file__).parents[2] / "examples" / "grafana"
BOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "guard.json").read_text())
_INSTALL = "Prometheus is not installed; run: apt-get install prometheus"


def queries(key: str) -> dict[str, str]:
    """The queries of the panels by their titles."""
    found = {}
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            if key in target:
                found[f"{panel['title']} {target['refId']}"] = target[key]
    return found


def filled(guard: Guard) -> None:
    labels: Any = {"labels": {"release": "7"}}
    for _ in range(3):
        list(guard.stream(["All is well. ", "BIAS is here. ", "And so on."], guard=labels))


@pytest.fixture(scope="module")
def registry() -> CollectorRegistry:
    """What guarded streams have counted; one was not judged."""
    registry = CollectorRegistry()
    filled(Guard(Policy(action="redact"), detector=Scripted(), metrics=registry))
    fails = Guard(Policy(), detector=Scripted(before=failing), metrics=registry)
    list(fails.stream(["Fine."]))
    assert background.flush()
    return registry


def test_every_metric_of_the_dashboard_is_in_the_exposition(registry: CollectorRegistry) -> None:
    samples = parsed(generate_latest(registry).decode())
    labels = {name for series in samples.values() for key in series for name, _ in key}
    asked = queries("expr")
    assert len(asked) >= 10
    used = set()
    for title, expr in asked.items():
        named = set(re.findall(r"guard_\w+", expr))
        assert named, title
        assert named <= set(samples), title
        used |= named
        grouped = re.findall(r"by \(([^)]*)\)", expr) + re.findall(r"(\w+)(?:=~|!=|=)\"", expr)
        assert {x.strip() for g in grouped for x in g.split(",")} <= labels, title
    # Nothing that guard counts is missing from the dashboard.
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in samples}
    assert bases == {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}


def test_promtool_finds_nothing_wrong_with_the_exposition(registry: CollectorRegistry) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip(_INSTALL)
    done = subprocess.run(
        [promtool, "check", "metrics"], input=generate_latest(registry), capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_example_of_a_configuration_is_one() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip(_INSTALL)
    command = [promtool, "check", "config", str(GRAFANA / "prometheus.yml")]
    assert subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Guard]]:
    """The address of a server of Prometheus, and a guard that it watches."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip(_INSTALL)
    registry = CollectorRegistry()
    guard = Guard(Policy(action="redact"), detector=Scripted(), metrics=registry)
    filled(guard)
    server: WSGIServer
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    folder = tmp_path_factory.mktemp("prometheus")
    scrape = {
        "job_name": "guard",
        "scrape_interval": "1s",
        "static_configs": [{"targets": [f"127.0.0.1:{server.server_port}"]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [program, f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://{address}", guard
    finally:
        process.terminate()
        process.wait(30)
        server.shutdown()
        server.server_close()
        thread.join()


def asked(url: str, expr: str) -> list[Any]:
    answer = httpx.get(f"{url}/api/v1/query", params={"query": expr}, timeout=30)
    answer.raise_for_status()  # a server that is still starting answers 503, in plain text
    reply = answer.json()
    assert reply["status"] == "success", reply
    found: list[Any] = reply["data"]["result"]
    return found


def until(url: str, expr: str, wanted: Callable[[float], bool]) -> None:
    """Wait until a query has one value that is ``wanted``."""
    found: list[Any] = []
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(httpx.HTTPError):
            found = asked(url, expr)
            if found and wanted(float(found[0]["value"][1])):
                return
        time.sleep(0.5)
    raise AssertionError(f"{expr} is {found}")


def test_every_query_runs_on_a_real_prometheus(prometheus: tuple[str, Guard]) -> None:
    url, guard = prometheus
    exprs = {
        title: expr.replace("$__rate_interval", "1m").replace("$model", ".*")
        for title, expr in queries("expr").items()
    }
    # A rate is exact between samples that are taken before and after the streams, not in them.
    until(url, "sum(guard_segments_total)", lambda count: count >= 9)
    filled(guard)
    until(url, exprs["Biased segments A"], lambda share: share == pytest.approx(1 / 3))
    for title, expr in exprs.items():
        found = asked(url, expr)
        if "unjudged" not in expr or "verdict" in expr:  # all was judged here
            assert found, title


# Counters by minute and what they raise after so many minutes: (series, values), minutes, alerts.
# `a+bxn` is Prometheus's notation: n samples after a, each b more.
DECISIONS = "guard_decisions_total{{model='m', door='chat', action='{}', bias_type='age'}}"
SEGMENTS = "guard_segments_total{{model='m', door='chat', verdict='{}'}}"
RESPONSES = "guard_responses_total{model='m', door='chat', outcome='completed'}"
UNJUDGED = "guard_unjudged_segments_total{{model='m', door='chat', reason='{}'}}"
DAY = 1_440
LONG = DAY + 720
FIRING = "count(ALERTS{{alertname='{}', alertstate='firing'}}) or vector(0)"
PLANTED: dict[str, tuple[dict[str, str], int, set[str]]] = {
    "a steady guard": (
        {
            DECISIONS.format("redact"): f"0+20x{LONG}",
            DECISIONS.format("flag"): f"0+1x{LONG}",
            SEGMENTS.format("biased"): f"0+21x{LONG}",
            SEGMENTS.format("unbiased"): f"0+979x{LONG}",
            SEGMENTS.format("unjudged"): f"0+20x{LONG}",
            UNJUDGED.format("language"): f"0+20x{LONG}",
            RESPONSES: f"0+90x{LONG}",
            "guard_events_dropped_total{instance='a'}": f"0+0x{LONG}",
            "guard_verdict_seconds_bucket{le='0.1'}": f"0+99x{LONG}",
            "guard_verdict_seconds_bucket{le='+Inf'}": f"0+100x{LONG}",
        },
        LONG,
        set(),
    ),
    "a fifth of the findings is flagged": (
        {DECISIONS.format("redact"): "0+4x90", DECISIONS.format("flag"): "0+1x90"},
        80,
        {"GuardBiasReachesUsers"},
    ),
    "a fifth of five findings": (
        {DECISIONS.format("redact"): "0 0 4x90", DECISIONS.format("flag"): "0 0 1x90"},
        30,
        set(),
    ),
    "a rate that tripled": (
        {
            SEGMENTS.format("biased"): f"0+2x{DAY} {2 * DAY + 6}+6x360",
            SEGMENTS.format("unbiased"): f"0+98x{DAY + 361}",
        },
        DAY + 360,
        {"GuardBiasDoubled"},
    ),
    "a tenth is not judged": (
        {SEGMENTS.format("unbiased"): "0+90x60", SEGMENTS.format("unjudged"): "0+10x60"},
        50,
        {"GuardUnjudged"},
    ),
    "the detector fails": ({UNJUDGED.format("failure"): "0+1x60"}, 40, {"GuardDetectorFails"}),
    "other languages": ({UNJUDGED.format("language"): "0+1x60"}, 40, set()),
    "events are dropped": (
        {"guard_events_dropped_total{instance='a'}": "0x20 5x20"},
        25,
        {"GuardEventsDropped"},
    ),
    "verdicts are slow": (
        {
            "guard_verdict_seconds_bucket{le='0.25'}": "0+90x60",
            "guard_verdict_seconds_bucket{le='0.5'}": "0+100x60",
            "guard_verdict_seconds_bucket{le='+Inf'}": "0+100x60",
        },
        50,
        {"GuardSlow"},
    ),
    "guard was left out": ({RESPONSES: f"0+1x{DAY} {DAY}x300"}, DAY + 120, {"GuardSilent"}),
}


def test_promtool_accepts_the_alert_rules_and_they_find_what_is_planted(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip(_INSTALL)
    rules = GRAFANA / "alerts.yml"
    check = subprocess.run([promtool, "check", "rules", str(rules)], capture_output=True)
    assert check.returncode == 0, check.stderr
    (group,) = yaml.safe_load(rules.read_text())["groups"]
    names = {rule["alert"] for rule in group["rules"]}
    assert names == set().union(*(alerts for _, _, alerts in PLANTED.values()))
    metrics = set(re.findall(r"guard_\w+", " ".join(rule["expr"] for rule in group["rules"])))
    assert metrics <= {name for expr in queries("expr").values() for name in NAMES.findall(expr)}
    tests = [
        {
            "name": name,
            "interval": "1m",
            "input_series": [{"series": one, "values": values} for one, values in series.items()],
            "promql_expr_test": [
                {
                    # The alerts that fire are the series of ALERTS.
                    "expr": FIRING.format(alert),
                    "eval_time": f"{minutes}m",
                    "exp_samples": [{"labels": "{}", "value": int(alert in alerts)}],
                }
                for alert in sorted(names)
            ],
        }
        for name, (series, minutes, alerts) in PLANTED.items()
    ]
    planted = tmp_path / "planted.yml"
    interval = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
    planted.write_text(yaml.safe_dump(interval))
    done = subprocess.run(
        [promtool, "test", "rules", str(planted)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


NAMES = re.compile(r"guard_\w+")
MACROS = {
    r"\$__unixEpochFilter\(([\w.]+)\)": r"\1 >= 0 AND \1 <= 4102444800",
    r"\$__unixEpochGroup\(([\w.]+), '1d'\)": r"floor((\1)/86400)*86400",
}


def run(connection: Any, statement: str, variables: dict[str, str]) -> list[dict[str, Any]]:
    for macro, meaning in MACROS.items():
        statement = re.sub(macro, meaning, statement)
    for name, values in variables.items():
        statement = statement.replace(f"${{{name}:sqlstring}}", values)
    assert "$" not in statement
    rows: list[dict[str, Any]] = connection.execute(statement).fetchall()
    return rows


def test_every_statement_runs_on_a_real_store(server: Server) -> None:
    import psycopg

    url = server.database()
    guard = Guard(Policy(action="redact"), detector=Scripted(), events=url)
    filled(guard)
    recorder: Any = guard.recorder
    assert recorder.writer.flush(30)
    asked = queries("rawSql")
    listed = {v["name"]: v["query"] for v in BOARD["templating"]["list"] if "SELECT" in v["query"]}
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:  # type: ignore[attr-defined]
        # What Grafana offers, and puts into a statement for All: quoted, with commas.
        every = {
            name: ", ".join(f"'{v}'" for one in connection.execute(query) for v in one.values())
            for name, query in listed.items()
        }
        assert every == {"release": "'7'", "stored_model": "'(none)'"}
        rows = {title: run(connection, statement, every) for title, statement in asked.items()}
        others = {
            title: run(connection, statement, {**every, "release": "'8'"})
            for title, statement in asked.items()
        }
    assert not any(others.values())
    (by_release,) = rows["Prevalence by release A"]
    assert (by_release["metric"], by_release["prevalence"]) == ("7", pytest.approx(1 / 3))
    (day,) = rows["Prevalence and mitigation A"]
    assert (day["prevalence"], day["mitigation"]) == (pytest.approx(1 / 3), 1)
    (one,) = rows["By model and release A"]
    assert (one["release"], one["responses"], one["judged"]) == ("7", 3, 9)
    (kind,) = rows["Groups and bias types A"]
    assert (kind["bias_type"], kind["action"], kind["findings"]) == ("gender", "redact", 3)
    (detector,) = rows["Slowest verdicts A"]
    assert (detector["detector"], detector["segments"]) == ("scripted-1", 9)
    assert rows["Events that were not written A"] == []


def test_the_data_sources_are_those_of_the_dashboard() -> None:
    made = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "guard.yaml").read_text())
    sources = {(s["type"], s["uid"]) for s in made["datasources"]}
    used = {
        (t["datasource"]["type"], t["datasource"]["uid"])
        for panel in BOARD["panels"]
        for t in (panel, *panel["targets"])
    }
    assert used == sources
    (postgres,) = (s for s in made["datasources"] if s["type"] == "postgres")
    assert postgres["jsonData"]["sslmode"] == "$GUARD_POSTGRES_SSLMODE"
    # The page names each variable that the files read.
    read = re.findall(r"\$(GUARD_\w+)", json.dumps(made))
    page = (GRAFANA.parents[1] / "docs" / "metrics.md").read_text()
    assert read
    assert not [name for name in read if f"`{name}`" not in page]
    (provider,) = yaml.safe_load(
        (GRAFANA / "provisioning" / "dashboards" / "guard.yaml").read_text()
    )["providers"]
    assert provider["type"] == "file"
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
