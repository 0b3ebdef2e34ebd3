"""Measure guard beside its peers: ``python benchmarks/speed/peers.py [--folder DIR] [--json]``.

Each system runs in an environment of its own with the versions pinned below; one that exists in
``--folder`` is used again, so an interrupted run resumes. Each gets the same
stream (``probes/common.py``) and the same free detector, in its defaults and in its strictest
settings. What cannot be installed or run is named with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

PROBES = Path(__file__).parent / "probes"
ROOT = Path(__file__).parents[2]
_READY = ".ready"


class Peer(NamedTuple):
    """One system; no requirements means the environment that this runs in."""

    name: str
    probe: str
    requirements: tuple[str, ...] = ()


PEERS = (
    Peer("guard", "guard_probe.py"),
    Peer("NeMo Guardrails", "nemo_probe.py", ("nemoguardrails==0.24.1",)),
    Peer("openai-guardrails", "openai_probe.py", ("openai-guardrails==0.3.6",)),
    Peer("guardrails-ai", "guardrails_ai_probe.py", ("guardrails-ai==0.11.0",)),
    Peer("LiteLLM proxy", "litellm_probe.py", ("litellm[proxy]==1.106.2",)),
)


class Failed(Exception):
    """A system could not be installed or run."""


def environment(peer: Peer, folder: Path) -> Path:
    """Return the Python of a peer's environment, which is created if it does not exist.

    Raises Failed if it cannot be installed; the next run builds an incomplete environment again.
    """
    if not peer.requirements:
        return Path(sys.executable)
    place = folder / peer.probe.removesuffix("_probe.py")
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    wanted = "\n".join(peer.requirements)
    ready = place / _READY
    if ready.is_file() and ready.read_text("utf-8") == wanted:
        return python
    print(f"{peer.name}: installing {' '.join(peer.requirements)}", file=sys.stderr, flush=True)
    _run([sys.executable, "-m", "venv", "--clear", str(place)])
    _run([str(python), "-m", "pip", "install", "--quiet", *peer.requirements])
    ready.write_text(wanted, "utf-8")
    return python


def measured(peer: Peer, folder: Path) -> dict[str, Any]:
    """Return a peer's version and figures, or the reason why there are none."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    paths = {"PYTHONPATH": str(ROOT)} if not peer.requirements else {}
    try:
        python = environment(peer, folder)
        print(f"{peer.name}: measuring", file=sys.stderr, flush=True)
        done = _run([str(python), str(PROBES / peer.probe)], {**kept, **paths}, show=True)
    except Failed as problem:
        return {"reason": str(problem)}
    figures: dict[str, Any] = json.loads(done.strip().splitlines()[-1])
    return figures


def _run(command: list[str], env: dict[str, str] | None = None, *, show: bool = False) -> str:
    """Run a command and return what it prints; ``show`` lets its progress through."""
    error = None if show else subprocess.PIPE
    try:
        done = subprocess.run(
            command, env=env, stdout=subprocess.PIPE, stderr=error, text=True, check=False
        )
    except OSError as problem:
        raise Failed(str(problem)) from None
    if done.returncode:
        said = (done.stderr or done.stdout or "").strip().splitlines()
        raise Failed(said[-1] if said else f"exit code {done.returncode}")
    return done.stdout


def verdict(leaks: dict[str, int]) -> str:
    """Return yes, half or no, and how often."""
    total = sum(leaks.values())
    if leaks["whole"]:
        return f"yes, {leaks['whole']} of {total}"
    if leaks["part"]:
        return f"the first half, {leaks['part']} of {total}"
    return f"no, 0 of {total}"


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the figures as a Markdown table."""
    lines = [
        "| system | setting | leaks | CPU us a chunk | first text after |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, result in results.items():
        if "reason" in result:
            lines.append(f"| {name} | not measured: {result['reason']} | | | |")
            continue
        for row in result["rows"]:
            first = f"{row['first_chunks']} chunks, {row['first_ms']:.0f} ms"
            lines.append(
                f"| {name} {result['version']} | {row['setting']} | {verdict(row['leaks'])} "
                f"| {row['cpu_us']:.1f} | {first} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Measure every system and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the environments are kept")
    parser.add_argument("--only", choices=[p.name for p in PEERS], help="measure one system")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = [p for p in PEERS if options.only in (None, p.name)]
    folder = options.folder or Path(tempfile.gettempdir()) / "guard-peers"
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Any]] = {}
    try:
        for peer in chosen:
            results[peer.name] = measured(peer, folder.absolute())
    except KeyboardInterrupt:
        print("stopped; what is installed is used again", file=sys.stderr)
    print(json.dumps(results, indent=1) if options.json else table(results))


if __name__ == "__main__":
    main()
