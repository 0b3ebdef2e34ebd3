"""One short program a framework, run in an environment that has it: see ``tests.frameworks``.

A program makes the framework's own objects and returns its cases. What the model says in a case
follows from the first word of its name: ``text``, ``tool`` (a call, then "Done.") or ``json``. Each
has a biased sentence, which a user must not see. A case that ends in ``own client`` uses the
framework's own client, which guard does not see, unless LiteLLM's proxy is between (``behind the
proxy``, where it counts in another process).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import guard
from tests.provider import Provider, Script
from tests.scripted import Scripted

MODEL = "openai/gpt-4o-mini"
OWN, PROXY = ", own client", ", behind the proxy"
BIASED = "BIAS is here."
TOLD = {"to": BIASED, "confirm": False}
FIELDS = {"name": "Ann", "note": BIASED}
SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}, "confirm": {"type": "boolean"}},
    "required": ["to"],
}
ASKED = [{"role": "user", "content": "Tell me."}]
POLICIES = {
    "terminate": guard.Policy(),
    'message=""': guard.Policy(message=""),
    "redact": guard.Policy(action="redact"),
    "raise": guard.Policy(action="raise"),
}


def says(*texts: str) -> Script:
    return Script([list(texts)])


def calls(name: str, arguments: dict[str, Any]) -> Script:
    said = json.dumps(arguments)
    one = {"index": 0, "id": "call_1", "type": "function"}
    deltas: list[Any] = [
        {"tool_calls": [{**one, "function": {"name": name, "arguments": said[:9]}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": said[9:]}}]},
    ]
    whole = {"tool_calls": [{**one, "function": {"name": name, "arguments": said}}]}
    return Script([deltas], message=whole, finish="tool_calls")


SAID = {
    "text": [says("All is well.", f" {BIASED}", " So it goes on.")],
    "tool": [calls("send", TOLD), says("Done.")],
    "json": [says('{"name": "Ann",', f' "note": "{BIASED}"', "}")],
}
PERSON = [calls("Person", FIELDS)]
BEGUN = [
    says('{"name": "Ann lives here.', " She likes tea.", f' All is well.", "note": "{BIASED}"}}')
]
"""JSON of which a beginning may go out."""


class Stage:
    """What a program works with: where the provider is, and what to search for the bias."""

    def __init__(self) -> None:
        self.provider = Provider()
        self.base = self.provider.openai
        self.key = {"api_base": self.base, "api_key": "k"}
        self.kept: list[Any] = []
        """Histories, and what tools were called with."""
        self.running = ExitStack()
        self.reason: object = None
        """What the framework's user can read of why the model ended."""

    def send(self, to: str, confirm: bool = True) -> str:
        """Send a message.

        Args:
            to: Who gets it.
            confirm: Whether to ask first.
        """
        self.kept.append({"to": to, "confirm": confirm})
        return "sent"

    def by_variable(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """Run with the OpenAI client's variable pointing to the provider."""

        def pointed() -> Any:
            os.environ["OPENAI_BASE_URL"] = self.base
            try:
                return run()
            finally:
                del os.environ["OPENAI_BASE_URL"]

        return pointed


class Act(NamedTuple):
    """What to run, and what the model says where that is not what the case's name says."""

    run: Callable[[], Any]
    said: list[Script]


Program = Callable[[Stage], dict[str, Any]]
PROGRAMS: dict[str, Program] = {}
PACKAGES: dict[str, tuple[str, ...]] = {}
"""What a framework's environment has, beside the distribution in the version that is tried."""


def framework(name: str, *packages: str) -> Callable[[Program], Program]:
    def add(program: Program) -> Program:
        PROGRAMS[name], PACKAGES[name] = program, packages
        return program

    return add


def person() -> Any:
    """Return the class of a structured answer; its second field has a default."""
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        note: str = "none"

    return Person


@framework("DSPy")
def _dspy(stage: Stage) -> dict[str, Any]:
    import dspy

    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    lm = dspy.LM(MODEL, engine="litellm", **stage.key)
    native = dspy.LM(MODEL, **stage.key)
    head, end = "[[ ## {} ## ]]\n".format, "\n\n[[ ## completed ## ]]\n"
    text = [says(head("answer"), "All is well.", f" {BIASED}", end)]
    fields = [says(head("name"), "Ann\n\n", head("note"), BIASED, end)]

    def predict(signature: str, lm: Any = lm) -> Any:
        with dspy.context(lm=lm):
            seen = dspy.Predict(signature)(question="Who?")
        stage.kept.append(lm.history)
        if lm is not native:
            stage.reason = lm.history[-1]["response"].choices[0].finish_reason
        return dict(seen.items())

    def streamed() -> Any:
        with dspy.context(lm=lm):
            reader = dspy.streamify(
                dspy.Predict("question -> answer"),
                stream_listeners=[dspy.streaming.StreamListener("answer")],
                async_streaming=False,
            )
            parts = list(reader(question="Who?"))
        return "".join(part.chunk for part in parts[:-1]), parts[-1].answer

    return {
        "text": Act(partial(predict, "question -> answer"), text),
        "text streamed": Act(streamed, text),
        "json": Act(partial(predict, "question -> name, note"), fields),
        f"text{OWN}": Act(partial(predict, "question -> answer", native), text),
    }


@framework("OpenAI Agents SDK")
def _agents(stage: Stage) -> dict[str, Any]:
    from agents import Agent, Runner, function_tool, set_tracing_disabled
    from agents.extensions.models.litellm_model import LitellmModel

    set_tracing_disabled(True)
    model = LitellmModel(MODEL, base_url=stage.base, api_key="k")
    agent = Agent(name="a", model=model, tools=[function_tool(stage.send)])
    typed = Agent(name="a", model=model, output_type=person())
    prefixed = Agent(name="a", model=f"litellm/{MODEL}")
    own = Agent(name="a", model="gpt-4o-mini")

    def run(agent: Any) -> Any:
        result = Runner.run_sync(agent, "Tell me.")
        stage.kept.append(result.to_input_list())
        return result.final_output

    async def stream(agent: Any) -> Any:
        result, deltas = Runner.run_streamed(agent, "Tell me."), []
        async for event in result.stream_events():
            data = getattr(event, "data", None)
            if getattr(data, "type", "") == "response.output_text.delta":
                deltas.append(data.delta)
        stage.kept.append(result.to_input_list())
        return "".join(deltas)

    return {
        "text": partial(run, agent),
        "text by a prefix": stage.by_variable(partial(run, prefixed)),
        "text streamed": partial(stream, agent),
        "tool": partial(run, agent),
        "tool streamed": partial(stream, agent),
        "json": partial(run, typed),
        "json, cut later": Act(partial(run, typed), BEGUN),
        f"text{OWN}": stage.by_variable(partial(run, own)),
    }


@framework("CrewAI")
def _crewai(stage: Stage) -> dict[str, Any]:
    from crewai import LLM, Agent
    from crewai.events import LLMCallCompletedEvent, crewai_event_bus
    from crewai.tools import tool

    base = {"base_url": stage.base, "api_key": "k"}
    llm = LLM(MODEL, is_litellm=True, **base)
    streaming = LLM(MODEL, is_litellm=True, stream=True, **base)
    own = LLM(MODEL, **base)

    @crewai_event_bus.on(LLMCallCompletedEvent)
    def completed(source: Any, event: Any) -> None:
        stage.reason = event.finish_reason

    def call(llm: Any, **more: Any) -> Any:
        try:
            return llm.call("Tell me.", **more)
        finally:
            crewai_event_bus.flush()

    def agent(llm: Any, **more: Any) -> Any:
        made = Agent(role="r", goal="g", backstory="b", llm=llm, tools=[tool(stage.send)])
        try:
            result = made.kickoff("Tell me.", **more)
        finally:
            crewai_event_bus.flush()
        stage.kept.append(result)
        return result.pydantic or result.raw

    typed = partial(agent, llm, response_format=person())
    return {
        "text": partial(call, llm),
        "text streamed": partial(call, streaming),
        "text by an agent": partial(agent, llm),
        "tool by an agent": partial(agent, llm),
        "tool by an agent, streamed": partial(agent, streaming),
        # It has instructor make these, without the address of its LLM.
        "json": Act(stage.by_variable(partial(call, llm, response_model=person())), PERSON),
        "json by an agent": stage.by_variable(typed),
        "json by an agent, cut later": Act(stage.by_variable(typed), BEGUN),
        f"text{OWN}": partial(call, own),
    }


@framework("LlamaIndex", "llama-index-llms-litellm==0.8.0", "llama-index-llms-openai")
def _llamaindex(stage: Stage) -> dict[str, Any]:
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.llms import ChatMessage
    from llama_index.core.prompts import PromptTemplate
    from llama_index.llms.litellm import LiteLLM
    from llama_index.llms.openai import OpenAI

    llm = LiteLLM(model=MODEL, **stage.key)
    own = OpenAI(model="gpt-4o-mini", **stage.key)
    asked = [ChatMessage(role="user", content="Tell me.")]

    def said(answer: Any) -> Any:
        stage.kept.append(answer)
        stage.reason = answer.raw["choices"][0]["finish_reason"]
        return answer.message.content

    async def agent(streaming: bool) -> Any:
        agent = FunctionAgent(tools=[stage.send], llm=llm, streaming=streaming)
        result = await agent.run("Tell me.")
        stage.kept.append(result)
        stage.reason = result.raw["choices"][0]["finish_reason"]
        return result

    return {
        "text": lambda: said(llm.chat(asked)),
        "text streamed": lambda: said(list(llm.stream_chat(asked))[-1]),
        "tool by an agent": partial(agent, False),
        "tool by an agent, streamed": partial(agent, True),
        "json": Act(partial(llm.structured_predict, person(), PromptTemplate("Tell me.")), PERSON),
        f"text{OWN}": lambda: own.chat(asked).message.content,
    }


@framework("instructor")
def _instructor(stage: Stage) -> dict[str, Any]:
    import instructor
    import litellm
    from instructor.v2.core.errors import InstructorRetryException

    asked = {"model": MODEL, "messages": ASKED, "response_model": person(), **stage.key}
    by_tools = instructor.from_litellm(litellm.completion)
    by_json = instructor.from_litellm(litellm.completion, mode=instructor.Mode.JSON)

    def ask(client: Any, **more: Any) -> Any:
        try:
            return client.chat.completions.create(**{**asked, **more})
        except InstructorRetryException as error:
            if error.last_completion is not None:
                stage.reason = error.last_completion.choices[0].finish_reason
            raise

    async def partially() -> Any:  # its synchronous client returns an async generator, too
        client = instructor.from_litellm(litellm.acompletion, mode=instructor.Mode.JSON)
        more = {"response_model": instructor.Partial[person()], "stream": True}
        parts = await client.chat.completions.create(**{**asked, **more})
        return [part async for part in parts][-1]

    def own() -> Any:
        client = instructor.from_provider(MODEL)
        return client.chat.completions.create(response_model=person(), messages=ASKED)

    return {
        "json": partial(ask, by_json),
        "json, cut later": Act(partial(ask, by_json), BEGUN),
        "json, max_retries=0": partial(ask, by_json, max_retries=0),
        "json by a tool call": Act(partial(ask, by_tools), PERSON),
        "json streamed": partially,
        "json streamed, cut later": Act(partially, BEGUN),
        f"json by a tool call{OWN}": Act(stage.by_variable(own), PERSON),
    }


@framework("LangChain", "langchain-litellm==0.11.2", "langchain", "langchain-openai")
def _langchain(stage: Stage) -> dict[str, Any]:
    from langchain.agents import create_agent
    from langchain_litellm import ChatLiteLLM
    from langchain_openai import ChatOpenAI

    chat = ChatLiteLLM(model=MODEL, **stage.key)
    own = ChatOpenAI(model="gpt-4o-mini", base_url=stage.base, api_key="k")
    agent = create_agent(chat, [stage.send])
    asked = {"messages": [("user", "Tell me.")]}
    by_schema = chat.with_structured_output(person(), method="json_schema")

    def said(messages: list[Any]) -> Any:
        stage.kept.append(messages)
        known = [message.response_metadata.get("finish_reason") for message in messages]
        stage.reason = next(filter(None, reversed(known)), None)
        return "".join(message.content for message in messages)

    def stream() -> Any:
        parts = [part for part, _ in agent.stream(asked, stream_mode="messages")]
        stage.kept.append(parts)
        return said([part for part in parts if part.type == "AIMessageChunk"])

    return {
        "text": lambda: said([chat.invoke("Tell me.")]),
        "text streamed": lambda: said(list(chat.stream("Tell me."))),
        "tool by an agent": lambda: said(agent.invoke(asked)["messages"][-1:]),
        "tool by an agent, streamed": stream,
        "json": partial(by_schema.invoke, "Tell me."),
        "json, cut later": Act(partial(by_schema.invoke, "Tell me."), BEGUN),
        "json by a tool call": Act(
            partial(chat.with_structured_output(person()).invoke, "Tell me."), PERSON
        ),
        f"text{OWN}": lambda: own.invoke("Tell me.").content,
    }


@framework("smolagents")
def _smolagents(stage: Stage) -> dict[str, Any]:
    from smolagents import CodeAgent, LiteLLMModel, OpenAIModel, ToolCallingAgent, tool

    model = LiteLLMModel(MODEL, **stage.key)
    own = OpenAIModel("gpt-4o-mini", **stage.key)
    asked = [{"role": "user", "content": [{"type": "text", "text": "Tell me."}]}]
    code = [says("All is well.\n<code>\n", f"final_answer('{BIASED}')", "\n</code>")]
    tools = [calls("send", TOLD), calls("final_answer", {"answer": "Done."})]

    def text(model: Any) -> Any:
        message = model(asked)
        stage.reason = message.raw.choices[0].finish_reason
        return message.content

    def agent(kind: Any, **more: Any) -> Any:
        made = kind(tools=[tool(stage.send)], model=model, verbosity_level=-1, max_steps=2, **more)
        result = made.run("Tell me.")
        stage.kept.append(made.memory.get_full_steps())
        return result

    return {
        "text": partial(text, model),
        "text streamed": lambda: "".join(d.content or "" for d in model.generate_stream(asked)),
        "text by an agent of code": Act(partial(agent, CodeAgent), code),
        "tool by an agent": Act(partial(agent, ToolCallingAgent), tools),
        "tool by an agent, streamed": Act(
            partial(agent, ToolCallingAgent, stream_outputs=True), tools
        ),
        f"text{OWN}": partial(text, own),
    }


@framework("Google ADK")
def _adk(stage: Stage) -> dict[str, Any]:
    from google.adk.agents import LlmAgent
    from google.adk.agents.run_config import RunConfig, StreamingMode
    from google.adk.models.lite_llm import LiteLlm
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    model = LiteLlm(model=MODEL, **stage.key)
    asked = types.Content(role="user", parts=[types.Part(text="Tell me.")])

    async def run(mode: Any, **more: Any) -> Any:
        runner = InMemoryRunner(LlmAgent(name="a", model=model, **more), app_name="a")
        session = await runner.session_service.create_session(app_name="a", user_id="u")
        who = {"user_id": "u", "session_id": session.id, "new_message": asked}
        configured = RunConfig(streaming_mode=mode)
        events = [e async for e in runner.run_async(**who, run_config=configured)]
        stage.kept.append(events)
        last = events[-1]
        stage.reason = last.error_code and f"error_code {last.error_code.name}"
        return [p.text for p in (last.content.parts if last.content else ()) or () if p.text]

    whole, streamed = StreamingMode.NONE, StreamingMode.SSE
    return {
        "text": partial(run, whole),
        "text streamed": partial(run, streamed),
        "tool": partial(run, whole, tools=[stage.send]),
        "tool streamed": partial(run, streamed, tools=[stage.send]),
        "json": partial(run, whole, output_schema=person()),
        "json, cut later": Act(partial(run, whole, output_schema=person()), BEGUN),
    }


@framework("Strands")
def _strands(stage: Stage) -> dict[str, Any]:
    from strands import Agent, tool
    from strands.models.litellm import LiteLLMModel
    from strands.models.openai import OpenAIModel

    base = {"base_url": stage.base, "api_key": "k"}
    model = LiteLLMModel(client_args=base, model_id=MODEL)
    own = OpenAIModel(client_args=base, model_id="gpt-4o-mini")

    def run(model: Any = model, **more: Any) -> Any:
        agent = Agent(model=model, tools=[tool(stage.send)], callback_handler=None)
        result = agent("Tell me.", **more)
        stage.kept.append(agent.messages)
        stage.reason = f"stop_reason {result.stop_reason}"
        return result.structured_output or str(result)

    return {
        "text": run,
        "tool": run,
        "json": Act(partial(run, structured_output_model=person()), PERSON),
        f"text{OWN}": partial(run, own),
    }


@framework("Haystack", "litellm-haystack==2.0.0")
def _haystack(stage: Stage) -> dict[str, Any]:
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import Tool
    from haystack.utils import Secret
    from haystack_integrations.components.generators.litellm import LiteLLMChatGenerator

    base = {"api_key": Secret.from_token("k"), "api_base_url": stage.base}
    chat = LiteLLMChatGenerator(model=MODEL, **base)
    own = OpenAIChatGenerator(model="gpt-4o-mini", **base)
    asked = [ChatMessage.from_user("Tell me.")]
    send = Tool("send", "Send.", SCHEMA, stage.send)

    def said(reply: Any) -> Any:
        stage.kept.append(reply)
        stage.reason = reply.meta["finish_reason"]
        return reply.text

    def streamed() -> Any:
        parts: list[str] = []
        told = chat.run(asked, streaming_callback=lambda chunk: parts.append(chunk.content))
        assert said(told["replies"][0]) == "".join(parts)
        return "".join(parts)

    def agent() -> Any:
        result = Agent(chat_generator=chat, tools=[send]).run(messages=asked)
        stage.kept.append(result)
        return said(result["last_message"])

    return {
        "text": lambda: said(chat.run(asked)["replies"][0]),
        "text streamed": streamed,
        "tool by an agent": agent,
        f"text{OWN}": lambda: said(own.run(asked)["replies"][0]),
    }


@framework("mini-swe-agent")
def _mini_swe_agent(stage: Stage) -> dict[str, Any]:
    os.environ["MSWEA_SILENT_STARTUP"] = "1"
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.litellm_model import LitellmModel
    from tenacity import nap

    nap.time = SimpleNamespace(sleep=lambda seconds: None)  # up to a minute between two tries

    def run() -> Any:
        free = {"cost_tracking": "ignore_errors"}
        model = LitellmModel(model_name=MODEL, model_kwargs=stage.key, **free)
        agent = DefaultAgent(
            model, LocalEnvironment(), system_template="s", instance_template="{{ task }}"
        )
        stage.kept.append(agent)
        status = agent.run("Tell me.")["exit_status"]
        told = [m["extra"]["response"] for m in agent.messages if "response" in m.get("extra", {})]
        stage.reason = told[0]["choices"][0]["finish_reason"]
        stage.kept.append(agent.messages)
        return status

    done = calls("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"})
    return {
        "text": run,
        "tool by an agent": Act(run, [calls("bash", {"command": f"echo '{BIASED}'"}), done]),
    }


@framework("deepeval")
def _deepeval(stage: Stage) -> dict[str, Any]:
    from deepeval.models import GPTModel, LiteLLMModel

    base = {"base_url": stage.base, "api_key": "k"}
    model, own = LiteLLMModel(MODEL, **base), GPTModel("gpt-4o-mini", **base)

    def typed() -> Any:
        return model.generate("Tell me.", schema=person())[0]

    return {
        "text": lambda: model.generate("Tell me.")[0],
        "json": typed,
        "json, cut later": Act(typed, BEGUN),
        f"text{OWN}": lambda: own.generate("Tell me.")[0],
    }


# It imports what langchain-community 0.4 does not have any more.
@framework("ragas", "langchain-community<0.4")
def _ragas(stage: Stage) -> dict[str, Any]:
    import instructor
    import litellm
    from openai import OpenAI
    from ragas.llms import llm_factory

    client = instructor.from_litellm(litellm.completion, mode=instructor.Mode.JSON)
    told = {"provider": "litellm", "adapter": "litellm", "client": client}
    llm = llm_factory(MODEL, **told, **stage.key)
    own = llm_factory("gpt-4o-mini", client=OpenAI(base_url=stage.base, api_key="k"))
    return {
        "json": lambda: llm.generate("Tell me.", person()),
        "json, cut later": Act(lambda: llm.generate("Tell me.", person()), BEGUN),
        f"json{OWN}": lambda: own.generate("Tell me.", person()),
    }


# The proxy of LiteLLM 1.110 is a distribution of its own.
@framework("Anthropic client", "openai", "litellm[proxy]==1.106.2")
def _anthropic(stage: Stage) -> dict[str, Any]:
    from anthropic import Anthropic
    from openai import OpenAI

    from tests.doors.proxy_process import guardrail, running

    key, told = "sk-of-the-tests-and-long-enough", {"messages": ASKED, "max_tokens": 99}
    models = {MODEL: stage.base, "anthropic/claude-sonnet-4-5": stage.provider.anthropic}
    folder = Path("config").resolve()
    folder.mkdir()
    config = {
        "model_list": [
            {
                "model_name": name.partition("/")[2],
                "litellm_params": {"model": name, "api_base": base, "api_key": "k"},
            }
            for name, base in models.items()
        ],
        "general_settings": {"master_key": key},
    }
    rails = f"guardrails:\n{guardrail('bias', default_on=True)}"
    lines = [f"{name}: {json.dumps(value)}" for name, value in config.items()]
    proxy = stage.running.enter_context(running(folder, "\n".join([*lines, rails])))

    def openai(base: str, **more: Any) -> Any:
        client = OpenAI(base_url=base, api_key=key)
        answer = client.chat.completions.create(model="gpt-4o-mini", **told, **more)
        choices = [c for part in (answer if more else [answer]) for c in part.choices]
        stage.reason = choices[-1].finish_reason
        return "".join((c.delta if more else c.message).content or "" for c in choices)

    def responses(base: str) -> Any:
        client = OpenAI(base_url=base, api_key=key)
        answer = client.responses.create(model="gpt-4o-mini", input="Tell me.")
        stage.reason = answer.incomplete_details and answer.incomplete_details.reason
        return answer.output_text

    def anthropic(base: str) -> Any:
        client = Anthropic(base_url=base, api_key=key)
        answer = client.messages.create(model="claude-sonnet-4-5", **told)
        stage.reason = answer.stop_reason
        return answer.content[0].text

    def streamed(base: str) -> Any:
        client = Anthropic(base_url=base, api_key=key)
        with client.messages.stream(model="claude-sonnet-4-5", **told) as stream:
            text = "".join(stream.text_stream)
            stage.reason = stream.get_final_message().stop_reason
        return text

    openais, anthropics = f"{proxy.url}/v1", proxy.url
    return {
        f"text by OpenAI's{PROXY}": partial(openai, openais),
        f"text by OpenAI's, streamed{PROXY}": partial(openai, openais, stream=True),
        f"text by OpenAI's responses{PROXY}": partial(responses, openais),
        f"text{PROXY}": partial(anthropic, anthropics),
        f"text streamed{PROXY}": partial(streamed, anthropics),
        f"text by OpenAI's{OWN}": partial(openai, stage.base),
        f"text{OWN}": partial(anthropic, stage.provider.anthropic),
    }


def _outcome(run: Callable[[], Any]) -> str:
    """Return what the user gets: the result, or the chain of exceptions."""
    try:
        result = run()
        if asyncio.iscoroutine(result):
            result = asyncio.get_event_loop().run_until_complete(result)
        return str(result)
    except Exception as error:
        if os.environ.get("SHOW_ERRORS"):
            traceback.print_exc()
        chain: list[str] = []
        at: BaseException | None = error
        while at is not None and (not chain or chain[-1] != "BiasFound"):
            chain.append(type(at).__name__)
            at = at.__cause__ or at.__context__
        # What is below guard's error differs by how far the framework had come.
        return f"raises {chain[0]}" + (" from BiasFound" if "BiasFound" in chain[1:] else "")


def _written() -> str:
    """Return what the framework wrote to its folder, which is also the home of its user."""
    files = [path for path in Path.cwd().rglob("*") if path.is_file()]
    return "".join(path.read_bytes().decode("latin-1") for path in files)


def main(name: str, when: str) -> None:
    """Run the cases of a framework, with guard installed ``before`` or ``after`` its import."""
    asyncio.set_event_loop(asyncio.new_event_loop())
    stage = Stage()
    stops: list[guard.Decision] = []
    judge = guard.Guard(guard.Policy(), detector=Scripted(), sinks=[stops.append])
    if when == "before":
        guard.install(judge)
    cases = PROGRAMS[name](stage)
    if when == "after":
        guard.install(judge)
    for case, made in cases.items():
        run, said = made if isinstance(made, Act) else (made, SAID[case[:4]])
        for action, policy in POLICIES.items():
            if case.endswith((OWN, PROXY)) and action != "terminate":
                continue
            *first, last = said
            judge.policy = policy
            stage.provider.served.clear()
            stage.provider.scripts, stage.provider.script = first, last
            stage.kept.clear()
            stops.clear()
            stage.reason = None
            before = guard.counts()
            seen = _outcome(run)
            shown = " ".join(seen.replace(guard.Policy().message, "[stop]").split())
            row = {
                "case": case,
                "action": action,
                "requests": len(stage.provider.served),
                "guarded": sum((guard.counts() - before).values()),
                "stops": sum(d.action in ("terminate", "raise") for d in stops),
                "leaked": BIASED in f"{seen} {stage.kept!r} {_written()}",
                "seen": shown + (f" ({stage.reason})" if stage.reason else ""),
            }
            print(f"\nrow {json.dumps(row)}", flush=True)
    stage.running.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # frameworks leave threads behind
