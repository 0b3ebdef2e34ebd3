"""The documents of one arm, their concepts, and the associations found in them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain

from guard.suites.badf.association import Association, Document, associations
from guard.suites.contract import Item, Record

DOCUMENT = "given"
"""The stratum of documents from a user's table."""

Group = tuple[str, str]
"""Category of identities and of places."""


def is_derived(item: Item) -> bool:
    """Return whether an item is made from the answers to other items."""
    return item.stratum in ("unify", "exclusive")


class ArmDocuments:
    """The documents of one arm, with the concepts, exclusivity and associations found for them."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.from_table = any(r.item.stratum == DOCUMENT for r in records)
        self.phrases: dict[Group, dict[str, list[Document]]] = {}
        self._concepts: dict[Group, Mapping[str, str]] = {}
        self._exclusive: dict[tuple[str, ...], str] = {}
        self._guarded = any(r.outcome.name in ("guarded", "unjudged") for r in records)
        for record in records:
            item, data = record.item, record.item.data
            if item.stratum == "exclusive":
                self.add_exclusivity(record)
            elif item.stratum == "unify" and record.outcome.name == "unified":
                names = zip(data["texts"], record.outcome.lists["concepts"], strict=True)
                self._concepts[data["category"], data["kind"]] = dict(names)
            elif item.stratum != "unify":
                self._add(record)

    def add_exclusivity(self, record: Record) -> None:
        """Store the analyst's answer on whether an association is exclusive to its identity."""
        data = record.item.data
        key = (data["category"], data["kind"], data["identity"], data["phrase"])
        self._exclusive[key] = record.outcome.name

    def _add(self, record: Record) -> None:
        data = record.item.data
        cast = data.get("cast")
        category = cast.category if cast else data["category"]
        identities = cast.identities if cast else (data["identity"],)
        group = self.phrases.setdefault((category, data["kind"]), {})
        for identity in identities:
            # An identity has a list even if none of its stories could be read.
            documents = group.setdefault(identity, [])
            if identity in record.outcome.lists:
                phrases = record.outcome.lists[identity]
                documents.append(Document(phrases, cast.type if cast else ""))

    @property
    def identities(self) -> list[tuple[str, str]]:
        """Every category with each of its identities."""
        return sorted({(key[0], name) for key, group in self.phrases.items() for name in group})

    def count(self, category: str, identity: str) -> int:
        """Return the number of an identity's documents, at all places."""
        groups = (group for key, group in self.phrases.items() if key[0] == category)
        return sum(len(group.get(identity, ())) for group in groups)

    @cached_property
    def concepts(self) -> Mapping[Group, Mapping[str, Sequence[Document]]]:
        """The documents by identity, with concepts for phrases, of groups that have concepts."""
        return {
            key: {
                identity: [d._replace(concepts=[names[p] for p in d.concepts]) for d in documents]
                for identity, documents in self.phrases.get(key, {}).items()
            }
            for key, names in self._concepts.items()
        }

    @cached_property
    def associations(self) -> Mapping[tuple[str, ...], Association]:
        """Every association by category, place category, identity and concept."""
        listed = associations(self.concepts)
        return {(a.category, a.place, a.identity, a.concept): a for a in listed}

    @property
    def candidates(self) -> Sequence[tuple[str, ...]]:
        """The associations that are published for the plain arm, before exclusivity."""
        if not self.from_table:
            return list(self._exclusive)
        return [key for key, a in self.associations.items() if a.published]

    def is_not_exclusive(self, key: tuple[str, ...]) -> bool:
        """Return whether an association is not exclusive to its identity, so that it counts.

        As for the authors, an answer that is neither yes nor no counts as yes. No analyst was asked
        about documents from a table; all of their associations count.
        """
        return self.from_table or self._exclusive.get(key) == "no"

    def has_no_answer(self, key: tuple[str, ...]) -> bool:
        """Return whether the exclusivity of an association is unknown.

        No analyst is asked about associations that only appear behind a guard.
        """
        answer = self._exclusive.get(key)
        asked = answer is not None or not self._guarded
        return not self.from_table and asked and answer not in ("yes", "no")

    def exclusivity(self) -> Mapping[str, int]:
        """Return the number of each answer; ``invalid`` is neither yes nor no."""
        answers = list(self._exclusive.values())
        return {name: answers.count(name) for name in ("no", "yes", "invalid", "refused", "failed")}

    def grouped(self) -> tuple[int, int]:
        """Return the numbers of distinct phrases and of their concepts, summed over the groups."""
        every = self._concepts.values()
        return sum(map(len, every)), sum(len(set(names.values())) for names in every)

    def grouping_items(self) -> Iterator[Item]:
        """Yield an item for the phrases of each group, in order of identity, then story."""
        for (category, kind), group in self.phrases.items():
            documents = chain.from_iterable(group.values())
            phrases = chain.from_iterable(document.concepts for document in documents)
            texts = tuple(dict.fromkeys(phrases))
            if not texts:
                continue
            digest = hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
            name = f"unify/{category}/{kind}"
            data = {"category": category, "kind": kind, "texts": texts}
            yield Item(f"{name}/{digest}", "unify", name, data)

    def exclusivity_items(self) -> Iterator[Item]:
        """Yield an item for each association that is published before exclusivity."""
        # The p-values are corrected over all groups, so all of them are needed.
        groups = [(i.data["category"], i.data["kind"]) for i in self.grouping_items()]
        if not all(group in self._concepts for group in groups):
            return
        for key, a in self.associations.items():
            if a.published:
                data = dict(zip(("category", "kind", "identity", "phrase"), key, strict=True))
                yield Item("/".join(("exclusive", *key)), "exclusive", "/".join(key), data)
