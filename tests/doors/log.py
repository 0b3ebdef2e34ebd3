"""Callbacks of LiteLLM's that record its reports."""

from __future__ import annotations

import time
from typing import Any

from litellm.integrations.custom_logger import CustomLogger
from litellm.types.llms.openai import ResponsesAPIResponse
from litellm.types.utils import ModelResponse, TextCompletionResponse

WHOLE = (ModelResponse, TextCompletionResponse, ResponsesAPIResponse)


class Callback(CustomLogger):
    """Calls ``note`` with each report on a call."""

    def note(self, kind: str, kwargs: Any, response: Any) -> None:
        raise NotImplementedError

    def log_success_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.note("success", kwargs, response_obj)

    def log_failure_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.note("failure", kwargs, response_obj)

    async def async_log_success_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.note("async success", kwargs, response_obj)

    async def async_log_failure_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self.note("async failure", kwargs, response_obj)


class Log(Callback):
    """Counts the reports on whole responses; those on single chunks are LiteLLM's own."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[tuple[str, Any, Any]] = []

    def note(self, kind: str, kwargs: Any, response: Any) -> None:
        if kind.endswith("failure") or isinstance(response, WHOLE):
            # What LiteLLM passes on is changed later: keep what it is now.
            self.reports.append((kind, kwargs.get("standard_logging_object"), response))

    def settle(self) -> list[tuple[str, Any, Any]]:
        """Wait until nothing more comes."""
        seen = -1
        for _ in range(200):
            time.sleep(0.15)
            if self.reports and len(self.reports) == seen:
                break
            seen = len(self.reports)
        return self.reports
