"""Interception: every name of LiteLLM's functions leads to the guard; then all is as it was."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import litellm
import pytest
from litellm import CustomStreamWrapper, Router, acompletion, completion
from litellm.types.utils import ModelResponse, TextCompletionResponse
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import guard
from guard.core import Guard
from guard.detect.protocol import Window
from guard.doors.litellm import compat, install
from guard.errors import BiasFound, ConfigError, UsageError
from guard.policy import Policy
from tests.doors import replay as r
from tests.doors.replay import Replay, Said
from tests.doors.table import TABLE, Row, World, arun
from tests.doors.versions import since
from tests.provider import Provider
from tests.rows import rows
from tests.scripted import Scripted

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

STOP = Policy().message
CUT = "All is well. " + STOP
SAID = "All is well. BIAS is. So."
CALL: dict[str, Any] = {"model": "gpt-4o", "messages": r.MESSAGES, "mock_response": SAID}

bound_earlier = functools.partial(completion, **CALL)


def guard_of(**settings: Any) -> Guard:
    return Guard(Policy(**settings), detector=Scripted())


def said(response: Any) -> str:
    return str(response.choices[0].message.content)


def watched() -> dict[str, Any]:
    """All that interception may change."""
    functions = {patch.name: patch.function for patch in install._targets()}
    state: dict[str, Any] = {name: (f, f.__code__) for name, f in functions.items()}
    state |= {f"{n} attributes": dict(f.__dict__) for n, f in functions.items()}
    state["Router"] = dict(install._ROUTER.__dict__)
    state["litellm"] = {name: getattr(litellm, name, None) for name, *_ in compat.FUNCTIONS}
    return state


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = watched()
    yield
    assert not install._patched
    assert watched() == before


class Plain:
    """LiteLLM's own functions, as a door of the matrix calls those of a Guard."""

    messages = staticmethod(lambda **call: litellm.anthropic_messages_handler(**call))
    amessages = staticmethod(lambda **call: litellm.anthropic_messages(**call))

    def __getattr__(self, name: str) -> Any:
        return getattr(litellm, name)


# Every door.


@rows("row", [row for row in TABLE if type(row) is Row])
def test_every_door_is_reached(row: Row, world: World) -> None:
    row.play(world, [[("content", 0, "All is well. BIAS is. " + "So it goes. " * 9)]], ([6], 0))
    plain: Any = Plain()
    with guard_of().intercept():
        for way in row.ways(world, plain):
            assert way.texts == {r.Channel(): CUT}
            assert way.ends == {0: "content_filter"}
            assert [d.action for d in way.trail] == ["pass", "terminate"]


def test_litellms_types_are_what_they_were() -> None:
    with guard_of().intercept():
        assert isinstance(completion(**CALL), ModelResponse)
        assert isinstance(completion(**CALL, stream=True), CustomStreamWrapper)
        text = litellm.text_completion(
            model="gpt-3.5-turbo-instruct", prompt="x", mock_response="a"
        )
        assert isinstance(text, TextCompletionResponse)
        assert litellm.completion is completion
        assert inspect.iscoroutinefunction(acompletion)
        assert "messages" in inspect.signature(completion).parameters


def test_names_bound_earlier_are_reached() -> None:
    table = {"chat": bound_earlier}
    assert said(table["chat"]()) == SAID
    with guard_of().intercept():
        assert said(table["chat"]()) == CUT
        assert said(arun(acompletion(**CALL))) == CUT
        # An inner function of LiteLLM's, by its own name.
        assert said(litellm.main.completion(**CALL)) == CUT
    assert said(table["chat"]()) == SAID


def test_batches() -> None:
    call = {**CALL, "messages": [r.MESSAGES, r.MESSAGES]}
    with guard_of().intercept():
        answers = litellm.batch_completion(**call)
        assert [said(a) for a in answers] == [CUT, CUT]
        assert [len(a.guard) for a in answers] == [2, 2]
        assert [a.guard.stopped for a in answers] == [True, True]


def test_a_stop_is_not_retried() -> None:
    pytest.importorskip("tenacity", reason="LiteLLM retries with it")
    events: list[Any] = []
    raising = Guard(Policy(action="raise"), detector=Scripted(), sinks=[events.append])
    with raising.intercept(), pytest.raises(BiasFound):
        litellm.completion_with_retries(**CALL, num_retries=3)
    assert len(events) == 2  # nothing was asked again


# Routers.


class TestRouter:
    MODELS = tuple(
        {"model_name": n, "litellm_params": {"model": f"replay/{n}"}} for n in ("first", "second")
    )

    @pytest.fixture
    def router(self, replay: Replay) -> Iterator[Any]:
        replay.answer = r.answer_of([Said(0, "content", SAID)])
        router = Router(
            model_list=list(self.MODELS),
            content_policy_fallbacks=[{"first": ["second"]}],
            num_retries=2,
        )
        yield router
        router.discard()

    def test_a_stop_makes_one_call(self, router: Any, replay: Replay) -> None:
        events: list[Any] = []
        earlier = router.completion
        with Guard(Policy(), detector=Scripted(), sinks=[events.append]).intercept():
            assert said(router.completion("first", r.MESSAGES)) == CUT
            assert said(earlier("first", r.MESSAGES)) == CUT
            assert said(arun(router.acompletion("first", r.MESSAGES))) == CUT
        assert len(events) == 6
        assert said(router.completion("first", r.MESSAGES)) == SAID

    @since(compat.ALL_DOORS)
    def test_methods_made_for_each_router(self, router: Any, replay: Replay) -> None:
        made = router.aresponses
        with guard_of().intercept():
            answer = arun(router.aresponses(model="first", input="Tell me."))
            assert answer.output[0].content[0].text == CUT
            assert len(answer.guard) == 2
            newer = Router(model_list=list(self.MODELS))
            answer = arun(newer.aresponses(model="first", input="Tell me."))
            assert answer.incomplete_details.reason == "content_filter"
            newer.discard()
            replay.answer.usage = litellm.Usage(1, 1, 2)
            call = {"model": "first", "messages": r.MESSAGES, "max_tokens": 9}
            message = arun(router.aanthropic_messages(**call))
            assert message["content"] == [{"type": "text", "text": CUT}]
            assert message["stop_reason"] == "refusal"
        assert router.aresponses == made

    def test_a_wrapped_router_keeps_its_own_guard(self, router: Any) -> None:
        wrapped = guard_of(action="flag").wrap(router)
        with guard_of().intercept():
            assert said(wrapped.completion("first", r.MESSAGES)) == SAID


# Whose policy.


def test_settings_of_one_call() -> None:
    with guard_of().intercept():
        assert said(completion(**CALL, guard={"action": "flag"})) == SAID
        assert said(completion(**CALL)) == CUT


def test_a_door_called_by_name_is_the_outermost() -> None:
    events: list[Any] = []
    flagging = Guard(Policy(action="flag"), detector=Scripted(), sinks=[events.append])
    with guard_of().intercept():
        assert said(flagging.completion(**CALL)) == SAID
    assert len(events) == 3


def test_the_innermost_block_is_in_force() -> None:
    with guard_of().intercept():
        with guard_of(action="flag").intercept():
            assert said(completion(**CALL)) == SAID
        assert said(completion(**CALL)) == CUT


def test_installed_twice() -> None:
    first, second = guard_of(), guard_of(action="flag")
    assert guard.install(first) is first
    assert said(completion(**CALL)) == CUT
    guard.install(second)
    assert said(completion(**CALL)) == SAID
    guard.uninstall()
    assert said(completion(**CALL)) == CUT
    with second.intercept():
        guard.uninstall()
        assert said(completion(**CALL, guard={"message": "no"})) == SAID
    guard.uninstall()  # once too often: nothing to do
    assert said(completion(**CALL)) == SAID


def test_install_takes_settings_or_a_guard() -> None:
    installed = guard.install(detector=Scripted(), action="redact")
    assert "BIAS" not in said(completion(**CALL))
    assert installed.policy.action == "redact"
    guard.uninstall()
    with pytest.raises(UsageError, match="not both"):
        guard.install(installed, action="flag")


def test_blocks_of_tasks_do_not_mix() -> None:
    policies = [{"action": a} for a in ("terminate", "flag", "redact")] * 4
    expected = {"terminate": CUT, "flag": SAID}

    async def ask(settings: dict[str, str]) -> None:
        with guard_of(**settings).intercept():
            await asyncio.sleep(0)
            text = said(await acompletion(**CALL))
            assert text == expected.get(settings["action"], text)
            assert ("BIAS" in text) == (settings["action"] == "flag")

    async def run() -> None:
        await asyncio.gather(*(ask(settings) for settings in policies))

    arun(run())


def test_threads_go_by_their_own_block_else_the_installed_guard_else_the_newest_block() -> None:
    def call(*blocks: Guard) -> str:
        if not blocks:
            return said(completion(**CALL))
        with blocks[0].intercept():
            return call(*blocks[1:])

    flag, stop = guard_of(action="flag"), guard_of()
    with ThreadPoolExecutor(1) as pool:
        with stop.intercept():
            assert pool.submit(call).result() == CUT
            assert pool.submit(call, flag).result() == SAID
            flag.install()
            assert pool.submit(call).result() == SAID
            assert call() == CUT
            guard.uninstall()
        assert pool.submit(call).result() == SAID


def test_a_task_that_outlives_the_block_is_free_of_it() -> None:
    async def run() -> str:
        async def late() -> str:
            await asyncio.sleep(0.05)
            return said(await acompletion(**CALL))

        with guard_of().intercept():
            task = asyncio.create_task(late())
        return await task

    assert arun(run()) == SAID


def test_a_stream_goes_on_behind_the_block() -> None:
    with guard_of().intercept():
        stream = completion(**CALL, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in stream) == CUT


@rows("timeout_ms", [5000, None])  # without a limit it runs on this thread
def test_a_detector_that_asks_a_model_is_not_judged(timeout_ms: float | None) -> None:
    asked: list[str] = []

    def ask(window: Window) -> None:
        asked.append(said(completion(**CALL)))

    with Guard(Policy(timeout_ms=timeout_ms), detector=Scripted(before=ask)).intercept():
        assert said(completion(**CALL)) == CUT
        assert said(completion(**CALL)) == CUT
    assert set(asked) == {SAID}


def test_installing_from_many_threads() -> None:
    begin = threading.Barrier(8)

    def work(_: int) -> None:
        begin.wait()
        for _ in range(20):
            with guard_of().intercept():
                assert said(completion(**CALL)) == CUT

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


# What it does not know.


def test_a_function_without_a_door_is_refused() -> None:
    with (
        guard_of().intercept(),
        pytest.raises(UsageError, match=r"cannot judge litellm\.agenerate_content"),
    ):
        arun(litellm.agenerate_content(model="gemini/x", contents=[]))


def test_a_version_out_of_range_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "1.80.17")
    with pytest.raises(ConfigError, match=rf"{re.escape(compat.TESTED)} and found 1\.80\.17"):
        guard_of().install()
    assert said(completion(**CALL)) == SAID


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("door", ["responses", "messages"])
def test_a_door_that_litellm_is_too_old_for_is_refused(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, door: str, asynchronous: bool
) -> None:
    monkeypatch.setattr(compat, "version", lambda: "1.83.7")
    asked = {"model": "openai/gpt-4o", "api_base": provider.openai, "api_key": "k"}
    asked |= {"input": "Hi"} if door == "responses" else {"messages": r.MESSAGES, "max_tokens": 9}
    plain: Any = Plain()
    name = f"a{door}" if asynchronous else door
    with guard_of().intercept():
        for owner in (plain, guard_of(), guard_of().wrap(Router(model_list=[]))):
            if not hasattr(owner, name):
                continue  # a Router has no synchronous messages
            ask = partial(getattr(owner, name), **asked)
            with pytest.raises(ConfigError, match=rf"calls of {door} .* 1\.106\.2 .* 1\.83\.7"):
                arun(ask()) if asynchronous else ask()
        assert said(completion(**CALL)) == CUT
    assert provider.served == []


def test_an_unknown_signature_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    known = compat.FUNCTIONS
    unlike = known[0]._replace(takes=("prompts",))
    monkeypatch.setattr(compat, "FUNCTIONS", (*known[1:], unlike))
    with (
        pytest.raises(ConfigError, match=r"litellm\.completion .* has no parameter 'prompts'"),
        guard_of().intercept(),
    ):
        pass


class Instrumentor:
    """Wraps a function as OpenInference's does: by a bound method and a table of originals."""

    def __init__(self) -> None:
        self.original_litellm_funcs = {"completion": litellm.completion}
        self.seen: list[Any] = []

    def wrapper(self, *args: Any, **kwargs: Any) -> Any:
        self.seen.append(self.original_litellm_funcs["completion"](*args, **kwargs))
        return self.seen[-1]


@pytest.mark.parametrize("first", ["guard", "instrumentor"])
def test_an_instrumentor_sees_the_guarded_answer(
    monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    instrumentor = Instrumentor()
    with monkeypatch.context() as patching:
        if first == "instrumentor":
            patching.setattr(litellm, "completion", instrumentor.wrapper)
        with guard_of().intercept():
            patching.setattr(litellm, "completion", instrumentor.wrapper)
            assert said(litellm.completion(**CALL)) == CUT
    assert [said(answer) for answer in instrumentor.seen] == [CUT]


def test_wrappers_of_other_libraries_are_unwrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    @functools.wraps(completion)
    def traced(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return bound(*args, **kwargs)

    bound = completion
    with monkeypatch.context() as patching:
        patching.setattr(litellm, "completion", traced)
        with guard_of().intercept():
            assert said(litellm.completion(**CALL)) == CUT
        assert calls == [1]
        patching.setattr(litellm, "completion", object())
        with (
            pytest.raises(ConfigError, match=r"expected litellm\.completion .* found object"),
            guard_of().intercept(),
        ):
            pass


@since(compat.ALL_DOORS)
def test_a_newer_version_warns_and_works_where_its_internals_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compat, "version", lambda: "1.200.0")
    with pytest.warns(UserWarning, match=r"tested with LiteLLM .* and runs with 1\.200\.0"):
        compat.warn_of_newer()
    with guard_of().intercept():
        assert said(completion(**CALL)) == CUT


def internal(homes: str, names: str) -> compat.Internal:
    return compat.Internal(tuple(homes.split()), tuple(names.split()), "a test", (compat.OLDEST,))


@since(compat.ALL_DOORS)
def test_a_newer_version_without_an_internal_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compat, "version", lambda: "1.200.0")
    known, lacking = compat.internals(), internal("litellm.utils", "function_setup gone_by_then")
    monkeypatch.setattr(compat, "internals", lambda: (*known, lacking))
    with pytest.raises(ConfigError, match=r"does not find gone_by_then in 1\.200\.0"):
        guard_of().install()
    assert said(completion(**CALL)) == SAID


def test_internals_are_found_in_the_version_that_is_installed() -> None:
    assert {i.homes[0]: lacks for i in compat.internals() if (lacks := compat.missing(i))} == {}
    checked = {version for i in compat.internals() for version in i.checked}
    assert checked >= {compat.OLDEST, compat.NEWEST, metadata.version("litellm")}


@rows(
    "homes, names, missing",
    [
        ("litellm.utils", "function_setup nothing", ["nothing"]),
        ("litellm.gone litellm.utils", "function_setup", []),
        ("litellm.gone", "function_setup", ["function_setup"]),
        ("litellm.proxy.gone", "anything", []),  # the proxy may not be installed
        ("litellm.main:Completions", "create router_obj never", ["never"]),
    ],
)
def test_a_name_is_looked_up_where_it_was(homes: str, names: str, missing: list[str]) -> None:
    assert compat.missing(internal(homes, names)) == missing


def test_names_are_not_missed_of_a_module_that_litellm_cannot_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import package_of_the_proxy\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert compat.missing(internal("needs_more", "pump_task")) == []
    assert compat.missing(internal("needs_more.gone", "pump_task")) == []
    assert compat.missing(internal("needs_most", "pump_task")) == ["pump_task"]


def test_the_tested_range_is_reported_and_pip_enforces_only_its_lower_end() -> None:
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())
    needs = [Requirement(line) for line in project["project"]["dependencies"]]
    (specifier,) = (need.specifier for need in needs if need.name == "litellm")
    tested = SpecifierSet(compat.TESTED)
    assert str(specifier) == f">={compat.OLDEST}"
    assert all(tested.contains(version) for version in (compat.OLDEST, compat.NEWEST))
    assert tested.contains(metadata.version("litellm"))
    assert f"LiteLLM `{compat.TESTED}`" in (root / "README.md").read_text("utf-8")
