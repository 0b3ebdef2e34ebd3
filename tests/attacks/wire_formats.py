"""What a provider writes for an answer: the events of a stream, or one JSON object, by format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.attacks.case import Answer, Piece, Wire

USAGE = {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16}
Fields = dict[str, Any]


def events(wire: Wire, answer: Answer, *, usage: bool) -> Iterator[tuple[str, Fields | None]]:
    """Yield (name, data) of each event; data None stands for ``[DONE]``. An end may be missing."""
    yield from {"chat": _chat, "text": _text, "responses": _responses, "messages": _messages}[wire](
        answer, usage
    )


def whole(wire: Wire, answer: Answer) -> Fields:
    """Return the answer that the events of an answer amount to."""
    return {
        "chat": _whole_chat,
        "text": _whole_text,
        "responses": _whole_response,
        "messages": _whole_message,
    }[wire](answer)


def error(wire: Wire, answer: Answer) -> tuple[str, Fields]:
    """Return the event of an error in mid-stream, which may quote what was said."""
    said = answer.said(answer.steps[-1][0].choice, answer.steps[-1][0].voice)
    message = f"cannot go on after {said[-200:]}" if answer.quotes else "overloaded"
    if wire == "messages":
        return "error", {"type": "error", "error": {"type": "overloaded_error", "message": message}}
    if wire == "responses":
        return "error", {"type": "error", "code": "server_error", "message": message, "param": None}
    return "", {"error": {"message": message, "type": "server_error", "code": 500}}


def _lasts(answer: Answer) -> set[tuple[int, int, int]]:
    """Return (step, choice, voice) of each voice's last piece; cut answers have some of them."""
    last = {}
    for number, step in enumerate(answer.steps):
        for piece in step:
            last[piece.choice, piece.voice] = number
    return {(number, *key) for key, number in last.items()}


# Chat completions.


def _chunk(choices: list[Fields], **more: Any) -> Fields:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "x"}
    return {**head, "choices": choices, **more}


def _delta(answer: Answer, pieces: list[Piece], begun: set[tuple[int, int]]) -> Fields:
    delta: Fields = {}
    for piece in pieces:
        kind = answer.choices[piece.choice][piece.voice].kind
        if kind == "tool":
            call: Fields = {"index": _tool(answer, piece), "function": {"arguments": piece.text}}
            if piece[:2] not in begun:
                call |= {"id": f"call_{piece.choice}_{piece.voice}", "type": "function"}
                call["function"] = {"name": "f", "arguments": piece.text or ""}
            delta.setdefault("tool_calls", []).append(call)
        else:
            delta["reasoning_content" if kind == "reasoning" else kind] = piece.text
        begun.add(piece[:2])
    return delta


def _tool(answer: Answer, piece: Piece) -> int:
    voices = answer.choices[piece.choice][: piece.voice]
    return sum(voice.kind == "tool" for voice in voices)


def reason(answer: Answer, choice: int) -> str:
    tools = any(voice.kind == "tool" for voice in answer.choices[choice])
    return "tool_calls" if tools else "stop"


def _chat(answer: Answer, usage: bool) -> Iterator[tuple[str, Fields | None]]:
    begun: set[tuple[int, int]] = set()
    spoke: set[int] = set()
    left = {c: {v for k, v in _spoken(answer) if k == c} for c in range(len(answer.choices))}
    lasts = _lasts(answer)
    for number, step in enumerate(answer.steps):
        choices = []
        for c in sorted({p.choice for p in step}):
            delta = _delta(answer, [p for p in step if p.choice == c], begun)
            if c not in spoke:
                delta = {"role": "assistant", **delta}
                spoke.add(c)
            choices.append({"index": c, "delta": delta, "finish_reason": None})
        yield "", _chunk(choices)
        for _, c, v in sorted(key for key in lasts if key[0] == number):
            left[c].discard(v)
            if not left[c] and answer.tidy and answer.ending in ("whole", "stall"):
                yield "", _end(answer, c)
    if answer.ending not in ("whole", "stall"):
        if answer.ending == "unfinished":
            yield "", None
        return
    for c in range(len(answer.choices)):
        if not answer.tidy:
            yield "", _end(answer, c)
    if usage:
        yield "", _chunk([], usage=USAGE)
    yield "", None


def _spoken(answer: Answer) -> set[tuple[int, int]]:
    return {p[:2] for step in answer.steps for p in step}


def _end(answer: Answer, choice: int) -> Fields:
    end = {"index": choice, "delta": {}, "finish_reason": reason(answer, choice)}
    return _chunk([end])


def _whole_chat(answer: Answer) -> Fields:
    choices = []
    for index, voices in enumerate(answer.choices):
        message: Fields = {"role": "assistant", "content": None}
        calls = []
        for v, voice in enumerate(voices):
            if voice.kind == "tool":
                function = {"name": "f", "arguments": voice.written}
                calls.append({"id": f"call_{index}_{v}", "type": "function", "function": function})
            else:
                name = "reasoning_content" if voice.kind == "reasoning" else voice.kind
                message[name] = voice.written
        if calls:
            message["tool_calls"] = calls
        end = reason(answer, index)
        choices.append({"index": index, "message": message, "finish_reason": end})
    return {**_chunk(choices), "object": "chat.completion", "usage": USAGE}


# Text completions.


def _texts(choices: list[Fields]) -> Fields:
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "x"}
    return {**head, "choices": choices}


def _text(answer: Answer, usage: bool) -> Iterator[tuple[str, Fields | None]]:
    def one(index: int, text: str, finish: str | None = None) -> Fields:
        return _texts([{"index": index, "text": text, "logprobs": None, "finish_reason": finish}])

    lasts = _lasts(answer)
    for number, step in enumerate(answer.steps):
        for piece in step:
            yield "", one(piece.choice, piece.text or "")
            last = (number, piece.choice, piece.voice) in lasts
            if last and answer.tidy and answer.ending in ("whole", "stall"):
                yield "", one(piece.choice, "", "stop")
    if answer.ending not in ("whole", "stall"):
        if answer.ending == "unfinished":
            yield "", None
        return
    for index in range(len(answer.choices)):
        if not answer.tidy:
            yield "", one(index, "", "stop")
    if usage:
        yield "", {**_texts([]), "usage": USAGE}
    yield "", None


def _whole_text(answer: Answer) -> Fields:
    choices = [
        {"index": i, "text": voices[0].written, "logprobs": None, "finish_reason": "stop"}
        for i, voices in enumerate(answer.choices)
    ]
    return {**_texts(choices), "usage": USAGE}


# The Responses API. A voice is a part of an item: (output index, part, type of item).

_NAMES = {
    "content": "response.output_text",
    "refusal": "response.refusal",
    "reasoning": "response.reasoning_summary_text",
    "tool": "response.function_call_arguments",
}


def places(answer: Answer) -> list[tuple[int, int]]:
    """Return the item and the part of each voice."""
    out: list[tuple[int, int]] = []
    items: dict[str, int] = {}
    parts: dict[int, int] = {}
    for voice in answer.choices[0]:
        family = {"refusal": "content"}.get(voice.kind, voice.kind)
        item = items.get(family) if answer.together and family != "tool" else None
        if item is None:
            item = items[family] = len(parts)
            parts[item] = 0
        out.append((item, parts[item]))
        parts[item] += 1
    return out


def _part(kind: str, text: str) -> Fields:
    if kind == "reasoning":
        return {"type": "summary_text", "text": text}
    if kind == "refusal":
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _items(answer: Answer, texts: list[str] | None) -> list[Fields]:
    """Return the items of the output, with the voices' ``texts``, or begun and still empty."""
    items: dict[int, Fields] = {}
    for v, (item, _) in enumerate(places(answer)):
        kind = answer.choices[0][v].kind
        status = "in_progress" if texts is None else "completed"
        if kind == "tool":
            said = "" if texts is None else texts[v]
            call = {"type": "function_call", "call_id": f"call_{item}", "name": "f"}
            items[item] = {"id": f"fc_{item}", **call, "arguments": said, "status": status}
            continue
        if kind == "reasoning":
            made = items.setdefault(item, {"id": f"rs_{item}", "type": "reasoning", "summary": []})
        else:
            head = {"id": f"msg_{item}", "type": "message", "role": "assistant"}
            made = items.setdefault(item, {**head, "status": status, "content": []})
        if texts is not None:
            made["summary" if kind == "reasoning" else "content"].append(_part(kind, texts[v]))
    return [items[number] for number in sorted(items)]


def _response(output: list[Fields], status: str) -> Fields:
    usage = {"input_tokens": 7, "output_tokens": 9, "total_tokens": 16}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": "x",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage if status == "completed" else None,
    }


def _responses(answer: Answer, usage: bool) -> Iterator[tuple[str, Fields | None]]:
    count = 0

    def event(name: str, **fields: Any) -> tuple[str, Fields]:
        nonlocal count
        count += 1
        return name, {"type": name, "sequence_number": count, **fields}

    def where(v: int) -> Fields:
        item, part = spots[v]
        fields: Fields = {"item_id": empty[item]["id"], "output_index": item}
        kind = voices[v].kind
        if kind != "tool":
            fields["summary_index" if kind == "reasoning" else "content_index"] = part
        return fields

    def done(v: int) -> Iterator[tuple[str, Fields]]:
        kind, text = voices[v].kind, answer.said(0, v)
        name = {"tool": "arguments", "refusal": "refusal"}.get(kind, "text")
        yield event(f"{_NAMES[kind]}.done", **where(v), **{name: text})
        if kind != "tool":
            family = "reasoning_summary_part" if kind == "reasoning" else "content_part"
            yield event(f"response.{family}.done", **where(v), part=_part(kind, text))
        over.add(v)
        item = spots[v][0]
        if all(other in over for other, spot in enumerate(spots) if spot[0] == item):
            full = _items(answer, [answer.said(0, other) for other in range(len(voices))])[item]
            yield event("response.output_item.done", output_index=item, item=full)

    voices, spots, empty = answer.choices[0], places(answer), _items(answer, None)
    begun: set[int] = set()
    over: set[int] = set()
    lasts = _lasts(answer)
    complete = answer.ending in ("whole", "stall", "unfinished")
    yield event("response.created", response=_response([], "in_progress"))
    for number, step in enumerate(answer.steps):
        for _, v, text in step:
            item = spots[v][0]
            if item not in {spots[b][0] for b in begun}:
                yield event("response.output_item.added", output_index=item, item=empty[item])
            kind = voices[v].kind
            if v not in begun and kind != "tool":
                family = "reasoning_summary_part" if kind == "reasoning" else "content_part"
                yield event(f"response.{family}.added", **where(v), part=_part(kind, ""))
            begun.add(v)
            more = {"logprobs": []} if kind == "content" else {}
            yield event(f"{_NAMES[kind]}.delta", **where(v), delta=text or "", **more)
            if answer.tidy and complete and (number, 0, v) in lasts:
                yield from done(v)
    if not complete:
        return
    if not answer.tidy:
        for v in range(len(voices)):
            yield from done(v)
    if answer.ending != "unfinished":
        full = _items(answer, [voice.written for voice in voices])
        yield event("response.completed", response=_response(full, "completed"))


def _whole_response(answer: Answer) -> Fields:
    return _response(_items(answer, [v.written for v in answer.choices[0]]), "completed")


# Anthropic's messages. A voice is a block.

_BLOCKS = {
    "content": ({"type": "text", "text": ""}, "text_delta", "text"),
    "reasoning": ({"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", ""),
    "tool": ({"type": "tool_use", "name": "f", "input": {}}, "input_json_delta", "partial_json"),
}


def _message(content: list[Fields], stop: str | None) -> Fields:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 1 if stop is None else 9},
    }


def _stop_reason(answer: Answer) -> str:
    return "tool_use" if reason(answer, 0) == "tool_calls" else "end_turn"


def _messages(answer: Answer, usage: bool) -> Iterator[tuple[str, Fields | None]]:
    def event(name: str, **fields: Any) -> tuple[str, Fields]:
        return name, {"type": name, **fields}

    numbers: dict[int, int] = {}  # blocks are numbered in the order in which they begin
    over: set[int] = set()
    lasts = _lasts(answer)
    complete = answer.ending in ("whole", "stall", "unfinished")
    yield event("message_start", message=_message([], None))
    for number, step in enumerate(answer.steps):
        for _, v, text in step:
            kind = answer.choices[0][v].kind
            block, name, field = _BLOCKS[kind]
            if v not in numbers:
                numbers[v] = len(numbers)
                more = {"id": f"toolu_{v}"} if kind == "tool" else {}
                start = {**block, **more}
                yield event("content_block_start", index=numbers[v], content_block=start)
            delta = {"type": name, field or "thinking": text or ""}
            yield event("content_block_delta", index=numbers[v], delta=delta)
            if answer.tidy and complete and (number, 0, v) in lasts:
                over.add(v)
                yield event("content_block_stop", index=numbers[v])
    if not complete:
        return
    for v, index in numbers.items():
        if v not in over:
            yield event("content_block_stop", index=index)
    if answer.ending != "unfinished":
        delta = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
        yield event("message_delta", delta=delta, usage={"output_tokens": 9})
        yield event("message_stop")


def _whole_message(answer: Answer) -> Fields:
    content = []
    for v, voice in enumerate(answer.choices[0]):
        block = dict(_BLOCKS[voice.kind][0])
        if voice.kind == "tool":
            block |= {"id": f"toolu_{v}", "input": json.loads(voice.written)}
        else:
            block["thinking" if voice.kind == "reasoning" else "text"] = voice.written
        content.append(block)
    return _message(content, _stop_reason(answer))
