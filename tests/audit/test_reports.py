"""Reports of a run: what each format says, that any text is harmless in it, and bad input."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import re
import shutil
import sqlite3
import zlib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from guard.audit import baseline
from guard.audit.report.charts import suite_charts, summary_chart
from guard.audit.report.checks import content_checks
from guard.audit.report.content import Content, load_content
from guard.audit.report.differences import figure_differences, main_findings
from guard.audit.report.items import ItemRow, Turn
from guard.audit.report.junit import junit_xml
from guard.audit.report.markdown import LIMIT, markdown_comment
from guard.audit.report.packing import pack_suites
from guard.audit.report.plain import SCHEMA, as_json, json_text, samples_csv
from guard.audit.report.sarif import sarif_log
from guard.cli import audit_options, main
from guard.results.figures import in_arm
from guard.results.jackknife import key_of
from guard.suites import Chat, Item, registry
from guard.suites.registry import make
from tests.audit import reporting
from tests.audit.reporting import HOSTILE
from tests.audit.test_runner import Saying, guarded, run
from tests.packages import junit_schema, sarif_schema
from tests.suites.test_audited import helpful

SUITE = "tests.audit.tiny_suite:Tiny"
NOW = "2026-01-02T03:04:05"
FORMATS = ("html", "markdown", "junit", "sarif", "csv")
texts = st.text(st.characters(exclude_categories=()), max_size=60)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of both arms in which a third of the answers is what no report may trust."""
    folder = tmp_path_factory.mktemp("tiny")

    def says(request: Any, slot: Any) -> str:
        return ("first", HOSTILE, "second")[int(slot.item[1:]) % 3]

    run(Saying(says), folder, guarded(), count=36)
    return folder


def report(run: Path, *given: str) -> Result:
    return CliRunner().invoke(main, ["audit", "report", str(run), *given], catch_exceptions=False)


def of_tiny(tiny: Path) -> Content:
    return load_content(tiny, own_suites=[SUITE])


def refused(run: Path, *given: str) -> str:
    result = report(run, *given)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    (sentence,) = result.stderr.strip().splitlines()
    return sentence


def test_every_format_is_written_in_one_command(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "made" / "here"
    named = [part for name in FORMATS for part in (f"--{name}", str(out / f"r.{name}"))]
    result = report(tiny, "--suite", SUITE, *named, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["suites"][0]["suite"] == "tiny"
    assert sorted(path.name for path in out.iterdir()) == sorted(f"r.{name}" for name in FORMATS)
    assert all(path.stat().st_size > 200 for path in out.iterdir())


def test_without_a_format_the_conclusions_are_printed_or_all_tables(tiny: Path) -> None:
    result = report(tiny, "--suite", SUITE)
    assert result.exit_code == 0
    assert "Outcomes" not in result.stdout
    told = result.stdout.splitlines()
    last, counts = told[-2:]
    assert any(line.startswith("guarded: ") for line in told[-5:-2])
    assert "No test for bias" in "".join(told[-8:-2])
    assert last == "All tables: the same command with --tables."
    assert re.fullmatch(r"\d+ checks: 0 failed, 0 errors, 0 undecided, \d+ passed\.", counts)
    whole = report(tiny, "--suite", SUITE, "--tables").stdout
    assert "Outcomes" in whole
    # Conclusions are last there too.
    assert whole.rindex("No test for bias") > whole.rindex("parity")
    assert report(tiny, "--suite", SUITE, "--markdown", "-").stdout.startswith(
        "## Bias audit: tiny"
    )


def test_a_run_still_going_is_reported_and_says_so(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    shutil.copy(tiny / "run.db", path)
    with sqlite3.connect(path) as file:
        file.execute("DELETE FROM reply WHERE id > 40")
        file.execute("UPDATE header SET state = 2")  # as a killed writer leaves it
    before = path.read_bytes()
    result = report(tmp_path, "--suite", SUITE, "--json")
    assert result.exit_code == 4
    assert "the run has not finished, or was killed" in result.stderr
    found = json.loads(result.stdout)
    assert not found["complete"]
    assert found["suites"][0]["going_on"]
    assert found["suites"][0]["missing"] > 0
    content = load_content(tmp_path, own_suites=[SUITE])
    (check,) = [c for c in content_checks(content) if c.rule == "complete"]
    assert check.status == "error"
    assert "has not finished" in markdown_comment(content)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["run.db"]


def test_charts_that_raise_end_in_one_sentence_with_the_suites_name(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def charts(self: object, figures: object) -> object:
        return [][0]

    monkeypatch.setattr("tests.audit.tiny_suite.Tiny.charts", charts)
    page = tmp_path / "a.html"
    result = report(tiny, "--suite", SUITE, "--html", str(page))
    assert result.exit_code == 2
    (sentence,) = result.stderr.splitlines()
    assert sentence.startswith("Error: The charts of the suite tiny cannot be made (IndexError: ")
    assert not page.exists()


def test_bad_input_is_one_sentence(tiny: Path, tmp_path: Path) -> None:
    assert "has no run.db; give the --out folder of a run" in refused(tmp_path)
    assert "There is no run at" in refused(tmp_path / "nowhere")
    (tmp_path / "a.txt").write_text("words")
    assert "is not the file of a run" in refused(tmp_path / "a.txt")
    assert "name it with --suite MODULE:CLASS" in refused(tiny)
    assert "cannot be loaded" in refused(tiny, "--suite", "tests.nothing:Here")
    both = ("--csv", str(tmp_path / "x"), "--junit", str(tmp_path / "x"))
    assert "cannot both go to" in refused(tiny, "--suite", SUITE, *both)
    own = str(tiny / "asked.json")
    assert "is part of the run beside it" in refused(tiny, "--suite", SUITE, "--html", own)
    assert "--json uses standard output" in refused(tiny, "--csv", "-", "--json")
    assert "--allow belongs to --baseline" in refused(tiny, "--suite", SUITE, "--allow", "model")
    unknown = ("--suite", SUITE, "--baseline", str(tiny), "--allow", "everything")
    assert "--allow takes one of" in refused(tiny, *unknown)
    none = ("--suite", SUITE, "--baseline", str(tmp_path / "a.txt"))
    assert "is not a baseline" in refused(tiny, *none)


def test_an_edited_run_is_refused(tiny: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    shutil.copy(tiny / "run.db", path)
    with sqlite3.connect(path) as file:
        file.execute("UPDATE reply SET pieces = '[\"nobody\"]' WHERE id = 3")
    told = refused(tmp_path, "--suite", SUITE, "--csv", str(tmp_path / "r.csv"))
    assert "was edited" in told
    assert [p.name for p in tmp_path.iterdir()] == ["run.db"]


def test_nothing_is_half_written(tiny: Path, tmp_path: Path) -> None:
    kept, folder = tmp_path / "kept.csv", tmp_path / "folder"
    kept.write_text("as it was")
    folder.mkdir()
    given = ("--suite", SUITE, "--csv", str(kept), "--junit")
    assert f"{folder} cannot be written: Is a directory" in refused(tiny, *given, str(folder))
    beneath = refused(tiny, *given, str(kept / "r.xml"))
    assert f"{kept / 'r.xml'} cannot be written: Not a directory" in beneath
    assert kept.read_text() == "as it was"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "kept.csv"]


def test_a_missing_package_is_named_with_how_to_get_it(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        audit_options, "find_spec", lambda name: None if name == "jinja2" else object()
    )
    told = refused(tiny, "--suite", SUITE, "--html", str(tmp_path / "r.html"))
    assert "--html needs jinja2: " in told
    assert "pip install" in told
    assert report(tiny, "--suite", SUITE, "--csv", str(tmp_path / "r.csv")).exit_code == 0


# Any text, in any format.


@given(st.lists(st.tuples(texts, texts, texts, st.none() | texts), max_size=8))
def test_packed_items_are_read_as_they_were(told: list[tuple[str, str, str, str | None]]) -> None:
    def whole(text: str) -> str:
        return text.encode("utf-8", "replace").decode()

    rows = [
        ItemRow(name, 0, "x", "c", "first", "", "", (), (Turn("model", asked, said, shown),))
        for name, asked, said, shown in told
    ]
    (found,) = pack_suites([rows])
    index, *chunks = (
        json.loads(zlib.decompress(base64.b64decode(text))) for text in (found.index, *found.texts)
    )
    assert index["id"] == [whole(row.id) for row in rows]
    for row, ((by, asked, said, shown),) in zip(
        rows, chunks[0]["turns"] if rows else (), strict=True
    ):
        (turn,) = row.turns
        names = chunks[0]["texts"]
        assert [names[by], names[asked], names[said]] == [
            "model",
            whole(turn.asked),
            whole(turn.answer),
        ]
        assert (None if shown < 0 else names[shown]) == (
            None if turn.shown is None else whole(turn.shown)
        )


def test_texts_are_cut_to_what_a_page_holds_and_counted() -> None:
    import random

    chance = random.Random(1)
    long = ["".join(chance.choices("abcdefghij", k=3000)) for _ in range(50)]
    rows = [ItemRow(f"{n}", 0, "x", "c", "a", "", "", (), (Turn("model", t, t, None),))
            for n, t in enumerate(long)]  # fmt: skip
    (whole,) = pack_suites([rows])
    assert (whole.cut, whole.limit) == (0, 1_000_000)
    (cut,) = pack_suites([rows], whole.size // 2)
    assert (cut.cut, cut.limit) == (50, 1_000)
    assert cut.size <= whole.size // 2


def test_what_a_model_says_is_harmless_in_every_format(tiny: Path) -> None:
    content = of_tiny(tiny)
    rows = list(csv.DictReader(io.StringIO(samples_csv(content))))
    assert len(rows) == 2 * len(content.suites[0].rows)
    hostile = [row for row in rows if HOSTILE in row["text"]]
    assert hostile
    assert not any(
        value.startswith(("=", "+", "-", "@", "\t", "\r")) for row in rows for value in row.values()
    )
    etree.fromstring(junit_xml(content, NOW).encode())
    json.loads(sarif_log(content))
    json.loads(json_text(content))


def test_the_table_has_each_item_in_each_arm(tiny: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(samples_csv(of_tiny(tiny)))))
    by_arm = {arm: [r for r in rows if r["arm"] == arm] for arm in ("plain", "guarded")}
    assert [r["id"] for r in by_arm["plain"]] == [r["id"] for r in by_arm["guarded"]]
    changed = [r for r in by_arm["guarded"] if r["outcome"] == "guarded"]
    assert len(changed) == 12
    assert all("BIAS" not in r["text"] and r["stopped_as"] == "gender" for r in changed)
    assert all(r["prompt"].startswith("Who is to blame") for r in rows)
    # What flipped comes first.
    assert [r["outcome"] for r in by_arm["guarded"][:12]] == ["guarded"] * 12


# A run of every suite.


def test_the_json_is_as_its_schema_says(whole: Content) -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    found = json.loads(json_text(whole))
    validator.validate(found)
    for broken in ({**found, "format": 2}, {**found, "suites": []}, {**found, "more": 1}):
        assert not validator.is_valid(broken)
    del found["suites"][0]["coverage"]
    assert not validator.is_valid(found)


def test_junit_is_valid_and_counts_what_failed(whole: Content) -> None:
    root = etree.fromstring(junit_xml(whole, NOW).encode())
    etree.XMLSchema(etree.parse(junit_schema("jenkins-junit.xsd"))).assertValid(root)
    found = content_checks(whole)
    assert len(root.findall(".//failure")) == sum(c.status == "failed" for c in found) > 0
    assert sum(int(suite.get("tests")) for suite in root) == len(found)
    assert {suite.get("name") for suite in root} == {one.name for one in whole.suites}
    for skipped in root.findall(".//skipped"):
        skipped.getparent().remove(skipped)
    etree.XMLSchema(etree.parse(junit_schema("JUnit.xsd"))).assertValid(root)


def test_sarif_is_valid(whole: Content) -> None:
    log = json.loads(sarif_log(whole))
    schema = json.loads(sarif_schema().read_text("utf-8"))
    jsonschema.Draft7Validator(schema).validate(log)
    (run_,) = log["runs"]
    told = {one["message"]["text"].partition(": ")[0] for one in run_["results"]}
    assert any(name.startswith("tau_c") for name in told)
    prints = [one["partialFingerprints"]["axis/v1"] for one in run_["results"]]
    assert len(set(prints)) == len(prints)


CHARTS = {
    "mist": {"wabt": "radar", "aat": "stacked", "stops": "dots"},
    "hbb": {"s": "bars", "categories": "dots", "stops": "dots"},
    "sai_asa": {"deltas-SAI": "dots", "deltas-ASA": "dots", "stops": "dots"},
    "badf": {"counts": "bars", "associations": "dots"},
    "open_text": {"levels": "dots", "mitigation": "dots", "stops": "dots"},
}


def test_each_suite_has_its_papers_figures_with_both_arms(whole: Content) -> None:
    for one in whole.suites:
        found = suite_charts(one)
        kinds = {chart.name: chart.kind for chart in found}
        assert (
            kinds.items()
            >= {
                k: v for k, v in CHARTS[one.result.suite].items() if k in kinds or k != "stops"
            }.items()
        )
        for chart in found:
            if chart.name not in ("stops", "mitigation"):
                names = {part.name.partition(" ")[0] for part in chart.series}
                arms = {"plain", "guarded"}
                assert arms <= names or arms <= set(chart.panels), chart.name
            assert all(len(part.values) == len(chart.categories) for part in chart.series)


def test_a_chart_shows_the_figures_of_the_result(whole: Content) -> None:
    (one,) = [s for s in whole.suites if s.result.suite == "sai_asa"]
    lines = {key_of(line.measure): line for line in one.result.lines}
    (chart,) = [c for c in suite_charts(one) if c.name == "deltas-SAI"]
    for part in chart.series:
        for domain, value, low, high in zip(
            chart.categories, part.values, part.low, part.high, strict=True
        ):
            line = lines[part.panel, (("direction", "SAI"), ("domain", domain))]
            found = in_arm(part.name, line)
            assert found is not None
            for ours, theirs in ((value, found.value), (low, found.low), (high, found.high)):
                assert ours == theirs or (math.isnan(ours) and math.isnan(theirs))
    rows = chart.table().rows
    assert len(rows) == 3 * len(chart.categories)


def test_the_comment_is_short_and_leads_with_what_was_stopped(whole: Content) -> None:
    told = markdown_comment(whole)
    assert len(told) < LIMIT
    assert told.index("The guard stopped") < told.index("Scores of both arms")
    assert len(main_findings(whole)) == len(whole.suites)
    assert "Mitigation rate" in told
    for line in told.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")


def test_items_that_flipped_come_first(whole: Content) -> None:
    for one in whole.suites:
        ranks = [row.rank for row in one.rows]
        assert ranks == sorted(ranks)
        assert len(one.rows) == one.result.arms["plain"].samples
        stopped = sum(row.guarded in ("guarded", "unjudged") for row in one.rows)
        arms = one.result.arms["guarded"].outcomes
        assert stopped == arms["guarded"] + arms["unjudged"]


def test_a_baseline_brings_its_differences_to_the_top(tmp_path: Path) -> None:
    def fair(item: Item, request: Chat) -> str:
        return helpful(item, request)

    for name, says in (("base", fair), ("new", reporting.biased)):
        (tmp_path / name).mkdir()
        reporting.run(make("sai_asa", {}), tmp_path / name, 60, "(?i)BIAS", says)
    file = tmp_path / "baseline.json"
    baseline.write(baseline.read_side(tmp_path / "base"), file)
    made = ("--junit", str(tmp_path / "r.xml"), "--markdown", str(tmp_path / "r.md"))
    result = report(tmp_path / "new", "--baseline", str(file), *made, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(found)
    assert found["comparison"]["outcome"] == "regression"
    assert found["suites"][0]["flipped"] > 0
    content = load_content(tmp_path / "new", base=baseline.read_side(file))
    assert content.suites[0].rows[0].base
    assert figure_differences(content)[0].reading == "regression"
    assert main_findings(content)[0].startswith("Against the baseline: regression.")
    assert content.comparison is not None
    assert as_json(content)["comparison"] == content.comparison.to_dict()
    failed = [c.name for c in content_checks(content) if c.status == "failed"]
    regressed = [a["name"] for a in found["comparison"]["axes"] if a["verdict"] == "regression"]
    assert sorted(failed) == sorted(regressed) != []
    root = etree.parse(tmp_path / "r.xml")
    assert len(root.findall(".//failure")) == len(regressed)
    assert "regression" in (tmp_path / "r.md").read_text("utf-8")
    chart = summary_chart(content)
    assert chart.title == "Differences from the baseline"
    assert chart.has_data


def located(run: Path, *given: str) -> dict[str, tuple[str, int]]:
    """The place of the findings of each rule in the SARIF that the command writes."""
    result = report(run, *given, "--sarif", "-")
    assert result.exit_code == 0, result.output
    places: dict[str, tuple[str, int]] = {}
    for one in json.loads(result.stdout)["runs"][0]["results"]:
        (place,) = one["locations"]
        where = place["physicalLocation"]
        assert where["artifactLocation"]["uriBaseId"] == "%SRCROOT%"
        places[one["ruleId"]] = where["artifactLocation"]["uri"], where["region"]["startLine"]
    return places


def test_sarif_points_at_a_file_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    repository = tmp_path / "repository"
    nested = repository / "service"
    nested.mkdir(parents=True)
    run_folder = repository / "out"
    run_folder.mkdir()
    reporting.sai_asa(run_folder, 240)
    baseline.write(baseline.read_side(run_folder), nested / "audit.baseline.json")
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    monkeypatch.chdir(nested)
    # Nothing of the repository is about the audit: the journal's name is all there is.
    assert set(located(run_folder).values()) == {("run.db", 1)}
    (nested / "audit.toml").write_text('[tolerance]\n"sai_asa/*" = 0.1\n')
    places = located(run_folder)
    assert set(places.values()) == {("service/audit.toml", 2)}
    for path, line in places.values():
        assert len((repository / path).read_text().splitlines()) >= line
    # What git ignores is not on the code host.
    (repository / ".gitignore").write_text("audit.toml\n")
    assert set(located(run_folder).values()) == {("run.db", 1)}
    (nested / "audit.toml").unlink()
    places = located(run_folder, "--baseline", "audit.baseline.json")
    assert places
    assert set(places.values()) == {("service/audit.baseline.json", 1)}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[run]\nsuite = "hbb_sg"\n', 0),
        ('[run]\nsuite = "hbb_sg, hbb"\n', 2),
        ('# hbb\n[run]\nsuite = [\n  "hbb_sg",  # not "hbb"\n  \'hbb\',\n]\n', 5),
        ('[run]\nout = "hbb"\nmodel = ["hbb"]\n[run.settings]\nsuite = "hbb"\n', 0),
        ('run.suite = ["hbb"]\n', 1),
        ("[run.options.hbb_sg]\nrepeats = 2\n[run.options.hbb]\n", 3),
        ("[run]\noptions.hbb.repeats = 2\n", 2),
        ('[tolerance]\n"hbb_sg/*" = 0.1\n"hbb/plain/*" = 0.1\n', 3),
        ('[floor]\n"*" = 0.5\nhbb_sg = 0.5\nhbb = 0.5\n', 4),
        ('[run]\nsuite = "hbb"\n[floor]\nhbb = 0.5', 2),
    ],
)
def test_sarif_points_at_the_entry_of_the_suite_itself(
    tmp_path: Path, text: str, line: int
) -> None:
    from guard.audit.report.repository import RepositoryFiles

    (tmp_path / "release.toml").write_text(text)
    place = RepositoryFiles(tmp_path, [tmp_path / "release.toml"]).place(make("hbb", {}))
    # Without an entry the file as a whole is all that the repository has about the run.
    assert place == ("release.toml", line or 1)


def test_sarif_points_at_the_run_file_and_a_suite_of_ones_own(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (".git", "ci"):
        (tmp_path / folder).mkdir()
    text = f'[run]\nout = "{tiny}"\nfail_on = ["bias"]\nsuite = [\n"hbb",\n"{SUITE}"]\n'
    (tmp_path / "ci" / "release.toml").write_text(text)
    result = report(Path("ci/release.toml"), "--sarif", "-")
    assert result.exit_code == 3, result.output
    (one,) = json.loads(result.stdout)["runs"][0]["results"]
    assert one["ruleId"] == "tiny/fail-on-bias"
    where = one["locations"][0]["physicalLocation"]
    assert where["artifactLocation"]["uri"] == "ci/release.toml"
    assert where["region"]["startLine"] == 6


def test_a_shipped_suite_is_located_at_its_pack_in_the_checkout_alone(whole: Content) -> None:
    from guard.audit.report.repository import RepositoryFiles, root_of
    from guard.suites.packs import PackedSuite

    here = root_of(Path(__file__))
    files = RepositoryFiles(here)
    for one in whole.suites:
        place = files.place(one.suite)
        assert place is not None
        assert (here / place.path).is_file()
        if isinstance(one.suite, PackedSuite):
            assert place.path.startswith("benchmarks/")
    # A suite of one's own is at its module.
    assert files.place(registry.make(SUITE, {})) == ("tests/audit/tiny_suite.py", 1)
    assert RepositoryFiles(Path(__file__).parent).place(whole.suites[0].suite) is None
