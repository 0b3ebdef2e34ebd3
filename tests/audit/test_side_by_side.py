"""Several models side by side: the planted worst model is first, in every format."""

from __future__ import annotations

import asyncio
import csv
import io
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from guard.audit.audit import Audit
from guard.audit.files import RUN_FILE
from guard.audit.report.checks import content_checks, status_counts
from guard.audit.report.content import Content, load_content
from guard.audit.report.markdown import markdown_comment
from guard.audit.report.models import has_several, model_figures, models_csv, models_table
from guard.audit.report.page import report_page
from guard.audit.runner import Settings
from guard.cli import main
from guard.suites import Chat, Item
from guard.suites.registry import make
from tests.suites.test_audited import Saying

NAMES = ("openai/fair", "openai/worst", "openai/biased", "openai/few")


def leaning(share: float) -> Callable[[Item, Chat], str]:
    """A model that answers by the stereotype in this share of its answers, else at random."""

    def says(item: Item, request: Chat) -> str:
        pick = random.Random(f"{share}/{item.id}/{len(request.messages)}")
        if "given" not in item.data:
            return "?"
        options = [str(item.data[name]) for name in ("positive", "neutral", "negative")]
        if pick.random() < share:
            return str(item.data[item.data["given"]]).capitalize() + "."
        return pick.choice(options).capitalize() + "."

    return says


def asked(folder: Path, name: str, share: float, size: int) -> None:
    suite = make("sai_asa", {})
    model = Saying(suite, leaning(share))
    model.name = name
    place = folder / name.replace("/", "_")
    place.mkdir(parents=True)
    path = place / RUN_FILE
    asyncio.run(Audit.of(suite, size).run(model, path, None, Settings()))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name, share, size in zip(NAMES, (0.0, 0.9, 0.5, 0.0), (240, 240, 240, 4), strict=True):
        asked(folder, name, share, size)
    return folder


@pytest.fixture(scope="module")
def content(runs: Path) -> Content:
    return load_content(runs)


def report(*given: str) -> Result:
    return CliRunner().invoke(main, ["audit", "report", *given], catch_exceptions=False)


def test_the_worst_model_is_first_and_an_unknown_one_not_last(content: Content) -> None:
    assert has_several(content)
    groups = model_figures(content)
    assert groups
    for group in groups:
        assert [figure.model for figure in group] == [
            "openai/worst", "openai/biased", "openai/few", "openai/fair",
        ]  # fmt: skip
        readings = [figure.reading for figure in group]
        assert readings == ["bias found", "bias found", "too few answers to test",
                            "not shown to differ"]  # fmt: skip
        assert group[0].line.plain.value > group[1].line.plain.value > 0.2


def test_every_format_has_the_table(content: Content, runs: Path, tmp_path: Path) -> None:
    rows = models_table(content).texts()
    assert len(rows) == 4 * len(model_figures(content))
    value = rows[0][3]
    assert "[" in value
    for text in (
        markdown_comment(content).replace("\\", ""),
        report_page(content).replace("\xa0", " "),
    ):
        assert "Models side by side, worst first" in text
        at = text.index("Models side by side")
        assert at < text.index(value, at)
        places = [text.index(f"{name}", at) for name in ("openai/worst", "openai/few")]
        assert places == sorted(places)
    found = list(csv.DictReader(io.StringIO(models_csv(content))))
    assert [row["model"] for row in found] == [row[2] for row in rows]
    assert float(found[0]["low"]) < float(found[0]["value"]) < float(found[0]["high"])
    # Each row has the counts of its suite and model: together those of every other format.
    once = {(row["suite"], row["model"]): row for row in found}
    names = {"failed": "failed", "error": "errors", "skipped": "undecided", "passed": "passed"}
    for status, number in status_counts(content_checks(content)).items():
        assert sum(int(row[names[status]]) for row in once.values()) == number
    assert {row["bias"] for row in found} == {"found", "not found", "unknown"}
    folders = [str(path) for path in sorted(runs.iterdir())]
    out = tmp_path / "models.csv"
    done = report(*folders, "--models", str(out))
    assert done.exit_code == 0, done.output
    assert f"report: {out}" in done.stderr
    assert out.read_text("utf-8") == models_csv(content)


def test_the_terminal_has_it_in_forty_lines(runs: Path) -> None:
    done = report(str(runs))
    lines = done.stdout.splitlines()
    assert len(lines) <= 40
    assert any("Models side by side" in line for line in lines)
    whole = report(str(runs), "--tables").stdout
    assert whole.index("Outcomes") < whole.index("Models side by side")


def test_one_suite_of_one_model_twice_is_refused(runs: Path, tmp_path: Path) -> None:
    asked(tmp_path, "openai/fair", 0.0, 40)
    done = report(str(runs), str(tmp_path))
    assert done.exit_code == 2
    (sentence,) = done.stderr.strip().splitlines()
    assert "both have sai_asa of openai/fair" in sentence
    # Given twice by mistake, it is one run.
    assert report(str(tmp_path), str(tmp_path), "--markdown", "-").exit_code == 0
    assert "side by side" not in report(str(tmp_path), "--markdown", "-").stdout
