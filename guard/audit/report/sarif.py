"""Checks as SARIF 2.1.0, for code hosts that show findings in a change."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from guard import __version__
from guard.audit.report.checks import VERDICT, Check, content_checks, status_counts
from guard.audit.report.content import Content
from guard.audit.report.repository import RepositoryFiles, RepositoryPlace, root_of
from guard.texts import for_xml

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_ROOT = "%SRCROOT%"  # by convention the root of the checked-out repository
_LEVELS = {"failed": "error", "error": "warning", "skipped": "note"}


def sarif_log(content: Content, files: RepositoryFiles | None = None) -> str:
    """Return the log: a result for each check that did not pass, located at a file of ``files``.

    ``files`` are those of the repository around the working folder by default. Where it has none
    for a suite, the place is the name of the journal, which a code host cannot show.

    Undecided checks are notes, and only beside a baseline: without one many figures have too few
    answers to test.
    """
    files = files or RepositoryFiles(root_of(Path.cwd()))
    of_suites = {one.name: files.place(one.suite) for one in content.suites}
    # What is about all suites is shown where the first has a place.
    general = files.place(None) or next(filter(None, of_suites.values()), None)
    legends = {one.name: dict(one.result.legend) for one in content.suites}
    reported = set(_LEVELS) if content.comparison is not None else {"failed", "error"}
    listed_checks = content_checks(content)
    reported_checks = [check for check in listed_checks if check.status in reported]
    rules: dict[str, dict[str, Any]] = {}
    for check in reported_checks:
        name = _rule_id(check)
        about = legends.get(check.suite, {}).get(check.rule, f"{check.rule} of {check.suite}")
        rules.setdefault(name, {"id": name, "shortDescription": {"text": for_xml(about)}})
    axes = {} if content.comparison is None else content.comparison.counts
    # The checks of a comparison have the suite's name alone.
    suites = {one.result.suite: one.name for one in content.suites}
    places = {name: place for place, name in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "guard audit",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": list(rules.values()),
            }
        },
        "results": [
            _result_of(
                check, places, of_suites.get(suites.get(check.suite, check.suite)) or general
            )
            for check in reported_checks
        ],
        "columnKind": "unicodeCodePoints",
        "invocations": [
            # A verdict that was not reached is a result; the audit itself ran.
            {
                "executionSuccessful": not any(
                    c.status == "error" and c.rule != VERDICT for c in reported_checks
                )
            }
        ],
        "properties": {"checks": status_counts(listed_checks), "axes": axes},
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=1) + "\n"


def _rule_id(check: Check) -> str:
    return for_xml(f"{check.suite.partition(' · ')[0]}/{check.rule}")


def _result_of(
    check: Check, places: dict[str, int], place: RepositoryPlace | None
) -> dict[str, Any]:
    rule = _rule_id(check)
    name = f"{check.suite}/{check.name}"
    path, line = place or RepositoryPlace(check.journal or "run")
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return {
        "ruleId": rule,
        "ruleIndex": places[rule],
        "level": _LEVELS[check.status],
        "message": {"text": for_xml(f"{check.name}: {check.text}")},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": quote(os.fsencode(path)), "uriBaseId": _ROOT},
                    "region": {"startLine": line},
                },
                "logicalLocations": [{"fullyQualifiedName": for_xml(name)}],
            }
        ],
        "partialFingerprints": {"axis/v1": digest},
        "properties": {key: for_xml(value) for key, value in check.axis.items()},
    }
