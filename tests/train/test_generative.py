"""LoRA on small random models: exact losses, resumed runs, and an adapter that is a detector."""

from __future__ import annotations

import json
import random
import re
import signal
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from guard.cli import main
from guard.detect.encoder import Encoder, sigmoid
from guard.detect.generative import Generative
from guard.detect.instruction import Instruction, TemplateAnswer, parse_answer, rendered_answer
from guard.errors import UsageError
from guard.local.adapter import read_adapter
from guard.local.model import load_model
from guard.retrieve.index import BiasIndex
from guard.train.rows import Statement, TrainingRow, fold
from guard.verdict import BIAS_TYPES, Span, Window
from tests.small import WEIGHTS
from tests.tiny_model import LLAMA2, save_model
from tests.train.made_data import make_data


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """Imports here, and not above, what would take seconds of every collection."""
    global \
        adapted_copy, \
        answers, \
        answer_of, \
        LearnedAnswer, \
        decision_logits, \
        RowReferences, \
        GenerativeConfig, \
        GenerativeRun
    global judged_alone, Losses, lora, own, pools, Prompts, redditbias_rows, stance, step_loss
    global torch
    for needed in ("torch", "transformers", "peft"):
        pytest.importorskip(needed)
    import torch

    from guard.train import answers, lora, own, pools, stance
    from guard.train.answers import Prompts, RowReferences, answer_of, judged_alone, redditbias_rows
    from guard.train.generative import GenerativeConfig, GenerativeRun
    from guard.train.lora import LearnedAnswer, Losses, adapted_copy, decision_logits, step_loss


pytestmark = pytest.mark.filterwarnings("ignore")
ROOT = Path(__file__).resolve().parents[2]
SHORT = Instruction(references=False, steps=False, demonstrations=False)
ROUNDING = 1e-4


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("made") / "data")


@pytest.fixture(scope="module")
def statements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = (ROOT / "index" / "statements.jsonl").read_text("utf-8").splitlines()[::100]
    path = tmp_path_factory.mktemp("own") / "statements.jsonl"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each file of own texts the first lines, since every run reads them all."""
    read = own.read_jsonl
    for module in (own, stance, pools):
        monkeypatch.setattr(module, "read_jsonl", lambda path: islice(read(path), 80))


# --- the loss --------------------------------------------------------------------------------


def tuned(base: Path, **config: Any) -> Any:
    """A model whose adapters have an effect."""
    model = adapted_copy(load_model(str(base)).network, 4, 7, "cpu")
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and "lora_B" in name:
                parameter.normal_(std=0.3)
    return model


def plain(model: Any, rows: Sequence[Any], first: float) -> Any:
    """The loss of rows read one by one, whole, by PEFT's own layers."""
    from peft import get_peft_model
    from peft.tuners.lora import Linear

    for module in model.modules():
        if isinstance(module, Linear):
            module.__dict__.pop("forward", None)
    assert callable(get_peft_model)
    total, weights = torch.zeros(()), 0.0
    for row in rows:
        ids = torch.tensor([[*row.prompt, *row.answer]])
        said = model(input_ids=ids, use_cache=False).logits[0, len(row.prompt) - 1 : -1]
        each = torch.nn.functional.cross_entropy(said, torch.tensor(row.answer), reduction="none")
        weight = torch.tensor([first, *[1.0] * (len(row.answer) - 1)])
        total = total + (each * weight).sum()
        weights += float(weight.sum())
    return total / weights


def gradients(model: Any) -> dict[str, Any]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}


def some_rows(beginning: int, seed: int = 2) -> list[Any]:
    rng = random.Random(seed)

    def tokens(n: int) -> list[int]:
        return [rng.randrange(3, 500) for _ in range(n)]

    same = tokens(beginning)
    lengths = [(3, 1), (9, 6), (1, 1), (14, 12), (9, 2), (4, 1), (11, 12)]
    return [LearnedAnswer(same + tokens(own), tokens(said)) for own, said in lengths]


@pytest.mark.parametrize(
    ("beginning", "how"),
    [
        (40, {}),
        (40, {"first": 20.0}),
        (40, {"tokens": 30}),  # a pass for almost every row
        (0, {"first": 3.0}),
        (40, {"checkpointing": True, "first": 3.0, "tokens": 120}),
    ],
)
def test_the_shared_beginning_changes_neither_loss_nor_gradients(
    base: Path, beginning: int, how: dict[str, Any]
) -> None:
    rows, losses = some_rows(beginning), Losses(**how)
    model = tuned(base)
    loss = step_loss(model, rows, losses)
    found = gradients(model)
    model.zero_grad()
    expected = plain(model.eval(), rows, losses.first)
    expected.backward()
    assert not loss.requires_grad
    assert float(loss) == pytest.approx(float(expected), abs=ROUNDING)
    assert any(float(g.abs().max()) > 0.01 for g in found.values())
    for name, gradient in gradients(model).items():
        assert torch.allclose(found[name], gradient, atol=ROUNDING), name


def test_equal_prompts_keep_a_token_of_their_own(base: Path) -> None:
    rows = [
        LearnedAnswer([5, 6, 7], [9, 4]),
        LearnedAnswer([5, 6, 7], [8]),
        LearnedAnswer([5, 6, 7, 10], [8]),
    ]
    model = tuned(base)
    loss = step_loss(model, rows, Losses())
    assert float(loss) == pytest.approx(float(plain(model, rows, 1.0)), abs=ROUNDING)


def test_a_base_with_sliding_windows_reads_every_prompt_whole(tmp_path: Path) -> None:
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(1)
    shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip
    network = MistralForCausalLM(
        MistralConfig(vocab_size=700, sliding_window=8, initializer_range=0.2, **shape)
    )
    network.config.layer_types = ["sliding_attention"] * 2
    model = adapted_copy(network.eval().requires_grad_(False), 4, 7, "cpu")
    rows = some_rows(30)
    loss = step_loss(model, rows, Losses())
    assert float(loss) == pytest.approx(float(plain(model, rows, 1.0)), abs=ROUNDING)


def test_decisions_are_those_of_prompts_read_alone(base: Path) -> None:
    model = tuned(base)
    prompts = [row.prompt for row in some_rows(30)]
    found = decision_logits(model, prompts, 11, 12, Losses(tokens=50))
    with torch.no_grad():
        for prompt, logit in zip(prompts, found.tolist(), strict=True):
            last = model(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1]
            assert logit == pytest.approx(float(last[11] - last[12]), abs=ROUNDING)
    assert decision_logits(model, [], 11, 12, Losses()).shape == (0,)


def test_a_base_in_bfloat16_has_adapters_in_float32(base: Path) -> None:
    model = adapted_copy(load_model(str(base), "bfloat16").network, 4, 7, "cpu")
    trained = [p for p in model.parameters() if p.requires_grad]
    assert {p.dtype for p in trained} == {torch.float32}
    rows = some_rows(20)
    exact = step_loss(tuned(base), rows, Losses())
    with torch.no_grad():
        for (_, p), (_, q) in zip(
            model.named_parameters(), tuned(base).named_parameters(), strict=True
        ):
            if p.requires_grad:
                p.copy_(q)
    loss = step_loss(model, rows, Losses())
    assert float(loss) == pytest.approx(float(exact), rel=0.05)
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in trained)


def test_a_base_without_linear_modules_is_refused() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    network = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=50))
    with pytest.raises(UsageError, match="linear modules"):
        adapted_copy(network, 4, 7, "cpu")


# --- rows and answers ------------------------------------------------------------------------


def row(text: str, *, biased: bool = True, **fields: Any) -> TrainingRow:
    return TrainingRow(text, biased, fields.pop("source", "own"), fields.pop("family", text),
                       **fields)  # fmt: skip


def test_an_answer_says_what_is_known_and_no_more() -> None:
    text = "The Irish drink."
    group, attribute = Span(4, 9), Span(10, 15)
    for given, answer, whole in (
        (row(text, biased=False), TemplateAnswer(biased=False), True),
        (row(text), TemplateAnswer(biased=True), False),
        (row(text, bias_type="culture", group=group), TemplateAnswer(True, "culture"), False),
        (
            row(text, bias_type="culture", group=group, attribute=attribute),
            TemplateAnswer(True, "culture", (("Irish", "drink"),)),
            True,
        ),
    ):
        assert answer_of(given) == (answer, whole)
        assert parse_answer(rendered_answer(answer)) == answer


@pytest.mark.parametrize("words", [{}, {"template": LLAMA2, "pieces": True}])
def test_only_the_decision_is_learned_of_rows_that_are_not_spelled(
    tmp_path: Path, words: dict[str, Any]
) -> None:
    from guard.train.corpus import Pick

    model = load_model(str(save_model(tmp_path, **words)))
    biased = row("The Irish drink.", bias_type="culture", group=Span(4, 9), attribute=Span(10, 15))
    partly, fair = row("The Irish drink."), row("It rains.", biased=False)

    def learned(spelled: float, of: TrainingRow) -> list[int]:
        prompts = Prompts(model, SHORT, None, spelled)
        asked = prompts.asked(of, Pick(0, ()), random.Random(1))
        assert asked.prompt == model.prompt(SHORT.messages(Window(of.text), ()))
        assert asked.answer[0] == (prompts.yes if of.biased else prompts.no)
        return list(asked.answer)

    end = model.tokenizer.eos_token_id
    for of in (biased, partly, fair):
        assert len(learned(0.0, of)) == 1
    assert learned(1.0, biased)[-1] == learned(1.0, fair)[-1] == end
    assert end not in learned(1.0, partly)
    said = model.tokenizer.decode(learned(1.0, biased)[:-1]).strip()
    assert said == rendered_answer(answer_of(biased)[0])


def test_rows_whose_label_cannot_be_learned_are_left_out() -> None:
    by_reference = row("Velmorians hum.", source="invented", alone=None)
    harmless = row("Velmorians hum.", biased=False, source="invented", alone=False)
    unknown = row("And so on.", source="redditbias_rest", known=False)
    rows = [by_reference, harmless, unknown]
    assert judged_alone(rows, references=False) == [harmless]
    assert judged_alone(rows, references=True) == [by_reference, harmless]


def test_comments_have_the_terms_of_their_lists_and_no_evaluation_text(data: Path) -> None:
    rows = redditbias_rows(data)
    assert len(rows) > 100
    for one in rows:
        answer, whole = answer_of(one)
        named = re.search("drummers", one.text)
        assert whole == (not one.biased or named is not None)
        assert answer.bias_type == ("race" if one.biased else None)
        if one.biased and named:
            ((group, attribute),) = answer.pairs
            assert group == named[0]
            assert one.text.endswith(f"are {attribute}.")
    path = data / "redditbias" / "eval.jsonl"
    before = path.read_text("utf-8")
    stolen = rows[0].text
    line = {"comment": stolen, "phrase": stolen, "bias_sent": 1, "bias_type": "race",
            "dimension": "race_black"}  # fmt: skip
    try:
        path.write_text(before + json.dumps(line) + "\n", "utf-8")
        texts = {fold(r.text) for r in redditbias_rows(data)}
        assert fold(stolen) not in texts
        assert len(texts) == len({fold(r.text) for r in rows}) - 1
    finally:
        path.write_text(before, "utf-8")


@pytest.fixture(scope="module")
def retriever() -> Encoder:
    return Encoder(WEIGHTS)


def test_a_row_is_never_its_own_reference(retriever: Encoder) -> None:
    index = retriever.index
    assert isinstance(index, BiasIndex)
    found = RowReferences(retriever, index)
    said = index.statements[40].statement
    rng = random.Random(1)
    usual = retriever.references(said, index)
    assert usual[0].statement == said
    mine = found.of(row(said, family=f"own:{fold(said)}"), rng)
    assert said not in {r.statement for r in mine}
    assert len(mine) <= 5
    other = found.of(row(f"{said} Really.", family=f"own:{fold(said)}"), rng)
    assert said not in {r.statement for r in other}


def test_a_partner_is_shown_among_the_nearest(retriever: Encoder) -> None:
    index = retriever.index
    assert index is not None
    found = RowReferences(retriever, index)
    partner = Statement("Velmorians steal spoons.", "culture", "x")
    of = row("Velmorians take spoons that are not theirs.", partners=(partner,), partner_share=1.0)
    shown = found.of(of, random.Random(1))
    assert partner.text in {r.statement for r in shown}
    assert len(shown) <= 5
    assert [r.similarity for r in shown] == sorted((r.similarity for r in shown), reverse=True)
    hidden = found.of(replace(of, partner_share=0.0), random.Random(1))
    assert partner.text not in {r.statement for r in hidden}


# --- runs ------------------------------------------------------------------------------------


def config(work: Path, base: Path, data: Path, statements: Path, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "base": str(base), "data": data, "work": work, "statements": statements,
        "instruction": SHORT, "lr": 0.01, "epochs": 3, "batch_size": 60, "rank": 4,
        "threads": 1, "validation": 3, "checkpoint_every": 100,
    }  # fmt: skip
    return GenerativeConfig(**(settings | changes))


class Killed(Exception):
    """The process ends here."""


def weights_of(settings: Any, killed_after: int | None = None) -> dict[str, Any]:
    """The adapters of a run, or nothing if it is killed after a step."""

    def show(progress: Any) -> None:
        # As a kill, it comes before the step is saved.
        if killed_after is not None and progress.step == killed_after + 1:
            raise Killed

    with GenerativeRun(settings, lambda _: None) as run:
        try:
            file = run.train(show)
        except Killed:
            return {}
    found: dict[str, Any] = torch.load(file, weights_only=True)["net"]
    return found


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


@pytest.mark.slow("trains a tiny model five times")
def test_a_run_killed_in_each_epoch_ends_with_the_weights_of_one_that_was_not(
    tmp_path: Path, base: Path, data: Path, statements: Path
) -> None:
    whole = weights_of(config(tmp_path / "whole", base, data, statements))
    broken = config(tmp_path / "broken", base, data, statements, checkpoint_every=1)
    with GenerativeRun(broken, lambda _: None) as run:
        epoch = run._sampler.epoch_steps
        assert run.settings["steps"] == 3 * epoch >= 6
    for number in range(3):
        assert weights_of(broken, killed_after=number * epoch + 1) == {}
        assert (tmp_path / "broken" / "checkpoint.pt").exists()
    ended = weights_of(broken)
    assert same(whole, ended)
    assert not same(whole, weights_of(config(tmp_path / "o", base, data, statements, seed=3)))
    assert not (tmp_path / "broken" / "checkpoint.pt").exists()
    lines = (tmp_path / "broken" / "validation.jsonl").read_text("utf-8").splitlines()
    assert {json.loads(line)["step"] for line in lines} == {epoch, 2 * epoch}
    # Another run does not go on in this folder.
    with pytest.raises(UsageError, match=r"other settings \(lr\)"):
        weights_of(replace(broken, lr=0.02))


@pytest.mark.parametrize("came", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_when_its_step_is_saved(
    tmp_path: Path, base: Path, data: Path, statements: Path, came: signal.Signals
) -> None:
    settings = config(tmp_path, base, data, statements, max_steps=3)
    before = signal.getsignal(came)
    steps = []

    def show(progress: Any) -> None:
        steps.append(progress.step)
        if progress.step == 1:
            signal.raise_signal(came)

    with GenerativeRun(settings, lambda _: None) as run, pytest.raises(KeyboardInterrupt):
        run.train(show)
    assert signal.getsignal(came) == before
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == 1
    with GenerativeRun(settings, lambda _: None) as run:
        run.train(show)
        with pytest.raises(UsageError, match="being written by another run"):
            GenerativeRun(settings).__enter__()
    assert steps == [1, 2, 3]


@pytest.mark.slow("trains a tiny model until it can be calibrated")
def test_one_command_makes_a_detector(
    tmp_path: Path, base: Path, data: Path, statements: Path, retriever: Encoder
) -> None:
    work = tmp_path / "work"
    quotas = tmp_path / "quotas.json"
    quotas.write_text(json.dumps({"redditbias": 150, "emgsd": 150, "negatives": 40, "own": 20}))
    command = ["train", "generative", "--base", str(base), "--data", str(data), "--work", str(work),
               "--preset", "own", "--quotas", str(quotas), "--statements", str(statements),
               "--lr", "0.01", "--epochs", "8", "--rank", "8", "--batch-size", "32",
               "--no-references", "--no-steps", "--no-demonstrations", "--validation", "12",
               "--threads", "1", "--version", "3.1", "--json"]  # fmt: skip
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    folder = Path(json.loads(done.stdout.splitlines()[-1])["adapter"])
    settings = read_adapter(folder).settings
    assert settings.version == "3.1"
    assert settings.instruction == {"references": False, "steps": False, "demonstrations": False}
    assert settings.operating_points.keys() == {"strict", "balanced", "quiet"}
    figures = json.loads((work / "figures.json").read_text("utf-8"))
    card = (folder / "CARD.md").read_text("utf-8")
    assert f"{figures['settings']['steps']:,} steps of 32, 8.00 epochs" in card
    assert f"AUROC {figures['validation']['auroc']:.3f}" in card
    assert figures["validation"]["pools"]["redditbias"] > 0.9
    # The detector gives the run's logits, calibrated.
    detector = Generative(str(folder), retriever)
    assert detector.name.startswith("generative-3.1+")
    options = {"base": str(base), "data": data, "work": work, "statements": statements}
    with GenerativeRun(
        GenerativeConfig(
            **options, preset="own", quotas=json.loads(quotas.read_text()), lr=0.01, epochs=8,
            rank=8, batch_size=32, instruction=SHORT, validation=12, threads=1,
        ),
        lambda _: None,
    ) as run:  # fmt: skip
        run.train()
        logits = run.logits()
        windows = [(i, Window(t.text)) for i, t in enumerate(run.texts) if t.pool == "bold"][:4]
    assert windows
    for i, window in windows:
        (scores,) = detector.snapshot().score([window])
        expected = sigmoid((logits[i] - settings.offset) / settings.temperature)
        assert scores.score == pytest.approx(expected, abs=0.01)  # the file is float16
    assert set(detector.operating_points["quiet"]) == set(BIAS_TYPES)


@pytest.fixture
def refused(base: Path, tmp_path: Path) -> Any:
    def run(*more: str) -> str:
        command = ["train", "generative", "--base", str(base), "--work", str(tmp_path / "w"), *more]
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 2, done.output
        return " ".join(done.stderr.split())

    return run


def test_what_cannot_run_is_refused_in_one_sentence(
    refused: Any, data: Path, tmp_path: Path
) -> None:
    given = ("--data", str(data))
    assert "--data is missing" in refused()
    quotas = tmp_path / "quotas.json"
    quotas.write_text('{"own": 3}')
    assert "--quotas needs --preset own" in refused(*given, "--quotas", str(quotas))
    assert "is neither a model to fetch" in refused(*given, "--base", str(tmp_path / "none"))
    assert "--device moon cannot be used" in refused(*given, "--device", "moon")
    bare = save_model(tmp_path / "bare", template=None)
    assert "has no chat template" in refused(*given, "--base", str(bare), "--no-references")
