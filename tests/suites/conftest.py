"""What the suites' tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from guard.cli import main


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
