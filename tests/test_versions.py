"""The range of LiteLLM that is tested."""

from __future__ import annotations

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from guard.doors.litellm import compat
from tests.data import ROOT
from tests.versions import released


@pytest.mark.slow("asks the package index; .ci/run runs it after the default tests")
def test_the_newest_release_is_in_the_tested_range() -> None:
    if not (versions := released()):
        pytest.skip("no package index can be reached")
    newest = next(v for v in versions if not v.is_prerelease)
    assert newest in SpecifierSet(compat.TESTED), (
        f"LiteLLM {newest} is out and not tested: run `python -m tests.versions {newest}`, then "
        "raise TESTED and NEWEST in guard/doors/litellm/compat.py."
    )


def test_the_tests_install_a_version_with_every_door() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    (pinned,) = (line.partition("==")[2] for line in lines if line.startswith("litellm=="))
    assert Version(pinned) >= Version(compat.ALL_DOORS)
    assert pinned in SpecifierSet(compat.TESTED)
