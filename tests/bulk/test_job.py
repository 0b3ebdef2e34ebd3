"""A job from its command to its output: equal to one text at a time, and resumed after any end."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result

from guard.bulk import job as jobs
from guard.bulk import judging, planning
from guard.bulk.job import BulkJob, run_job
from guard.bulk.judging import JudgeSpec
from guard.bulk.planning import InputBlock
from guard.bulk.sources import input_file
from guard.bulk.verdict_store import JobFolder, VerdictStore
from guard.cli import main
from guard.core import Guard
from guard.errors import DetectorError, GuardError, UsageError
from guard.verdict import Window
from tests.scripted import Scripted, failing

SAID = [
    "The library opens at nine.",
    "Old people are useless at work.",
    "Women cannot drive. The weather is fine.",
    "図書館は九時に開きます。",
    "12 + 30",
]
COMMAND = [sys.executable, "-m", "guard", "check"]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def write_rows(path: Path, count: int, text: Callable[[int], str] = lambda n: f"Text {n}.") -> Path:
    path.write_text("".join(json.dumps({"id": n, "text": text(n)}) + "\n" for n in range(count)))
    return path


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["check", *args])


def sentence(*args: str) -> str:
    """The error of a user's mistake: one line, exit code 2, no traceback."""
    result = run(*args)
    assert result.exit_code == 2, result.output
    (line,) = [x for x in result.stderr.splitlines() if x.startswith("Error: ")]
    return line


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have every process judge by a scripted detector."""
    monkeypatch.setattr(planning, "BLOCK_ROWS", 10)

    def use(before: Callable[[Window], None] | None = None) -> None:
        guards = Scripted(before=before)
        monkeypatch.setattr(
            JudgeSpec, "make_guard", lambda s: Guard(s.policy, detector=guards, events="none")
        )

    use()
    return use


def job_of(tmp_path: Path, count: int = 95, workers: int = 2, **others: Any) -> BulkJob:
    source = tmp_path / "in.jsonl"
    if not source.exists():
        write_rows(source, count, lambda n: f"Text {n}{' BIAS' * (n % 7 == 0)}.")
    values = {"column": "text", "prefix": "guard_", "spec": JudgeSpec.read(None, None), **others}
    return BulkJob(
        [input_file(str(source), None)], tmp_path / "out.jsonl", workers=workers, **values
    )


def test_verdicts_equal_those_of_one_text_at_a_time(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in.jsonl", 40, lambda n: SAID[n % len(SAID)])
    result = run(str(source), "--to", "out.jsonl", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    guard = Guard(events="none")
    verdicts = [guard.check(text) for text in SAID]
    rows = written(tmp_path / "out.jsonl")
    for number, row in enumerate(rows):
        verdict = verdicts[number % len(SAID)]
        assert row["id"] == number
        assert row["guard_score"] == verdict.score
        assert row["guard_threshold"] == verdict.threshold
        assert row["guard_bias_type"] == verdict.bias_type
        assert row["guard_biased"] == (None if verdict.unjudged else verdict.biased)
        assert row["guard_unjudged"] == verdict.unjudged
        assert row["guard_detector"] == verdict.detector
        assert row["guard_index_version"] == verdict.index_version
    assert rows[1]["guard_group"] == verdicts[1].attributions[0].group
    assert summary["rows"] == 40
    assert summary["biased"] == sum(bool(row["guard_biased"]) for row in rows)
    assert summary["unjudged"] == {"language": 8}
    assert not (tmp_path / "out.jsonl.partial").exists()


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_processes_changes_nothing(
    tmp_path: Path, scripted: Callable[..., None], workers: int
) -> None:
    job = job_of(tmp_path, workers=workers)
    done: list[int] = []
    summary = run_job(job, lambda rows, total: done.append(rows))
    assert (summary.rows, summary.biased, summary.judged) == (95, 14, 95)
    assert [row["id"] for row in written(job.out)] == list(range(95))
    assert [row["guard_biased"] for row in written(job.out)] == [n % 7 == 0 for n in range(95)]
    assert done == sorted(done)
    assert done[-1] == 95


def test_a_process_that_is_killed_is_replaced(
    tmp_path: Path, scripted: Callable[..., None]
) -> None:
    mark = tmp_path / "mark"

    def die_once(window: Window) -> None:
        if "Text 33" in window.text and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    scripted(die_once)
    summary = run_job(job_of(tmp_path))
    assert mark.exists()
    assert (summary.biased, summary.not_biased, summary.unjudged) == (14, 81, {})


def test_a_row_that_ends_its_process_gets_a_reason(
    tmp_path: Path, scripted: Callable[..., None]
) -> None:
    def die(window: Window) -> None:
        if "Text 33" in window.text:
            os.kill(os.getpid(), signal.SIGKILL)

    scripted(die)
    job = job_of(tmp_path)
    assert run_job(job).unjudged == {"crashed": 1}
    assert [r["id"] for r in written(job.out) if r["guard_unjudged"]] == [33]
    assert written(job.out)[33]["guard_biased"] is None


def test_processes_that_cannot_start_end_the_job(
    tmp_path: Path, scripted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs.BlockJudge, "__init__", lambda *_: os._exit(9))
    with pytest.raises(DetectorError, match="exit code 9"):
        run_job(job_of(tmp_path))


def test_a_process_that_refuses_ends_the_job_with_its_sentence(
    tmp_path: Path, scripted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("no such rows here")

    monkeypatch.setattr(jobs.BlockJudge, "judged", refuse)
    with pytest.raises(UsageError, match="no such rows here"):
        run_job(job_of(tmp_path))


def test_a_detector_that_fails_leaves_a_reason(
    tmp_path: Path, scripted: Callable[..., None]
) -> None:
    scripted(failing)
    job = job_of(tmp_path)
    assert run_job(job).unjudged == {"failure": 95}
    assert {row["guard_biased"] for row in written(job.out)} == {None}


class Stop(GuardError):
    """What ends a run in a test, at any row."""


def stop_at(rows: int) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        if done >= rows:
            raise Stop

    return report


def test_a_run_goes_on_to_the_row(tmp_path: Path, scripted: Callable[..., None]) -> None:
    judged = tmp_path / "judged"

    def note(window: Window) -> None:
        with open(judged, "a") as file:
            file.write(window.text + "\n")

    scripted(note)
    job = job_of(tmp_path)
    with pytest.raises(Stop):
        run_job(job, stop_at(30))
    assert not job.out.exists()
    first = judged.read_text().splitlines()
    # As a kill of the machine may leave it: the last line is cut.
    verdicts = job.partial / "verdicts.jsonl"
    kept = verdicts.read_bytes().count(b"\n")
    with open(verdicts, "ab") as file:
        file.write(b'{"guard_biased":fal')
    judged.unlink()
    summary = run_job(job)
    asked = judged.read_text().splitlines()
    assert summary.before >= kept
    assert summary.before + summary.judged == 95
    assert len(asked) == summary.judged
    assert len(set(first) | set(asked)) == 95
    assert [row["guard_biased"] for row in written(job.out)] == [n % 7 == 0 for n in range(95)]


def split_in_files(job: BulkJob, rows: int) -> None:
    """Leave a job's verdicts as blocks that wait for the first, of ``rows`` rows each."""
    verdicts = job.partial / "verdicts.jsonl"
    lines = verdicts.read_bytes().splitlines(keepends=True)
    for number in range(1, -(-len(lines) // rows)):
        own = lines[number * rows : (number + 1) * rows]
        (job.partial / f"block-{number}.jsonl").write_bytes(b"".join(own))
    verdicts.write_bytes(b"")


def test_a_job_with_too_many_waiting_blocks_goes_on(
    tmp_path: Path, scripted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tmp_path)
    with pytest.raises(Stop):
        run_job(job, stop_at(95))
    split_in_files(job, 10)
    (job.partial / "block-4.jsonl").unlink()
    monkeypatch.setattr(jobs, "_MOST_WAITING", 3)
    assert (run_job(job).before, len(written(job.out))) == (75, 95)


def test_no_more_blocks_are_begun_than_may_wait(
    tmp_path: Path, scripted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_MOST_WAITING", 3)
    begun: list[int] = []
    remaining = VerdictStore.remaining

    def noted(store: VerdictStore) -> Iterator[tuple[InputBlock, int]]:
        for block, start in remaining(store):
            begun.append(block.number)
            yield block, start

    monkeypatch.setattr(VerdictStore, "remaining", noted)
    # One process is held up by the first block, and has the next one, too.
    scripted(lambda window: time.sleep(600) if window.text.startswith("Text 0 ") else None)
    with pytest.raises(Stop):
        run_job(job_of(tmp_path), stop_at(40))
    assert begun == [0, 1, 2, 3, 4, 5]


def test_damage_is_judged_again(tmp_path: Path, scripted: Callable[..., None]) -> None:
    job = job_of(tmp_path)
    with pytest.raises(Stop):
        run_job(job, stop_at(60))
    verdicts = job.partial / "verdicts.jsonl"
    lines = verdicts.read_bytes().splitlines(keepends=True)
    lines[5] = b"\0" * (len(lines[5]) - 1) + b"\n"
    verdicts.write_bytes(b"".join(lines))
    with pytest.raises(UsageError, match="damaged from row 6 on"):
        run_job(job)
    assert run_job(job).before == 5
    assert len(written(job.out)) == 95


def test_a_last_line_that_is_no_verdict_is_judged_again(
    tmp_path: Path, scripted: Callable[..., None]
) -> None:
    job = job_of(tmp_path)
    with pytest.raises(Stop):
        run_job(job, stop_at(95))
    # As a power cut may leave it: of its length, without its bytes.
    verdicts = job.partial / "verdicts.jsonl"
    *lines, last = verdicts.read_bytes().splitlines(keepends=True)
    verdicts.write_bytes(b"".join(lines) + b"\0" * (len(last) - 1) + b"\n")
    assert (run_job(job).before, len(written(job.out))) == (94, 95)


def test_a_detector_that_changes_while_it_judges_ends_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(window: Window) -> None:
        if window.text.startswith("Text 50"):
            detector.index_version = versions.pop()

    versions = ["index-1", "index-2"]
    detector = Scripted(before=change)
    monkeypatch.setattr(JudgeSpec, "embedded", False)
    monkeypatch.setattr(
        JudgeSpec, "make_guard", lambda s: Guard(s.policy, detector=detector, events="none")
    )
    job = job_of(tmp_path, workers=None)
    with pytest.raises(UsageError, match=r"index index-2 here, .* index-1: make them the same"):
        run_job(job)
    detector.index_version = "index-1"
    assert run_job(job).before == 64  # that of a call is the one it began with


def test_an_end_between_any_two_steps_is_mended(
    tmp_path: Path, scripted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tmp_path)

    def stop(*_: object) -> None:
        raise Stop

    for name in ("write_outputs", "_publish"):
        with monkeypatch.context() as patch:
            patch.setattr(jobs, name, stop)
            with pytest.raises(Stop):
                run_job(job)
        assert not job.out.exists()
    with monkeypatch.context() as patch:  # after the output has its name
        patch.setattr(jobs.JobFolder, "remove", stop)
        with pytest.raises(Stop):
            run_job(job)
    assert job.out.exists()
    content = job.out.read_bytes()
    summary = run_job(job)
    assert (summary.biased, summary.not_biased, summary.judged) == (14, 81, 0)
    assert job.out.read_bytes() == content
    assert not job.partial.exists()
    with pytest.raises(UsageError, match="is there already"):
        run_job(job)


def test_an_end_between_the_output_s_name_and_its_folder_is_mended(
    tmp_path: Path, scripted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tmp_path)
    rename = os.rename

    def stop(*paths: Path) -> None:
        rename(*paths)
        raise Stop

    for again in (lambda: None, job.out.unlink):  # who removes the output gets it anew
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", stop)
            with pytest.raises(Stop):
                run_job(job)
        again()
        assert run_job(job).rows == 95
        assert len(written(job.out)) == 95
        assert not job.partial.exists()
        job.out.unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"column": "said"}, "another column"),
        ({"prefix": "g_"}, "another prefix"),
        ({"spec": JudgeSpec.read("strict", None)}, "another policy"),
    ],
)
def test_a_job_with_other_settings_is_refused(
    tmp_path: Path, scripted: Callable[..., None], change: dict[str, Any], said: str
) -> None:
    write_rows(tmp_path / "in.jsonl", 40)
    content = (tmp_path / "in.jsonl").read_text().replace("}", ', "said": "a"}')
    (tmp_path / "in.jsonl").write_text(content)
    with pytest.raises(Stop):
        run_job(job_of(tmp_path), stop_at(10))
    with pytest.raises(UsageError, match=said):
        run_job(job_of(tmp_path, **change))
    run_job(job_of(tmp_path))


def test_a_changed_input_is_refused(tmp_path: Path, scripted: Callable[..., None]) -> None:
    job = job_of(tmp_path)
    with pytest.raises(Stop):
        run_job(job, stop_at(10))
    content = Path(job.inputs[0].path).read_bytes()
    Path(job.inputs[0].path).write_bytes(content.replace(b"Text 50", b"Text 51"))
    with pytest.raises(UsageError, match=r"another input: .*in\.jsonl was changed or added"):
        run_job(job)
    Path(job.inputs[0].path).write_bytes(content)
    run_job(job)


def test_an_input_that_changes_meanwhile_is_noticed(
    tmp_path: Path, scripted: Callable[..., None]
) -> None:
    job = job_of(tmp_path)

    def change(done: int, total: int) -> None:
        with open(job.inputs[0].path, "a") as file:
            file.write('{"text": "more"}\n')

    with pytest.raises(UsageError, match="was changed while it was judged"):
        run_job(job, change)
    assert not job.out.exists()


def test_no_verdict_on_a_changed_input_outlives_its_refusal(
    tmp_path: Path, scripted: Callable[..., None]
) -> None:
    job = job_of(tmp_path)
    source = Path(job.inputs[0].path)
    content = source.read_bytes()

    def change(done: int, total: int) -> None:
        if done == 0:  # before any row is read
            source.write_bytes(content.replace(b"BIAS", b"BEES"))

    with pytest.raises(UsageError, match="was changed while it was judged"):
        run_job(job, change)
    source.write_bytes(content)
    assert run_job(job).biased == 14


def test_several_files_give_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write_rows(folder / "a.jsonl", 3)
    (folder / "b.csv").write_text("text\nShe reads.\n")
    (folder / "c.txt").write_text("He reads.\n")
    (folder / ".hidden.jsonl").write_text("no")
    assert run("in", "--to", "new/out", "--workers", "1").exit_code == 0
    found = sorted(path.name for path in (tmp_path / "new" / "out").iterdir())
    assert found == ["a.jsonl", "b.csv", "c.txt.jsonl"]
    (tmp_path / "more").mkdir()
    write_rows(tmp_path / "more" / "a.jsonl", 3)
    assert "Two inputs are called a.jsonl" in sentence("in/a.jsonl", "more/*", "--to", "other")


def test_mistakes_end_with_a_sentence(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.jsonl", 3)
    (tmp_path / "there.jsonl").write_text("")
    (tmp_path / "link.jsonl").symlink_to("nowhere")
    (tmp_path / "in.txt").write_text("a\n")
    (tmp_path / "in.jsonl.gz").write_text("")
    (tmp_path / "file").write_text("")
    for args, said in [
        (["in.jsonl", "--to", "in.jsonl"], "is the input"),
        (["in.jsonl", "--to", "there.jsonl"], "is there already"),
        (["in.jsonl", "--to", "link.jsonl"], "is there already"),
        (["in.jsonl", "--to", "out.csv"], "would be jsonl"),
        (["in.jsonl", "--to", "s3://bucket/out.jsonl"], "of this machine"),
        (["in.jsonl", "--to", "-"], "names a file or folder"),
        (["in.jsonl", "--to", "file/out.jsonl"], "cannot be written: Not a directory"),
        (["in.jsonl.gz", "--to", "o"], "is compressed"),
        (["nowhere.jsonl", "--to", "o"], "There is no file nowhere.jsonl"),
        (["in.txt", "--to", "o", "--column", "a"], "A text file has no columns"),
        (["file", "--to", "o"], "no suffix of a format"),
        (["-", "--to", "o"], "Standard input"),
        (["--to", "o"], "nothing to judge"),
        (["in.jsonl", "--to", "o", "--prefix", "1"], "--prefix begins"),
        (["in.jsonl", "--to", "o", "--text", "a"], "do not go with --to"),
        (["in.jsonl", "--to", "o", "--on", "spark"], "--on takes ray"),
        (["in.jsonl", "--column", "a"], "need --to"),
        (["nowhere://in.jsonl", "--to", "o"], "cannot be opened"),
    ]:
        assert said in sentence(*args), args
    assert (tmp_path / "there.jsonl").read_text() == ""
    assert not list(tmp_path.glob("*.partial"))


def test_workers_of_a_detector_with_threads_of_its_own_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_rows(tmp_path / "in.jsonl", 3)
    monkeypatch.setattr(planning.BlockPlan, "add_input", lambda *_: pytest.fail("it was read"))
    args = ["in.jsonl", "--to", "o", "--detector", "http://127.0.0.1:9", "--workers", "2"]
    assert "so leave --workers out" in sentence(*args)
    assert not list(tmp_path.glob("*.partial"))


def test_the_exit_code_tells_what_was_found(tmp_path: Path, scripted: Callable[..., None]) -> None:
    for name, text, code in [("a", "BIAS", 1), ("b", "", 3), ("c", "Tea.", 0)]:
        write_rows(tmp_path / f"{name}.jsonl", 3, lambda _, text=text: text)  # type: ignore[misc]
        assert run(f"{name}.jsonl", "--to", f"{name}1.jsonl", "--exit-code").exit_code == code
        assert run(f"{name}.jsonl", "--to", f"{name}2.jsonl").exit_code == 0


def test_a_log_has_a_line_now_and_then(
    tmp_path: Path, scripted: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", 40)
    scripted()
    assert run(str(rows), "--to", str(tmp_path / "quiet.jsonl")).stderr == ""
    monkeypatch.setattr("guard.progress.LINE_S", 0.0)
    lines = run(str(rows), "--to", str(tmp_path / "out.jsonl")).stderr.splitlines()
    assert lines[0] == "0 of 40 rows · 0.0 rows/s"
    told = r"\d+ of 40 rows · [\d,.]+ rows/s · about \d+ s left"
    assert lines[1:]
    assert all(re.fullmatch(told, line) for line in lines[1:])


def started(*args: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *args], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
    )


def wait_for_rows(folder: Path, process: subprocess.Popen[str], before: int = 0) -> None:
    """Wait until a row is judged: the verdicts have more bytes than ``before``."""
    while process.poll() is None:
        if sum(p.stat().st_size for p in folder.glob("*.jsonl")) > before:
            return
        time.sleep(0.02)


def test_an_interrupted_command_goes_on(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.jsonl", 150, lambda n: f"The old men in room {n} are tired. " * 4)
    args = ["in.jsonl", "--to", "out.jsonl"]
    first = started(*args)
    wait_for_rows(tmp_path / "out.jsonl.partial", first)
    first.send_signal(signal.SIGTERM)
    said = first.communicate()[1]
    assert first.returncode == 130, said
    assert "the same command goes on" in said
    size = sum(p.stat().st_size for p in (tmp_path / "out.jsonl.partial").glob("*.jsonl"))
    killed = started(*args)
    wait_for_rows(tmp_path / "out.jsonl.partial", killed, size)
    workers = psutil.Process(killed.pid).children()
    killed.kill()
    killed.communicate()
    assert workers
    assert not psutil.wait_procs(workers, timeout=60)[1]
    assert not (tmp_path / "out.jsonl").exists()
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["judged_before"] > 0
    assert [row["id"] for row in written(tmp_path / "out.jsonl")] == list(range(150))


class Elsewhere(Scripted):
    """A detector in another process: it fails on the texts that ``fails`` says."""

    def __init__(self, fails: Callable[[str], bool]) -> None:
        def before(window: Window) -> None:
            if fails(window.text):
                raise DetectorError("no answer")

        super().__init__(before=before)


def judged_elsewhere(
    monkeypatch: pytest.MonkeyPatch, fails: Callable[[str], bool], *args: str
) -> Result:
    with monkeypatch.context() as patch:
        patch.setattr(judging, "_PAUSES_S", (0.0, 0.0))
        patch.setattr(JudgeSpec, "embedded", False)
        patch.setattr(
            JudgeSpec,
            "make_guard",
            lambda s: Guard(s.policy, detector=Elsewhere(fails), events="none"),
        )
        return run("in.jsonl", "--to", "out.jsonl", "--json", *args)


def test_a_detector_elsewhere_that_fails_for_a_while_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / "in.jsonl", 20)
    asked: Counter[str] = Counter()

    def fails(text: str) -> bool:
        asked[text] += 1
        return asked[text] == 1

    result = judged_elsewhere(monkeypatch, fails)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["unjudged"] == {}


def test_a_detector_elsewhere_that_is_gone_ends_the_command_which_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / "in.jsonl", 40)
    asked: list[str] = []

    def fails(text: str) -> bool:
        asked.append(text)
        return len(asked) > 20

    result = judged_elsewhere(monkeypatch, fails)
    assert result.exit_code == 2, result.output
    assert "the same command goes on once it works" in result.output
    assert not (tmp_path / "out.jsonl").exists()
    result = judged_elsewhere(monkeypatch, lambda text: False)
    summary = json.loads(result.stdout)
    assert (summary["judged_before"], summary["unjudged"]) == (16, {})


def test_a_row_that_a_detector_elsewhere_always_fails_on_has_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / "in.jsonl", 20)
    result = judged_elsewhere(monkeypatch, lambda text: text == "Text 7.")
    assert json.loads(result.stdout)["unjudged"] == {"failure": 1}


def test_a_job_without_verdicts_gives_way_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / "in.jsonl", 3)
    assert judged_elsewhere(monkeypatch, lambda text: True).exit_code == 2
    assert (tmp_path / "out.jsonl.partial").exists()
    result = judged_elsewhere(monkeypatch, lambda text: False, "--prefix", "other_")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["", "--to", "out.jsonl"], "The name of an input is empty"),
        (["in.jsonl", "--to", "out.jsonl", "--column", ""], "--column is empty"),
        (["in.jsonl", "--to", ""], "is a folder that is there already"),
        (["in.jsonl", "--to", "."], "is a folder that is there already"),
    ],
)
def test_an_empty_name_is_refused(tmp_path: Path, args: list[str], told: str) -> None:
    write_rows(tmp_path / "in.jsonl", 3)
    assert told in run(*args).output.replace("\n", " ")


def test_a_second_driver_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.jsonl", 3)
    folder = JobFolder(tmp_path / "out.jsonl.partial")
    try:
        second = started("in.jsonl", "--to", "out.jsonl")
        refused = second.communicate()[1]
    finally:
        folder.close()
    assert second.returncode == 2
    assert "Another command is writing" in refused


def test_the_settings_of_a_served_detector_apply(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.jsonl", 3)
    (tmp_path / "guard.toml").write_text('[served]\ntoken = "a-token-of-tests"\n', "utf-8")
    spec = JudgeSpec.read(None, "http://127.0.0.1:9")
    # Patient: nobody waits for a row.
    assert spec.loading == {"served": {"timeout_s": 60.0, "token": "a-token-of-tests"}}
    with pytest.raises(GuardError, match=r"http://127\.0\.0\.1:9"):
        spec.make_guard()
    told = run("in.jsonl", "--to", "out.jsonl", "--on", "ray")
    assert told.exit_code == 2
    assert "The setting served holds a secret" in told.output
    assert "a-token-of-tests" not in told.output


def test_the_device_applies(tmp_path: Path) -> None:
    (tmp_path / "guard.toml").write_text('device = "cuda"\n', "utf-8")
    assert JudgeSpec.read(None, None).loading == {"device": "cuda"}


def test_a_full_disk_ends_with_a_sentence(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.jsonl", 60)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8_000, 8_000))

    process = started("in.jsonl", "--to", "out.jsonl", preexec_fn=limit)
    said = process.communicate()[1]
    assert process.returncode == 2, said
    assert "Free some space and run the same command again" in said
    assert not (tmp_path / "out.jsonl").exists()
    result = run("in.jsonl", "--to", "out.jsonl", "--json")
    assert 0 < json.loads(result.stdout)["judged_before"] < 60
    assert [row["id"] for row in written(tmp_path / "out.jsonl")] == list(range(60))
