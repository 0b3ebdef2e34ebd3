"""What the suites' tests share."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from guard.cli import main
from guard.suites.hbb import questions
from guard.suites.packs import load


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2's weights in a folder of the test's own."""
    home = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home))
        patch.setenv("LOCALAPPDATA", str(home))
        done = CliRunner().invoke(main, ["models", "get", "smollm2"])
    if done.exit_code:
        pytest.skip(done.output)
    return home


@pytest.fixture(scope="session", autouse=True)
def _shipped_pairs_are_read_once() -> Iterator[None]:
    """HBB checks every sentence of its pack whenever a suite is made, for a third of a second."""
    read, shipped = questions._from_pack, load("hbb").folder
    once = cache(lambda folder: tuple(read(folder)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            questions, "_from_pack", lambda folder: (once if folder == shipped else read)(folder)
        )
        yield
