"""The same answers as LiteLLM's own chunks and answers, replayed inside LiteLLM: no socket."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

from litellm import CustomLLM
from litellm.types.utils import ModelResponse, ModelResponseStream

from tests.attacks import wire_formats
from tests.attacks.case import Answer, make
from tests.attacks.provider import answer_for

_NUMBER = re.compile(r"attack-(\d+p?e?)")


class Replays(CustomLLM):
    """Registered as LiteLLM's provider ``replay``."""

    def _answer(self, kwargs: Any) -> Answer:
        said = str(kwargs["messages"])
        found = _NUMBER.search(said)
        assert found is not None
        return answer_for(make(found.group(1)), said)

    def _chunks(self, answer: Answer) -> Iterator[Any]:
        for _, data in wire_formats.events("chat", answer, usage=False):
            if data is not None:
                yield ModelResponseStream(**data)
        if answer.ending == "error":
            raise RuntimeError(wire_formats.error("chat", answer)[1]["error"]["message"])
        if answer.ending == "drop":
            raise ConnectionError("the connection was lost")

    def streaming(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        return self._chunks(self._answer(kwargs))

    async def astreaming(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        for chunk in self._chunks(self._answer(kwargs)):
            yield chunk

    def completion(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return ModelResponse(**wire_formats.whole("chat", self._answer(kwargs)))

    async def acompletion(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return ModelResponse(**wire_formats.whole("chat", self._answer(kwargs)))
