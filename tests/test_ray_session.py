"""Connecting to Ray: what is started is guarded and leaves nothing, what is wrong is told."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from guard import ray_session
from guard.errors import UsageError

pytest.importorskip("ray", reason="the extra scale is not installed")

OWN = """
import os, sys
from guard.ray_session import check_room, ray_session, StallNotice
from guard.errors import UsageError
for turn in range(2):
    with ray_session(cpus=2) as ray:
        print(ray.get(ray.remote(num_cpus=0.5)(lambda: turn).remote()))
        check_room(ray, 3)
        try:
            check_room(ray, 4)
        except UsageError as error:
            print(error)
        notice = StallNotice(ray, "two workers", after_s=0.0)
        assert notice.check() and not notice.check()
        notice.progressed()
        assert notice.check()
        address = ray.get_runtime_context().gcs_address
        if len(sys.argv) > 1 and turn:
            import subprocess
            kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_AUTH")}
            other = "from guard.ray_session import *\\nwith ray_session('%s'): print('joined')"
            for env in (os.environ, kept):
                ran = subprocess.run([sys.executable, "-c", other % address], env=env,
                    capture_output=True, text=True)
                print(ran.stdout.strip() or ran.stderr.strip().splitlines()[-1])
"""


def run_own(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    home = folder / "home"
    home.mkdir()
    home.chmod(0o500)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    return subprocess.run(
        [sys.executable, "-c", OWN, *arguments],
        env=kept | {"HOME": str(home), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.fixture
def short_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="r") as folder:
        yield Path(folder)


def test_a_cluster_of_its_own_begins_twice_and_leaves_nothing(short_folder: Path) -> None:
    ran = run_own(short_folder)
    assert ran.returncode == 0, ran.stderr
    numbers = [line for line in ran.stdout.splitlines() if line.isdigit()]
    assert numbers == ["0", "1"]
    assert "give --workers 3 or a larger cluster" in ran.stdout
    assert "waiting for two workers; of the cluster's 2 CPUs" in ran.stderr
    assert list((short_folder / "home").iterdir()) == []
    assert [path.name for path in short_folder.iterdir()] == ["home"]


@pytest.mark.slow("Ray asks for half a minute whether a token is right")
def test_a_cluster_of_its_own_takes_only_who_has_its_token(short_folder: Path) -> None:
    ran = run_own(short_folder, "others")
    assert ran.returncode == 0, ran.stderr
    assert "joined" in ran.stdout.splitlines()
    assert "takes no connection: it is no Ray cluster, or one that needs a token" in ran.stdout


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("nonsense", "is no address"),
        ("host:0", "is no address"),
        ("host:", "is no address"),
        ("host:99999", "is no address"),
        ("ray://127.0.0.1:10001", "ray=HOST:PORT"),
        ("host.invalid:6379", "There is no Ray cluster at host.invalid:6379"),
    ],
)
def test_an_address_that_cannot_be_a_cluster_is_refused_at_once(address: str, told: str) -> None:
    with pytest.raises(UsageError, match=told), ray_session.ray_session(address):
        pass


def test_a_dead_address_is_refused_at_once() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with (
            pytest.raises(UsageError, match=f"no Ray cluster at {address}: Connection refused"),
            ray_session.ray_session(address),
        ):
            pass


def test_another_version_on_the_cluster_is_named() -> None:
    from ray._private.utils import check_version_info

    with pytest.raises(RuntimeError) as raised:
        check_version_info({"ray_version": "2.9.0", "python_version": "3.9.1"}, "here")
    told = ray_session._refusal("10.0.0.1:6379", raised.value)
    assert told.startswith("The cluster at 10.0.0.1:6379 has another version of Ray or Python")
    assert "2.9.0" in told
    assert "\n" not in told


@pytest.mark.parametrize("text", ["", "ray=", "dask", "ray:6379", "Ray"])
def test_another_place_than_ray_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--on takes ray or ray=HOST:PORT"):
        ray_session.read_place(text)


def test_the_place_may_have_an_address() -> None:
    assert ray_session.read_place("ray") is None
    assert ray_session.read_place("ray=10.0.0.1:6379") == "10.0.0.1:6379"


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="Work on Ray needs it; run: "), ray_session.ray_session():
        pass


def test_what_a_worker_lacks_is_named() -> None:
    from ray.exceptions import RayTaskError

    cause = ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
    refusal = ray_session.worker_refusal(RayTaskError("ask", "trace", cause))
    assert refusal is not None
    assert "A worker of the cluster lacks pyarrow" in str(refusal)
    assert ray_session.worker_refusal(ValueError("else")) is None
