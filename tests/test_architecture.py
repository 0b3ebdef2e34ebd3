"""Dependencies between the rooms point one way; importing guard is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import guard

ROOT = Path(guard.__file__).parent

# What each room may import of guard, besides itself. `cli` may import anything; nobody imports it.
ALLOWED = {
    "errors": {"verdict"},
    "verdict": set(),
    "policy": {"verdict"},
    "config": {"errors", "places", "policy"},
    "signatures": {"policy", "verdict"},
    "tighten": {"errors", "policy", "verdict", "config"},
    "places": {"errors"},
    "forks": {"errors"},
    "mentions": set(),
    "gate": {"verdict", "policy", "errors", "mentions"},
    "retrieve": {"verdict", "errors", "places"},
    "detect": {"verdict", "policy", "errors", "forks", "places", "retrieve"},
    "doors": {
        "verdict",
        "policy",
        "errors",
        "forks",
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
        "places",
        "gate",
        "detect",
        "doors",
        "retrieve",
        "signatures",
    },
    "proxy": {
        "verdict",
        "errors",
        "policy",
        "config",
        "core",
        "tighten",
        "doors.proxy",
        "doors.errors",
        "doors.accounting",
    },
    "bench": {"verdict", "policy", "errors", "gate", "doors", "core"},
    "default": {"core", "doors", "errors", "forks", "signatures"},
    "_biasguard": set(),
    "installed": {"_biasguard"},
    "local": {"errors", "installed"},
    "evaluate": {"verdict", "errors", "policy", "core", "places", "installed"},
    "suites": {"errors", "places", "verdict", "detect.language"},
    "audit": {
        "verdict",
        "errors",
        "policy",
        "gate",
        "doors",
        "core",
        "places",
        "suites",
        "local",
        "evaluate.bootstrap",
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
        "local.download",
    },
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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


def test_no_module_is_long_without_a_reason() -> None:
    long = {
        str(p.relative_to(ROOT)): lines
        for p in ROOT.rglob("*.py")
        if (lines := len(p.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long


def test_importing_guard_loads_nothing_heavy() -> None:
    code = (
        "import sys, guard; "
        "print([m for m in ('litellm', 'torch', 'onnxruntime', 'numpy', 'pydantic', 'faiss', "
        "'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_help_loads_no_command() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from guard.cli import main; "
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0; "
        "print([m for m in sys.modules if m.startswith('guard.cli.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_resolves() -> None:
    for name in guard.__all__:
        assert getattr(guard, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        guard.nothing  # noqa: B018
