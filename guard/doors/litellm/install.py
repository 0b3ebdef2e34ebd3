"""Interception: LiteLLM's own functions, guarded for a whole process or for a block.

What is changed is the code of LiteLLM's functions, not the names they go by: a name that was bound
earlier (``from litellm import completion``), a partial, a table all lead to the same function, and
so to the guard. The function objects stay the same, and get their own code back. A Router makes
some of its methods for each instance; these are guarded where they are looked up.

Not reached: ``router.aresponses`` and its like, if the very method was taken from a Router earlier
(what it calls is guarded, below the Router); and what carries text past LiteLLM's doors, as its
pass-through routes, realtime and assistants do.
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
from litellm import Router

from guard.detect.workers import on_worker
from guard.doors import chat, messages, responses, text
from guard.doors.context import guarded
from guard.doors.door import Door
from guard.doors.litellm import compat
from guard.doors.session import DoorSession
from guard.errors import ConfigError, UsageError
from guard.forks import Lock

Sessions = Callable[[Any], DoorSession]
"""What a guard makes a session with, given a call's own settings."""


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
    """Guard every call of LiteLLM's in this process, until :func:`uninstall`.

    Installed again, the newer guard is in force until its own uninstall. Raises ConfigError where
    LiteLLM is not of the supported range or a function is not as expected; nothing is changed then.
    """
    global _installed
    with _lock:
        _patch()
        _installed = (*_installed, sessions)


def uninstall() -> None:
    """Take back the last :func:`install`; with the last of all, LiteLLM is as it was."""
    global _installed
    with _lock:
        _installed = _installed[:-1]
        _unpatch()


@contextmanager
def intercept(sessions: Sessions) -> Iterator[None]:
    """Guard the calls made while the block is open.

    Those are the calls of the block's own context, which tasks begun in it share, before all. A
    call of another thread or task goes by its own open block, else by the guard installed, else by
    the newest block open in the process: threads that a framework starts know no context.
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
        block.open = False  # wherever its context was copied to
        with suppress(ValueError):  # a generator may be closed in another context than its own
            _own.reset(token)
        with _lock:
            _blocks = tuple(b for b in _blocks if b is not block)
            _unpatch()


def _in_force() -> Sessions | None:
    """Return what guards a call made here; None where nothing does, or a door does already."""
    own = next((b.sessions for b in reversed(_own.get()) if b.open), None)
    if own is None:
        installed, blocks = _installed, _blocks
        if installed:
            own = installed[-1]
        elif blocks:
            own = blocks[-1].sessions
    # A detector may ask a model itself.
    return None if own is None or guarded() or on_worker() else own


@dataclass(eq=False)
class _Patch:
    """One function of LiteLLM's whose code is changed, and the door that it is to lead through."""

    name: str
    function: FunctionType
    door: Door | None  # None: one that has no door
    takes: tuple[str, ...]
    method: bool = False
    code: CodeType = field(init=False)
    original: FunctionType = field(init=False)

    def __post_init__(self) -> None:
        known = inspect.signature(self.function).parameters
        missing = [name for name in self.takes if name not in known]
        if missing:
            raise ConfigError(
                f"guard does not know {self.name} of LiteLLM {compat.version()}, which takes no "
                f"{missing[0]!r}; call the functions of guard itself."
            )
        self.code = self.function.__code__
        self.original = _copy(self.function)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sessions = _in_force()
        if sessions is None:
            return self.original(*args, **kwargs)
        return self._door().call(sessions(kwargs.pop("guard", None)), *self._asked(args, kwargs))

    async def acall(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sessions = _in_force()
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
        return args, kwargs, SimpleNamespace(**{self.function.__name__: original})


class _Batch:
    """The batch door, as a patch asks for one."""

    def call(self, session: DoorSession, args: Any, kwargs: Any, owner: Any) -> Any:
        return chat.batch_completion(session, args, kwargs)


class _Create:
    """The chat door, for ``create`` of LiteLLM's clients: ``chat.completions``, a Router's too."""

    def call(self, session: DoorSession, args: Any, kwargs: Any, owner: Any) -> Any:
        own = owner.create.__self__
        return chat.DOOR.call(session, (), chat.created(own, args, kwargs), _asked_by(own))

    async def acall(self, session: DoorSession, args: Any, kwargs: Any, owner: Any) -> Any:
        own = owner.create.__self__
        return await chat.DOOR.acall(session, (), chat.created(own, args, kwargs), _asked_by(own))


def _asked_by(completions: Any) -> Any:
    return litellm if completions.router_obj is None else completions.router_obj


class _Made:
    """A method that a Router makes for each instance; a descriptor on the class sees it first."""

    def __init__(self, name: str, door: Door) -> None:
        self._name = name
        self._door = door

    def __get__(self, router: Any, kind: Any = None) -> Any:
        if router is None:
            return self
        if self._name not in router.__dict__:
            raise AttributeError(self._name)
        made = router.__dict__[self._name]
        return _through(self._door, made)

    def __set__(self, router: Any, value: Any) -> None:
        router.__dict__[self._name] = value

    def __delete__(self, router: Any) -> None:
        del router.__dict__[self._name]


def _through(door: Door, made: Any) -> Any:
    """Return a Router's own method, led through its door."""
    if inspect.iscoroutinefunction(made):

        @functools.wraps(made)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            if (sessions := _in_force()) is None:
                return await made(*args, **kwargs)
            owner = SimpleNamespace(**{door.async_function: made})
            return await door.acall(sessions(kwargs.pop("guard", None)), args, kwargs, owner)

        return acall

    @functools.wraps(made)
    def call(*args: Any, **kwargs: Any) -> Any:
        if (sessions := _in_force()) is None:
            return made(*args, **kwargs)
        owner = SimpleNamespace(**{door.function: made})
        return door.call(sessions(kwargs.pop("guard", None)), args, kwargs, owner)

    return call


_RETRIES = replace(
    chat.DOOR, function="completion_with_retries", async_function="acompletion_with_retries"
)
# The doors that LiteLLM's functions lead through; one that is not here has none.
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
_CLASSES: Mapping[str, type[Any]] = {
    "litellm.Router": _ROUTER,
    "litellm.main.Completions": compat.Completions,
    "litellm.main.AsyncCompletions": compat.AsyncCompletions,
}
_patches: dict[str, _Patch] = {}  # what the changed code looks itself up in
_patched = False


def called(key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Stand in for one of LiteLLM's functions: its changed code calls this."""
    return _patches[key].call(args, kwargs)


async def acalled(key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Do the same for an async function."""
    return await _patches[key].acall(args, kwargs)


def _patch() -> None:
    global _patched
    if _patched:
        return
    compat.check()
    found = {patch.name: patch for patch in _targets()}
    _patches.update(found)
    for key, patch in found.items():
        patch.function.__code__ = _leading_here(patch.function, key)
    for name in compat.MADE:
        setattr(_ROUTER, name, _Made(name, _DOORS[name]))
    _patched = True


def _unpatch() -> None:
    global _patched
    if not _patched or _installed or _blocks:
        return
    for patch in _patches.values():
        patch.function.__code__ = patch.code
    for name in compat.MADE:
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
    made = [name for name in compat.MADE if name in _ROUTER.__dict__]
    if made:
        raise ConfigError(
            f"guard does not know litellm.Router.{made[0]} of LiteLLM {compat.version()}, which is "
            "no method made for each Router; call the functions of guard itself."
        )


def _function(name: str, value: Any) -> FunctionType:
    """Return LiteLLM's own function under what another library may have put around it."""
    function = value
    while function is not None and not (
        isinstance(function, FunctionType)
        and str(function.__globals__.get("__name__")).startswith("litellm")
    ):
        function = getattr(function, "__wrapped__", None)
    if function is None:
        raise ConfigError(
            f"guard expected {name} of LiteLLM {compat.version()} to be a function of LiteLLM's, "
            f"and found {type(value).__name__}; call the functions of guard itself."
        )
    return function


def _copy(function: FunctionType) -> FunctionType:
    """Return another function of the same code, that keeps it."""
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


def _leading_here(function: FunctionType, key: str) -> CodeType:
    """Return code that calls :func:`called`, and fits where the function's own is.

    That is, of the same kind and with the same number of variables of a closure, which Python asks
    for; they are named behind the ``return``.
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
