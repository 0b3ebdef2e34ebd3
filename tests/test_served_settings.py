"""The setting ``served``, and names of detectors that are addresses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from guard import Guard
from guard.config import parse_setting, read_settings
from guard.errors import ConfigError
from guard.places import DetectorName, embedder_of, encoders_in
from guard.served_settings import (
    ServedSettings,
    ServerAddress,
    checked_settings,
    printable_settings,
    read_addresses,
)
from tests.rows import rows
from tests.scripted import Scripted
from tests.server.serving import TOKEN, faking, served_here

GOOD: list[tuple[str, str]] = [
    ("http://judge", "http://judge:80"),
    ("https://judge", "https://judge:443"),
    ("http://judge-1:8471/", "http://judge-1:8471"),
    ("http://127.0.0.1:8471", "http://127.0.0.1:8471"),
    ("http://[::1]:8471", "http://[::1]:8471"),
    ("https://example.org/team/judge/", "https://example.org:443/team/judge"),
]
BAD = [
    "http://", "http://:80", "http://a:0", "http://a:99999", "http://a:b", "http://a?x=1",
    "http://a#b", "http://a b", "ftp://a", "http://a,", "http://a,encoder", "http://[::1",
]  # fmt: skip


@rows("url, shown", GOOD)
def test_an_address_is_read(url: str, shown: str) -> None:
    assert str(ServerAddress(url)) == shown
    assert DetectorName.read(url) == ("served", url)


@rows("name", BAD)
def test_what_is_no_address_is_one_sentence(name: str) -> None:
    with pytest.raises(ConfigError, match=r"is no address of a served detector, such as http"):
        read_addresses(name)


def test_a_password_in_an_address_is_refused_and_not_quoted() -> None:
    with pytest.raises(ConfigError, match=r"set served\.token") as error:
        read_addresses("http://user:hunter2@judge")
    assert "hunter2" not in str(error.value)


def test_several_addresses_have_commas_between() -> None:
    assert list(map(str, read_addresses("http://a:1, https://b:2"))) == [
        "http://a:1",
        "https://b:2",
    ]
    assert encoders_in("http://a:1,http://b:2") == set()
    assert embedder_of("http://a:1") == "encoder"


def test_a_cascade_may_have_one() -> None:
    name = DetectorName.read("cascade:encoder-small,http://a:1,http://b:2")
    assert name.members() == ("encoder-small", "http://a:1,http://b:2")
    assert encoders_in("cascade:http://a:1,encoder") == {"encoder"}
    with pytest.raises(ConfigError, match="is no address"):
        encoders_in("cascade:http://a:1,http://b:2,encoder")


def test_settings_are_checked() -> None:
    read = checked_settings({"timeout_s": "3", "concurrency": "4", "token": TOKEN}, "here")
    assert read == {"timeout_s": 3.0, "concurrency": 4, "token": TOKEN}
    assert TOKEN not in repr(ServedSettings(**read))
    assert printable_settings(read)["token"] == "set"


WRONG: list[tuple[Any, str]] = [
    ("text", "served takes a table of settings"),
    ({"tokens": "x"}, r"unknown key served\.tokens; known are timeout_s"),
    ({"timeout_s": 0}, r"served\.timeout_s takes seconds above 0"),
    ({"concurrency": 1.5}, r"served\.concurrency takes a whole number of calls"),
    ({"token": "with space"}, r"served\.token takes the token that guard serve printed"),
    ({"token": 5}, r"served\.token takes the token"),
    ({"weights": "xyz"}, r"served\.weights takes the hash that guard serve prints"),
    ({"index_version": ""}, r"served\.index_version takes the version"),
]


@rows("values, sentence", WRONG)
def test_a_wrong_setting_is_one_sentence(values: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as error:
        checked_settings(values, "here")
    assert "with space" not in str(error.value)


def test_a_malformed_variable_does_not_show_the_token() -> None:
    with pytest.raises(ConfigError, match="must look like") as error:
        parse_setting("served", TOKEN, "environment: BIASGUARD_SERVED")
    assert TOKEN not in str(error.value)


def test_file_and_variables_are_merged_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guard.toml").write_text(
        'detector = "http://a:1,http://b:2"\n[served]\ntimeout_s = 3\nconcurrency = 2\n'
    )
    monkeypatch.delenv("BIASGUARD_DETECTOR", raising=False)
    monkeypatch.setenv("BIASGUARD_SERVED", f"concurrency=5,token={TOKEN}")
    values = read_settings(tmp_path)
    assert values["detector"] == "http://a:1,http://b:2"
    assert values["served"] == {"timeout_s": 3.0, "concurrency": 5, "token": TOKEN}


def test_the_variable_names_the_detector_and_its_token(
    monkeypatch: pytest.MonkeyPatch, elsewhere: None
) -> None:
    with served_here(Scripted(), token=TOKEN) as server:
        monkeypatch.setenv("BIASGUARD_DETECTOR", server.url)
        monkeypatch.setenv("BIASGUARD_SERVED", f"token={TOKEN}")
        assert Guard().check("BIAS.").detector == "scripted-1"


@pytest.mark.parametrize("setting", ["index", "weights", "device"])
def test_what_is_the_servers_is_refused(setting: str, elsewhere: None) -> None:
    with pytest.raises(ConfigError, match="index, weights and device are the server's"):
        Guard(detector="http://127.0.0.1:1", **{setting: "cuda"})


def test_a_detector_of_the_users_takes_no_such_setting() -> None:
    with pytest.raises(ConfigError, match="judge and served belong to detectors that guard makes"):
        Guard(detector=Scripted(), served={"timeout_s": 1})


def test_a_cascade_asks_the_served_detector_for_what_is_doubtful(elsewhere: None) -> None:
    with faking() as fake:
        guard = Guard(detector=f"cascade:encoder-small,{fake.url}")
        assert "fake-1" in guard.detector.name
        guard.check("Old people are useless at work, and women are, too. The sun shines.")
        assert guard.detector.escalations().windows  # type: ignore[attr-defined]
    with served_here(Scripted(pattern="useless")) as server:
        guard = Guard(detector=f"cascade:{server.url},encoder-small")
        assert guard.detector.name.startswith("cascade:scripted-1,encoder-small-")
        assert guard.check("They are useless.").biased
