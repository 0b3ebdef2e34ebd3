"""Guard as pip leaves it: beside another distribution with a package ``guard``, and its hints."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

import guard
from guard import _biasguard
from guard.installed import checkout_command, install_command

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(guard.__file__).parent.parent


CODE = re.compile(r"\.(py|txt|toml)$")


def shipped_files() -> dict[str, Path]:
    """What the build puts into the wheel: name in it -> file of the checkout."""
    builder = WheelBuilder(str(ROOT))
    # As in a build, a file that is packed under another name is not packed under its own.
    with builder.config.set_build_data({"artifacts": [], "force_include": {}}):
        found = list(builder.recurse_included_files())
    return {Path(f.distribution_path).as_posix(): Path(f.path) for f in found}


def wheel(
    folder: Path, name: str, version: str, files: dict[str, bytes], scripts: str = ""
) -> Path:
    """Write a wheel that pip installs; names are paths in site-packages."""
    about = f"{name.replace('-', '_')}-{version}.dist-info"
    text = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": f"[console_scripts]\n{scripts}",
    }
    files = {**files, **{f"{about}/{k}": v.encode() for k, v in text.items()}}
    record = ""
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    files[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n".encode()
    made = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return made


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of this checkout as pyproject.toml has it packed, without the data."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packed = {
        name: file.read_bytes() for name, file in shipped_files().items() if CODE.search(name)
    }
    scripts = "".join(f"{k} = {v}\n" for k, v in project["project"]["scripts"].items())
    return wheel(tmp_path_factory.mktemp("ours"), "biasguard", guard.__version__, packed, scripts)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    files = {
        "guard/__init__.py": b"import a_web_framework\n",
        "guard/middleware.py": b"",
        "guard/core/__init__.py": b"",
    }
    return wheel(tmp_path, "fastapi-guard", "7.1.0", files)


class Environment:
    """A virtual environment with what was installed into it, and after that what this one has."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=os.name != "nt")
        self.scripts = folder / ("Scripts" if os.name == "nt" else "bin")
        self.python = str(self.scripts / "python")
        (site,) = folder.rglob("site-packages")
        self.site = site
        (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def pip(self, *args: str) -> None:
        options = ["--quiet", "--disable-pip-version-check"]
        pip = [sys.executable, "-m", "pip", "--python", self.python]
        subprocess.run([*pip, *args, *options], check=True, cwd=self.site)

    def install(self, *wheels: Path) -> None:
        for one in wheels:
            self.pip("install", "--no-compile", "--no-index", "--no-deps", str(one))

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.site.parent, env=clean
        )

    def imports(self, code: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.python, "-c", code)

    def commands(self) -> list[tuple[str, ...]]:
        scripts = [(str(self.scripts / name),) for name in ("guard", "biasguard")]
        return [*scripts, (self.python, "-m", "guard"), (self.python, "-m", "biasguard")]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "environment")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, ours: Path) -> Environment:
    """One with guard alone, for tests that install nothing."""
    made = Environment(tmp_path_factory.mktemp("installed") / "environment")
    made.install(ours)
    return made


in_an_environment = pytest.mark.slow(
    "makes an environment of its own; .ci/run runs it after the default tests"
)
API = "import biasguard, guard; from biasguard import Policy; assert Policy is guard.Policy; "


def test_biasguard_is_guard_by_another_name(installed: Environment) -> None:
    done = installed.imports(
        API + "assert biasguard.__all__ == guard.__all__; import sys; "
        "assert not hasattr(biasguard, 'core') and not hasattr(biasguard, '__path__'); "
        "print(biasguard.__version__, biasguard.__file__)"
    )
    site = installed.site / "biasguard.py"
    assert done.stdout.split() == [guard.__version__, str(site)], done.stderr
    for command in installed.commands():
        done = installed.run(*command, "--version")
        assert done.stdout == f"guard, version {guard.__version__}\n", done.stderr


@in_an_environment
def test_one_that_was_installed_after_us_is_named(
    environment: Environment, ours: Path, theirs: Path
) -> None:
    environment.install(ours, theirs)
    mend = "pip uninstall fastapi-guard && pip install --force-reinstall --no-deps '{}'"
    said = (
        "fastapi-guard 7.1.0 overwrote guard/__init__.py of biasguard, and one environment holds "
        "only one of them; run: " + mend.format(f"biasguard @ {ours.as_uri()}")
    )
    for command in environment.commands()[:2]:
        done = environment.run(*command, "doctor")
        assert (done.returncode, done.stderr) == (2, f"Error: {said}\n")
    done = environment.imports("from biasguard import Guard")
    assert done.stderr.splitlines()[-1] == f"ImportError: {said}"
    # What it told to do mends it.
    environment.pip("uninstall", "--yes", "fastapi-guard")
    assert "Files of biasguard are missing" in environment.imports("from biasguard import a").stderr
    environment.pip("install", "--no-index", "--force-reinstall", "--no-deps", str(ours))
    assert environment.imports(API).returncode == 0


@in_an_environment
def test_one_that_was_installed_before_us_is_named_where_its_modules_hide_ours(
    environment: Environment, ours: Path, theirs: Path
) -> None:
    environment.install(theirs, ours)
    for command in environment.commands():
        done = environment.run(*command, "doctor")
        assert done.returncode == 2
        assert done.stderr.startswith("Error: fastapi-guard 7.1.0 overwrote"), done.stderr
        assert "Traceback" not in done.stderr


@in_an_environment
def test_one_that_was_installed_before_us_and_hides_nothing_leaves_us_working(
    environment: Environment, ours: Path, tmp_path: Path
) -> None:
    other = wheel(tmp_path, "fastapi-guard", "7.1.0", {"guard/__init__.py": b"raise OSError"})
    environment.install(other, ours)
    assert environment.imports(API).returncode == 0
    done = environment.run(str(environment.scripts / "biasguard"), "doctor", "--json")
    (names,) = [f for f in json.loads(done.stdout)["findings"] if f["area"] == "names"]
    # To uninstall it alone would take our guard/__init__.py along.
    assert names["detail"].count("pip ") == 2
    assert names["state"] == "broken"


@in_an_environment
def test_one_beside_a_checkout_is_named(environment: Environment, theirs: Path) -> None:
    environment.install(theirs)
    (environment.site / "biasguard.py").write_bytes(Path(_biasguard.__file__).read_bytes())
    (environment.site / "checkout.pth").write_text(f"{ROOT}\n")
    done = environment.run(environment.python, "-m", "biasguard", "--version")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: fastapi-guard 7.1.0 hides guard/__init__.py, ")


def test_a_module_of_the_users_own_is_named(installed: Environment) -> None:
    own = installed.site.parent / "guard.py"
    own.write_text("")
    try:
        done = installed.run(installed.python, "-m", "biasguard", "--version")
    finally:
        own.unlink()
    assert "guard.py hides the package guard of biasguard; rename or move it." in done.stderr


class Noted(metadata.Distribution):
    """A distribution of which pip noted where it came from."""

    def __init__(self, direct_url: object) -> None:
        self.direct_url = direct_url

    def read_text(self, filename: str) -> str | None:
        return None if self.direct_url is None else json.dumps(self.direct_url)

    def locate_file(self, path: object) -> Path:
        raise NotImplementedError


def test_the_wheel_holds_what_an_installed_guard_runs_and_nothing_of_training() -> None:
    files = shipped_files()
    assert {"biasguard.py", "guard/core.py", "guard/py.typed", "guard/cli/eval.py"} <= files.keys()
    assert "guard/_biasguard.py" not in files
    data = "guard/_data/"
    for needed in (
        "index/manifest.json",
        "index/encoder-small/vectors.npy",
        "benchmarks/detector/assistant.jsonl",
        "benchmarks/detector/readings.csv",
        "benchmarks/detector/behaviours/negation.jsonl",
        "benchmarks/hbb/items.jsonl",
    ):
        assert data + needed in files
    unwanted = re.compile(
        r"guard/train/|guard/cli/train|/corpus/|/speed/|(^|/)tests?/|figures\.json|RESULTS\.md"
    )
    assert [name for name in files if unwanted.search(name)] == []
    # By content too, whatever the files are called.
    corpus = {path.read_bytes() for path in (ROOT / "benchmarks/detector/corpus").rglob("*.json*")}
    assert len(corpus) >= 7
    texts = [path for name, path in files.items() if name.endswith((".jsonl", ".txt", ".csv"))]
    assert not corpus & {path.read_bytes() for path in texts}


def test_an_installed_guard_needs_a_checkout_to_train(installed: Environment) -> None:
    mend = (
        f"pip download --no-deps --no-binary biasguard biasguard=={guard.__version__} && "
        f"tar -xf biasguard-{guard.__version__}.tar.gz && "
        f"pip install -e 'biasguard-{guard.__version__}[train]'"
    )
    for args in ([], ["--help"], ["all", "--work", "runs"]):
        done = installed.run(str(installed.scripts / "guard"), "train", *args)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "Error: Training needs a checkout, because its code and texts are not part of the "
            f"installed package; run: {mend}\n"
        )
    assert "train" in installed.run(str(installed.scripts / "guard"), "--help").stdout


@pytest.mark.skipif(os.name == "nt", reason="paths as POSIX has them")
@pytest.mark.parametrize(
    ("direct_url", "command"),
    [
        ({"url": "file:///my%20guard", "dir_info": {}}, "pip install -e '/my guard[train]'"),
        (
            {"url": "https://example.org/g.git", "vcs_info": {"vcs": "git", "commit_id": "0a1b"}},
            "git clone https://example.org/g.git biasguard && git -C biasguard checkout 0a1b && "
            "pip install -e 'biasguard[train]'",
        ),
    ],
)
def test_a_checkout_comes_from_where_this_copy_came_from(
    direct_url: object, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda name: Noted(direct_url))
    assert checkout_command("train") == command


@pytest.mark.skipif(os.name == "nt", reason="paths as POSIX has them")
@pytest.mark.parametrize(
    ("direct_url", "command"),
    [
        (None, "pip install 'biasguard[eval]'"),
        (
            {"url": "file:///home/me/guard", "dir_info": {"editable": True}},
            "pip install -e '/home/me/guard[eval]'",
        ),
        (
            {"url": "file:///home/me/my%20guard", "dir_info": {}},
            "pip install '/home/me/my guard[eval]'",
        ),
        (
            {"url": "file:///tmp/biasguard-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'biasguard[eval] @ file:///tmp/biasguard-0.1.0-py3-none-any.whl'",
        ),
        (
            {
                "url": "https://example.org/guard.git",
                "vcs_info": {"vcs": "git", "commit_id": "0a1b", "requested_revision": "v1"},
            },
            "pip install 'biasguard[eval] @ git+https://example.org/guard.git@v1'",
        ),
        ({"nothing": "of use"}, f"pip install -e '{ROOT}[eval]'"),
    ],
)
def test_a_hint_installs_from_where_this_copy_came_from(
    direct_url: object, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda name: Noted(direct_url))
    assert install_command("eval") == command


def test_a_hint_from_a_checkout_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", none)
    assert install_command("eval") == f"pip install -e '{ROOT}[eval]'"


def test_every_hint_is_made_there() -> None:
    for path in (ROOT / "guard").rglob("*.py"):
        assert "biasguard[" not in path.read_text("utf-8"), path


# Of a file, on pypi.org: MAX_FILESIZE of github.com/pypi/warehouse.
PYPI_LIMIT = 100 * 2**20
packs = pytest.mark.slow("packs 100 MB; .ci/run runs it after the default tests")


@packs
def test_a_package_index_takes_the_wheel(tmp_path: Path) -> None:
    (made,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    assert Path(made).stat().st_size < PYPI_LIMIT
    with zipfile.ZipFile(made) as archive:
        assert {n for n in archive.namelist() if ".dist-info/" not in n} == set(shipped_files())


@packs
def test_a_package_index_takes_the_source_with_what_training_needs(tmp_path: Path) -> None:
    (made,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    assert Path(made).stat().st_size < PYPI_LIMIT
    with tarfile.open(made) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    training = [
        *(ROOT / "guard").rglob("*.py"),
        *(ROOT / "benchmarks/detector/corpus").rglob("*.json*"),
        *(ROOT / name for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE")),
    ]
    needed = {path.relative_to(ROOT).as_posix() for path in [*shipped_files().values(), *training]}
    assert needed <= names
