"""The comparability key of an audit: what two audits must share to be compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from guard.errors import UsageError
from guard.suites import Suite

FORMAT = 2
_FEW = 4
_HASH = re.compile("[0-9a-f]{40,}")

# Fields in words, for the sentence that names a difference.
_WORDS = {
    "suite": "suite",
    "version": "suite version",
    "data_hash": "data",
    "prompt_hash": "prompt",
    "parser_version": "parser version",
    "model": "model",
    "options": "suite options",
    "sampling": "sample",
    "guard": "guard settings",
    "request": "request settings",
    "shard": "shard",
    "others": "analyst, scorer or embedder",
}
_OF_RESUMED = tuple(name for name in _WORDS if name != "others")
"""The fields that a resumed run must share: another analyst reads the same answers."""
PARTS: Mapping[str, str] = {
    "version": "version",
    "data": "data_hash",
    "prompt": "prompt_hash",
    "parser": "parser_version",
    "options": "options",
    "model": "model",
    "sample": "sampling",
    "guard": "guard",
    "request": "request",
    "others": "others",
}
"""The fields that two audits must share, by the name that --allow takes for them."""
SHARED_BY_SHARDS = tuple(name for name in _WORDS if name != "shard")
"""The fields that the shards of one audit share."""
ANSWERS = ("suite", "version", "data_hash", "prompt_hash", "parser_version", "options")
"""The fields on which answers depend; a cassette must share them."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a run's file says of one suite's audit.

    ``sampling`` has the size and seed of a stratified sample, empty for all items; ``guard`` the
    policy and detector of the guarded arm, empty without one; ``request`` the differences from the
    suite's requests (:meth:`guard.audit.sending.Sending.key`). ``others`` has by role who else is
    asked and with which settings, and under ``reading`` the options for reading answers. The
    audited model's answers do not depend on it, so another analyst can resume a run. ``shard`` is
    empty for a whole run (:class:`guard.audit.shards.Shard`).
    """

    suite: str
    version: str
    data_hash: str
    prompt_hash: str
    parser_version: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    guard: Mapping[str, Any] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    shard: str = ""

    @classmethod
    def of(cls, line: Mapping[str, Any], path: Path) -> Header:
        """Return the header in :meth:`line`; raises UsageError where a part is missing."""
        try:
            return cls(**{f.name: line[f.name] for f in fields(cls) if f.name in line})
        except TypeError:
            raise UsageError(f"{path} is not the file of a run: a header is incomplete.") from None

    def line(self) -> dict[str, Any]:
        """Return the key as JSON; that of a whole run says nothing of shards."""
        line = {"k": "header", "format": FORMAT, **asdict(self)}
        if not self.shard:
            del line["shard"]
        return line

    def check(
        self, wanted: Header, path: Path, names: tuple[str, ...] = _OF_RESUMED, hint: str = ""
    ) -> None:
        """Raise UsageError that names the first of the fields ``names`` that ``wanted`` changes."""
        for name in names:
            have, want = getattr(self, name), getattr(wanted, name)
            if have != want:
                difference = f"{_short_text(have)}, not {_short_text(want)}"
                if name == "shard":
                    difference = f"{have or 'the whole run'}, not {want or 'the whole run'}"
                if isinstance(have, Mapping):
                    keys = [k for k in {**have, **want} if have.get(k) != want.get(k)]
                    difference = ", ".join(
                        f"{k} was {_short_text(have.get(k))}, now {_short_text(want.get(k))}"
                        for k in keys
                    )
                raise UsageError(
                    f"{path} was made with another {_WORDS[name]}: {difference}; "
                    + (hint or "give another --out, or the same settings.")
                )

    def differences(self, other: Header) -> dict[str, tuple[str, str]]:
        """Return the old and the new value, in words, of each of :data:`PARTS` that differs."""
        differing: dict[str, tuple[str, str]] = {}
        for name, field_ in PARTS.items():
            mine, others = getattr(self, field_), getattr(other, field_)
            if mine == others:
                continue
            if not isinstance(mine, Mapping):
                differing[name] = _short_text(mine), _short_text(others)
                continue
            flat = [_flat_settings(mine), _flat_settings(others)]
            keys = [k for k in {**flat[0], **flat[1]} if flat[0].get(k) != flat[1].get(k)]
            differing[name] = _few_settings(flat[0], keys), _few_settings(flat[1], keys)
        return differing

    def contains_sample(self, wanted: Header) -> bool:
        """Return whether this audit's sample contains that of ``wanted``."""
        have, want = self.sampling, wanted.sampling
        if set(want) != {"size", "seed"} or (have and set(have) != set(want)):
            return False
        return not have or (have["seed"] == want["seed"] and have["size"] >= want["size"])

    def check_compatible(self, wanted: Header, path: Path) -> None:
        """Check what a resumed run must share; the sample of ``wanted`` may be a larger one."""
        grown = replace(self, sampling=wanted.sampling)
        (grown if wanted.contains_sample(self) else self).check(wanted, path)


def recorded_options(suite: Suite) -> dict[str, Any]:
    """Return a suite's options as a header records them.

    The path of official data is private; the header has its hash.
    """
    return suite.options.model_dump(mode="json", exclude={"data", *suite.options.reading_only})


def _few_settings(settings: Mapping[str, Any], keys: Sequence[str]) -> str:
    """Return the first settings in words; "none" where there are none at all."""
    if not settings:
        return "none"
    more = ", …" if len(keys) > _FEW else ""
    return ", ".join(f"{k} {_short_text(settings.get(k))}" for k in keys[:_FEW]) + more


def _flat_settings(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested settings with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat_settings(value, f"{before}{name}.")
        else:
            flat[f"{before}{name}"] = value
    return flat


def _short_text(value: Any) -> str:
    """Return a value in words: the beginning of a hash, a text of at most 200 characters."""
    text = str(value)
    most = 12 if _HASH.fullmatch(text) else 200
    return (
        repr(text if len(text) <= most else f"{text[:most]}…") if isinstance(value, str) else text
    )
