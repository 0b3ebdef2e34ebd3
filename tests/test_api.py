"""What others lean on: exported names, signatures for editors and type checkers, metadata."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import litellm
import pytest
import yaml  # type: ignore[import-untyped]

import guard
from guard import Guard

ROOT = Path(__file__).parents[1]
CALLS: dict[str, Callable[..., Any]] = {
    "completion": litellm.completion,
    "acompletion": litellm.acompletion,
    "text_completion": litellm.text_completion,
    "atext_completion": litellm.text_completion,  # LiteLLM's own takes anything
    "responses": litellm.responses,
    "aresponses": litellm.aresponses,
    "messages": litellm.anthropic.messages.create,
    "amessages": litellm.anthropic.messages.acreate,
    "batch_completion": litellm.batch_completion,
}
# The version whose parameters guard/signatures.py has; a later one may have more.
KNOWN = "1.108.7"


def test_type_checkers_see_what_is_exported() -> None:
    tree = ast.parse((ROOT / "guard" / "__init__.py").read_text("utf-8"))
    seen = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("guard")
        for alias in node.names
    }
    assert seen == {*guard.__all__} - {"__version__"}


def test_every_error_is_exported() -> None:
    kinds = inspect.getmembers(importlib.import_module("guard.errors"), inspect.isclass)
    assert {name for name, kind in kinds if issubclass(kind, Exception)} <= {*guard.__all__}


def parameters(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return {p.name: (p.kind, p.default) for p in found if p.name not in ("self", "guard")}


@pytest.mark.parametrize("name", CALLS)
def test_calls_have_litellms_parameters(name: str) -> None:
    theirs = parameters(CALLS[name])
    if name == "aresponses":  # it takes this one among **kwargs
        theirs["allowed_openai_params"] = (inspect.Parameter.POSITIONAL_OR_KEYWORD, None)
    for function in (getattr(Guard, name), getattr(guard, name)):
        ours = parameters(function)
        assert ours.items() <= theirs.items()
        if name != "aresponses":
            assert [*ours] == [known for known in theirs if known in ours]
        if metadata.version("litellm") == KNOWN:
            assert ours.keys() == theirs.keys()
        extra = inspect.signature(function).parameters["guard"]
        assert (extra.kind, extra.default) == (inspect.Parameter.KEYWORD_ONLY, None)
        asynchronous = name.startswith("a")
        assert inspect.iscoroutinefunction(function) is asynchronous
    assert pickle.loads(pickle.dumps(getattr(guard, name))) is getattr(guard, name)
    assert inspect.getdoc(getattr(guard, name)) == inspect.getdoc(getattr(Guard, name))


TYPED = """
import guard
from guard import Guard, PolicyLike
from litellm import CustomStreamWrapper, ModelResponse

g = Guard(detector="encoder-small")
asked = [{"role": "user", "content": "Hi"}]
whole = guard.completion("gpt-4o-mini", asked, temperature=0.5)
reveal_type(whole)
reveal_type(whole.guard)
reveal_type(whole.choices[0].message.content)
reveal_type(g.completion(model="m", messages=asked, stream=True, api_key="k"))
for chunk in guard.completion(model="m", messages=asked, stream=True, guard={"action": "flag"}):
    reveal_type(chunk)
unwrapped: ModelResponse = whole
reveal_type(g.text_completion(prompt="Hi", model="m"))
reveal_type(g.responses(input="Hi", model="m", guard="strict"))
reveal_type(g.messages(max_tokens=5, messages=asked, model="m").guard)


async def stream(choice: bool, policy: PolicyLike) -> None:
    reveal_type(await g.acompletion("m", asked, guard=policy))
    reveal_type(await guard.acompletion("m", asked, stream=True))
    reveal_type(await guard.aresponses(input="Hi", model="m"))
    either = g.completion(model="m", messages=asked, stream=choice)
    reveal_type(either)


g.completion("m", asked, temperature="hot")
guard.completion("m", asked, guard=3)
decision = g.trail("Hi").decisions[0]
reveal_type(decision.verdict.score)
reveal_type(decision.request_id)
"""
REVEALED = """
    GuardedChat GuardTrail (str|None) GuardedChatStream ModelResponseStream GuardedText
    GuardedResponse GuardTrail GuardedChat GuardedChatStream GuardedResponse
    GuardedChat|GuardedChatStream (float|None) (str|None)
"""


def documented(page: str) -> str:
    code, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text("utf-8"), re.S)
    return str(code)


@pytest.mark.slow("mypy reads all of LiteLLM; .ci/run runs it after the default tests")
def test_public_names_are_enough_for_a_strict_type_checker(tmp_path: Path) -> None:
    files = {
        "detector": documented("writing-a-detector.md"),
        "suite": documented("writing-a-suite.md"),
        "calls": TYPED,
    }
    for name, code in files.items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
        assert not re.search(r"from guard\.(?!suites import)", code), "a name that is not public"
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml"]
    done = subprocess.run(
        [*command, *(str(tmp_path / f"{name}.py") for name in files)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = done.stdout.splitlines()
    shown = [line.split('"')[1] for line in told if "Revealed type" in line]
    plain = [re.sub(r"\w+\.|[ ]", "", kind) for kind in shown]
    assert plain == REVEALED.replace("(", "").replace(")", "").split(), done.stdout + done.stderr
    errors = [line for line in told if ": error: " in line]
    assert len(errors) == 2, done.stdout
    assert all("No overload variant" in line for line in errors), done.stdout


def test_the_index_page_has_no_link_into_the_repository() -> None:
    hatchling = pytest.importorskip("hatchling.metadata.plugin.interface")
    assert hatchling is not None
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: dict[str, Any] = {}
    module.Readme(str(ROOT), {}).update(made)
    text = made["readme"]["text"]
    assert not re.findall(r"\]\((?!https?://)", text)
    assert "docs/" not in text
    assert "![" not in text
    for kept in ("guard.completion(", "At the default", "| `terminate` ", "**Licence.**"):
        assert kept in text


def test_the_citation_names_this_version() -> None:
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert found["version"] == guard.__version__
    assert found["license"] == "Apache-2.0"
    assert found["authors"] == [{"name": "the guard developers"}]
