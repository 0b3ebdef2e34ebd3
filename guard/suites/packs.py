"""Suites with a pack: ``benchmarks/<name>`` with pack.toml, protocol.toml and data."""

from __future__ import annotations

import csv
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from guard.errors import GuardError, UsageError
from guard.places import shipped
from guard.suites.contract import Options, Publication, Published, Suite

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack's folder, its two tables, and the hashes that make audits comparable.

    ``about`` is pack.toml (title, paper, licence, counts, ``files`` with their SHA-256);
    ``protocol`` is protocol.toml: prompts and sampling settings with their sources.
    """

    folder: Path
    about: Mapping[str, Any]
    protocol: Mapping[str, Any]
    data_hash: str
    prompt_hash: str

    def deviations(self, *lists: str) -> Sequence[str]:
        """Return the deviations from the paper in these ``lists`` of protocol.toml."""
        table = self.protocol["deviations"]
        return [line for name in lists for line in table.get(name, ())]

    def published(self, *axes: str) -> Sequence[Published]:
        """Return the figures of published.csv; ``axes`` are columns, of which empty ones drop."""
        with (self.folder / "published.csv").open(encoding="utf-8", newline="") as file:
            return [
                Published(
                    row["measure"],
                    {name: row[name] for name in axes if row[name]},
                    row["model"],
                    float(row["value"]),
                    row["source"],
                )
                for row in csv.DictReader(file)
            ]


def load_pack(name: str) -> Pack:
    """Return the shipped pack called ``name``.

    Raises GuardError where a file is missing or its SHA-256 is not the one in pack.toml.
    """
    folder = shipped("benchmarks") / name
    about = tomllib.loads((folder / "pack.toml").read_text("utf-8"))
    protocol = (folder / "protocol.toml").read_bytes()
    whole = hashlib.sha256()
    for file, recorded in sorted(about["files"].items()):
        path = folder / file
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"
        if digest != recorded:
            raise GuardError(
                f"{path} is not the file that pack.toml records (sha256 {digest}, "
                f"recorded {recorded}); reinstall the package."
            )
        whole.update(f"{file} {digest}\n".encode())
    return Pack(
        folder,
        about,
        tomllib.loads(protocol.decode("utf-8")),
        whole.hexdigest(),
        hashlib.sha256(protocol).hexdigest(),
    )


class PackedSuite(Suite):
    """A suite whose hashes, deviations and published figures come from its pack.

    A suite that reads ``options.data`` sets ``_data_hash`` to the hash of that data.
    """

    pack_name: ClassVar[str] = ""
    """The pack's name, if it is not the suite's."""
    takes_no_data: ClassVar[str] = ""
    """The reason why ``options.data`` is refused; empty if it is accepted."""
    published_by: ClassVar[tuple[str, ...]] = ()
    """The columns of published.csv that are axes."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        if options.data is not None and self.takes_no_data:
            raise UsageError(
                f"{self.name} takes no data: {self.takes_no_data}, which are shipped; leave the "
                "data out."
            )
        self._pack = load_pack(self.pack_name or self.name)
        self._data_hash = self._pack.data_hash

    @property
    def pack_folder(self) -> Path:
        """The folder of the suite's pack."""
        return self._pack.folder

    @property
    def data_hash(self) -> str:
        """The SHA-256 of the items' data."""
        return self._data_hash

    @property
    def prompt_hash(self) -> str:
        """The SHA-256 of protocol.toml."""
        return self._pack.prompt_hash

    def published(self) -> Publication:
        """Return the figures of published.csv and the deviations in protocol.toml."""
        return Publication(tuple(self._figures()), tuple(self._deviations()))

    def _figures(self) -> Iterable[Published]:
        """Return the figures that compare with the suite's own."""
        return self._pack.published(*self.published_by)

    def _deviations(self) -> Sequence[str]:
        """Return the deviations for the chosen protocol and for both."""
        return self._pack.deviations(self.options.protocol, "both")

    def _published_of(self, axis: str, value: str) -> list[Published]:
        """Return the figures with this value of an axis, which is then left out."""
        return [
            replace(p, axis={k: v for k, v in p.axis.items() if k != axis})
            for p in self._pack.published(*self.published_by)
            if p.axis[axis] == value
        ]

    def _settings(self) -> Mapping[str, Any]:
        """Return the sampling settings of the chosen protocol."""
        settings: Mapping[str, Any] = self._pack.protocol["settings"][self.options.protocol]
        return settings

    def _json(self, name: str) -> Any:
        """Return the content of a JSON file of the pack."""
        return json.loads((self._pack.folder / name).read_text("utf-8"))
