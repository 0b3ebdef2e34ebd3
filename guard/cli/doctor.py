"""``guard doctor``: what is installed, which weights are verified, what is missing."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import click
from packaging.requirements import Requirement

from guard import installed, judge_settings, served_settings
from guard.cli import in_pipe, json_option, print_json, results_console, stdout_kept
from guard.errors import GuardError
from guard.exit_codes import ExitCode
from guard.places import CASCADE, ENCODERS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

State = Literal["ok", "absent", "note", "broken"]


class Diagnosis(NamedTuple):
    """One line of the report."""

    area: str
    name: str
    state: State
    detail: str


class Framework(NamedTuple):
    """A row of ``frameworks.toml``, which describes the fields."""

    name: str
    distribution: str
    tried: str
    set: str
    litellm: bool = False


def frameworks() -> list[Framework]:
    """Return the table of frameworks that have clients of their own."""
    table = Path(__file__).with_name("frameworks.toml").read_text(encoding="utf-8")
    return [Framework(**row) for row in tomllib.loads(table)["framework"]]


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Report what guard finds on this machine. Exit with 1 if something that it needs is broken."""
    with stdout_kept():
        findings = [
            *(*_package_diagnoses(), *_litellm(), *_proxy(), *_names(), *_frameworks()),
            *(*_settings(), *_detector(), *_detectors(), *_models(), *_closing()),
        ]
    broken = [f for f in findings if f.state == "broken"]
    if as_json:
        report = {"ok": not broken, "findings": [f._asdict() for f in findings]}
        print_json(report)
    else:
        _show(findings)
    sys.exit(ExitCode.FOUND if broken else ExitCode.DONE)


def _show(findings: list[Diagnosis]) -> None:
    from rich.table import Table
    from rich.text import Text

    if in_pipe():  # plain lines for grep and cut, without folding or padding
        click.echo("\n".join("\t".join(finding) for finding in findings))
        return
    colours = {"ok": "green", "absent": "dim", "note": "yellow", "broken": "bold red"}
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for _ in Diagnosis._fields:
        table.add_column(overflow="fold")
    area = ""
    for finding in findings:
        head = "" if finding.area == area else finding.area
        area = finding.area
        state = Text(finding.state, style=colours[finding.state])
        table.add_row(Text(head, "bold"), Text(finding.name), state, Text(finding.detail))
    results_console().print(table)


def _package_diagnoses() -> Iterator[Diagnosis]:
    yield Diagnosis("python", platform.python_version(), "ok", sys.executable)
    needed: set[str] = {"biasguard"}  # an extra may require another extra of this distribution
    for extra in ("", *_extras()):
        for requirement in _guard_requirements():
            if requirement.name in needed or not _is_required(requirement, extra):
                continue
            if not extra:
                needed.add(requirement.name)
            yield _package(requirement, f"extra [{extra}]" if extra else "packages", not extra)


def _guard_requirements() -> list[Requirement]:
    """Return this distribution's requirements; empty if it is not installed."""
    try:
        return [Requirement(line) for line in importlib.metadata.requires("biasguard") or []]
    except importlib.metadata.PackageNotFoundError:
        return []


def _extras() -> list[str]:
    try:
        return importlib.metadata.metadata("biasguard").get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError:
        return []


def _is_required(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def _package(requirement: Requirement, area: str, needed: bool) -> Diagnosis:
    name, versions = requirement.name, requirement.specifier
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        detail = f"pip install '{name}{versions}'" if needed else "not installed"
        return Diagnosis(area, name, "broken" if needed else "absent", detail)
    if not versions.contains(version, prereleases=True):
        # A package of an extra that is out of range breaks only the features that use it.
        state: State = "broken" if needed else "note"
        return Diagnosis(area, name, state, f"{version} is outside {versions}")
    return Diagnosis(area, name, "ok", version)


def _litellm() -> Iterator[Diagnosis]:
    """Report whether LiteLLM's version is tested, and which of its internals are not found."""
    try:
        from guard.doors.litellm import compat
    except ImportError as error:
        yield Diagnosis("litellm", "version", "broken", f"{error.name} is not installed")
        return
    except GuardError as error:
        yield Diagnosis("litellm", "version", "broken", str(error))
        return
    state: State = "ok" if compat.is_tested() else "note"
    yield Diagnosis("litellm", "version", state, f"{compat.version()}; tested: {compat.TESTED}")
    if compat.is_tested() and (refused := compat.refused("calls of responses and messages")):
        yield Diagnosis("litellm", "doors", "note", refused)
    for internal in compat.internals():
        missing = compat.missing(internal)
        places = f"{' '.join(internal.names)} (looked up on {', '.join(internal.checked)})"
        detail = f"not found: {', '.join(missing)}; for {internal.use}" if missing else places
        home = internal.homes[0].removeprefix("litellm.")
        yield Diagnosis("litellm internals", home, "broken" if missing else "ok", detail)


def _proxy() -> Iterator[Diagnosis]:
    """Report whether LiteLLM's proxy is installed."""
    try:
        from guard.doors.litellm import compat
    except (ImportError, GuardError):
        return
    try:
        lines = importlib.metadata.requires("litellm") or []
    except importlib.metadata.PackageNotFoundError:
        return
    asked = [r for r in map(Requirement, lines) if "extra" in str(r.marker or "")]
    missing = [r.name for r in asked if _is_required(r, "proxy") and not _installed(r.name)]
    name = "guard.proxy.Guardrail"
    if missing:
        detail = f"{installed.install_command('proxy')}; not installed: {', '.join(missing)}"
        yield Diagnosis("proxy", name, "absent", detail)
    elif refused := compat.refused("answers of the proxy"):
        yield Diagnosis("proxy", name, "absent", refused)
    else:
        yield Diagnosis("proxy", name, "ok", "LiteLLM's proxy can be guarded")


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _names() -> Iterator[Diagnosis]:
    """Report other distributions that also install a package called ``guard``."""
    for other in installed.other_distributions():
        detail = f"also provides a package 'guard'; run: {installed.repair_command(other)}"
        yield Diagnosis("names", other, "broken", detail)


def _frameworks() -> Iterator[Diagnosis]:
    """Name the installed frameworks, and what to set where they call providers past LiteLLM."""
    for framework in frameworks():
        try:
            version = importlib.metadata.version(framework.distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
        name = f"{framework.name} {version}"
        if framework.litellm:
            yield Diagnosis("frameworks", name, "ok", "calls LiteLLM; guard.install() reaches it")
        else:
            detail = f"has clients of its own, which guard does not see; set: {framework.set}"
            yield Diagnosis("frameworks", name, "note", detail)


def _settings() -> Iterator[Diagnosis]:
    from guard.config import read_settings

    try:
        values = read_settings()
    except GuardError as error:
        yield Diagnosis("settings", "guard.toml, BIASGUARD_*", "broken", str(error))
        return
    store = values.get("events")
    if store is not None:
        values["events"] = "set"  # its URL may hold a password
    if "judge" in values:
        values["judge"] = judge_settings.printable_settings(values["judge"])
    if "served" in values:
        values["served"] = served_settings.printable_settings(values["served"])
    shown = ", ".join(f"{key}={value!r}" for key, value in values.items()) or "defaults"
    yield Diagnosis("settings", "guard.toml, BIASGUARD_*", "ok", shown)
    if store is not None:
        yield _events(store)


def _events(url: str) -> Diagnosis:
    """Say whether the store of events can be read."""
    from guard.cli.rates import open_store

    try:
        store = open_store(url)
        with store.reading():
            return Diagnosis("events", store.name, "ok", "can be read")
    except GuardError as error:
        return Diagnosis("events", "store", "broken", str(error))


def _detector() -> Iterator[Diagnosis]:
    from guard.core import Guard

    try:
        detector = Guard(events="none").detector
        version = detector.snapshot().index_version
    except GuardError as error:
        yield Diagnosis("detector", "in use", "broken", str(error))
        return
    except ImportError as error:
        yield Diagnosis("detector", "in use", "broken", f"{error.name} is not installed")
        return
    yield Diagnosis("detector", "in use", "ok", detector.name)
    yield Diagnosis("detector", "bias index", "ok", f"version {version}" if version else "none")
    for member in (detector, *(getattr(detector, part, None) for part in ("first", "later"))):
        if asks := getattr(member, "asks", ""):  # of a judge, alone or in a cascade
            yield Diagnosis("detector", "judge", "ok", asks)


def _detectors() -> Iterator[Diagnosis]:
    """Report all shipped weights, whichever are in use."""
    from guard.detect.weights import (
        FILES,
        ONNX,
        OPTIONAL,
        file_sha256,
        open_weights,
        shipped_weights,
    )

    for name in ENCODERS:
        folder = shipped_weights(name)
        try:
            weights = open_weights(folder)
        except GuardError as error:
            yield Diagnosis("shipped detectors", name, "note", str(error))
            continue
        files = [folder / file for file in (*FILES, *OPTIONAL) if (folder / file).exists()]
        size = sum(file.stat().st_size for file in files) / 1e6
        detail = (
            f"{weights.name}, {size:.0f} MB, hashes verified; {ONNX} has sha256 "
            f"{file_sha256(folder / ONNX)}"
        )
        yield Diagnosis("shipped detectors", name, "ok", detail)
    yield _cascade()


def _cascade() -> Diagnosis:
    """Report the head of the cascade, and whether it is for the shipped weights."""
    from guard.detect.cascade_files import HEAD, read_head
    from guard.detect.weights import file_sha256, open_weights, shipped_weights

    folder = shipped_weights(CASCADE)
    try:
        head = read_head(folder)
        for name, recorded in zip(ENCODERS[::-1], (head.first, head.last), strict=True):
            place = shipped_weights(name)
            recorded.check(open_weights(place).name, place, folder)
    except GuardError as error:
        return Diagnosis("shipped detectors", CASCADE, "note", str(error))
    detail = (
        f"{head.name}, {head.first.name} and then {head.last.name}; {HEAD} has sha256 "
        f"{file_sha256(folder / HEAD)}"
    )
    return Diagnosis("shipped detectors", CASCADE, "ok", detail)


def _models() -> Iterator[Diagnosis]:
    from guard.local import download

    for name in download.model_names():
        state, detail = download.weights_state(name)
        yield Diagnosis("local models", name, state, detail)


def _closing() -> Iterator[Diagnosis]:
    from guard.doors.litellm.closing import TRANSPORTS

    for transport in TRANSPORTS:
        state: State = "ok" if transport.closes else "note"
        detail = transport.note if transport.closes else f"cannot be closed: {transport.note}"
        yield Diagnosis("closing", transport.name, state, detail)
