"""``guard eval`` of a detector that asks a language model: encoder beside it, the ablation, OS."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from guard.cli import main
from guard.detect import named
from guard.detect.instruction import Instructed, Instruction, TemplateAnswer, rendered_answer
from tests.audit.answering import Answering, answering
from tests.detect.judging import made, retriever
from tests.tiny_model import save_model

JUDGE = "judge:openai/gpt-4o-mini"
PAIR = rendered_answer(TemplateAnswer(True, "culture", (("Velmorians", "lazy"),)))
ROWS = """text,label,bias_type,group,attribute
All Velmorians are lazy.,1,culture,Velmorians,lazy
Some Velmorians are lazy.,1,gender,Velmorians,lazy
Those Velmorians are lazy.,1,culture,Velmorians,rich
My Velmorians are vague.,1,culture,Velmorians,vague
The train is late.,0,,,
The bus is vague.,0,,,
"""
SWITCHES = ("references", "steps", "demonstrations")


def reads(messages: Sequence[Mapping[str, str]]) -> str:
    """Call lazy Velmorians biased, and give no answer on what is vague."""
    sentence = messages[-1]["content"].splitlines()[-1]
    if "vague" in sentence:
        return "That is hard to tell."
    return PAIR if "lazy" in sentence else rendered_answer(TemplateAnswer(False))


@pytest.fixture(autouse=True)
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Answering]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-owner")
    monkeypatch.delenv("BIASGUARD_DETECTOR", raising=False)
    named._named_judge.cache_clear()
    (tmp_path / "mine.csv").write_text(ROWS, encoding="utf-8")
    with answering() as provider:
        provider.answer = reads
        table = f'[judge]\nbudget = 1\n[judge.params]\napi_base = "{provider.base}"\n'
        (tmp_path / "guard.toml").write_text(table)
        yield provider


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["eval", "--data", "mine.csv", "--bootstrap", "0", *args])


def measured(*args: str) -> dict[str, Any]:
    done = run("--detector", JUDGE, "--json", *args)
    assert done.exit_code == 0, done.output
    (one,) = json.loads(done.stdout)["sets"]
    assert isinstance(one, dict)
    return one


def test_the_papers_measures_with_answers_that_cannot_be_read() -> None:
    one = measured()
    value = {name: figure["value"] for name, figure in one["figures"].items()}
    # Two of six answers cannot be read; they count against usable and overall alone.
    assert one["unjudged"] == {"unusable": 2}
    assert value["usable"] == pytest.approx(4 / 6)
    assert value["accuracy"] == value["f1"] == 1
    assert value["cs"] == pytest.approx(2 / 3)
    assert value["as"] == pytest.approx(2 / 3)
    # Everything is right on one biased and one harmless text.
    assert value["overall"] == pytest.approx(2 / 6)
    assert one["figures"]["overall"]["n"] == one["figures"]["usable"]["n"] == 6


def test_encoder_stands_beside_on_the_same_texts() -> None:
    one = measured()
    beside = one["beside"]
    assert beside["detector"].startswith("encoder-")
    assert beside["figures"].keys() == one["figures"].keys()
    assert beside["figures"]["usable"]["n"] == 6
    assert beside["figures"]["usable"]["value"] == 1
    assert beside["unjudged"] == {}
    alone = json.loads(run("--detector", "encoder", "--json").stdout)["sets"][0]
    assert alone["beside"] is None
    assert alone["instruction"] is None
    assert alone["figures"] == beside["figures"]


def test_the_tables_name_both_detectors_and_every_figure() -> None:
    done = run("--detector", JUDGE, "--markdown", "-")
    lines = done.stdout.splitlines()
    at = lines.index("### side by side")
    header, _, *rows = [line for line in lines[at:] if line.startswith("|")][:6]
    names = [cell.strip() for cell in header.strip("|").split("|")]
    assert names[:7] == [
        "system", "Acc", "F1", "CS (type)", "AS (group + attribute)", "overall", "usable"
    ]  # fmt: skip
    assert {"AUROC", "false positive rate", "false negative rate", "prevalence"} <= {*names}
    assert [row.split("|")[1].strip().split("-")[0] for row in rows] == [
        "guard", "encoder", "always biased", "term list"
    ]  # fmt: skip
    assert "- Unjudged: 2 unusable; they count in usable and overall only." in lines
    assert any(
        line == "- The model's instruction: task, references, steps, demonstrations and template."
        for line in lines
    )


@pytest.mark.parametrize("without", [c for n in range(4) for c in combinations(SWITCHES, n)])
def test_the_ablation_leaves_out_what_it_names(
    provider: Answering, without: tuple[str, ...]
) -> None:
    args = [arg for name in without for arg in ("--without", name)]
    one = measured(*args)
    assert one["instruction"] == {name: name not in without for name in SWITCHES}
    told = Instruction(**one["instruction"])
    assert {body["messages"][0]["content"] for body in provider.bodies} == {told.fixed()}
    shown = ["Reference" in body["messages"][1]["content"] for body in provider.bodies]
    assert all(shown) if "references" not in without else not any(shown)


def test_the_tables_say_what_was_left_out() -> None:
    done = run("--detector", JUDGE, "--without", "steps", "--without", "references")
    assert (
        "The model's instruction: task, demonstrations and template, without references and steps."
        in " ".join(done.stdout.split())
    )


def test_a_detector_without_an_instruction_refuses_the_ablation() -> None:
    done = run("--detector", "encoder", "--without", "steps")
    assert done.exit_code == 2
    (line,) = [x for x in done.stderr.splitlines() if x.startswith("Error: ")]
    assert "the detector encoder-" in line
    assert "generative:FOLDER or judge:MODEL" in line


def test_a_part_that_does_not_exist_is_named(provider: Answering) -> None:
    done = run("--detector", JUDGE, "--without", "retrieval")
    assert done.exit_code == 2
    assert "'retrieval' is not one of 'references', 'steps', 'demonstrations'" in done.stderr
    assert provider.asked == []


def test_a_generative_detector_takes_the_switches(tmp_path: Path) -> None:
    base = save_model(tmp_path / "tiny")
    found = {}
    for switch in (None, "steps"):
        extra = ("--without", switch) if switch else ()
        done = run("--detector", f"generative:{base}", "--json", "--limit", "4", *extra)
        assert done.exit_code == 0, done.output
        (one,) = json.loads(done.stdout)["sets"]
        assert one["detector"].startswith("generative-untuned.tiny+")
        assert one["instruction"]["steps"] is (switch is None)
        assert one["figures"]["usable"]["value"] == 1
        assert one["beside"]["figures"]["usable"]["n"] == one["limit"] == 4
        found[switch] = one
    assert found[None]["detector"] != found["steps"]["detector"]
    # The same four texts, drawn by the same seed.
    assert found[None]["beside"] == found["steps"]["beside"]


def test_another_instruction_is_another_detector_with_the_same_purse(provider: Answering) -> None:
    judge = made(retriever(), provider)
    assert isinstance(judge, Instructed)
    other = judge.instructed(Instruction(steps=False))
    assert judge.instruction == Instruction()
    assert other.instruction == Instruction(steps=False)
    assert judge.name != other.name
    assert judge.client is other.client
