"""Audits whose models workers on Ray ask: real processes, also killed in mid-call; one file."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from guard.audit import ray_model
from guard.audit.calls import Call, Piece, Reply
from guard.audit.models import CallLost
from guard.audit.ray_model import RayModel, sent_variables
from guard.audit.run_file import RunFile, RunWriter
from guard.audit.runner import Stopped
from guard.audit.sending import Sending
from guard.cli import main
from guard.ray_session import ray_session
from tests.audit.answering import Answering, answering
from tests.audit.test_merge import without_times
from tests.audit.test_runner import run as run_tiny
from tests.processes import started_by
from tests.tiny_model import save_model

SUITE = "tests.audit.tiny_suite:Tiny"
ROOT = Path(__file__).parents[2]
KEY = "sk-of-nobody-0123456789"
# Not importorskip: Ray reads its token when it is imported.
pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra scale is missing"),
    pytest.mark.usefixtures("scripted_guards"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster on this machine, which every command of this process joins."""
    with ray_session(cpus=4) as ray:
        yield ray


def call(*args: str) -> Result:
    return CliRunner().invoke(main, ["audit", *args], catch_exceptions=False)


def asking(*args: str, count: int = 40) -> list[str]:
    asked = ["run", "--suite", SUITE, "--set", f"{SUITE}.count={count}", "--json"]
    return [*asked, *([] if "--model" in args else ["--model", "openai/x"]), *args]


def run(*args: str, count: int = 40) -> Any:
    done = call(*asking(*args, count=count))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def recorded_calls(folder: str) -> list[Call]:
    return list(RunFile(Path(folder) / "run.db").suite("tiny").calls.values())


def workers(driver: int | None = None) -> list[int]:
    """The processes of the workers that ask for a driver, by default this process."""
    return started_by(driver or os.getpid(), "ray::AskingWorker")


@contextmanager
def meanwhile(action: Any) -> Iterator[None]:
    """Run ``action`` in a thread, and raise what it raises."""
    raised: list[BaseException] = []

    def guarded_action() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=guarded_action)
    thread.start()
    yield
    thread.join()
    if raised:
        raise raised[0]


def wait_until(holds: Any, seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came about"
        time.sleep(0.01)


def test_a_run_on_ray_is_the_run_of_one_process(cluster: Any, provider: Answering) -> None:
    plain = run("--out", "plain", count=12)
    asked = Counter(provider.asked)
    provider.asked.clear()
    on_ray = run("--out", "ray", "--on", "ray", "--workers", "2", count=12)
    assert Counter(provider.asked) == asked
    for key in ("scores", "guarded", "effects", "outcomes", "key", "complete"):
        assert on_ray["suites"][0][key] == plain["suites"][0][key]
    assert without_times("ray") == without_times("plain")
    # The other goes on with what one has recorded.
    provider.asked.clear()
    run("--out", "ray", count=12)
    assert provider.asked == []
    wait_until(lambda: not workers())  # they end with the command
    import ray._private.state

    (job,) = ray._private.state.jobs()
    assert job["Entrypoint"] == "guard"  # not the command line, which may have a header's value


@pytest.mark.slow("starts two workers twice")
def test_capabilities_are_asked_once_and_pace_and_limits_are_one(
    cluster: Any, provider: Answering
) -> None:
    options = ("--on", "ray", "--concurrency", "2", "--workers", "2", "--plain-only")
    form = ("--set", f"{SUITE}.form=logprobs")
    provider.delay_s = 0.05

    def throttle() -> None:
        wait_until(lambda: len(provider.asked) > 10)
        provider.retry_after, provider.busy = "0.2", 3

    with meanwhile(throttle):
        run("--out", "a", *options, *form)
    assert sum("Say a." in one for one in provider.asked) == 1
    assert max(one.attempts for one in recorded_calls("a")) > 1
    assert 2 < provider.most_at_once <= 4
    limited = call(*asking("--out", "c", *options, "--max-calls", "7"))
    assert limited.exit_code == 4
    assert "Stopped at --max-calls 7: this command made 7 calls" in limited.output
    assert len(recorded_calls("c")) == 7


def test_a_worker_killed_in_mid_call_is_replaced_and_loses_nothing(
    cluster: Any, provider: Answering
) -> None:
    run("--out", "plain", "--plain-only", count=12)
    expected = Counter(provider.asked)
    provider.asked.clear()
    provider.delay_s = 0.3

    def kill_one() -> None:
        wait_until(lambda: provider.at_once >= 4 and len(provider.asked) > 4)
        os.kill(*workers(), signal.SIGKILL)

    with meanwhile(kill_one):
        options = ("--on", "ray", "--workers", "1", "--concurrency", "4", "--plain-only")
        killed = run("--out", "killed", *options, count=12)
    assert killed["complete"]
    assert without_times("killed") == without_times("plain")  # attempts, too: none was a failure
    again = Counter(provider.asked) - expected
    assert 0 < again.total() <= 4
    assert max(again.values()) == 1
    assert not expected - Counter(provider.asked)


@pytest.mark.slow("starts a worker")
def test_keys_prompts_and_answers_are_in_no_file_and_no_state_of_ray(
    cluster: Any, provider: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}-other")
    header = ("--header", "X-Tenant=tenant-of-nobody", "--set", "api_key_env=OWN_KEY")
    provider.malformed = ["no JSON: to blame"] * 3
    on_ray = ("--on", "ray", "--workers", "1")
    run("--out", "a", *on_ray, "--plain-only", *header)
    assert {one["authorization"] for one in provider.headers} == {f"Bearer {KEY}"}
    assert {one["x-tenant"] for one in provider.headers} == {"tenant-of-nobody"}
    import ray._private.state
    import ray._private.worker

    node = ray._private.worker._global_node
    assert node is not None
    session = Path(node.get_session_dir_path())
    state = json.dumps(ray._private.state.actors(), default=str)
    texts = [state, *(p.read_text("utf-8", "replace") for p in session.rglob("*") if p.is_file())]
    assert len(texts) > 10
    for secret in (KEY, "tenant-of-nobody", "Who is to blame", "to blame"):
        assert not any(secret in text for text in texts), secret


def refuse(*command: str) -> str:
    result = call(*command)
    assert result.exit_code == 2
    return " ".join(result.output.split())


def test_what_cannot_be_is_told_before_ray_begins() -> None:
    assert "--on takes ray or ray=HOST:PORT, not 'dask'" in refuse(*asking("--on", "dask"))
    replayed = refuse("run", "--suite", SUITE, "--replay", "tape", "--on", "ray")
    assert "A replay asks nobody; leave --on and --workers out" in replayed


@pytest.mark.slow("starts a worker")
def test_what_cannot_be_on_ray_is_told_in_a_sentence(cluster: Any, provider: Answering) -> None:
    ray = ("--on", "ray", "--workers")
    assert "99 workers need 50 CPUs, with room to replace one" in refuse(*asking(*ray, "99"))
    assert "nowhere" in refuse(*asking("--model", "local:nowhere", "--out", "o", *ray, "1"))
    with RunWriter(Path("mine/run.db")):
        told = refuse(*asking("--out", "mine", *ray, "1"))
    assert "mine/run.db is being written by another audit" in told


@pytest.mark.slow("starts two workers, one of them late")
def test_a_worker_of_another_version_and_workers_that_cannot_begin_are_told(
    cluster: Any, provider: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asking("--out", "a", "--plain-only", "--on", "ray", "--workers", "1")
    with monkeypatch.context() as patched:
        mine = {**ray_model.versions(), "litellm": "0.1.2"}
        patched.setattr(ray_model, "versions", lambda: mine)
        result = call(*asked)
        assert result.exit_code == 2
        assert "and this command 0.1.2, so their answers may differ" in result.output
    patched_notice = partial(ray_model.StallNotice, after_s=0.5)
    monkeypatch.setattr(ray_model, "StallNotice", patched_notice)
    monkeypatch.setattr(ray_model, "_LOOK_S", 0.2)
    busy = cluster.remote(num_cpus=4)(Counter).remote()
    cluster.get(busy.total.remote())

    def make_room() -> None:
        time.sleep(2.0)
        cluster.kill(busy)

    with meanwhile(make_room):
        result = call(*asked)
    assert result.exit_code == 0, result.output
    assert "waiting for 1 workers to begin; of the cluster's 4 CPUs 0 are free" in result.output


@pytest.mark.slow("starts workers for a model and an analyst")
def test_an_analyst_is_asked_by_workers_and_the_scorer_judges_here(
    cluster: Any, provider: Answering
) -> None:
    suite = ["--suite", "tests.audit.test_others:Read", "--analyst", "openai/analyst"]
    results = []
    for folder, on_ray in (("plain", ()), ("ray", ("--on", "ray"))):
        asked = ["run", *suite, "--model", "openai/x", "--out", folder, "--json", *on_ray]
        result = call(*asked)
        assert result.exit_code == 0, result.output
        results.append(json.loads(result.stdout)["suites"][0])
    for key in ("scores", "guarded", "outcomes", "calls"):
        assert results[0][key] == results[1][key]


@pytest.mark.slow("workers import transformers", limit_s=600)
def test_workers_have_local_models_of_their_own(cluster: Any, tmp_path: Path) -> None:
    model = ("--model", f"local:{save_model(tmp_path / 'model')}")
    for folder, on_ray in (("plain", ()), ("ray", ("--on", "ray"))):
        result = call(*asking("--out", folder, "--plain-only", *model, *on_ray))
        assert result.exit_code == 3, result.output  # it answers at random
    assert without_times("ray") == without_times("plain")


@pytest.mark.slow("starts two workers")
def test_a_fatal_error_of_the_provider_ends_the_audit(cluster: Any, provider: Answering) -> None:
    provider.busy, provider.status, provider.words = 1000, 401, "bad key"
    result = call(*asking("--out", "a", "--on", "ray", "--plain-only"))
    assert result.exit_code == 4
    assert "openai/x cannot be asked: " in result.output
    assert len(provider.refused_at) <= 16


class LosingPool:
    """A pool without Ray that loses the first ``losses`` calls of every request."""

    count = at_once = 8

    def __init__(self, losses: int) -> None:
        self.losses = losses
        self.lost: Counter[str] = Counter()

    async def call(self, model: RayModel, most: int, method: str, *args: Any) -> Any:
        if method == "capabilities":
            return args[0]
        await asyncio.sleep(0)
        key = args[1]
        if self.lost[key] < self.losses:
            self.lost[key] += 1
            raise CallLost
        return Reply((Piece("first"),))

    def forget(self, number: int) -> list[Any]:
        return []


def test_losses_are_counted_by_request(tmp_path: Path) -> None:
    """One dead worker loses all samples of an item that it was asking, each of them once."""

    def ask(losses: int) -> Any:
        pool = LosingPool(losses)
        model = RayModel(pool, 1, "openai/x", 1.0, False, Sending())  # type: ignore[arg-type]
        return run_tiny(model, tmp_path / str(losses), count=1, samples=6, temperature=1.0), pool

    for losses in (1, 3):
        result, pool = ask(losses)
        assert result.complete
        assert sorted(pool.lost.values()) == [losses] * 6
    with pytest.raises(Stopped, match=r"^4 workers on Ray died while .* the request of t0, so"):
        ask(4)


def test_only_the_variables_of_a_provider_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    names = ["OPENAI_API_KEY", "OPENAI_API_BASE", "ANTHROPIC_API_KEY", "AWS_REGION", "LITELLM_LOG",
             "MY_KEY", "HOME"]  # fmt: skip
    for name in names:
        monkeypatch.setenv(name, "x")
    assert [*sent_variables("openai/x", Sending())] == [names[0], names[1], "LITELLM_LOG"]
    assert [*sent_variables("bedrock/amazon.nova-micro-v1:0", Sending())] == [names[3], names[4]]
    own = Sending(key_variable="MY_KEY")
    assert [*sent_variables("anthropic/claude-x", own)] == [names[2], names[4], "MY_KEY"]
    assert [*sent_variables("local:smollm2", Sending())] == ["LITELLM_LOG"]


@pytest.mark.slow("starts five workers one after another")
def test_workers_that_die_again_and_again_end_the_audit(cluster: Any, provider: Answering) -> None:
    run("--out", "a", "--plain-only", "--sample", "4")
    ended = threading.Event()

    def kill_all() -> None:
        while not ended.wait(0.01):
            for pid in workers():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    with meanwhile(kill_all):
        result = call(*asking("--out", "a", "--plain-only", "--on", "ray", "--workers", "1"))
        ended.set()
    assert result.exit_code == 4
    assert "5 workers on Ray died one after another before any answered" in result.output


class Killing:
    """Runs the command in a process of its own until it is done, killing it and its workers."""

    def __init__(self, folder: Path, *, count: int, driver_kills: int, worker_kills: int) -> None:
        self.command = [
            *(sys.executable, "-m", "guard", "audit"),
            *asking("--out", str(folder), "--plain-only", "--on", "ray", count=count),
            *("--concurrency", "16", "--workers", "2"),
        ]
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("RAY_")},
            "PYTHONPATH": str(ROOT),
        }
        self.folder = folder
        self.driver_kills, self.worker_kills = driver_kills, worker_kills
        self.random = random.Random(17)

    def run(self, provider: Answering, samples: int) -> subprocess.CompletedProcess[str]:
        """Kill at answered counts that are spread over the run; return how the last run ended."""
        kills = ["driver"] * self.driver_kills + ["worker"] * self.worker_kills
        self.random.shuffle(kills)
        due = [(n + 1) * samples // (len(kills) + 1) for n in range(len(kills))]
        self.start()
        for at, kill in zip(due, kills, strict=True):
            while self.recorded() < at or not workers(self.process.pid):
                assert self.process.poll() is None, self.process.communicate()
                time.sleep(0.01)
            if kill == "driver":
                self.process.kill()
                self.process.communicate()
                self.start()
            else:
                os.kill(self.random.choice(workers(self.process.pid)), signal.SIGKILL)
        out, error = self.process.communicate(timeout=600)
        return subprocess.CompletedProcess(self.command, self.process.returncode, out, error)

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def recorded(self) -> int:
        with suppress(Exception):  # the file is not there yet
            return RunFile(self.folder / "run.db").suite("tiny").count_answers()
        return 0


@pytest.mark.parametrize(
    ("count", "driver_kills", "worker_kills"),
    [(4_000, 5, 20), (20_000, 5, 20)],
    ids=["6,000 calls", "30,000 calls"],
)
@pytest.mark.slow("kills drivers and workers, each of which takes seconds to start", limit_s=3600)
def test_kills_of_workers_and_drivers_lose_and_double_nothing(
    count: int, driver_kills: int, worker_kills: int, tmp_path: Path
) -> None:
    with answering() as provider:
        os.environ["OPENAI_API_BASE"], os.environ["OPENAI_API_KEY"] = provider.base, "none"
        run("--out", "plain", "--plain-only", "--concurrency", "16", count=count)
        expected = Counter(provider.asked)
        provider.asked.clear()
        provider.delay_s = 0.05
        killing = Killing(
            tmp_path / "killed", count=count, driver_kills=driver_kills, worker_kills=worker_kills
        )
        done = killing.run(provider, 3 * count // 2)
        assert done.returncode == 0, done.stderr
        asked = Counter(provider.asked)
    calls = recorded_calls(str(tmp_path / "killed"))
    assert len({one.key for one in calls}) == len(calls) == sum(expected.values())
    assert not expected - asked
    again = asked - expected
    # A worker has 16 calls at a time, a driver 32; each of them is asked once more a kill.
    assert again.total() <= 16 * worker_kills + 32 * driver_kills
    print(f"asked again: {again.total()}, the same one at most {max(again.values())} times")
    assert without_times(str(tmp_path / "killed")) == without_times("plain")
