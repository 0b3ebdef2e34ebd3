import pytest

from guard import places
from guard.errors import ConfigError, GuardError


def test_the_index_of_this_checkout():
    assert (places.shipped("index") / "statements.jsonl").is_file()


def test_an_install_carries_it_inside_the_package(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "guard"
    (package / "_data" / "index").mkdir(parents=True)
    # Another package called index lies beside an installed guard.
    (tmp_path / "site-packages" / "index").mkdir()
    monkeypatch.setattr(places, "_PACKAGE", package)
    assert places.shipped("index") == package / "_data" / "index"


def test_a_checkout_has_it_beside_the_package(tmp_path, monkeypatch):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(places, "_PACKAGE", tmp_path / "guard")
    assert places.shipped("benchmarks") == tmp_path / "benchmarks"


def test_where_it_is_missing_the_error_names_it(tmp_path, monkeypatch):
    (tmp_path / "index").mkdir()
    monkeypatch.setattr(places, "_PACKAGE", tmp_path / "guard")
    with pytest.raises(GuardError, match="'index' was not found"):
        places.shipped("index")


def test_cascades_within_cascades_have_an_end():
    name = "cascade:encoder," * 2000 + "encoder"
    with pytest.raises(ConfigError, match="at most 20 others"):
        places.encoders_in(name)
