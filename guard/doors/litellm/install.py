"""Interception: LiteLLM's own functions, guarded for a whole process or for a block.

It replaces the code objects of LiteLLM's functions, not their names. So every earlier reference
(``from litellm import completion``, a partial, a dispatch table) is guarded, too. The function
objects stay the same, and uninstalling restores their code. A Router creates some of its methods
for each instance; these are guarded at attribute lookup.

Not reached: bound methods such as ``router.aresponses`` that were looked up earlier (the calls
they make below the Router are guarded), and text outside LiteLLM's doors: pass-through routes,
realtime, assistants.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import litellm
from litellm.router import Router

from guard.detect.workers import on_worker
from guard.doors import chat, messages, responses, text
from guard.doors.context import guarded
from guard.doors.door import Door
from guard.doors.litellm import compat
from guard.doors.session import DoorSession
from guard.errors import ConfigError, UsageError
from guard.forks import Lock

Sessions = Callable[[Any], DoorSession]
"""Makes a session of a guard, given a call's own settings."""


@dataclass(eq=False, slots=True)
class _Block:
    """One open ``with`` of :func:`intercept`."""

    sessions: Sessions
    open: bool = True


_lock = Lock(threading.RLock)
_installed: tuple[Sessions, ...] = ()
_blocks: tuple[_Block, ...] = ()
_own: ContextVar[tuple[_Block, ...]] = ContextVar("guard_blocks", default=())


def install(sessions: Sessions) -> None:
    """Guard every LiteLLM call in this process, until :func:`uninstall`.

    A second install takes precedence until it is uninstalled. Raises ConfigError, and changes
    nothing, if LiteLLM is not usable (:func:`compat.check`) or a function is not as expected.
    """
    global _installed
    with _lock:
        _patch()
        _installed = (*_installed, sessions)


def uninstall() -> None:
    """Undo the last :func:`install`; after the first is undone, LiteLLM is unpatched."""
    global _installed
    with _lock:
        _installed = _installed[:-1]
        _unpatch()


@contextmanager
def intercept(sessions: Sessions) -> Iterator[None]:
    """Guard the calls made while the block is open.

    Calls in the block's own context (which tasks started in it share) use this block. A call in
    another thread or task uses its own open block, else the installed guard, else the newest open
    block of the process, because threads that a framework starts do not inherit the context.
    """
    global _blocks
    block = _Block(sessions)
    with _lock:
        _patch()
        _blocks = (*_blocks, block)
    token = _own.set((*_own.get(), block))
    try:
        yield
    finally:
        block.open = False  # also in copies of its context
        with suppress(ValueError):  # a generator may be closed in another context
            _own.reset(token)
        with _lock:
            _blocks = tuple(b for b in _blocks if b is not block)
            _unpatch()


def _active() -> Sessions | None:
    """Return the sessions for a call made here; None if it is unguarded or guarded already."""
    own = next((b.sessions for b in reversed(_own.get()) if b.open), None)
    if own is None:
        installed, blocks = _installed, _blocks
        if installed:
            own = installed[-1]
        elif blocks:
            own = blocks[-1].sessions
    # Calls that a detector makes itself are not guarded.
    return None if own is None or guarded() or on_worker() else own


@dataclass(eq=False)
class _Patch:
    """One LiteLLM function whose code is replaced, and its door."""

    name: str
    function: FunctionType
    door: Door | None  # None: no door can guard it, so calls are refused
    takes: tuple[str, ...]
    method: bool = False
    called_as: str = ""  # the name by which the door calls it, if not its own
    code: CodeType = field(init=False)
    original: FunctionType = field(init=False)

    def __post_init__(self) -> None:
        known = inspect.signature(self.function).parameters
        passes_all_on = [p.kind for p in known.values() if p.name != "self"] == [
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ]
        missing = [name for name in self.takes if name not in known and not passes_all_on]
        if missing:
            raise ConfigError(
                f"guard does not know {self.name} of LiteLLM {compat.version()}, which has no "
                f"parameter {missing[0]!r}; call the functions of guard itself."
            )
        self.code = self.function.__code__
        self.original = _copy(self.function)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sessions = _active()
        if sessions is None:
            return self.original(*args, **kwargs)
        return self._door().call(sessions(kwargs.pop("guard", None)), *self._asked(args, kwargs))

    async def acall(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sessions = _active()
        if sessions is None:
            return await self.original(*args, **kwargs)
        session = sessions(kwargs.pop("guard", None))
        return await self._door().acall(session, *self._asked(args, kwargs))

    def _door(self) -> Any:
        if self.door is None:
            raise UsageError(
                f"guard cannot judge {self.name}; call it where guard is not installed."
            )
        return self.door

    def _asked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Any]:
        original: Any = self.original
        if self.method:
            original, args = original.__get__(args[0]), args[1:]
        return args, kwargs, SimpleNamespace(**{self.called_as or self.function.__name__: original})


class _Batch:
    """The batch door, with the methods that a patch calls."""

    def call(self, session: DoorSession, args: Any, kwargs: Any, owner: Any) -> Any:
        return chat.batch_completion(session, args, kwargs, intercepted=True)


class _Create:
    """The chat door for ``chat.completions.create`` of LiteLLM's clients and Routers."""

    def call(self, session: DoorSession, args: Any, kwargs: Any, owner: Any) -> Any:
        own = owner.create.__self__
        return chat.DOOR.call(session, (), chat.call_arguments(own, args, kwargs), _client_of(own))

    async def acall(self, session: DoorSession, args: Any, kwargs: Any, owner: Any) -> Any:
        own = owner.create.__self__
        asked = chat.call_arguments(own, args, kwargs)
        return await chat.DOOR.acall(session, (), asked, _client_of(own))


def _client_of(completions: Any) -> Any:
    return litellm if completions.router_obj is None else completions.router_obj


class _InstanceMethod:
    """Guards a method that a Router creates for each instance or looks up by name.

    It is a descriptor on the Router's class.
    """

    def __init__(self, name: str, door: Door) -> None:
        self._name = name
        self._door = door

    def __get__(self, router: Any, kind: Any = None) -> Any:
        if router is None:
            return self
        if self._name in router.__dict__:
            return _through(self._door, router.__dict__[self._name])
        if (by_name := getattr(type(router), "__getattr__", None)) is None:
            raise AttributeError(self._name)
        return _through(self._door, by_name(router, self._name))

    def __set__(self, router: Any, value: Any) -> None:
        router.__dict__[self._name] = value

    def __delete__(self, router: Any) -> None:
        del router.__dict__[self._name]


def _through(door: Door, method: Any) -> Any:
    """Return a Router's own method, guarded by its door."""
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            if (sessions := _active()) is None:
                return await method(*args, **kwargs)
            owner = SimpleNamespace(**{door.async_function: method})
            return await door.acall(sessions(kwargs.pop("guard", None)), args, kwargs, owner)

        return acall

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if (sessions := _active()) is None:
            return method(*args, **kwargs)
        owner = SimpleNamespace(**{door.function: method})
        return door.call(sessions(kwargs.pop("guard", None)), args, kwargs, owner)

    return call


_RETRIES = replace(
    chat.DOOR, function="completion_with_retries", async_function="acompletion_with_retries"
)
# The doors of LiteLLM's functions; a function that is not here has none.
_DOORS: Mapping[str, Any] = {
    **dict.fromkeys(("completion", "acompletion"), chat.DOOR),
    **dict.fromkeys(("completion_with_retries", "acompletion_with_retries"), _RETRIES),
    "batch_completion": _Batch(),
    **dict.fromkeys(("text_completion", "atext_completion"), text.DOOR),
    **dict.fromkeys(("responses", "aresponses"), responses.DOOR),
    **dict.fromkeys(("anthropic_messages", "anthropic_messages_handler"), messages.DOOR),
    "aanthropic_messages": messages.DOOR,
    "create": _Create(),
}
_ROUTER: type[Any] = compat.router_class(Router)
# Since LiteLLM 1.110 its class has the other endpoints as methods.
_PER_INSTANCE = tuple(name for name in compat.ENDPOINTS if name not in _ROUTER.__dict__)
_CLASSES: Mapping[str, type[Any]] = {
    "litellm.Router": _ROUTER,
    "litellm.main.Completions": compat.Completions,
    "litellm.main.AsyncCompletions": compat.AsyncCompletions,
}
_patches: dict[str, _Patch] = {}  # by key; the replaced code looks its patch up here
_patched = False


def called(key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Replace one of LiteLLM's functions: its new code calls this."""
    return _patches[key].call(args, kwargs)


async def acalled(key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Do the same as :func:`called` for an async function."""
    return await _patches[key].acall(args, kwargs)


def _patch() -> None:
    global _patched
    if _patched:
        return
    compat.check()
    patches = {patch.name: patch for patch in _targets()}
    _patches.update(patches)
    for key, patch in patches.items():
        patch.function.__code__ = _redirecting(patch.function, key)
    for name in _PER_INSTANCE:
        setattr(_ROUTER, name, _InstanceMethod(name, _DOORS[name]))
    _patched = True


def _unpatch() -> None:
    global _patched
    if not _patched or _installed or _blocks:
        return
    for patch in _patches.values():
        patch.function.__code__ = patch.code
    for name in _PER_INSTANCE:
        delattr(_ROUTER, name)
    _patched = False


def _targets() -> Iterator[_Patch]:
    seen: set[int] = set()
    for name, home, takes in compat.FUNCTIONS:
        door = _DOORS.get(name)
        owners = [litellm] if not home else [litellm, import_module(home)]
        for owner in owners:
            value = getattr(owner, name, None)
            if value is None and door is None:
                continue
            function = _function(f"{owner.__name__}.{name}", value)
            if id(function) not in seen:
                seen.add(id(function))
                yield _Patch(f"{owner.__name__}.{name}", function, door, takes)
    for label, methods in compat.METHODS.items():
        for name, _, takes in methods:
            where = f"{label}.{name}"
            function = _function(where, _CLASSES[label].__dict__.get(name))
            yield _Patch(where, function, _DOORS[name], takes, method=True)
    for name in set(compat.ENDPOINTS) - set(_PER_INSTANCE):
        where, door = f"litellm.Router.{name}", _DOORS[name]
        function = _function(where, _ROUTER.__dict__[name])
        asynchronous = inspect.iscoroutinefunction(function)
        called_as = door.async_function if asynchronous else door.function
        yield _Patch(where, function, door, (), method=True, called_as=called_as)


def _function(name: str, value: Any) -> FunctionType:
    """Return LiteLLM's own function, inside wrappers that another library may have added."""
    function = value
    while function is not None and not (
        isinstance(function, FunctionType)
        and str(function.__globals__.get("__name__")).startswith("litellm")
    ):
        function = getattr(function, "__wrapped__", None) or _traced(function, name)
    if function is None:
        raise ConfigError(
            f"guard expected {name} of LiteLLM {compat.version()} to be a function of LiteLLM "
            f"and found {type(value).__name__}; call the functions of guard itself."
        )
    return function


def _traced(wrapper: Any, name: str) -> Any:
    """Return what a method of OpenInference's instrumentor wraps: it keeps that in a table."""
    table = getattr(getattr(wrapper, "__self__", None), "original_litellm_funcs", None)
    return table.get(name.rpartition(".")[2]) if isinstance(table, Mapping) else None


def _copy(function: FunctionType) -> FunctionType:
    """Return another function with the same code."""
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__dict__.update(function.__dict__)
    copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
    return copy


def _redirecting(function: FunctionType, key: str) -> CodeType:
    """Return code that calls :func:`called` and can replace the function's own.

    Python requires the same kind of function and the same number of closure variables; the code
    names them after its ``return``.
    """
    asynchronous = inspect.iscoroutinefunction(function)
    free = function.__code__.co_freevars
    call = "await acalled" if asynchronous else "called"
    source = (
        f"def outer({', '.join(free)}):\n"
        f"    {'async ' * asynchronous}def {function.__code__.co_name}(*args, **kwargs):\n"
        f"        from {__name__} import {call.split()[-1]}\n"
        f"        return {call}({key!r}, args, kwargs)\n"
        f"        {', '.join(free) or 'None'}\n"
        f"    return {function.__code__.co_name}\n"
    )
    names: dict[str, Any] = {}
    exec(compile(source, __file__, "exec"), names)
    code: CodeType = names["outer"](*free).__code__
    return code
