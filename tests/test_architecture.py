"""Dependencies between the rooms point one way; importing guard is light."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import guard
from tests.loading import modules_after

ROOT = Path(guard.__file__).parent

# What each room may import of guard, besides itself. `cli` may import anything; nobody imports it.
ALLOWED = {
    "errors": {"verdict"},
    "exit_codes": {"installed"},
    "verdict": set(),
    "policy": {"verdict"},
    "config": {"errors", "judge_settings", "served_settings", "places", "policy"},
    "judge_settings": {"errors"},
    "served_settings": {"errors", "judge_settings"},
    "allowance": set(),
    "model_calls": {"errors"},
    "signatures": {"policy", "verdict"},
    "tighten": {"errors", "policy", "verdict", "config"},
    "places": {"errors", "served_settings"},
    "forks": {"errors"},
    "background": {"forks"},
    "results": {"texts"},
    "texts": set(),
    "mentions": set(),
    "gate": {"verdict", "policy", "errors", "mentions"},
    "datasets": {"verdict", "errors"},
    "retrieve": {"verdict", "errors", "places", "datasets"},
    "detect": {
        "verdict",
        "policy",
        "errors",
        "forks",
        "places",
        "retrieve",
        "mentions",
        "local",
        "judge_settings",
        "served_settings",
        "allowance",
        "model_calls",
    },
    "doors": {
        "verdict",
        "policy",
        "errors",
        "forks",
        "background",
        "gate",
        "detect.serving",
        "detect.workers",
    },
    "core": {
        "verdict",
        "policy",
        "errors",
        "config",
        "forks",
        "judge_settings",
        "served_settings",
        "places",
        "gate",
        "detect",
        "doors",
        "retrieve",
        "signatures",
        "watch",
    },
    "proxy": {
        "verdict",
        "errors",
        "policy",
        "config",
        "core",
        "tighten",
        "doors.litellm.proxy",
        "doors.errors",
        "doors.litellm.accounting",
        "doors.litellm.compat",
    },
    "bench": {"verdict", "errors", "gate", "core"},
    "default": {"core", "doors", "errors", "forks", "signatures"},
    "_biasguard": set(),
    "installed": {"_biasguard"},
    "local": {"errors", "installed", "places"},
    "evaluate": {
        "verdict",
        "detect.instruction",
        "errors",
        "policy",
        "core",
        "places",
        "installed",
        "datasets",
        "gate.segmenter",
        "results",
    },
    "suites": {"errors", "places", "verdict", "detect.language", "datasets", "results"},
    "audit": {
        "allowance",
        "progress",
        "model_calls",
        "verdict",
        "errors",
        "exit_codes",
        "policy",
        "doors",
        "core",
        "places",
        "suites",
        "local",
        "datasets",
        "results",
        "texts",
        "ray_session",
        "watch.events",
        "watch.schema",
        "watch.store",
        "installed",
    },
    "progress": set(),
    "ray_session": {"errors", "installed"},
    "bulk": {
        "verdict",
        "errors",
        "policy",
        "config",
        "core",
        "places",
        "texts",
        "progress",
        "installed",
        "ray_session",
        "judge_settings",
        "served_settings",
    },
    "server": {"errors", "verdict", "config", "places", "core", "detect", "listening"},
    "listening": {"errors"},
    "testing": {"exit_codes", "audit", "errors", "suites"},
    "watch": {
        "verdict",
        "errors",
        "policy",
        "forks",
        "background",
        "installed",
        "results",
        "mentions",
        "texts",
        "listening",
        "doors.session",
    },
    "train": {
        "verdict",
        "errors",
        "places",
        "gate",
        "detect",
        "retrieve",
        "policy",
        "core",
        "evaluate",
        "datasets",
        "results",
        "local",
    },
}


def imports(path: Path, *, types: bool = True) -> set[str]:
    """What a module imports of guard; without ``types`` not what only a type checker imports."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not types:
        tree.body = [
            node
            for node in tree.body
            if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name.removeprefix("guard.") for name in found if name.startswith("guard.")}


def rooms() -> list[str]:
    found = {p.relative_to(ROOT).with_suffix("").parts[0] for p in ROOT.rglob("*.py")}
    return sorted(found - {"__init__", "__main__", "cli"})


@pytest.mark.parametrize("room", rooms())
def test_dependencies_point_one_way(room: str) -> None:
    files = (
        [ROOT / f"{room}.py"] if (ROOT / f"{room}.py").is_file() else (ROOT / room).rglob("*.py")
    )
    for path in files:
        for name in imports(path):
            if name.split(".")[0] == room or name.startswith("__version__"):
                continue
            assert any(name == a or name.startswith(a + ".") for a in ALLOWED[room]), (
                f"{path.relative_to(ROOT)} imports guard.{name}"
            )


def test_nothing_that_an_installed_guard_runs_needs_training_or_tests() -> None:
    left_out = {ROOT / "cli" / "train.py", ROOT / "cli" / "train_options.py"}
    for path in ROOT.rglob("*.py"):
        if path in left_out or ROOT / "train" in path.parents:
            continue
        named = {name for name in imports(path) if name == "train" or name.startswith("train.")}
        assert not named, f"{path.relative_to(ROOT)} imports guard.{named.pop()}"
        text = path.read_text(encoding="utf-8")
        for unwanted in ("../shared", "import tests", "from tests import", "from tests."):
            assert unwanted not in text, f"{path.relative_to(ROOT)} names {unwanted}"


def test_no_imports_go_round() -> None:
    """Not even within functions."""
    paths = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in ROOT.rglob("*.py")}
    modules = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        found = {n if n in modules else n.rpartition(".")[0] for n in imports(path, types=False)}
        graph[name] = found - {name}
    graph["doors.plain"].remove("doors.errors")  # which loads LiteLLM, when it is needed
    TopologicalSorter(graph).prepare()


COMPAT = ROOT / "doors" / "litellm" / "compat.py"
# What of LiteLLM may be imported anywhere: its package, types, errors, and classes to derive from.
PUBLIC = re.compile(
    r"litellm(\.types(\.\w+)*|\.exceptions|\.router|\.integrations\.custom_guardrail)?"
)


@pytest.mark.parametrize("room", ["doors", "proxy"])
def test_modules_of_litellm_are_imported_in_one_place(room: str) -> None:
    found = []
    for path in (ROOT / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            found += [
                f"{path.relative_to(ROOT)}: {name}"
                for name in names
                if name.split(".")[0] == "litellm"
                and PUBLIC.fullmatch(name) is None
                and path != COMPAT
            ]
    assert found == []


def test_private_names_of_litellm_stand_in_one_place() -> None:
    from guard.doors.litellm.compat import HIDDEN, internals

    private = {name for i in internals() for name in i.names if name.startswith("_")}
    assert HIDDEN in private
    # guard's own attributes of the same names, on its own classes.
    own = {"_source", "_stream", "_frames", "_wrapper", "_async_generator"}
    found = []
    for path in ROOT.rglob("*.py"):
        if path == COMPAT:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.attr if isinstance(node, ast.Attribute) else None
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value
            if name in private - own:
                found.append(f"{path.relative_to(ROOT)}: {name}")
    assert found == []


def test_importing_guard_loads_nothing_heavy() -> None:
    heavy = "litellm torch onnxruntime numpy pydantic faiss transformers sqlalchemy"
    assert modules_after("import guard").isdisjoint(heavy.split())


def test_comparing_and_reporting_load_no_litellm() -> None:
    # Which takes seconds to import, and asks the network for prices.
    assert "litellm" not in modules_after("import guard.audit.compare, guard.audit.report")


def test_help_loads_no_command() -> None:
    loaded = modules_after(
        "from click.testing import CliRunner; from guard.cli import main; "
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0"
    )
    assert [name for name in loaded if name.startswith("guard.cli.")] == []


def test_every_public_name_resolves() -> None:
    for name in guard.__all__:
        assert getattr(guard, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        guard.nothing  # noqa: B018
