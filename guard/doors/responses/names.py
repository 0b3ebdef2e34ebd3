"""The Responses API's names of events, of items and of their fields."""

from __future__ import annotations

from collections.abc import Mapping

from guard.verdict import ChannelKind

SLOTS: Mapping[str, tuple[ChannelKind, str]] = {
    "output_text": ("content", "text"),
    "refusal": ("content", "refusal"),
    "reasoning_summary_text": ("reasoning", "summary"),
    "reasoning_text": ("reasoning", "text"),
    "function_call_arguments": ("tool", "arguments"),
    "mcp_call_arguments": ("tool", "arguments"),
    "custom_tool_call_input": ("tool", "input"),
    "code_interpreter_call_code": ("tool", "code"),
}
"""The channel's kind and slot of an event's text, by its name without "response." and the verb."""
STEMS: Mapping[tuple[ChannelKind, str], str] = {v: k for k, v in reversed(list(SLOTS.items()))}
"""The name of the events that carry a slot's text."""
CALLS: Mapping[str, str] = {
    "arguments": "function_call",
    "input": "custom_tool_call",
    "code": "code_interpreter_call",
}
"""Slots of items that hold a single text, and the item's type."""
SLOT_OF: Mapping[str, str] = {**{v: k for k, v in CALLS.items()}, "mcp_call": "arguments"}
"""The slot of a call's input, by the item's type."""
RUN = frozenset(
    "local_shell_call shell_call apply_patch_call computer_call mcp_approval_request".split()
)
"""Other items that the client is to act on: held whole, as calls are."""
TEXTS = ("text", "refusal", "reasoning", "transcript")
"""The texts of a part, and of the event that ends one."""
SOUND = ("audio", "output_audio")
"""Stems whose deltas are data; the transcript has its own."""
TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")
"""The events that end a stream."""

EVENTS = frozenset(
    name if name == "error" else f"response.{name}"
    for name in (
        "created queued in_progress completed incomplete failed error "
        "output_item.added output_item.done content_part.added content_part.done "
        "output_text.delta output_text.done output_text.annotation.added refusal.delta "
        "refusal.done reasoning_text.delta reasoning_text.done reasoning_summary_part.added "
        "reasoning_summary_part.done reasoning_summary_text.delta reasoning_summary_text.done "
        "function_call_arguments.delta function_call_arguments.done mcp_call_arguments.delta "
        "mcp_call_arguments.done custom_tool_call_input.delta custom_tool_call_input.done "
        "code_interpreter_call_code.delta code_interpreter_call_code.done audio.delta audio.done "
        "audio.transcript.delta audio.transcript.done code_interpreter_call.in_progress "
        "code_interpreter_call.interpreting code_interpreter_call.completed "
        "file_search_call.in_progress file_search_call.searching file_search_call.completed "
        "web_search_call.in_progress web_search_call.searching web_search_call.completed "
        "image_generation_call.in_progress image_generation_call.generating "
        "image_generation_call.partial_image image_generation_call.completed mcp_call.in_progress "
        "mcp_call.completed mcp_call.failed mcp_list_tools.in_progress mcp_list_tools.completed "
        "mcp_list_tools.failed"
    ).split()
)
"""The known events. Text in any other event is read as a delta."""
_NONE: frozenset[str] = frozenset()
ITEMS: Mapping[str, frozenset[str]] = {
    "message": _NONE,
    "reasoning": _NONE,
    "compaction": _NONE,
    "function_call": _NONE,
    "function_call_output": frozenset({"output"}),
    "custom_tool_call": _NONE,
    "custom_tool_call_output": frozenset({"output"}),
    "file_search_call": frozenset({"results"}),
    "web_search_call": frozenset({"results"}),
    "computer_call": frozenset({"pending_safety_checks"}),
    "computer_call_output": frozenset({"output", "acknowledged_safety_checks"}),
    "program": _NONE,
    "program_output": frozenset({"result"}),
    "tool_search_call": _NONE,
    "tool_search_output": frozenset({"tools"}),
    "additional_tools": frozenset({"tools"}),
    "image_generation_call": _NONE,
    "code_interpreter_call": frozenset({"outputs"}),
    "local_shell_call": _NONE,
    "local_shell_call_output": frozenset({"output"}),
    "shell_call": frozenset({"environment"}),
    "shell_call_output": frozenset({"output"}),
    "apply_patch_call": _NONE,
    "apply_patch_call_output": frozenset({"output"}),
    "mcp_call": frozenset({"output", "error"}),
    "mcp_list_tools": frozenset({"tools", "error"}),
    "mcp_approval_request": _NONE,
    "mcp_approval_response": frozenset({"reason"}),
    # Perplexity's.
    "search_results": frozenset({"results"}),
    "fetch_url_results": frozenset({"contents"}),
}
"""The known types of items, and their fields that hold a tool's output, not the model's text.

All strings in items of other types count as the model's.
"""
