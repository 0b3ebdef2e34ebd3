"""Whose words a citation is: of the source, or of the model, by provider; streamed and whole.

The words of a source (a document of the customer's, a page of the web, the output of a tool) are
not judged. What repeats the answer is, and so is all that is not known to be a source's.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import litellm
import pytest

from guard.core import Guard
from guard.doors.litellm import compat
from guard.policy import Policy
from tests.doors import replay as r
from tests.doors.table import arun
from tests.doors.versions import since
from tests.provider import Provider, Script
from tests.rows import rows
from tests.scripted import Scripted
from tests.wire_formats import bedrock_event

# The table says what LiteLLM passes on since then.
pytestmark = [
    since(compat.ALL_DOORS),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),
]

TEXT, CLEAN = "quagmire BIAS zephyr", "The weather is fine."
ADDRESS = "https://a.example/?q=quagmire+BIAS+zephyr"
SOURCE, MODEL = "the source's", "the model's"


class Cited(NamedTuple):
    """An answer that carries a text beside what it says, whole and streamed."""

    whose: str
    model: str
    whole: Any
    events: list[dict[str, Any]] | list[bytes]
    function: str = "completion"


def chat(whose: str, model: str = "openai/gpt-4o", top: Any = None, **message: Any) -> Cited:
    """A chat of OpenAI's format with more fields in its message, or around its choices."""
    head = {"id": "c", "created": 1, "model": "x", "service_tier": "default", **(top or {})}
    said = {"role": "assistant", "content": CLEAN, **message}
    whole = {"index": 0, "finish_reason": "stop", "message": said}
    counted = {"usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}

    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return {**head, "object": "chat.completion.chunk", "choices": choices, **more}

    content = message.pop("content", CLEAN)
    first, second = (content, "") if isinstance(content, list) else (CLEAN[:11], CLEAN[11:])
    events = [
        chunk({"role": "assistant", "content": first}),
        chunk({"content": second, **message}),
        chunk({}, "stop"),
    ]
    answer = {**head, "object": "chat.completion", "choices": [whole], **counted}
    return Cited(whose, model, answer, events)


def around(whose: str, model: str, **top: Any) -> Cited:
    return chat(whose, model, top)


def url_citation(**fields: Any) -> dict[str, Any]:
    place = {"start_index": 0, "end_index": 5, "url": "https://a.example", "title": "A"}
    return {"annotations": [{"type": "url_citation", "url_citation": {**place, **fields}}]}


def anthropic(
    whose: str, *blocks: dict[str, Any], function: str = "completion", **cited: Any
) -> Cited:
    """A message with a citation of the fields ``cited``, and other blocks before it."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"}
    place = {"type": "char_location", "document_index": 0, "start_char_index": 0}
    citation = {**place, "end_char_index": 4, "cited_text": "Fine.", **cited}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**head, "content": [], "usage": usage}}
    ]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    at, begun = {"index": len(blocks)}, {"type": "text", "text": "", "citations": []}
    said = {"type": "text_delta", "text": CLEAN}
    quoted = {"type": "citations_delta", "citation": citation}
    events += [
        {"type": "content_block_start", **at, "content_block": begun},
        {"type": "content_block_delta", **at, "delta": said},
        {"type": "content_block_delta", **at, "delta": quoted},
        {"type": "content_block_stop", **at},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]
    text = {"type": "text", "text": CLEAN, "citations": [citation]}
    whole = {**head, "content": [*blocks, text], "stop_reason": "end_turn", "usage": usage}
    return Cited(whose, "anthropic/claude-sonnet-4-5", whole, events, function)


def searched(**found: Any) -> dict[str, Any]:
    page = {"type": "web_search_result", "url": "https://a.example", "title": "A", **found}
    return {"type": "web_search_tool_result", "tool_use_id": "s", "content": [page]}


RAN = {
    "type": "bash_code_execution_tool_result",
    "tool_use_id": "s",
    "content": {"type": "bash_code_execution_result", "stdout": TEXT, "return_code": 0},
}


def bedrock(whose: str, text: str = "So it goes.", **cited: Any) -> Cited:
    citation = {"title": "A", "source": "a", "location": {"web": {"url": "https://a.example"}}}
    block = {"content": [{"text": text}], "citations": [{**citation, **cited}]}
    counts = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    said = [{"text": CLEAN}, {"citationsContent": block}]
    whole = {
        "output": {"message": {"role": "assistant", "content": said}},
        "stopReason": "end_turn",
        "usage": counts,
        "metrics": {"latencyMs": 1},
    }
    deltas = [{"text": CLEAN}, {"citationsContent": block}]
    events = [
        bedrock_event("messageStart", {"role": "assistant"}),
        *(
            bedrock_event("contentBlockDelta", {"delta": delta, "contentBlockIndex": n})
            for n, delta in enumerate(deltas)
        ),
        bedrock_event("messageStop", {"stopReason": "end_turn"}),
        bedrock_event("metadata", {"usage": counts, "metrics": {"latencyMs": 1}}),
    ]
    return Cited(whose, "bedrock/converse/amazon.nova-pro-v1:0", whole, events)


def gemini(whose: str, **candidate: Any) -> Cited:
    content = {"role": "model", "parts": [{"text": CLEAN}]}
    one = {"content": content, "finishReason": "STOP", "index": 0, **candidate}
    counts = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    answer = {"candidates": [one], "usageMetadata": counts, "modelVersion": "x"}
    return Cited(whose, "gemini/gemini-2.0-flash", answer, [answer])


def grounded(whose: str, **metadata: Any) -> Cited:
    support = {"segment": {"startIndex": 0, "endIndex": 20, "text": CLEAN}}
    web = {"web": {"uri": "https://a.example", "title": "A"}}
    base = {
        "webSearchQueries": ["weather"],
        "groundingChunks": [web],
        "groundingSupports": [{**support, "groundingChunkIndices": [0]}],
    }
    return gemini(whose, groundingMetadata={**base, **metadata})


def cohere(whose: str, **citation: Any) -> Cited:
    document = {"type": "document", "id": "d", "document": {"id": "d", "title": "A"}}
    cited = {"start": 4, "end": 11, "text": "weather", "sources": [document], **citation}
    said = [{"type": "text", "text": CLEAN}]
    counts = {"tokens": {"input_tokens": 1, "output_tokens": 1}}
    whole = {
        "id": "c",
        "message": {"role": "assistant", "content": said, "citations": [cited]},
        "finish_reason": "COMPLETE",
        "usage": counts,
    }
    # LiteLLM reads lines of JSON here.
    events = [
        {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": CLEAN}}}},
        {"event": "citation-start", "data": {"delta": {"message": {"citations": cited}}}},
        {"event": "message-end", "data": {"delta": {"finish_reason": "COMPLETE"}}},
    ]
    raw = [json.dumps(event).encode() + b"\n" for event in events]
    return Cited(whose, "cohere_chat/v2/command-r", whole, raw)


def responses(whose: str, *items: dict[str, Any], top: Any = None, **annotation: Any) -> Cited:
    told = {"type": "url_citation", "start_index": 0, "end_index": 1, "url": "https://a.example"}
    cited = {**told, "title": "A", **annotation}
    part = {"type": "output_text", "text": CLEAN, "annotations": [cited]}
    named = {"id": "m", "type": "message", "role": "assistant", "status": "completed"}
    output = [*items, {**named, "content": [part]}]
    head = {"id": "r", "object": "response", "created_at": 1, "model": "x", "tools": []}
    head |= {"parallel_tool_calls": True, "tool_choice": "auto"}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    whole = {**head, "status": "completed", "output": output, "usage": usage, **(top or {})}
    begun = {**head, "status": "in_progress", "output": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    where = {"item_id": "m", "output_index": len(items), "content_index": 0}
    for number, item in enumerate(output):
        done = {"type": "response.output_item.done", "output_index": number, "item": item}
        if item is output[-1]:
            added = {"type": "response.output_text.annotation.added", "annotation_index": 0}
            events.append({"type": "response.output_text.delta", **where, "delta": CLEAN})
            events.append({**added, **where, "annotation": cited})
        events.append(done)
    events.append({"type": "response.completed", "response": whole})
    numbered = [{**event, "sequence_number": n} for n, event in enumerate(events)]
    return Cited(whose, "openai/gpt-4o", whole, numbered, "responses")


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"id": "i", "type": kind, "status": "completed", **fields}


def databricks(whose: str, text: str = CLEAN, **cited: Any) -> Cited:
    citation = {"type": "document_location", "title": "A", **cited}
    said = {"type": "text", "text": text}
    streamed = chat(whose, "databricks/x", content=[{**said, "citations": [[citation]]}])
    whole = chat(whose, content=[{**said, "citations": [citation]}]).whole
    return streamed._replace(whole=whole)


SEARCHED = {"title": "A", "url": "https://a.example", "snippet": "So."}
AZURE = {"title": "A", "url": "https://a.example", "filepath": "a.md", "chunk_id": "0"}
MESSAGES = {"function": "messages"}
TABLE: dict[str, Cited] = {
    # OpenAI's chats, and what its gateways add.
    "openai: title of a page": chat(SOURCE, **url_citation(title=TEXT)),
    "openai: address of a page": chat(SOURCE, **url_citation(url=ADDRESS)),
    "openai: unknown field of a citation": chat(MODEL, **url_citation(comment=TEXT)),
    "openai: unknown annotation": chat(MODEL, annotations=[{"type": "note", "text": TEXT}]),
    "openai: file": chat(SOURCE, annotations=[{"type": "file_citation", "filename": TEXT}]),
    "openrouter: text of a page": chat(SOURCE, "openrouter/x", **url_citation(content=TEXT)),
    "openrouter: the user's file": chat(
        SOURCE,
        "openrouter/x",
        annotations=[
            {"type": "file", "file": {"name": "a", "content": [{"type": "text", "text": TEXT}]}}
        ],
    ),
    # Answers with search.
    "perplexity: addresses": around(SOURCE, "perplexity/sonar", citations=[ADDRESS]),
    "perplexity: results": around(
        SOURCE, "perplexity/sonar", search_results=[{**SEARCHED, "snippet": TEXT}]
    ),
    "perplexity: a citation that is no address": around(
        MODEL, "perplexity/sonar", citations=[TEXT]
    ),
    "perplexity: questions": around(MODEL, "perplexity/sonar", related_questions=[TEXT]),
    "xai: addresses": around(SOURCE, "xai/grok-4", citations=[ADDRESS]),
    "zai: pages": around(SOURCE, "zai/glm-4.6", web_search=[{**SEARCHED, "content": TEXT}]),
    "azure: document": chat(SOURCE, context={"citations": [{**AZURE, "content": TEXT}]}),
    "azure: title of a document": chat(SOURCE, context={"citations": [{**AZURE, "title": TEXT}]}),
    "azure: retrieved document": chat(
        SOURCE, context={"all_retrieved_documents": [{**AZURE, "content": TEXT}]}
    ),
    "azure: search query": chat(
        MODEL, context={"all_retrieved_documents": [{**AZURE, "search_queries": [TEXT]}]}
    ),
    "azure: intent": chat(MODEL, context={"citations": [AZURE], "intent": TEXT}),
    "groq: output of a tool": chat(
        SOURCE, "groq/compound", executed_tools=[{"index": 0, "type": "search", "output": TEXT}]
    ),
    "groq: results": chat(
        SOURCE,
        "groq/compound",
        executed_tools=[{"index": 0, "search_results": {"results": [{"content": TEXT}]}}],
    ),
    "groq: input of a tool": chat(
        MODEL, "groq/compound", executed_tools=[{"index": 0, "arguments": TEXT}]
    ),
    "databricks: title": databricks(SOURCE, title=TEXT),
    "databricks: unknown field of a citation": databricks(MODEL, comment=TEXT),
    # Anthropic, as a chat and as messages.
    "anthropic: quotation": anthropic(SOURCE, cited_text=TEXT),
    "anthropic: title of a document": anthropic(SOURCE, document_title=TEXT),
    "anthropic: source of a result": anthropic(SOURCE, source=TEXT, title=TEXT),
    "anthropic: unknown field of a citation": anthropic(MODEL, comment=TEXT),
    "anthropic: page": anthropic(SOURCE, searched(title=TEXT)),
    "anthropic: output of a tool": anthropic(SOURCE, RAN),
    "messages: quotation": anthropic(SOURCE, cited_text=TEXT, **MESSAGES),
    "messages: title of a document": anthropic(SOURCE, document_title=TEXT, **MESSAGES),
    "messages: source of a result": anthropic(SOURCE, source=TEXT, title=TEXT, **MESSAGES),
    "messages: unknown field of a citation": anthropic(MODEL, comment=TEXT, **MESSAGES),
    "messages: page": anthropic(SOURCE, searched(title=TEXT), **MESSAGES),
    "messages: output of a tool": anthropic(SOURCE, RAN, **MESSAGES),
    # Amazon, Google, Cohere.
    "bedrock: title": bedrock(SOURCE, title=TEXT),
    "bedrock: source": bedrock(SOURCE, source=TEXT),
    "bedrock: document": bedrock(SOURCE, sourceContent=[{"text": TEXT}]),
    "bedrock: cited passage of the answer": bedrock(MODEL, TEXT),
    "bedrock: unknown field of a citation": bedrock(MODEL, comment=TEXT),
    "gemini: title of a page": grounded(SOURCE, groundingChunks=[{"web": {"title": TEXT}}]),
    "gemini: the customer's document": grounded(
        SOURCE, groundingChunks=[{"retrievedContext": {"title": "A", "text": TEXT}}]
    ),
    "gemini: suggestions": grounded(SOURCE, searchEntryPoint={"renderedContent": TEXT}),
    "gemini: passage of the answer": grounded(
        MODEL, groundingSupports=[{"segment": {"text": TEXT}, "groundingChunkIndices": [0]}]
    ),
    "gemini: search query": grounded(MODEL, webSearchQueries=[TEXT]),
    "gemini: search query of a word": grounded(MODEL, webSearchQueries=["BIAS"]),
    "gemini: recited source": gemini(
        SOURCE, citationMetadata={"citationSources": [{"uri": ADDRESS, "title": TEXT}]}
    ),
    "cohere: document": cohere(
        SOURCE,
        sources=[{"type": "document", "id": "d", "document": {"title": TEXT, "snippet": TEXT}}],
    ),
    "cohere: output of a tool": cohere(
        SOURCE, sources=[{"type": "tool", "id": "t", "tool_output": {"said": TEXT}}]
    ),
    "cohere: passage of the answer": cohere(MODEL, text=TEXT),
    # The Responses API.
    "responses: title of a page": responses(SOURCE, title=TEXT),
    "responses: file": responses(SOURCE, type="file_citation", filename=TEXT, file_id="f"),
    "responses: unknown field of a citation": responses(MODEL, comment=TEXT),
    "responses: passage of a file": responses(
        SOURCE, item("file_search_call", queries=["a"], results=[{"file_id": "f", "text": TEXT}])
    ),
    "responses: query in files": responses(MODEL, item("file_search_call", queries=[TEXT])),
    "responses: page": responses(
        SOURCE,
        item(
            "web_search_call",
            action={"type": "search", "query": "a", "sources": [{"type": "url", "url": TEXT}]},
        ),
    ),
    "responses: search query": responses(
        MODEL, item("web_search_call", action={"type": "search", "query": TEXT})
    ),
    "responses: addresses": responses(SOURCE, top={"citations": [ADDRESS]}),
    "responses: results of Perplexity": responses(
        SOURCE, item("search_results", queries=["a"], results=[{**SEARCHED, "snippet": TEXT}])
    ),
    "responses: query of Perplexity": responses(
        MODEL, item("search_results", queries=[TEXT], results=[SEARCHED])
    ),
}


def call(cited: Cited, provider: Provider) -> dict[str, Any]:
    asked: dict[str, Any] = {"model": cited.model, "api_key": "k", "max_retries": 0}
    if cited.function == "responses":
        return {**asked, "api_base": provider.openai, "input": "Tell me."}
    asked["messages"] = r.MESSAGES
    if cited.function == "messages":
        asked["max_tokens"] = 9
    if cited.model.startswith("bedrock"):
        keys = {"aws_access_key_id": "k", "aws_secret_access_key": "k"}
        at = {"aws_bedrock_runtime_endpoint": provider.anthropic, "aws_region_name": "us-east-1"}
        return {"model": cited.model, "messages": r.MESSAGES, **keys, **at}
    own = cited.model.startswith(("anthropic", "gemini", "cohere"))
    return {**asked, "api_base": provider.anthropic if own else provider.openai}


def play(cited: Cited, provider: Provider) -> None:
    raw = cited.events if isinstance(cited.events[0], bytes) else None
    provider.script = Script(answer=cited.whole, events=cited.events, raw=raw)  # type: ignore[arg-type]


def plain(cited: Cited, provider: Provider, *, stream: bool) -> str:
    """What LiteLLM alone gives."""
    play(cited, provider)
    name = "anthropic_messages" if cited.function == "messages" else f"a{cited.function}"

    async def run() -> list[Any]:
        answer = await getattr(litellm, name)(**call(cited, provider), stream=stream)
        return [chunk async for chunk in answer] if stream else [answer]

    return bare(arun(run()))


def bare(out: list[Any]) -> str:
    return str([one.model_dump() if hasattr(one, "model_dump") else one for one in out])


def guarded(cited: Cited, provider: Provider, *, stream: bool) -> tuple[str, Any]:
    play(cited, provider)
    one = Guard(Policy(), detector=Scripted())

    async def run() -> tuple[list[Any], Any]:
        answer = await getattr(one, f"a{cited.function}")(**call(cited, provider), stream=stream)
        return [chunk async for chunk in answer] if stream else [answer], answer.guard

    out, trail = arun(run())
    return bare(out), trail


def reaches(cited: Cited, provider: Provider, *, stream: bool) -> bool:
    """Whether LiteLLM alone gives the text; it leaves some out, and raises at others."""
    try:
        return "BIAS" in plain(cited, provider, stream=stream)
    except Exception:
        return False


@rows("name", TABLE)
def test_the_words_of_a_source_pass_and_the_models_are_judged(
    provider: Provider, name: str
) -> None:
    cited = TABLE[name]
    forms = [form for form in (False, True) if reaches(cited, provider, stream=form)]
    assert forms
    for stream in forms:
        said, trail = guarded(cited, provider, stream=stream)
        assert trail.stopped == (cited.whose == MODEL)
        assert ("BIAS" in said) == (cited.whose == SOURCE)


@rows(
    "name", ["anthropic: quotation", "gemini: suggestions", "cohere: document", "databricks: title"]
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_passage_of_the_answer_that_a_citation_repeats_is_judged_once(
    provider: Provider, name: str, stream: bool
) -> None:
    _, trail = guarded(TABLE[name], provider, stream=stream)
    words = (d for d in trail if d.channel == (0, "content", 0))
    queries = name.startswith("gemini")  # a search query is no part of the answer
    assert len(list(words)) == len(trail) - queries == 1
