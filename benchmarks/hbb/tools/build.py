"""Builds concept pairs from biased sentences, by the paper's five steps (HBB, section 3.1).

Bias summary, raw concept pair, post-hoc check, context with the first option, second option. The
linter then checks the pair, and a model rewrites the three texts together if it finds faults. Every
answer is written to ``steps.jsonl`` before the next request, so that an interrupted build resumes,
and the file replays a build without calls. The result needs human review.

``python -m benchmarks.hbb.tools.build --from FILE --model MODEL --out FOLDER``, from the
repository's root; ``guard audit run --suite hbb --data FOLDER`` asks the pairs.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console
from rich.progress import Progress

from benchmarks.hbb.tools import lint
from guard.audit.calls import Slot
from guard.audit.models import CallError
from guard.audit.others import open_model
from guard.cli import Number, json_option, stdout_kept
from guard.cli.audit_options import NO_SECONDS, PATH
from guard.datasets.rows import BadRow, FileRow, convert_rows, read_rows
from guard.errors import UsageError
from guard.exit_codes import ExitCode
from guard.suites import Chat, packs
from guard.suites.hbb import pack

STEPS, REJECTED = "steps.jsonl", "rejected.jsonl"
_REWRITES = 2
_ATTEMPTS = 4
_LABELS = {"context": "Context", "option_1": "Sentence 1", "option_2": "Sentence 2"}
_PLAIN = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"'})
# The prompt of Table 12 for each form of source, and the columns of its fields.
_FORMS = (
    ("summary_pair", {"s1": ("sentence_1", "s1"), "s2": ("sentence_2", "s2")}),
    ("summary_question", {"context": ("context",), "question": ("question",)}),
    (
        "summary_stereotype",
        {"category": ("category",), "target": ("target",), "stereotype": ("stereotype",)},
    ),
)
_NEEDED = {"s1", "s2", "context", "question", "stereotype"}

Ask = Callable[[str], Awaitable[str]]
"""Returns a model's answer to a prompt; raises an exception if there is none."""


@dataclass(frozen=True, slots=True)
class Source:
    """A biased sentence or question to build a concept pair from; ``form`` is its prompt."""

    id: str
    form: str
    fields: Mapping[str, str]


class Rejected(Exception):
    """An answer cannot be read, or faults remain; the text says which."""


class Call(NamedTuple):
    """A step's name and its prompt."""

    step: str
    prompt: str


@dataclass(slots=True)
class Built:
    """The result of a build: pairs, sources rejected with the reason, calls that failed."""

    items: list[dict[str, str]] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    calls: int = 0


def sources(path: Path) -> list[Source]:
    """Read sources from a table, JSON lines, or plain text with one stereotype a line.

    Columns are sentence_1 and sentence_2, or context and question, or stereotype and optionally
    category and target. Raises UsageError that names the line and what is missing.
    """
    tabular = path.suffix in (".csv", ".jsonl", ".ndjson")
    given = convert_rows(
        path, read_rows(path) if tabular else _plain(path), _source, None, "Correct the row."
    )
    found = {source.id: source for source in given}
    if not found:
        raise UsageError(f"{path} has no source; give one a line.")
    return list(found.values())


def _plain(path: Path) -> Iterator[FileRow]:
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read {path}: {error}.") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield FileRow(number, {"stereotype": line.strip()})


def _source(row: FileRow) -> Source:
    for form, names in _FORMS:
        fields = {
            key: next((str(row.values[n]).strip() for n in columns if row.values.get(n)), "")
            for key, columns in names.items()
        }
        if all(fields[key] for key in names if key in _NEEDED):
            content = json.dumps([form, fields], sort_keys=True).encode()
            return Source(f"built-{hashlib.sha256(content).hexdigest()[:10]}", form, fields)
    raise BadRow("give sentence_1 and sentence_2, or context and question, or stereotype")


def steps(source: Source, prompts: Mapping[str, str]) -> Generator[Call, str, dict[str, str]]:
    """Yield each call of a source, receive its answer, and return the concept pair.

    Raises Rejected if an answer cannot be read or faults remain after two rewrites.
    """
    opening = prompts["opening"] + "\n\n"
    summary = " ".join(
        (yield Call("summary", opening + _fill(prompts[source.form], source.fields))).split()
    )
    if not summary:
        raise Rejected("summary: the answer is empty")
    prompt = opening + _fill(prompts["concepts"], {"summary": summary})
    raw = _concepts("concepts", (yield Call("concepts", prompt)))
    fields = {"summary": summary, "concept1": raw[0], "concept2": raw[1]}
    check = opening + _fill(prompts["check"], fields)
    one, two = _concepts("check", (yield Call("check", check)))
    story = yield Call("context", _fill(prompts["context"], {"concept1": one}))
    item = {
        "id": source.id,
        "domain": "built",
        "concept_1": one,
        "concept_2": two,
        "context": _labelled("context", story, "Sentence 1"),
        "option_1": _labelled("context", story, "Sentence 2"),
        "option_2": "",
        "summary": summary,
    }
    fields = {"concept2": two, "context": item["context"]}
    second = yield Call("second", _fill(prompts["second"], fields))
    item["option_2"] = _labelled("second", second, "Sentence", bare=True)
    for number in range(_REWRITES + 1):
        faults = [f"{f.field}: {f.message}" for f in lint.lint_item(item)]
        if not faults:
            return item
        if number < _REWRITES:
            listed = "\n".join(f"- {fault}" for fault in faults)
            fields = {**item, "concept1": one, "concept2": two, "faults": listed}
            prompt = _fill(prompts["mend"], fields)
            answer = yield Call(f"mend {number + 1}", prompt)
            item |= {key: _labelled("mend", answer, label) for key, label in _LABELS.items()}
    raise Rejected("; ".join(faults))


def _fill(prompt: str, fields: Mapping[str, str]) -> str:
    """Put ``fields`` into a prompt; other braces, and braces in a field, are left unchanged."""
    names = "|".join(map(re.escape, fields))
    return re.sub(rf"\{{({names})\}}", lambda m: fields[m[1]], prompt)


def _concepts(step: str, answer: str) -> tuple[str, str]:
    """Read ``concept1;concept2`` from an answer."""
    for line in reversed(answer.strip().splitlines()):
        parts = [_tidy(p).strip(" .<>'\"*") for p in re.split(r"[;；]", line)]
        if len(parts) == 2 and all(parts):
            lead = re.compile(r"^(?:final answer|concepts?\s?[12]?)\s*[:：]\s*", re.IGNORECASE)
            return lead.sub("", parts[0]), lead.sub("", parts[1])
    raise Rejected(f"{step}: the answer has no 'concept1;concept2'")


def _labelled(step: str, answer: str, label: str, *, bare: bool = False) -> str:
    """Read the sentence after ``label:``, or the whole answer if it may be ``bare``."""
    plain = re.sub(r"[*_`]+", "", answer.translate(_PLAIN))
    found = re.search(
        rf"{label}\s*:\s*(.+?)(?=\n|\\n|\s(?:Sentence \d|Context)\s*:|$)", plain, re.IGNORECASE
    )
    text = found[1] if found else plain if bare else ""
    text = _tidy(text).strip("'\"<> ")
    if not text:
        raise Rejected(f"{step}: the answer has no '{label}:'")
    return text if text.endswith((".", "!", "?")) else text + "."


def _tidy(text: str) -> str:
    return " ".join(text.translate(_PLAIN).split())


class Steps:
    """The recorded answers, a line each."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / STEPS
        self._known: dict[str, str] = {}
        if self._path.is_file():
            whole = self._path.read_bytes()
            end = whole.rfind(b"\n") + 1
            if end < len(whole):  # an incomplete line of an interrupted run
                with self._path.open("r+b") as file:
                    file.truncate(end)
            self._known = {line["key"]: line["answer"] for line in pack.read_lines(self._path)}

    def known(self, call: Call) -> str | None:
        """Return the recorded answer, None if there is none."""
        return self._known.get(_key(call))

    def add(self, source: Source, call: Call, answer: str) -> None:
        """Record an answer."""
        key = _key(call)
        self._known[key] = answer
        line = {"key": key, "source": source.id, "step": call.step, "answer": answer}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _key(call: Call) -> str:
    return hashlib.sha256(call.prompt.encode("utf-8", "surrogatepass")).hexdigest()[:24]


async def build(
    found: Sequence[Source],
    ask: Ask | None,
    folder: Path,
    *,
    concurrency: int = 4,
    done: Callable[[Source], None] = lambda source: None,
) -> Built:
    """Build a concept pair from each source and write the pack to ``folder``.

    ``ask=None`` uses recorded answers only. The pack has items.jsonl, which audits read,
    rejected.jsonl with the reasons, and steps.jsonl. The next run retries a source whose call
    failed. ``done`` is called after each source.
    """
    prompts = packs.load_pack("hbb").protocol["build"]
    recorded, built = Steps(folder), Built()
    slots = asyncio.Semaphore(concurrency)
    pairs: dict[str, dict[str, str]] = {}

    async def one(source: Source) -> None:
        async with slots:
            try:
                pairs[source.id] = await _build_one(source, prompts, recorded, ask, built)
            except Rejected as error:
                built.rejected[source.id] = str(error)
            except _NoAnswer as error:
                built.failed[source.id] = str(error)
        done(source)

    await asyncio.gather(*(one(source) for source in found))
    order = [source.id for source in found if source.id in pairs]
    built.items = _distinct([pairs[name] for name in order], built.rejected)
    _write(folder / pack.ITEMS, built.items)
    rejected = [(s, built.rejected[s.id]) for s in found if s.id in built.rejected]
    _write(folder / REJECTED, [{"id": s.id, **s.fields, "why": why} for s, why in rejected])
    return built


class _NoAnswer(Exception):
    """A call gave no answer."""


async def _build_one(
    source: Source, prompts: Mapping[str, str], recorded: Steps, ask: Ask | None, built: Built
) -> dict[str, str]:
    walk = steps(source, prompts)
    call = next(walk)
    while True:
        answer = recorded.known(call)
        if answer is None:
            if ask is None:
                raise _NoAnswer(f"{call.step}: no answer is recorded")
            try:
                answer = await ask(call.prompt)
            except UsageError:
                raise
            except Exception as error:
                raise _NoAnswer(f"{call.step}: {error}") from error
            built.calls += 1
            recorded.add(source, call, answer)
        try:
            call = walk.send(answer)
        except StopIteration as end:
            found: dict[str, str] = end.value
            return found


def _distinct(items: list[dict[str, str]], rejected: dict[str, str]) -> list[dict[str, str]]:
    """Return the pairs without repetitions; the linter flags the later of two."""
    while faults := {f.id: f for f in lint.lint(items)}:
        for name, fault in faults.items():
            rejected[name] = f"{fault.field}: {fault.message}"
        items = [item for item in items if item["id"] not in faults]
    return items


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write lines atomically."""
    part = path.with_suffix(".part")
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    part.write_text(text, "utf-8")
    part.replace(path)


@click.command()
@click.option(
    "--from",
    "source",
    required=True,
    type=PATH,
    help="Biased sentences: a CSV, JSON lines, or text with one stereotype per line.",
)
@click.option("--model", help="Any LiteLLM model string, or local:NAME or local:PATH.")
@click.option(
    "--out", required=True, type=PATH, help="Folder of the pack; name it "
    "again to resume, and with guard audit run --data to run it."
)  # fmt: skip
@click.option(
    "--replay", is_flag=True, help="Use only the answers recorded in --out; make no calls."
)
@click.option("--concurrency", type=click.IntRange(1, 100), default=4, show_default=True)
@click.option("--timeout", "timeout_s", type=Number(0.1, wrong=NO_SECONDS), default=120.0)
@json_option
def main(source: Path, out: Path, as_json: bool, **options: Any) -> None:
    """Build concept pairs from biased sentences, with a model.

    A pair that does not pass the linter of the shipped pack is left out, with the reason. Every
    answer is on disk before the next call: run the same command again to resume. Review the result
    before you use it. Exit code 4 means that some requests have no answer.
    """
    if (options["model"] is None) != options["replay"]:
        raise click.UsageError("Use --model, or --replay for recorded answers only.")
    if out.exists() and not out.is_dir():
        raise click.UsageError(f"{out} is not a folder; name one for the pack.")
    try:
        found = sources(source)
        with stdout_kept():
            built = asyncio.run(_build_with(found, out, **options))
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    summary = {
        "pairs": len(built.items),
        "rejected": built.rejected,
        "failed": built.failed,
        "calls": built.calls,
        "folder": str(out),
    }
    if as_json:
        click.echo(json.dumps(summary, ensure_ascii=False))
    else:
        click.echo(
            f"{len(built.items)} concept pairs in {out} from {len(found)} sources; "
            f"{len(built.rejected)} rejected (see rejected.jsonl), {len(built.failed)} without an "
            f"answer, {built.calls} calls."
        )
        for key, why in built.failed.items():
            click.echo(f"{key}: {why}", err=True)
    if built.failed:
        raise click.exceptions.Exit(ExitCode.INCOMPLETE)


async def _build_with(
    found: list[Source],
    out: Path,
    *,
    model: str | None,
    replay: bool,
    concurrency: int,
    timeout_s: float,
) -> Built:
    console = Console(stderr=True)
    opened = None if model is None else open_model(model, timeout_s=timeout_s)
    try:
        ask = None if opened is None else _asking(opened)
        with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
            task = bar.add_task("concept pairs", total=len(found))
            return await build(
                found, ask, out, concurrency=concurrency, done=lambda _: bar.advance(task)
            )
    finally:
        if opened is not None:
            await opened.aclose()


def _asking(model: Any) -> Ask:
    """Return the function that asks ``model``, with retries."""

    async def once(prompt: str, attempt: int) -> str | None:
        request = Chat(({"role": "user", "content": prompt},))
        try:
            return str((await model.ask(request, "", Slot("build", 0, 0))).answer.text)
        except CallError as error:
            if error.fatal:
                raise UsageError(str(error)) from error
            if not error.retryable or attempt == _ATTEMPTS:
                raise
            await asyncio.sleep(max(error.retry_after_s, 0.5 * 2**attempt))
            return None

    async def ask(prompt: str) -> str:
        attempt, answer = 0, None
        while answer is None:
            attempt += 1
            answer = await once(prompt, attempt)
        return answer

    return ask


if __name__ == "__main__":
    main()
