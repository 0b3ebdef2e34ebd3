"""Python processes that have imported LiteLLM and guard already: importing them takes seconds.

A server imports both once, and each process is forked from it, with the environment, folder and
standard streams that a test gives it. A variable that is read at an import has no effect here.
Tests of how a process starts or ends use a plain one.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.data import ROOT

# The server imports LiteLLM with this environment; what run() gives comes too late for an import.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["litellm", "guard.core", "guard.default", "guard.detect.encoder"])


def _child(
    target: str, args: Sequence[str], env: Mapping[str, str], cwd: str, streams: Sequence[str]
) -> None:
    for number, path in enumerate(streams):
        opened = os.open(path, os.O_RDWR | os.O_APPEND * (number > 0))
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    os.setsid()  # so that what the script starts can be ended with it
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = [target, *args]
    code: object = 0
    try:
        if target.endswith(".py"):
            sys.path[0] = str(Path(target).parent)
            runpy.run_path(target, run_name="__main__")
        else:
            sys.path.insert(0, str(ROOT))
            runpy.run_module(target, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # an interrupt too: it has no other reader
        traceback.print_exc()
        code = 1
    # As an interpreter ends, which a forked process does not.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def run(
    target: str | Path,
    *args: str,
    said: str = "",
    env: Mapping[str, str],
    cwd: str | Path = ".",
    timeout: float = 240,
) -> subprocess.CompletedProcess[str]:
    """Run a script (a path) or a module (``python -m``) with ``said`` on its standard input.

    Raises TimeoutExpired after ``timeout`` seconds.
    """
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:
        streams = [str(Path(folder, name)) for name in ("in", "out", "err")]
        for path, content in zip(streams, (said, "", ""), strict=True):
            Path(path).write_text(content, encoding="utf-8")
        where = os.path.abspath(cwd)
        process = _SERVER.Process(
            target=_child, args=(str(target), args, dict(env), where, streams)
        )
        process.start()
        process.join(timeout)
        late = process.is_alive()
        assert process.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left running, and itself if it is late
        process.join()
        out, err = (Path(path).read_text("utf-8", "backslashreplace") for path in streams[1:])
    if late:
        raise subprocess.TimeoutExpired([str(target), *args], timeout, out, err)
    assert process.exitcode is not None
    return subprocess.CompletedProcess([str(target), *args], process.exitcode, out, err)
