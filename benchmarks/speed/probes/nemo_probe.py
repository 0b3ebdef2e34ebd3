"""NeMo Guardrails: an output rail that is one Python action, over a given generator."""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import Any

from common import Setting, found, measure
from nemoguardrails import LLMRails, RailsConfig
from nemoguardrails.actions.rail_outcome import RailDecision, RailOutcome

logging.disable(logging.ERROR)

FLOW = """
define subflow stub check
  $allowed = execute stub_check(bot_message=$bot_message)
  if not $allowed
    bot refuse to respond
    stop
"""


def rails(streaming: str) -> LLMRails:
    config = RailsConfig.from_content(
        colang_content=FLOW,
        yaml_content=f"""
models: []
rails:
  output:
    flows: [stub check]
    streaming:
      enabled: true
{streaming}
""",
    )
    made = LLMRails(config)

    async def stub_check(bot_message: str = "", **_: Any) -> RailOutcome:
        return RailOutcome(RailDecision.BLOCK if found(bot_message) else RailDecision.ALLOW)

    made.register_action(stub_check, "stub_check")
    return made


def setting(name: str, streaming: str = "") -> Setting:
    made = rails(streaming)
    messages = [{"role": "user", "content": "?"}]
    return Setting(
        name,
        str,
        lambda source: made.stream_async(messages=messages, generator=source),
        str,
        positions=499,
    )


def lines(**fields: Any) -> str:
    return "\n".join(f"      {name}: {value}" for name, value in fields.items())


measure(
    [
        setting("default (chunk 200, stream first)"),
        setting("chunk 200, judged first", lines(stream_first="false")),
        setting(
            "chunk 10, judged first", lines(stream_first="false", chunk_size=10, context_size=5)
        ),
        setting("chunk 1, judged first", lines(stream_first="false", chunk_size=1, context_size=1)),
    ],
    version("nemoguardrails"),
)
