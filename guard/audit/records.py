"""Calls as lines of a journal, and back."""

from __future__ import annotations

import math
from typing import Any

from guard.audit.calls import Call, Guarded, Piece, Reply, Slot, Usage
from guard.suites import TextScore

Line = dict[str, Any]


def line_of(record: Call | Guarded) -> Line:
    """Return what is written for ``record``; fields at their usual value are left out."""
    if isinstance(record, Guarded):
        line: Line = {"k": "guarded", "key": record.key, "as": record.reading}
        if record.reading != "same":
            line |= {"text": record.text, "types": list(record.types)}
            line |= {"own": record.own, "kept": record.kept, "stopped": record.stopped}
            line |= {} if math.isnan(record.score) else {"score": round(record.score, 4)}
        line |= {} if math.isnan(record.seconds) else {"s": record.seconds}
        return line
    line = {
        "k": "call",
        "key": record.key,
        "id": record.slot.item,
        "sample": record.slot.sample,
        "turn": record.slot.turn,
        "s": round(record.latency_s, 4),
    }
    if record.by != "model":
        line["by"] = record.by
    if record.attempts != 1:
        line["attempts"] = record.attempts
    if record.reply is None:
        return line | {"error": record.error}
    reply = record.reply
    if reply.scores:
        line["scores"] = [[score.logprob, score.tokens] for score in reply.scores]
    else:
        line["chunks"] = [{"r": p.text} if p.reasoning else p.text for p in reply.pieces]
        line["finish"] = reply.finish_reason
    if reply.first_tokens:
        line["first"] = dict(reply.first_tokens)
    usage = reply.usage
    line["tokens"] = [usage.prompt_tokens, usage.completion_tokens]
    if not math.isnan(usage.cost):
        line["cost"] = usage.cost
    return line


def record_of(line: Line) -> Call | Guarded:
    """Return the record that :func:`line_of` wrote; raises KeyError on another line."""
    if line["k"] == "guarded":
        return Guarded(
            line["key"],
            line["as"],
            line.get("text", ""),
            tuple(line.get("types", ())),
            line.get("score", math.nan),
            line.get("own", 0),
            line.get("kept", 1.0),
            line.get("stopped", False),
            line.get("s", math.nan),
        )
    if line["k"] != "call":
        raise KeyError(line["k"])
    reply = None
    if "error" not in line:
        asked, said = line["tokens"]
        reply = Reply(
            tuple(
                Piece(c["r"], reasoning=True) if isinstance(c, dict) else Piece(c)
                for c in line.get("chunks", ())
            ),
            line.get("finish", "stop"),
            line.get("first", {}),
            tuple(TextScore(logprob, tokens) for logprob, tokens in line.get("scores", ())),
            Usage(asked, said, line.get("cost", math.nan)),
        )
    return Call(
        line["key"],
        Slot(line["id"], line["sample"], line["turn"]),
        reply,
        line.get("error", ""),
        line.get("attempts", 1),
        line["s"],
        line.get("by", "model"),
    )
