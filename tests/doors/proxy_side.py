"""What the tests have running inside the proxy's process: keys, and a log of what it reports."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from fastapi import HTTPException, Request
from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy._types import UserAPIKeyAuth

from tests.doors import proxy_routes

OPTED_OUT = {"opted_out_global_guardrails": ["bias"]}
# Metadata of each key and of its team.
KEYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sk-plain": ({}, {}),
    "sk-single": ({}, {}),
    "sk-out": (OPTED_OUT, {}),
    "sk-asks": (OPTED_OUT | {"guardrails": ["asked"]}, {}),
    "sk-team-asks": (OPTED_OUT, {"guardrails": ["asked"]}),
    "sk-redacts": ({"guard": {"action": "redact"}}, {}),
    "sk-team": ({}, {"guard": {"action": "redact", "replacement": "[team]"}}),
    "sk-over-team": ({"guard": {"replacement": "[key]"}}, {"guard": {"action": "redact"}}),
    "sk-quiet": ({"guard": "quiet"}, {}),
    "sk-wrong": ({"guard": {"axion": "redact"}}, {}),
}


async def auth(request: Request, api_key: str) -> UserAPIKeyAuth:
    if api_key == proxy_routes.KEY:
        path = Path(os.environ["REPORTS"]).with_name("routes")
        path.write_text(json.dumps(proxy_routes.routes()), encoding="utf-8")
    if api_key not in KEYS:
        raise HTTPException(401, "unknown key")
    key, team = KEYS[api_key]
    return UserAPIKeyAuth(
        api_key=api_key,
        user_id="u",
        team_id="t",
        metadata=key,
        team_metadata=team,
        max_parallel_requests=1 if api_key == "sk-single" else None,
    )


class Reports(CustomLogger):
    """Writes every report of a call to the file that REPORTS names, a line each."""

    async def async_log_success_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self._write("success", kwargs)

    async def async_log_failure_event(
        self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        self._write("failure", kwargs)

    def _write(self, kind: str, kwargs: Any) -> None:
        payload = kwargs.get("standard_logging_object") or {}
        with open(os.environ["REPORTS"], "a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "payload": payload}, default=str) + "\n")


reports = Reports()
