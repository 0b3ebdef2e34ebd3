"""The documents: their code runs, their links lead somewhere, their tables agree with the code."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple, get_args

import click
import pytest
import yaml  # type: ignore[import-untyped]
from click.testing import CliRunner

import guard
import guard.cli
import guard.errors
from guard.cli.doctor import frameworks
from guard.config import known_keys, read_settings
from guard.policy import OnBias, Policy
from guard.suites import registry
from guard.verdict import BIAS_TYPES, Decision, GuardTrail, Verdict
from tests import warm
from tests.frameworks import measured
from tests.frameworks.programs import BIASED, OWN, PACKAGES, PROGRAMS
from tests.provider import Script, serving
from tests.rows import rows

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
OTHERS = "README", "ARCHITECTURE", "CONTRIBUTING", "SECURITY"
FINDINGS = ROOT / "findings"
LINKING = [*PAGES, *(ROOT / f"{n}.md" for n in OTHERS), FINDINGS / "README.md"]
SAYS = "Look at the work first. Old people are useless at work. Then decide."
TEXTS = "message", "failure_message", "replacement", "rewrite_instruction"
TASKS = {
    "Wrap a client": "docs/applications.md#wrap-a-client",
    "Change a threshold": "docs/applications.md#change-a-threshold",
    "Add a statement": "docs/bias-index.md#add-a-statement",
    "Audit in CI": "docs/gate.md",
    "Read a verdict": "docs/verdicts.md",
    "Deploy on the proxy": "docs/proxy.md",
}


@pytest.fixture(autouse=True)
def default_detector(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader has no settings, and so the default detector."""
    monkeypatch.delenv("BIASGUARD_DETECTOR")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def text(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


class Block(NamedTuple):
    """A block of code: ``title`` names the file that it is, ``run`` whether it is run."""

    language: str
    title: str
    code: str
    run: bool


_BLOCK = re.compile(
    r"(?:^<!-- (?P<not_run>not run: [^\n]+|tests|demo) -->\n)?"
    r'^```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<code>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


def blocks(page: Path) -> list[Block]:
    found = list(_BLOCK.finditer(page.read_text("utf-8")))
    assert 2 * len(found) == len(re.findall(r"^```", page.read_text("utf-8"), re.MULTILINE))
    return [Block(m["language"], m["title"] or "", m["code"], m["not_run"] is None) for m in found]


# A page on writing a suite shows a suite alone, which tests/audit/test_documented_suite.py runs.
WITH_CODE = [page for page in [ROOT / "README.md", *PAGES] if blocks(page)]


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    found = blocks(page)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {key: value for key, value in os.environ.items() if not key.startswith("GUARD_")}
    with serving(Script([[SAYS]])) as provider:
        done = warm.run(
            "tests.page",
            said=json.dumps([(b.language, b.title, b.code) for b in found if b.run]),
            env={
                **variables,
                "PATH": path,
                "PYTHONPATH": str(ROOT),
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "OPENAI_API_BASE": provider.openai,
                "OPENAI_API_KEY": "none",
                "ANTHROPIC_API_BASE": provider.anthropic,
                "ANTHROPIC_API_KEY": "none",
            },
            cwd=tmp_path,
        )
        asked = len(provider.served)
    assert done.returncode == 0, done.stderr
    if "stream=True" in page.read_text("utf-8"):
        assert asked
        assert f"Look at the work first. {Policy().message}" in done.stdout


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_what_a_page_shows_can_be_used(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that are not run have options of guard's, and files can be read."""
    from guard.audit.tolerances import load_tolerances

    monkeypatch.chdir(tmp_path)  # a guardrail may make its store of events
    for block in blocks(page):
        if block.language == "text":
            continue  # what a command prints, and no input
        if block.language == "sh":
            if not block.run:
                check_commands(block.code)
        elif block.language == "toml":
            place = tmp_path / block.title
            place.write_text(block.code, encoding="utf-8")
            if "[run]" in block.code:
                planned = CliRunner().invoke(
                    guard.cli.main, ["audit", "plan", str(place), "--json"]
                )
                assert planned.exit_code == 0, planned.output
            else:
                assert (
                    load_tolerances(place).axes
                    if place.name == "audit.toml"
                    else read_settings(tmp_path)
                )
        elif block.language == "json":
            assert [json.loads(line) for line in block.code.splitlines()]
        elif block.language == "yaml":
            check_guardrail(block.code)
        else:
            assert block.language in ("python", "csv", "sql"), (
                f"{page}: a block of unknown language"
            )


def check_commands(code: str) -> None:
    """Have click read every command of guard's."""
    for line in code.replace("\\\n", " ").splitlines():
        for words in commands(shlex.split(line, comments=True)):
            if "guard" not in words or "pip" in words:
                continue
            args = words[words.index("guard") + 1 :]
            found: click.Command = guard.cli.main
            parent = None
            while isinstance(found, click.Group):
                if found.invoke_without_command and args[0].startswith("-"):
                    break
                inner = found.get_command(click.Context(found), args[0])
                assert inner is not None, f"no command {args[0]!r}: {line}"
                parent = click.Context(found)
                found, args = inner, args[1:]
            for word in args:
                if word.endswith(".toml") and not Path(word).exists():  # a run file of the reader's
                    Path(word).write_text('[run]\nsuite = "mist"\nout = "out"\n')
            with suppress(click.exceptions.Exit):  # --help
                found.make_context(found.name, args, parent)


def commands(words: list[str]) -> Iterator[list[str]]:
    """Yield the commands of a line without where their output goes."""
    for joined, run in itertools.groupby(words, ("&&", "|").__contains__):
        if not joined:
            yield list(itertools.takewhile(lambda word: word != ">", run))


def check_guardrail(code: str) -> None:
    from guard.proxy.settings import check_others, made_guard

    (guardrail,) = yaml.safe_load(code)["guardrails"]
    given = dict(guardrail["litellm_params"])
    assert (given.pop("guardrail"), given.pop("mode")) == ("guard.proxy.Guardrail", "post_call")
    assert given.pop("default_on") is True
    made_guard(given.pop("guard", None), "the page")
    check_others(given, "the page")


def test_a_command_with_an_unknown_option_is_found() -> None:
    check_commands("FOO=1 guard check --json 'a text'  # shown\necho x | guard check --all -")
    with pytest.raises(click.NoSuchOption):
        check_commands("guard models get smollm2 && guard demo --nowhere")
    with pytest.raises(AssertionError, match="no command 'nothing'"):
        check_commands("guard nothing")


_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    return _BLOCK.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """Return what GitHub makes of the headings."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", head).lower() for head in heads]
    return {re.sub(r"[^\w\- ]", "", head).replace(" ", "-") for head in plain}


@rows("page", LINKING)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        target, _, anchor = link.partition("#")
        place = (page.parent / target).resolve() if target else page
        assert "://" not in link, f"{link}: this project has no address"
        assert place.exists(), link
        assert not anchor or anchor in anchors(place), link


def test_the_site_shows_paths_for_links_that_leave_docs() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="decisions/one.md"))
    on_page_markdown = runpy.run_path(str(DOCS / "outside_links.py"))["on_page_markdown"]
    shown = on_page_markdown(
        "[the card](../../README.md#guard), [README.md](../../README.md), [other](../errors.md)",
        page,
    )
    assert shown == "the card (`README.md`), `README.md`, [other](../errors.md)"


def test_the_readme_shows_what_the_demo_prints() -> None:
    def plain(said: str) -> str:
        return " ".join(re.sub(r"\d+ ms", "ms", said).split())

    (shown,) = re.findall(r"<!-- demo -->\n```text\n(.*?)```", text("README.md"), re.DOTALL)
    printed = CliRunner().invoke(guard.cli.main, ["demo"], env={"COLUMNS": "400"}).stdout
    finding, evidence = plain(shown).split(" evidence ")
    stopped = plain(printed).split(" › ")[2]
    assert finding in stopped
    assert f"evidence {evidence}" in stopped


def test_readme_is_short_and_leads_to_every_task_at_its_top() -> None:
    readme = text("README.md")
    assert len(readme.encode()) <= 6_000
    assert len(text("ARCHITECTURE.md").encode()) <= 10_000
    top = readme.split("```")[0]
    for task, page in TASKS.items():
        assert f"[{task}]({page})" in top
    listed = text("docs/index.md").lower()
    assert all(f"| {task.lower()} |" in listed for task in TASKS)


def test_every_page_is_listed() -> None:
    index, navigation = text("docs/index.md"), text("mkdocs.yml")
    for page in DOCS.glob("*.md"):
        assert re.search(rf"- (?:\w+: )?{page.name}$", navigation, re.MULTILINE), page.name
        assert page.name == "index.md" or f"]({page.name}" in index, page.name
    records = text("docs/decisions/index.md")
    for page in (DOCS / "decisions").glob("*.md"):
        title = page.read_text("utf-8").splitlines()[0].removeprefix("# ")
        assert page.name == "index.md" or f"- [{title}]({page.name})" in records, page.name


def test_every_finding_is_listed_and_shown_by_pinned_packages_without_guard() -> None:
    scripts = {path.stem for path in FINDINGS.glob("*.sh")}
    listed = [row[0] for row in cells("findings/README.md", "finding")]
    assert sorted(listed) == sorted(f"[{name}]({name}.sh)" for name in scripts)
    for name in scripts:
        said = text(f"findings/{name}.sh")
        head, _, code = said.partition("set -euo pipefail")
        assert re.search(r"^# Packages?: .*\d", head, re.MULTILINE), name
        assert "# Output:" in head, name
        assert re.search(r"pip\" install -qq( \S+==\S+)+$", code, re.MULTILINE), name
        assert "biasguard" not in code, name
        assert "import guard" not in code, name


def test_a_decision_has_a_reason() -> None:
    for page in (DOCS / "decisions").glob("*.md"):
        if page.name != "index.md":
            said = page.read_text("utf-8")
            assert said.count("**Decision.** ") == said.count("**Reason.** ") == 1, page.name


def cells(page: str, head: str) -> list[list[str]]:
    """Return the cells of the table whose head begins with ``head``."""
    table_after = rf"^\| {re.escape(head)} .*\n\|[- |]+\|\n((?:\|.*\n?)+)"
    (table,) = re.findall(table_after, text(page), re.MULTILINE)
    return [[c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines()]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_setting_is_listed_with_its_default() -> None:
    table = {row[0]: row[1] for row in cells("docs/settings.md", "setting")}
    assert sorted(key for cell in table for key in quoted(cell)) == sorted(known_keys())
    policy = Policy()
    for cell, told in table.items():
        given = {key: getattr(policy, key, None) for key in quoted(cell)}
        # The policy's texts are no figures, and what is unset has none.
        plain = [v for k, v in given.items() if v not in (None, {}) and k not in TEXTS]
        shown = [] if "`detector`" in cell else [v for v in told.strip("`").split(", ") if v]
        assert [str(v).removesuffix(".0").lower() for v in plain] == shown, cell


@pytest.mark.parametrize(
    ("page", "head"), [("docs/settings.md", "action"), ("README.md", "action")]
)
def test_every_action_is_listed(page: str, head: str) -> None:
    assert sorted(quoted(row[0])[0] for row in cells(page, head)) == sorted(get_args(OnBias))


def test_every_bias_type_and_field_of_a_verdict_is_listed() -> None:
    for page in ("docs/settings.md", "docs/verdicts.md"):
        assert all(f"`{kind}`" in text(page) for kind in BIAS_TYPES), page
    page = prose(DOCS / "verdicts.md")
    head = page.split("## The trail")[0]
    fields = {f.name for f in dataclasses.fields(Verdict)} | {"judgement"}
    assert fields <= set(quoted("".join(re.findall(r"^\| (`.+?) \|", head, re.MULTILINE))))
    trail = {f"trail.{key}" for key in ("biased", "stopped", "findings", "rewrites")}
    assert all(hasattr(GuardTrail(), key.partition(".")[2]) for key in trail)
    decision = {f"decision.{f.name}" for f in dataclasses.fields(Decision)}
    assert trail | decision - {"decision.verdict", "decision.counted"} <= set(quoted(page))


def test_the_judgement_on_the_page_is_the_one_that_is_printed() -> None:
    said = guard.Guard().check("Old people are useless at work.").judgement
    assert f"`{said}`" in " ".join(text("docs/verdicts.md").split())


def test_every_error_is_listed() -> None:
    errors = {
        key
        for key, kind in vars(guard.errors).items()
        if isinstance(kind, type) and issubclass(kind, guard.GuardError)
    }
    listed = {quoted(row[0])[0].rpartition(".")[2] for row in cells("docs/errors.md", "error")}
    assert listed | {"GuardError"} == errors


def test_every_suite_is_listed() -> None:
    assert [quoted(row[0])[0] for row in cells("docs/audit.md", "suite")] == sorted(
        registry.names(), key=["sai_asa", "mist", "hbb", "hbb_sg", "badf", "open_text"].index
    )


def test_every_command_is_listed() -> None:
    listed = set(re.findall(r"guard (\w+)", text("docs/command-line.md")))
    assert set(guard.cli.main.list_commands(click.Context(guard.cli.main))) <= listed


FRAMEWORKS = "docs/frameworks.md"


def test_every_framework_is_listed_as_doctor_knows_it_and_was_run() -> None:
    listed = [row[:3] for row in cells(FRAMEWORKS, "framework | tried")]
    assert listed == [[f.name, f.tried, f"`{f.set}`"] for f in frameworks()]
    cases = [key[:2] for key in measured()]
    assert list(dict.fromkeys(name for name, _ in cases)) == [row[0] for row in listed]
    assert PROGRAMS.keys() == {name for name, _ in cases}
    page = text(FRAMEWORKS)
    for package in itertools.chain(*PACKAGES.values()):
        name, _, version = package.partition("==")
        assert not version or f"{name.partition('[')[0]} " in page.replace("LiteLLM", "litellm")
        assert version in page


def test_the_page_of_frameworks_says_what_was_measured() -> None:
    """Each number of requests, and each error that a cell names."""
    found = measured()
    for name, *_, requests in cells(FRAMEWORKS, "framework | text"):
        for told in requests.split("; "):
            case, _, count = told.rpartition(" ")
            first = next(c for n, c, _ in found if n == name and c.startswith(case))
            assert found[name, first, "terminate"].partition(":")[0] == count, (name, told)
    for row in [*cells(FRAMEWORKS, "framework | text"), *cells(FRAMEWORKS, "framework | tells")]:
        seen = " ".join(said for (name, *_), said in found.items() if name == row[0])
        for error in re.findall(r"`(\w+(?:Error|Exception|Found))`", " ".join(row)):
            assert re.search(rf"\b{error}\b", seen), (row[0], error)
    for name, _, raised, _ in cells(FRAMEWORKS, "framework | tells"):
        counts = {
            int(said.partition(":")[0])
            for (framework, case, action), said in found.items()
            if framework == name and action == "raise" and case.startswith("text")
        }
        asks = re.search(r"asks (\d+) times", raised)
        assert counts <= {int(asks[1]) if asks else 1}, name


def test_nothing_measured_shows_bias_but_what_guard_does_not_see() -> None:
    shown = {case for (_, case, _), said in measured().items() if BIASED in said}
    assert shown
    assert all(case.endswith(OWN) for case in shown)


def test_the_range_of_litellm_is_the_packages() -> None:
    from guard.doors.litellm.compat import TESTED

    assert f"LiteLLM `{TESTED}`" in text("docs/litellm.md")
