"""The framework matrix, outside CI because it installs them: ``python -m tests.frameworks [NAME]``.

Each framework of ``guard/cli/frameworks.toml`` gets an environment of its own in ``--cache``, with
the version that the table says and what guard needs, and runs its program of ``programs.py`` twice,
with ``guard.install()`` before and after its import. Prints a line for each row, and exits with 1
if one differs from ``measured.csv``, which docs/frameworks.md quotes. ``--write`` writes it anew.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from guard.cli.doctor import frameworks
from guard.doors.litellm.compat import NEWEST
from tests.frameworks import MEASURED, Cells, measured, write
from tests.frameworks.programs import OWN, PACKAGES, PROGRAMS, PROXY

ROOT = Path(__file__).parents[2]
CACHE = Path.home() / ".cache" / "biasguard-frameworks"
LIMIT_S = 600.0
Row = dict[str, Any]
"""What a program prints of a case under an action."""


class Environments:
    """One virtual environment a framework; uv links their files to one copy in its own cache."""

    def __init__(self, folder: Path, python: str, litellm: str) -> None:
        self.folder, self.python, self.litellm = folder, python, f"litellm=={litellm}"
        folder.mkdir(parents=True, exist_ok=True)
        self.uv = folder / "uv" / "bin" / "uv"
        if not self.uv.exists():
            subprocess.run([sys.executable, "-m", "venv", folder / "uv"], check=True)
            pip = [folder / "uv" / "bin" / "python", "-m", "pip", "install", "-q", "uv"]
            subprocess.run(pip, check=True)
        self.override = folder / "override.txt"
        self.override.write_text(f"{self.litellm}\n", encoding="utf-8")

    def interpreter(self, name: str, requirements: list[str]) -> tuple[Path, bool]:
        """Return the interpreter, and whether LiteLLM's version had to be forced.

        Raises RuntimeError with what uv says if they cannot be installed together.
        """
        version = self.litellm.rpartition("=")[2]
        place = self.folder / f"{name.lower().replace(' ', '-')}-{version}"
        note = place / "requirements.json"
        asked = [self.python, *requirements]
        if note.exists() and (made := json.loads(note.read_text("utf-8")))["asked"] == asked:
            return place / "bin" / "python", made["forced"]
        self._run("venv", "--clear", "--python", self.python, place)
        into = ["--python", place, "-r", ROOT / "pyproject.toml", *asked[1:]]
        forced = bool(self._run("pip", "install", *into, may_fail=True))
        if forced:  # the framework wants an older LiteLLM
            self._run("pip", "install", "--override", self.override, *into)
        note.write_text(json.dumps({"asked": asked, "forced": forced}), encoding="utf-8")
        return place / "bin" / "python", forced

    def _run(self, *args: object, may_fail: bool = False) -> int:
        here = {"UV_CACHE_DIR": str(self.folder / "cache"), "UV_HTTP_TIMEOUT": "180"}
        command = [str(self.uv), "-q", *map(str, args)]
        env = {**os.environ, **here}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if done.returncode and not may_fail:
            raise RuntimeError(done.stderr)
        return done.returncode


def outcomes(python: Path, name: str, when: str) -> dict[tuple[str, str], Row]:
    """Run a program in a process and a home folder of its own; return its rows."""
    silent = "DEEPEVAL_TELEMETRY_OPT_OUT RAGAS_DO_NOT_TRACK CREWAI_DISABLE_TELEMETRY"
    command = [python, "-W", "ignore", "-m", "tests.frameworks.programs", name, when]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        env = {
            **dict.fromkeys((*silent.split(), "OTEL_SDK_DISABLED"), "true"),
            **{"PATH": os.environ["PATH"], "HOME": home, "PYTHONPATH": str(ROOT)},
            **{"OPENAI_API_KEY": "k", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
            **{key: value for key, value in os.environ.items() if key == "SHOW_ERRORS"},
        }
        told: Any = {"capture_output": True, "text": True, "timeout": LIMIT_S}
        try:
            done = subprocess.run(command, cwd=home, env=env, **told)
        except subprocess.TimeoutExpired:
            print(f"{name} took more than {LIMIT_S} s", file=sys.stderr)
            return {}
    if done.returncode or os.environ.get("SHOW_ERRORS"):
        print(done.stderr[-4000:], file=sys.stderr)
    if done.returncode:
        return {}
    rows = [json.loads(line[4:]) for line in done.stdout.splitlines() if line.startswith("row {")]
    return {(row["case"], row["action"]): row for row in rows}


def cell(row: Row) -> str:
    return f"{row['requests']}: {row['seen']}"


def faults(before: Row | None, after: Row | None, expected: str | None) -> list[str]:
    """Return what is wrong with a row; ``expected`` is its cell in measured.csv, if it is read."""
    if before is None or after is None:
        return ["it did not run"]
    found = [] if cell(before) == cell(after) else [f"installed before, it is {cell(before)}"]
    if expected is not None and expected != cell(after):
        found.append(f"measured.csv says {expected or 'nothing'}")
    for row in (before, after):
        if row["case"].endswith(OWN):
            if row["guarded"] or not row["leaked"]:
                found.append("guard sees this client, and the page says that it does not")
        elif row["leaked"]:
            found.append("the biased sentence got out")
        elif row["case"].endswith(PROXY):
            continue  # it counts and tells in its own process
        elif row["guarded"] != row["requests"]:
            found.append(f"guard saw {row['guarded']} requests")
        elif row["requests"] and row["action"] != "redact" and not row["stops"]:
            found.append("no sink heard the stop")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks", description=__doc__)
    parser.add_argument("name", nargs="*", help="frameworks, by default all")
    parser.add_argument("--cache", type=Path, default=CACHE, help=f"default: {CACHE}")
    parser.add_argument("--python", default=sys.executable, help="interpreter or version")
    parser.add_argument("--litellm", default=NEWEST, help=f"default: {NEWEST}")
    parser.add_argument("--write", action="store_true", help="write measured.csv anew")
    options = parser.parse_args()
    if unknown := set(options.name) - set(PROGRAMS):
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(PROGRAMS)}")
    environments = Environments(options.cache, options.python, options.litellm)
    known = measured() if MEASURED.exists() else {}
    found: Cells = {}
    wrong = 0
    for entry in frameworks():
        name = entry.name
        own = {key: told for key, told in known.items() if key[0] == name}
        if name not in (options.name or PROGRAMS):
            found |= own
            continue
        pinned = [f"{entry.distribution}=={entry.tried}", *PACKAGES[name]]
        if not any(package.startswith("litellm[") for package in pinned):
            pinned.append(environments.litellm)
        try:
            python, forced = environments.interpreter(name, pinned)
        except RuntimeError as error:
            wrong += 1
            found |= own
            print(f"WRONG {name} cannot be installed: {error}", flush=True)
            continue
        print(f"== {' '.join(pinned)}{' (forced)' if forced else ''}", flush=True)
        before, after = (outcomes(python, name, when) for when in ("before", "after"))
        expected = [] if options.write else [key[1:] for key in own]
        if not (before and after):
            wrong += 1
            print(f"WRONG {name} did not run", flush=True)
        for case, action in dict.fromkeys([*after, *before, *expected]):
            rows = before.get((case, action)), after.get((case, action))
            problems = faults(*rows, None if options.write else own.get((name, case, action), ""))
            wrong += bool(problems)
            shown = rows[1] or rows[0]
            seen = "" if shown is None else cell(shown)
            guarded = "guarded" if shown and shown["guarded"] else "not guarded"
            if case.endswith(PROXY):
                guarded = "guarded there"
            mark = "WRONG" if problems else "ok"
            told = f"{mark:6}{name}; {case}; {action}; {guarded}; {seen}"
            print(told, *problems, sep="; ", flush=True)
            found[name, case, action] = seen
    if options.write:
        write(found)
    print(f"{wrong} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
