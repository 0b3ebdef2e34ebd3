"""Guard under the name of its distribution: ``import biasguard`` and the command ``biasguard``.

Other distributions ship a package ``guard``, too. In a wheel this file is the module ``biasguard``
beside the package, so it works, and names the culprit, when another distribution has replaced the
package. It uses the standard library only and imports ``guard`` only after checking whose it is.
"""

from __future__ import annotations

import importlib
import json
import shlex
import sys
import traceback
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

FAILED = 70
"""The exit code of a failure of guard itself: EX_SOFTWARE of sysexits.h."""
_NAME = "biasguard"
# A line of our guard/__init__.py that no other package has.
_MARK = b'\n__distribution__ = "biasguard"\n'


def main(**options: Any) -> None:
    """Run the command line; exit with one sentence if the package ``guard`` is not ours.

    An unexpected exception exits with FAILED: Python's own exit code, 1, is a verdict of an audit.
    """
    if wrong := package_conflict():
        print(f"Error: {wrong}", file=sys.stderr)
        sys.exit(2)
    try:
        importlib.import_module("guard.cli").main(**options)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:  # asyncio's CancelledError is no Exception
        traceback.print_exc()
        sys.exit(FAILED)


def __getattr__(name: str) -> Any:
    # Not `__path__` and the like: they would turn this module into a package.
    if name.startswith("__") and name not in ("__all__", "__version__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if wrong := package_conflict():
        raise ImportError(wrong, name=__name__)
    guard = importlib.import_module("guard")
    if name != "__all__" and name not in guard.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(guard, name)


def package_conflict() -> str | None:
    """Return None if ``import guard`` gives our package, else a sentence: the cause and the remedy.

    Imports nothing.
    """
    spec = find_spec("guard")
    origin = Path(spec.origin) if spec is not None and spec.origin else None
    if origin is not None and _is_ours(origin):
        return None
    others = other_distributions()
    if others:
        other = metadata.distribution(others[0])
        theirs = _installed_modules(other)
        try:
            both = sorted(theirs & _installed_modules(metadata.distribution(_NAME)))
        except metadata.PackageNotFoundError:
            both = []
        # Beside an editable install nothing is overwritten: the other package is found first.
        done = "overwrote" if both else "hides"
        what = ", ".join((both or sorted(theirs))[:3])
        more = len(both or theirs) - 3
        what += f" and {more} more files" if more > 0 else ""
        return (
            f"{other.name} {other.version} {done} {what} of {_NAME}, and one environment holds "
            f"only one of them; run: {repair_command(other.name)}"
        )
    if origin is not None and not (origin.parent / "installed.py").is_file():
        return f"{origin} hides the package guard of {_NAME}; rename or move it."
    return f"Files of {_NAME} are missing or were replaced; run: {reinstall_command()}"


def other_distributions() -> list[str]:
    """Return the names of other distributions that ship a package ``guard``."""
    return sorted(set(metadata.packages_distributions().get("guard", [])) - {_NAME})


def repair_command(other: str) -> str:
    """Return the two commands that remove ``other`` and restore our ``guard``."""
    # Uninstalling the other alone would also remove the files that both have.
    return f"pip uninstall {other} && {reinstall_command()}"


def reinstall_command() -> str:
    """Return the command that restores this distribution's files."""
    return f"pip install --force-reinstall --no-deps {_pip_requirement()}"


def install_command(extra: str) -> str:
    """Return the command that adds ``extra``, from the source of this installation."""
    return f"pip install {_pip_requirement(extra)}"


def checkout_command(extra: str) -> str:
    """Return the commands that fetch the source of this copy and install it with ``extra``."""
    url, about = _installed_from()
    if "dir_info" in about:
        return f"pip install -e {shlex.quote(url2pathname(urlsplit(url).path) + f'[{extra}]')}"
    vcs = about.get("vcs_info", {})
    if vcs.get("vcs") == "git":
        get = f"git clone {shlex.quote(url)} {_NAME} && git -C {_NAME} checkout {vcs['commit_id']}"
        return f"{get} && pip install -e '{_NAME}[{extra}]'"
    version = importlib.import_module("guard").__version__
    get = f"pip download --no-deps --no-binary {_NAME} {_NAME}=={version}"
    folder = f"{_NAME}-{version}"
    return f"{get} && tar -xf {folder}.tar.gz && pip install -e '{folder}[{extra}]'"


def _is_ours(origin: Path) -> bool:
    try:
        if _MARK not in origin.read_bytes():
            return False
    except OSError:
        return False
    # Another distribution's package core/ would be imported instead of our module core.py.
    beside = origin.parent.glob("*.py")
    return not any((file.with_suffix("") / "__init__.py").is_file() for file in beside)


def _installed_modules(distribution: metadata.Distribution) -> set[str]:
    files = distribution.files or []
    return {str(f) for f in files if f.parts[0] == "guard" and f.suffix == ".py"}


def _pip_requirement(extra: str = "") -> str:
    """Return pip's requirement for this distribution, quoted for a shell; ``-e`` if editable."""
    extras = f"[{extra}]" if extra else ""
    url, about = _installed_from()
    if not url:
        return shlex.quote(_NAME + extras)
    if "dir_info" not in about:
        scheme = f"{about['vcs_info']['vcs']}+" if "vcs_info" in about else ""
        revision = about.get("vcs_info", {}).get("requested_revision")
        at = f"@{revision}" if revision else ""
        return shlex.quote(f"{_NAME}{extras} @ {scheme}{url}{at}")
    place = shlex.quote(url2pathname(urlsplit(url).path) + extras)
    return f"-e {place}" if about["dir_info"].get("editable") else place


def _installed_from() -> tuple[str, dict[str, Any]]:
    """Return the URL this copy was installed from and pip's record of it (PEP 610)."""
    try:
        noted = metadata.distribution(_NAME).read_text("direct_url.json")
        if noted is None:
            return "", {}
        about = json.loads(noted)
        return str(about["url"]), about
    except (metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        checkout = Path(__file__).resolve().parent.parent
        if not (checkout / "pyproject.toml").is_file():
            return "", {}
        return checkout.as_uri(), {"dir_info": {"editable": True}}


if __name__ == "__main__":
    main(prog_name=_NAME)
