from __future__ import annotations

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.audit.answering import Answering, answering
from tests.watch.conftest import _browser as _browser
from tests.watch.conftest import page as page
from tests.watch.conftest import server as server
from tests.watch.conftest import sqlite as sqlite
from tests.watch.conftest import url as url

if TYPE_CHECKING:
    from guard.audit.report.content import Content


def pytest_configure(config: pytest.Config) -> None:
    # LiteLLM's own types make pydantic say so while they are imported.
    config.addinivalue_line(
        "filterwarnings", "ignore:Items? .* on TypedDict class .* `ReadOnly`:UserWarning"
    )


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    with answering() as found:
        monkeypatch.setenv("OPENAI_API_BASE", found.base)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield found


@pytest.fixture
def scripted_guards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Guards have a detector that needs no weights; what runs leave is in a folder of its own."""
    from guard.core import Guard
    from tests.scripted import Scripted

    monkeypatch.chdir(tmp_path)
    init = Guard.__init__

    def made(self: Guard, policy: Any = None, **rest: Any) -> None:
        rest = {name: value for name, value in rest.items() if name not in ("index", "detector")}
        init(self, policy, detector=Scripted(), **rest)

    monkeypatch.setattr(Guard, "__init__", made)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Content:
    """What a report tells of a run of every suite in both arms."""
    from guard.audit.report.content import load_content
    from tests.audit.reporting import everything

    return load_content(everything(tmp_path_factory.mktemp("everything")))
