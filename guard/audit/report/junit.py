"""Checks as JUnit XML, for Jenkins and other build servers.

A suite of the audit is a test suite, a check a test case; an undecided one is skipped, with its
reason. The XML is valid by Jenkins' schema and, if no case is skipped, by Apache Ant's.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree

from guard.audit.files import last_written
from guard.audit.report.checks import Check, content_checks, status_counts
from guard.audit.report.content import Content
from guard.texts import for_xml, one_line

_KINDS = {"failed": "failure", "error": "error"}


def junit_xml(content: Content, timestamp: str) -> str:
    """Return the XML; ``timestamp`` is ISO 8601 without a time zone."""
    root = ElementTree.Element("testsuites")
    by_suite: dict[str, list[Check]] = {}
    for check in content_checks(content):
        by_suite.setdefault(check.suite, []).append(check)
    for number, (name, suite_checks) in enumerate(by_suite.items()):
        _add_suite(root, number, one_line(name), suite_checks, timestamp)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def written_at(run: Path) -> str:
    """Return the time of a run's newest journal, in the format that :func:`junit` takes."""
    time = datetime.fromtimestamp(last_written(run), timezone.utc)
    return time.strftime("%Y-%m-%dT%H:%M:%S")


def _add_suite(
    root: ElementTree.Element, number: int, name: str, suite_checks: list[Check], timestamp: str
) -> None:
    count = {status: str(number) for status, number in status_counts(suite_checks).items()}
    suite = ElementTree.SubElement(
        root, "testsuite", name=name, package="guard.audit", id=str(number), hostname="localhost",
        timestamp=timestamp, tests=str(len(suite_checks)), failures=count["failed"],
        errors=count["error"], time="0",
    )  # fmt: skip
    if count["skipped"] != "0":
        suite.set("skipped", count["skipped"])
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", name="suite", value=name)
    for check in suite_checks:
        case = ElementTree.SubElement(
            suite, "testcase", name=one_line(check.name), classname=f"guard.audit.{name}", time="0"
        )
        text = for_xml(check.text)
        if check.status == "skipped":
            ElementTree.SubElement(case, "skipped", message=one_line(text)).text = text
        elif check.status in _KINDS:
            problem = ElementTree.SubElement(
                case, _KINDS[check.status], type=one_line(check.rule), message=one_line(text)
            )
            problem.text = text
    for name_ in ("system-out", "system-err"):
        ElementTree.SubElement(suite, name_)
