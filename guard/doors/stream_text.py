"""The released and the withheld text of a stream, for its reports and errors."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple

from guard.gate import Codec
from guard.verdict import Channel


class StreamText(NamedTuple):
    """The released and the withheld text of a stream, for the error that ends it.

    ``began``: whether anything went out. ``released``: the text from which LiteLLM's Router would
    ask another model to continue. ``shown``: the released text of all channels. ``withheld``: the
    texts that did not go out.
    """

    began: bool
    released: str
    shown: str
    withheld: Sequence[str]


def withheld_texts(
    codec: Callable[[], Codec[Any]], sent: Iterable[Any], released: Iterable[Any]
) -> list[str]:
    """Return the texts of the provider's chunks ``sent`` that did not go out unchanged.

    Both joined and one by one, because LiteLLM quotes single chunks.
    """
    sent, out = list(sent), {id(chunk) for chunk in released}
    held = (c for c in sent if id(c) not in out)
    single = {text for c in held for _, text in codec().parts(c)}
    return [*joined_texts(codec(), sent, without=out), *single]


def joined_texts(
    codec: Codec[Any], chunks: Iterable[Any], without: Container[int] = frozenset()
) -> list[str]:
    """Return the text of ``chunks``, joined by channel; chunks in ``without`` (ids) split it."""
    runs: dict[Channel, list[list[str]]] = {}
    for chunk in chunks:
        for channel, text in codec.parts(chunk):
            own = runs.setdefault(channel, [[]])
            if id(chunk) not in without:
                own[-1].append(text)
            elif own[-1]:
                own.append([])
    return [text for own in runs.values() for run in own if (text := "".join(run))]
