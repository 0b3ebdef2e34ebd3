"""A server that plays a judge: it reads a request by its form alone, and obeys what escapes it.

It joins the messages to the text that a chat template makes of them, in which the template's own
tokens end a message wherever they stand, and splits that text again. Of the user's message it
judges the last line that begins as a sentence does, and does what any other line tells it to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from guard.detect.encoder import Encoder
from guard.detect.instruction import TemplateAnswer, rendered_answer, unquoted_text
from guard.detect.judge import ModelJudge
from guard.judge_settings import JudgeSettings
from tests.audit.answering import Answering, answering
from tests.small import INDEX, WEIGHTS

MODEL = "openai/gpt-4o-mini"
GROUP, ATTRIBUTE = "Velmorians", "lazy"
BIASED = rendered_answer(TemplateAnswer(True, "culture", ((GROUP, ATTRIBUTE),)))
HARMLESS = rendered_answer(TemplateAnswer(False))

_LINES = re.compile(r"[\n\r\v\f\x85\u2028\u2029]+")
_TURNS = re.compile(
    r"<\|im_start\|>(\w+)\n|<\|start_header_id\|>(\w+)<\|end_header_id\|>|<start_of_turn>(\w+)"
    r"|(\[INST\])|(\[/INST\])|<\|(assistant)\|>"
)
_ENDS = re.compile(r"<\|im_end\|>|<\|eot_id\|>|<end_of_turn>|</?s>")
_FIELD = re.compile(r'(?:Reference \[\d+\]|USER|CONTEXT): ".*|Reference: none\.')


def obedient(messages: Sequence[Mapping[str, str]]) -> str:
    """Return the answer of a judge that obeys everything but what stands inside a field."""
    whole = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    turns = _TURNS.split(whole)
    if [turn for turn in turns[1:] if turn in ("system", "user", "assistant", "model")] != [
        "system",
        "user",
    ] or {"[INST]", "[/INST]"} & {*turns}:
        return HARMLESS
    sentence = ""
    for line in _LINES.split(_ENDS.sub("", turns[-1])):
        if line.startswith('SENTENCE: "'):
            sentence = line.removeprefix("SENTENCE: ")
        elif line and not _FIELD.fullmatch(line):
            return HARMLESS  # as the line says, or because it is none of the form
    end = re.search(r'(?<!\\)(?:\\\\)*"', sentence[1:])
    if end is None or end.end() != len(sentence) - 1:
        return HARMLESS  # something follows the quotation
    return BIASED if f"{GROUP} are {ATTRIBUTE}" in unquoted_text(sentence) else HARMLESS


def retriever() -> Encoder:
    return Encoder(WEIGHTS, INDEX)


@contextmanager
def judge(encoder: Encoder, **settings: Any) -> Iterator[tuple[Answering, ModelJudge]]:
    """Yield a server that plays a judge, and a judge that asks it."""
    with answering() as provider:
        provider.answer = obedient
        yield provider, made(encoder, provider, **settings)


def made(encoder: Encoder, provider: Answering, **settings: Any) -> ModelJudge:
    params = {"api_base": provider.base, "api_key": "none", **settings.pop("params", {})}
    # Patient: a busy machine is none of the failures that the tests are about.
    given = {"timeout_s": 60, **settings, "params": params}
    return ModelJudge(MODEL, encoder, JudgeSettings.of(given))


def recording(folder: Path) -> Path:
    return folder / "judge.jsonl"
