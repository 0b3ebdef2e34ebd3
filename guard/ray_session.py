"""A connection to Ray: to a cluster that runs, or to one started here for as long as it is used.

Ray's own processes listen on all interfaces of a machine, whatever address they are given, so a
cluster that guard starts takes nothing from anybody without a token. The token is made here and
stays in the environment: Ray's own would be left in the home folder, which may be read-only.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from guard.errors import UsageError
from guard.installed import install_command

CPUS_OF_AN_ACTOR = 0.5
"""CPUs that each actor asks for; as many actors as CPUs would leave none to replace a dead one."""
STALLED_S = 60.0
"""Seconds without progress after which :class:`StallNotice` says what Ray waits for."""
_CONNECT_S = 5.0
_STORE_BYTES = 200 * 2**20  # of a cluster started here; what is sent is small
_LONGEST_PATH = (
    16  # of the folder above a session's: Ray puts sockets there, whose paths are limited
)
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
}


def read_place(text: str) -> str | None:
    """Return the address in ``ray`` or ``ray=ADDRESS``, the values of --on; None for none.

    Raises UsageError for anything else.
    """
    name, equals, address = text.partition("=")
    if name != "ray" or (equals and not address.strip()):
        raise UsageError(f"--on takes ray or ray=HOST:PORT, not {text[:200]!r}.")
    return address.strip() or None


@contextlib.contextmanager
def ray_session(address: str | None = None, cpus: int | None = None) -> Iterator[Any]:
    """Yield the module ``ray``, connected to ``address``: HOST:PORT, or "auto" for one found here.

    Without an address that is the cluster of the variable RAY_ADDRESS, as in a job of Ray's, or a
    new one of ``cpus`` CPUs (by default this machine's), which ends with the context. A process
    that is connected already stays so. Raises UsageError, in one sentence, where Ray is not
    installed, does not answer, or is of another version.
    """
    address = address or os.environ.get("RAY_ADDRESS") or None
    terminate = signal.getsignal(signal.SIGTERM)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_environment(_QUIET))
        if address is None:
            _make_token()
        ray = _imported_ray()
        if ray.is_initialized():
            yield ray
            return
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if address is None:
            options["include_dashboard"] = False
            options["num_cpus"] = cpus or os.cpu_count() or 1
            options["object_store_memory"] = _STORE_BYTES
            options["_temp_dir"] = str(stack.enter_context(_session_folder()))
            # Else it looks for a cluster that others have started on this machine.
            options["address"] = "local"
        else:
            _check_reachable(address)
            options["address"] = address
        try:
            stack.callback(ray.shutdown)
            with _unnamed_driver(ray):
                ray.init(**options)
        except (Exception, SystemExit) as error:  # Ray ends the process in some of these
            raise UsageError(_refusal(address, error)) from None
        finally:
            # Ray sets a handler of its own, and guard's would not run.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, terminate)
        yield ray


def check_room(ray: Any, actors: int) -> None:
    """Raise UsageError where the cluster has too few CPUs for ``actors`` and one replacement."""
    has, needs = ray.cluster_resources().get("CPU", 0.0), (actors + 1) * CPUS_OF_AN_ACTOR
    if needs > has:
        most = int(has / CPUS_OF_AN_ACTOR) - 1
        raise UsageError(
            f"{actors} workers need {needs:g} CPUs, with room to replace one, and the cluster has "
            f"{has:g}; give --workers {max(most, 1)} or a larger cluster."
        )


def worker_refusal(error: BaseException) -> UsageError | None:
    """Return the sentence of a worker that cannot begin; None for any other error."""
    cause = getattr(error, "cause", None)
    text = f"{cause or error}"
    missing = cause.name if isinstance(cause, ModuleNotFoundError) else None
    if missing is not None or "ModuleNotFoundError" in text:
        return UsageError(
            f"A worker of the cluster lacks {missing or 'a module that guard needs'}; on each of "
            f"its nodes run: {install_command('scale')}"
        )
    if type(error).__name__ == "RuntimeEnvSetupError":
        return UsageError(f"A worker's environment cannot be made: {_joined(error)}")
    if type(error).__name__ in ("ObjectStoreFullError", "OutOfDiskError"):
        return UsageError(
            "The object store of the cluster is full; end what else runs there, or start Ray with "
            "a larger --object-store-memory. The same command goes on."
        )
    return None


class StallNotice:
    """Says on standard error, once until there is progress again, what a run waits for."""

    def __init__(self, ray: Any, what: str, after_s: float = STALLED_S) -> None:
        self._ray = ray
        self._what = what
        self._after_s = after_s
        self.progressed()

    def progressed(self) -> None:
        """Note that the run goes on."""
        self._since = time.monotonic()
        self._told = False

    def check(self) -> str:
        """Return, and print, the sentence of a run that stands still; "" where it goes on."""
        waited = time.monotonic() - self._since
        if self._told or waited < self._after_s:
            return ""
        self._told = True
        has, free = self._ray.cluster_resources(), self._ray.available_resources()
        sentence = (
            f"No progress for {waited:.0f} s: waiting for {self._what}; of the cluster's "
            f"{has.get('CPU', 0):g} CPUs {free.get('CPU', 0):g} are free, of its "
            f"{len(self._ray.nodes())} nodes {sum(n['Alive'] for n in self._ray.nodes())} run."
        )
        print(sentence, file=sys.stderr, flush=True)
        return sentence


def _imported_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UsageError(f"Work on Ray needs it; run: {install_command('scale')}") from None
    return ray


@contextlib.contextmanager
def _unnamed_driver(ray: Any) -> Iterator[None]:
    """Keep the command line, which may have a header's value, from Ray: its list of jobs shows it.

    Ray has no option for that.
    """
    utils = ray._private.utils
    name_of_driver = utils.get_entrypoint_name
    utils.get_entrypoint_name = lambda: "guard"
    try:
        yield
    finally:
        utils.get_entrypoint_name = name_of_driver


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables that Ray and its processes read, unless the user has set them."""
    added = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _make_token() -> None:
    """Set the token of clusters that this process starts; Ray reads it once, when imported."""
    if "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextlib.contextmanager
def _session_folder() -> Iterator[Path]:
    """Yield a new folder for the files of a session, which are removed with it."""
    parent = tempfile.gettempdir()
    try:
        folder = tempfile.mkdtemp(
            prefix="guard-ray-", dir="/tmp" if len(parent) > _LONGEST_PATH else parent
        )
    except OSError as error:
        raise UsageError(
            f"Ray cannot write its files in {parent}: {error.strerror}; set TMPDIR to a folder "
            "that can be written."
        ) from None
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_reachable(address: str) -> None:
    """Raise UsageError where nothing listens at an address: Ray itself would try for minutes."""
    if address == "auto":
        return
    if address.startswith("ray://"):
        raise UsageError(
            "--on takes the address of the cluster itself, ray=HOST:PORT (6379 by default), not "
            "that of Ray's client server; run guard on a node of the cluster, or as a job."
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise UsageError(f"--on ray=HOST:PORT: {address[:200]!r} is no address.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error) or "no answer"
        raise UsageError(
            f"There is no Ray cluster at {address[:200]}: {why}. Start one with: ray start --head"
        ) from None


def _refusal(address: str | None, error: BaseException) -> str:
    if address is None:
        return f"Ray cannot be started here: {_joined(error)}"
    text = str(error)
    if "ersion mismatch" in text:
        return f"The cluster at {address} has another version of Ray or Python: {_joined(error)}"
    if isinstance(error, ConnectionError) and address != "auto":
        return (
            f"{address} answers, but takes no connection: it is no Ray cluster, or one that needs "
            "a token; then set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN as on its nodes."
        )
    return f"Ray at {address} cannot be used: {_joined(error)}"


def _joined(error: BaseException) -> str:
    """Return the first lines of an error's message as one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:400] or type(error).__name__
