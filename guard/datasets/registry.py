"""The registry of published datasets: the file of each, the record of its rows, and what may train.

``benchmarks/detector/README.md`` describes the folder of data, which has JSON lines in UTF-8. guard
ships none of the files except :data:`ASSISTANT`.
Why: docs/decisions/one-schema-a-published-file.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from guard.datasets import records
from guard.datasets.records import GroupStatement, PublishedRow
from guard.datasets.rows import convert_rows, object_rows
from guard.errors import UsageError

R = TypeVar("R", bound=PublishedRow)


@dataclass(frozen=True)
class DatasetFile(Generic[R]):
    """A file of a published dataset, relative to the folder of data.

    ``trains`` says that its licence is stated and fits the shipped weights, and that it is no
    evaluation set.
    """

    file: str
    record: type[R]
    trains: bool = False

    def training_records(self, data: Path) -> Iterator[R]:
        """Yield the records for training.

        Raises UsageError where the file cannot be read, and for the first bad row.
        """
        if not self.trains:
            raise AssertionError(f"{self.file} must not be trained on")
        path = data / self.file
        if not path.is_file():
            raise UsageError(f"{path} cannot be read; name the folder of the sources.")
        return convert_rows(
            path, object_rows(path), lambda row: self.record.of(row.values), None, "Fix it."
        )


REDDITBIAS = DatasetFile("redditbias/eval.jsonl", records.Comment)
REDDITBIAS_TRAIN = DatasetFile("redditbias/train.jsonl", records.AnnotatedComment, trains=True)
CROWS_PAIRS = DatasetFile("crows_pairs/eval.jsonl", records.SentencePair)
TOXICBIAS = DatasetFile("toxicbias/eval.jsonl", records.TargetedComment)
EMGSD = DatasetFile("emgsd/eval.jsonl", records.MarkedText)
EMGSD_TRAIN = DatasetFile("emgsd/train.jsonl", records.LabelledText, trains=True)
STEREOBIAS = DatasetFile("stereobias/all.jsonl", records.StereoBiasText)
STEREOSET = DatasetFile("stereoset/intrasentence.jsonl", records.ItemVariant, trains=True)
HEARTS_SEEGULL: DatasetFile[GroupStatement] = DatasetFile(
    "hearts/seegull_gpt.jsonl", records.Nationality, trains=True
)
HEARTS_WINOQUEER: DatasetFile[GroupStatement] = DatasetFile(
    "hearts/winoqueer_gpt.jsonl", records.Lgbtq, trains=True
)
TOXIGEN_DEMOS = DatasetFile("toxigen_demos/all.jsonl", records.Demonstration, trains=True)
IMPLICIT_HATE = DatasetFile("implicit_hate/posts.jsonl", records.Post, trains=True)
IMPLIED = DatasetFile("implicit_hate/implied.jsonl", records.ImpliedStatement, trains=True)
BOLD = DatasetFile("bold/wikipedia.jsonl", records.EncyclopaedicSentence, trains=True)
SEEGULL = DatasetFile("seegull/pairs.jsonl", records.RatedAssociation, trains=True)
#: In guard's own benchmarks.
ASSISTANT = DatasetFile("detector/assistant.jsonl", records.AssistantSentence)
