"""Rows of the corpus as prompts and answers of an instruction-tuned model."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from guard.datasets.terms import redditbias_terms
from guard.detect.copied_answer import answer_tokens, decision_tokens
from guard.detect.encoder import Encoder
from guard.detect.instruction import Instruction, TemplateAnswer, rendered_answer
from guard.errors import UsageError
from guard.gate.context import CONTEXT_SEGMENTS, in_context
from guard.local.model import LoadedModel
from guard.retrieve.index import BiasIndex
from guard.train.config import TrainConfig
from guard.train.corpus import Corpus, Pick, build_corpus, eval_folds, says_any
from guard.train.lora import LearnedAnswer
from guard.train.references import TOO_CLOSE
from guard.train.rows import TrainingRow, fold, in_validation
from guard.train.sources import redditbias_texts, row_of, text_pieces
from guard.verdict import Reference, Span, Window

# Characters of a row, and of each segment before it, that are read.
_MOST = 500
MOST_REFERENCES = 5


def redditbias_rows(data: Path) -> list[TrainingRow]:
    """Return the training comments of RedditBias in one piece, without validation families.

    Group and attribute of a biased one are the terms of its dimension's lists nearest to each
    other. Comments that an evaluation file has, too, are left out.
    """
    forbidden = eval_folds(data)
    terms = redditbias_terms(data / "redditbias" / "terms")
    rows = []
    for whole, item in redditbias_texts(data):
        if in_validation(whole.family) or says_any(whole.text, forbidden):
            continue
        group = attribute = None
        if whole.biased:
            lists = terms[item.dimension]
            group, attribute = _nearest_pair(
                [Span(*m.span()) for m in lists.targets.finditer(whole.text)],
                [Span(*m.span()) for m in lists.attributes.finditer(whole.text)],
            )
        rows.append(row_of(whole, bias_type=item.bias_type, group=group, attribute=attribute))
    return rows


def _nearest_pair(
    groups: Sequence[Span], attributes: Sequence[Span]
) -> tuple[Span, Span] | tuple[None, None]:
    """Return the group and the attribute that lie nearest together without touching."""

    def distance(pair: tuple[Span, Span]) -> int:
        first, other = sorted(pair)
        return other.start - first.end

    pairs = [(g, a) for g in groups for a in attributes if distance((g, a)) >= 0]
    return min(pairs, key=distance, default=(None, None))


def judged_alone(rows: Sequence[TrainingRow], *, references: bool) -> list[TrainingRow]:
    """Return the rows whose label the model can learn.

    Those of unknown label are left out, and, where no ``references`` are shown, those that are
    biased by a reference alone.
    """
    return [
        row for row in rows
        if row.known and (references or not (row.source == "invented" and row.alone is None))
    ]  # fmt: skip


def corpus_rows(config: TrainConfig, *, references: bool) -> Corpus:
    """Return the corpus of the encoder's recipe, without rows that cannot be learned here."""
    corpus = build_corpus(config)
    return replace(corpus, train=judged_alone(corpus.train, references=references))


def answer_of(row: TrainingRow) -> tuple[TemplateAnswer, bool]:
    """Return what is known of a row's answer, and whether that is the whole answer."""
    if not row.biased:
        return TemplateAnswer(biased=False), True
    if row.bias_type is None:
        return TemplateAnswer(biased=True), False
    if row.group is None or row.attribute is None:
        return TemplateAnswer(True, row.bias_type), False
    pair = tuple(row.text[span.start : span.end] for span in (row.group, row.attribute))
    return TemplateAnswer(True, row.bias_type, ((pair[0], pair[1]),)), True


@dataclass(frozen=True, slots=True)
class RowReferences:
    """Finds the references of rows in the shipped index, as the detector does.

    Statements of a row's own family are left out, as are copies of its text.
    """

    encoder: Encoder
    index: BiasIndex

    def of(self, row: TrainingRow, rng: random.Random) -> tuple[Reference, ...]:
        """Return at most five references, nearest first, the row's partners among them."""

        def own(reference: Reference) -> bool:
            family = f"own:{fold(reference.statement)}"
            return reference.similarity >= TOO_CLOSE or family == row.family

        references = list(self.encoder.references(row.text, self.index, own))
        if row.partners and rng.random() < row.partner_share:
            vectors = self.encoder.embed([row.text, *(p.text for p in row.partners)])
            for partner, similarity in zip(row.partners, vectors[1:] @ vectors[0], strict=True):
                if similarity >= self.encoder.floor:
                    references.append(
                        Reference(partner.text, partner.bias_type, "", "", float(similarity))
                    )
        return tuple(sorted(references, key=lambda r: -r.similarity)[:MOST_REFERENCES])


class Prompts:
    """Turns rows and texts into tokens for one model and one instruction.

    ``spelled`` is the share of the rows that learn the whole answer; the others learn its first
    token, which decides. Raises UsageError if the model has no chat template.
    """

    def __init__(
        self,
        model: LoadedModel,
        instruction: Instruction,
        references: RowReferences | None,
        spelled: float,
    ) -> None:
        self._model, self._instruction = model, instruction
        self._found, self._spelled = references, spelled
        self.yes, self.no = decision_tokens(model.tokenizer)
        if self.yes == self.no:
            raise UsageError("The base's tokenizer begins Yes and No with one token; use another.")

    def _answer_tokens(self, text: str) -> list[int]:
        return answer_tokens(self._model.tokenizer, [text])[0]

    def prompt(self, window: Window, references: Sequence[Reference]) -> list[int]:
        """Return the tokens that ask for a judgement, those of the detector's."""
        return self._model.prompt(self._instruction.messages(window, references))

    def asked(self, row: TrainingRow, pick: Pick, rng: random.Random) -> LearnedAnswer:
        """Return the prompt of a row in the context of this time, and what is learned of it."""
        references = () if self._found is None else self._found.of(row, rng)
        answer, whole = answer_of(row)
        learned = self._answer_tokens(rendered_answer(answer))
        if rng.random() >= self._spelled:
            learned = learned[:1]
        elif whole:
            learned.append(self._model.tokenizer.eos_token_id)
        # A prompt has a bounded cost.
        context = tuple(text[-_MOST:] for text in pick.context[-CONTEXT_SEGMENTS:])
        return LearnedAnswer(self.prompt(Window(row.text[:_MOST], context), references), learned)

    def of_text(self, text: str) -> Iterator[list[int]]:
        """Yield the prompts of a text's windows, as the guard cuts them."""
        for part, context in in_context(text_pieces(text)):
            references: tuple[Reference, ...] = ()
            if self._found is not None:
                references = self._found.encoder.references(part, self._found.index)
            yield self.prompt(Window(part, context), references)
