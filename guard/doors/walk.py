"""One walk over all wire formats: it reads the texts of an answer, and replaces them.

Each format has a table of shapes. A :class:`Shape` says which fields of an object hold texts that
are read by name, which hold objects of a known shape, and which hold no words of the model. Every
other string is judged, unless it fits a field that is known to hold names or data
(:mod:`guard.doors.strings`): what no table knows is judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from pydantic import BaseModel

from guard.doors.strings import MEASURES, is_name, is_name_or_data, members, not_text
from guard.verdict import ChannelKind

_ADDRESS = re.compile(r"https?://[!-~]*")


class TextPlace(NamedTuple):
    """The place of a text in an answer.

    ``item`` is the number of the output item, block or choice; ``slot`` is the name of the text in
    it, or the path of its field; ``part`` is the number of the item's part.
    """

    item: int
    slot: str
    part: int = 0

    def below(self, name: object) -> TextPlace:
        """Return the place of a field or an element of the value at this place."""
        slot = f"{self.slot}.{name}" if self.slot else str(name)
        return TextPlace(self.item, slot, self.part)


Visit = Callable[[TextPlace, ChannelKind, str], str]
"""Takes the place, the kind and the string of a text; returns its replacement."""


class NamedText(NamedTuple):
    """A text that is read by the name of its field, whatever it looks like.

    ``read`` returns it, given the object that holds it, if it is not the field's value.
    """

    kind: ChannelKind
    slot: str
    read: Callable[[Mapping[str, Any]], Any] | None = None


class Remains(NamedTuple):
    """An object as it was ``before`` the walk, and what remains of it ``after`` a text was changed.

    ``rest_changed``: whether a string was changed that is not read by name.
    """

    before: Mapping[str, Any]
    after: dict[str, Any]
    rest_changed: bool


@dataclass(frozen=True)
class Shape:
    """What is known of the fields of an object, or of the objects of a list.

    A shape without arguments knows nothing, so all strings are judged.
    """

    texts: Mapping[str, NamedText] = field(default_factory=dict)
    inner: Mapping[str, Shape] = field(default_factory=dict)
    """The shapes of fields that hold objects."""
    skipped: Container[str] = frozenset()
    """Fields that hold no words of the model, or are read elsewhere."""
    quoted: frozenset[str] = frozenset()
    """The same at any depth: words of a cited source. Addresses in lists are skipped, too."""
    kept: Container[str] | None = None
    """The fields, beside ``texts``, that remain once a text was changed: none of them can repeat
    it. None: all fields."""
    kind: ChannelKind | None = None
    """The kind of the strings that are not read by name; None: that of the object around."""
    at: Callable[[TextPlace, int | None, Any], TextPlace] | None = None
    """Returns the place of its fields, given its own, its number in a list, and the object."""
    variant: Callable[[Mapping[str, Any]], Shape] | None = None
    """Returns the shape of one object, for example by its type."""
    remains: Callable[[Remains], Any] | None = None
    """Returns what goes out of an object in which a text was changed, given what ``kept`` leaves of
    it; None if nothing does."""


UNKNOWN = Shape()


class Walk:
    """A walk with one visitor. An object in which it changes nothing is returned as it is.

    ``strips``: objects are reduced to the fields that cannot repeat a text, changed or not.
    ``opens``: of an object with ``kept`` fields, no other field is visited, and ``dropped`` is set
    if one may hold text.
    """

    def __init__(self, visit: Visit, *, strips: bool = False, opens: bool = False) -> None:
        self._visit = visit
        self._strips = strips
        self._opens = opens
        self.changes = 0
        self.dropped = False

    def over(
        self,
        value: Any,
        shape: Shape = UNKNOWN,
        place: TextPlace = TextPlace(0, ""),  # noqa: B008  (immutable)
        kind: ChannelKind = "content",
        *,
        measures: bool = False,
    ) -> Any:
        """Return ``value`` with its texts replaced.

        A list of strings is one text, joined with spaces. A key that is no valid name is a text,
        too. If such a list or key is changed, it is removed. ``measures``: all strings in it are
        names. Raises UsageError on a value that is not JSON: it cannot be judged.
        """
        if type(value) is dict:
            return self._object(value, shape, place, kind, measures)
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, Enum):
            value = value.value
        if isinstance(value, str):
            known = not value or is_name_or_data(place.slot, value, measures)
            return value if known else self._replaced(place, kind, value)
        if isinstance(value, (list, tuple)):
            return self._list(value, shape, place, kind, measures)
        known = shape is not UNKNOWN and hasattr(value, "__dict__")
        if isinstance(value, BaseModel) or known:
            value = members(value)
        if isinstance(value, Mapping):
            return self._object(value, shape, place, kind, measures)
        raise not_text(place.slot or "an answer", value)

    def text(self, value: object, place: TextPlace, kind: ChannelKind) -> Any:
        """Return a text that is read by name, replaced; an empty or missing one unchanged.

        Raises UsageError on a value that is not a string.
        """
        if value is None or value == "":
            return value
        if not isinstance(value, str):
            raise not_text(kind, value)
        return self._replaced(place, kind, value)

    def _replaced(self, place: TextPlace, kind: ChannelKind, text: str) -> str:
        replacement = self._visit(place, kind, text)
        self.changes += replacement != text
        return replacement

    def _list(
        self, value: Any, shape: Shape, place: TextPlace, kind: ChannelKind, measures: bool
    ) -> list[Any]:
        elements = list(value)
        if shape.quoted:
            elements = [e for e in elements if not (isinstance(e, str) and _ADDRESS.fullmatch(e))]
        if elements and all(isinstance(element, str) for element in elements):
            if all(not e or is_name_or_data(place.slot, e, measures) for e in elements):
                return elements
            whole = " ".join(elements)
            return elements if self._replaced(place, kind, whole) == whole else []
        walked = []
        for number, element in enumerate(elements):
            at = place.below(number) if shape.at is None else shape.at(place, number, element)
            walked.append(self.over(element, shape, at, kind, measures=measures))
        return walked

    def _object(
        self,
        owner: Mapping[str, Any],
        shape: Shape,
        place: TextPlace,
        kind: ChannelKind,
        measures: bool,
    ) -> Any:
        if shape.at is not None:
            place = shape.at(place, None, owner)
        if shape.variant is not None:
            shape = shape.variant(owner)
        kind = shape.kind or kind
        before = self.changes
        after: dict[str, Any] = {}
        for name, text in shape.texts.items():
            if name in owner and (text.read is None or self._visits(name, shape, owner[name])):
                value = owner[name] if text.read is None else text.read(owner)
                at = TextPlace(place.item, text.slot, place.part)
                after[name] = self.text(value, at, text.kind)
        named = self.changes
        for name, below in shape.inner.items():
            if name in owner and self._visits(name, shape, owner[name]):
                after[name] = self.over(owner[name], below, place.below(name), kind)
        inner = self.changes
        deep = Shape(quoted=shape.quoted) if shape.quoted else UNKNOWN
        for name, value in owner.items():
            if name in after or not self._visits(name, shape, value):
                continue
            key, counts = str(name), measures or name in MEASURES
            if not is_name(key) and self._replaced(place.below(f"{key}.key"), kind, key) != key:
                continue
            if type(value) is int or (type(value) is str and is_name_or_data(key, value, counts)):
                after[name] = value  # most fields of a stream: their place is not needed
                continue
            after[name] = self.over(value, deep, place.below(name), kind, measures=counts)
        rest_changed = self.changes > inner
        if self.changes == before and not self._strips:
            return owner
        if shape.kept is not None:
            # Only objects remain where objects belong.
            after = {n: v if n not in shape.inner else _objects(v) for n, v in after.items()}
            gone = {n for n in shape.inner if n in after and after[n] is None}
            if rest_changed or named > before or self._strips:
                after = {n: v for n, v in after.items() if n in shape.kept or n in shape.texts}
            else:
                after = {**owner, **after}
            after = {n: v for n, v in after.items() if n not in gone}
        if shape.remains is None:
            return after
        return shape.remains(Remains(owner, after, rest_changed))

    def _visits(self, name: str, shape: Shape, value: Any) -> bool:
        if name in shape.skipped or name in shape.quoted:
            return False
        if not self._opens or shape.kept is None or name in shape.kept:
            return True
        known = not value or (isinstance(value, str) and is_name_or_data(name, value, False))
        self.dropped = self.dropped or not (known and is_name(name))
        return False


def _objects(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [element for element in value if isinstance(element, Mapping)]
    return value if isinstance(value, Mapping) else None


def has_prose(name: str, value: Any) -> bool:
    """Whether a field holds a string that must be judged."""
    walk = Walk(lambda place, kind, text: "")
    walk.over({name: value})
    return walk.changes > 0


def without_prose(name: str, value: Any) -> Any:
    """Return a field's value; if a string in it must be judged, "" or None instead."""
    if not has_prose(name, value):
        return value
    return "" if isinstance(value, str) else None


def textless(owner: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    """Return the fields in ``names`` that hold no text to judge."""
    return {name: v for name, v in owner.items() if name in names and not has_prose(name, v)}
