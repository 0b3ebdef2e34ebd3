"""The tables of a result, for the console and as Markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from guard.evaluate.baselines import ALWAYS, TERMS
from guard.evaluate.diagram import plot
from guard.evaluate.matching import AS_RULE
from guard.evaluate.near import NEAR
from guard.evaluate.readings import NOTE
from guard.evaluate.result import GUARD, OWN, ErrorText, Result, Scope, compares_with
from guard.results.estimate import Estimate
from guard.results.table import Table

if TYPE_CHECKING:
    from rich.console import Console

LABELS: Mapping[str, str] = {
    "accuracy": "Acc",
    "f1": "F1",
    "precision": "precision",
    "false_positive_rate": "false positive rate",
    "false_negative_rate": "false negative rate",
    "macro_f1": "macro-F1",
    "auroc": "AUROC",
    "prevalence": "prevalence",
    "cs": "CS (type)",
    "as": "AS (group + attribute)",
    "as_first": "AS, first attribution alone",
    "group": "group",
    "attribute_f1": "attribute F1, found",
    "attribute_f1_all": "attribute F1, all",
    "pair_order": "pair order",
    "overall": "overall",
    "usable": "usable",
    "ece": "ECE",
}
_IN_ROWS = tuple(
    "accuracy f1 macro_f1 auroc false_positive_rate false_negative_rate prevalence".split()
)
# Baselines predict no type, group or probability.
_OF_BASELINES = frozenset((*_IN_ROWS, "precision"))
# The BiasAlert paper's measures, and what its Acc and F1 need beside them.
_SIDE_BY_SIDE = tuple(
    "accuracy f1 cs as overall usable auroc false_positive_rate false_negative_rate "
    "prevalence".split()
)
_MAYBE_IN_ROWS = ("cs", "as", "as_first", "group", "attribute_f1", "pair_order", "overall")
_GROUPS_SHOWN = 20
RELIABILITY = "reliability"


def tables(result: Result) -> list[Table]:
    """Return the tables of one set: measures, publications, readings, points, breakdowns."""
    return [
        _measures_table(result),
        *_published_tables(result),
        *_read_twice(result),
        _points(result),
        *_breakdowns(result),
        *_reliability(result),
    ]


def notes(result: Result) -> list[str]:
    """Return the sentences below the tables: protocol, sampling, skipped and unjudged rows."""
    data = result.dataset
    sentences = [data.protocol]
    if any(e.groups and e.attributes for e in data.examples):
        sentences.append(f"{AS_RULE}.")
    if result.note:
        sentences.append(result.note)
    if result.custom_thresholds:
        sentences.append(
            "The settings of this folder have custom thresholds; the table of operating points "
            "does not use them."
        )
    if result.limit is not None and len(data.examples) < data.total:
        sentences.append(
            f"A random sample of {len(data.examples)} of {data.total} texts (seed {result.seed}), "
            f"for the limit {result.limit}."
        )
    near = Counter(e.axes.get(NEAR) for e in data.examples)
    if near["yes"] or near["no"]:
        n = near["yes"] + near["no"]
        share = f"{near['yes']} of {n} ({near['yes'] / n:.1%})"
        sentences.append(f"Near-duplicates of training texts: {share}.")
    if result.readings:
        clear, read = result.readings.by_readers.n, result.readings.read
        sentences.append(f"{NOTE} They are sure and agree on {clear} of {read} texts.")
    if result.types == "paper":
        sentences.append("Types are the paper's seven: age and appearance count as social.")
    if data.skipped:
        sentences.append(f"{len(data.skipped)} bad rows skipped, the first: {data.skipped[0]}.")
    sentences += _unjudged_notes(result)
    sentences += _instructed(result)
    brackets = "no intervals"
    if result.draws:
        brackets = f"95 % intervals from {result.draws} bootstrap samples (seed {result.seed})"
    sentences.append(
        f"{brackets}; n is each measure's own denominator; nan if it is 0. "
        f"The term list: {result.terms}."
    )
    sentences += _own(result)
    for source in dict.fromkeys(p.source for p in result.published):
        names = ", ".join(p.system for p in result.published if p.source == source)
        sentences.append(f"{names}: {source}.")
    return sentences


def _unjudged_notes(result: Result) -> Iterator[str]:
    """Yield how many texts have no verdict, and why."""
    named = {"Unjudged": result.unjudged}
    if result.beside:
        named[f"Unjudged by {result.beside.detector}"] = result.beside.unjudged
    for name, counts in named.items():
        if counts:
            reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(counts.items()))
            yield f"{name}: {reasons}; they count in usable and overall only."


def _instructed(result: Result) -> Iterator[str]:
    """Yield which parts of the instruction a language model was given."""
    if result.instruction is None:
        return
    switches = asdict(result.instruction)
    kept = [name for name, on in switches.items() if on]
    without = [name for name, on in switches.items() if not on]
    yield (
        f"The model's instruction: {', '.join(['task', *kept])} and template"
        + (f", without {' and '.join(without)}." if without else ".")
    )


def _own(result: Result) -> Iterator[str]:
    """Yield the explanation of the column of the dataset's own threshold, or why it is absent."""
    known = result.dataset.known
    if known is None:
        return
    if not known.validated:
        yield f"No column {OWN}: guard has no validation part of this set to choose one."
    elif result.own is None:
        yield f"No column {OWN}: {result.detector} has none for this set."
    else:
        yield (
            f"{OWN}: {result.own.threshold:g} for all types, the most accurate on the validation "
            "part of this set's training file; these texts were not used for it."
        )
    columns = {GUARD: "not trained on this set"}
    columns |= {OWN: "trained on this set"} if result.own else {}
    for column, why in columns.items():
        names = [p.system for p in result.published if compares_with(p) == column]
        if names:
            yield f"Compare {column} with {', '.join(names)} ({why})."


def heading(result: Result) -> str:
    """Return one line: the dataset, its size and the detector."""
    index = f", index {result.index_version[:12]}" if result.index_version else ""
    return (
        f"{result.dataset.title} ({result.dataset.name}): {result.whole.n} texts, "
        f"{result.detector}{index}, operating point {result.operating_point}"
    )


def show(console: Console, result: Result) -> None:
    """Print one dataset's tables, and the texts of errors if requested."""
    from rich.text import Text

    console.print(Text(heading(result), "bold"))
    for table in (part for whole in tables(result) for part in whole.fitted(console.width)):
        console.print(table.rich("ruled"))
        if table.title == RELIABILITY:
            for line in plot(result.reliability, console.width):
                console.print(Text(line), no_wrap=True, crop=False)
            console.print()
    show_lines(console, notes(result), error_lines(result.errors))


def show_lines(console: Console, notes: Iterable[str], errors: Iterable[str]) -> None:
    """Print the notes and errors below tables."""
    from rich.text import Text

    for note in notes:
        console.print(Text(note, "dim"))
    for line in errors:
        console.print(Text(line))
    console.print()


def markdown(results: Sequence[Result]) -> str:
    """Return the tables of all sets as one Markdown text."""
    lines = ["# Evaluation", ""]
    for result in results:
        lines += [f"## {result.dataset.title}", "", heading(result) + ".", ""]
        for table in tables(result):
            lines += [f"### {table.title}", "", markdown_table(table), ""]
        lines += [f"- {note}" for note in notes(result)]
        lines.append("")
        if result.errors:
            lines += ["### Errors", "", *(f"- {line}" for line in error_lines(result.errors)), ""]
    return "\n".join(lines)


def _measures_table(result: Result) -> Table:
    whole = result.whole
    header = ["measure", "n", GUARD, "95 % interval", *([OWN] if result.own else [])]
    for part in result.parts:
        header += ["n", part.name]
    # Only the first publication: the others would make the table too wide.
    beside = result.published[:1]
    header += [*whole.baselines, *(p.system for p in beside)]
    rows = []
    for name, label in LABELS.items():
        mine = whole.figures[name]
        others = [s.figures[name] for s in result.parts]
        if all(math.isnan(f.value) for f in (mine, *others)):
            continue
        row = [label, str(mine.n), _value(name, mine), interval_text(name, mine)]
        if result.own:
            row.append(_value(name, result.own.figures[name]))
        for figure in others:
            row += [str(figure.n), _with_interval(name, figure)]
        for figures in whole.baselines.values():
            row.append(_value(name, figures[name]) if name in _OF_BASELINES else "")
        rows.append([*row, *(_plain(p.figures.get(name)) for p in beside)])
    return Table.of_figures("all measures", header, rows)


def _published_tables(result: Result) -> Iterator[Table]:
    """Yield the figures of the detector beside it, of baselines and of publications.

    None for a single publication and no other detector: the first table has its column.
    """
    if len(result.published) < 2 and result.beside is None:
        return
    ours = {GUARD: result.whole.figures} | ({OWN: result.own.figures} if result.own else {})
    if result.beside is not None:
        ours[result.beside.detector] = result.beside.figures
    reported = [name for p in result.published for name in p.figures]
    measured = _measured(_SIDE_BY_SIDE, ours.values())
    wanted = dict.fromkeys((*_SIDE_BY_SIDE, *reported))
    named = [name for name in wanted if name in measured or name in reported]
    header = ["system", *(LABELS[name] for name in named), "compares with", "source"]
    rows = [
        [column, *(_value(name, of[name]) for name in named), "", "here"]
        for column, of in ours.items()
    ]
    rows += [
        [
            kind,
            *(_value(name, of[name]) if name in _OF_BASELINES else "" for name in named),
            "",
            "here",
        ]
        for kind, of in result.whole.baselines.items()
    ]
    rows += [
        [p.system, *(_plain(p.figures.get(name)) for name in named), compares_with(p), p.source]
        for p in result.published
    ]
    yield Table.of_figures("side by side", header, rows)


def _read_twice(result: Result) -> Iterator[Table]:
    """Yield the figures by two readers' labels and by the published ones, and who agrees."""
    if result.readings is None:
        return
    scopes = (result.readings.by_readers, result.readings.by_published)
    header = ["measure"]
    for scope in scopes:
        header += ["n", f"by the {scope.name}"]
    rows = []
    for name in _measured(_IN_ROWS, [s.figures for s in scopes]):
        row = [LABELS[name]]
        for scope in scopes:
            row += [str(scope.figures[name].n), _with_interval(name, scope.figures[name])]
        rows.append(row)
    yield Table.of_figures("two readings: where both are sure and agree", header, rows)
    agreed = [
        [f"{a.first} : {a.second}", str(a.n), _limits(a.agreed), _limits(a.kappa)]
        for a in result.readings.agreements
    ]
    yield Table.of_figures("two readings: agreement", ["between", "n", "agreed", "kappa"], agreed)


def _limits(limits: Estimate) -> str:
    return f"{limits.value:.3f} [{limits.low:.3f}, {limits.high:.3f}]"


def _points(result: Result) -> Table:
    measures = _measured(_IN_ROWS, result.points.values())
    rows = []
    for point, figures in result.points.items():
        # The chosen point is marked even if custom thresholds override it.
        chosen = " (chosen)" if point == result.operating_point else ""
        rows.append(
            [f"{point}{chosen}", *_cells(figures, measures), _value("overall", figures["overall"])]
        )
    if result.own:
        figures = result.own.figures
        name = f"{OWN} {result.own.threshold:g}"
        rows.append([name, *_cells(figures, measures), _value("overall", figures["overall"])])
    return Table.of_figures("operating points", ["point", *_labels([*measures, "overall"])], rows)


def _measured(names: Sequence[str], rows: Iterable[Mapping[str, Estimate]]) -> list[str]:
    """Return the measures that are not nan everywhere."""
    rows = list(rows)
    return [name for name in names if any(not math.isnan(figures[name].value) for figures in rows)]


def _breakdowns(result: Result) -> Iterator[Table]:
    for axis, scopes in result.breakdowns.items():
        measures = _measured([*_IN_ROWS, *_MAYBE_IN_ROWS], [s.figures for s in scopes])
        header = [axis, "n", *_labels(measures)]
        header += [f"{baseline} Acc/F1" for baseline in ("always", "terms")]
        shown = scopes[:_GROUPS_SHOWN]
        title = f"by {axis}"
        if len(scopes) > len(shown):
            title += f", the {len(shown)} largest of {len(scopes)} (all with --json)"
        yield Table.of_figures(title, header, [_scope_row(s, measures) for s in shown])


def _reliability(result: Result) -> Iterator[Table]:
    """Yield the reliability diagram as a table; none if all texts have one label."""
    if math.isnan(result.whole.figures["auroc"].value):
        return
    header = ["bin", "n", "mean score", "share biased", "95 % interval"]
    rows = [
        [str(i), str(biased.n), f"{score:.3f}", f"{biased.value:.3f}", interval_text("", biased)]
        for i, (score, biased) in enumerate(result.reliability, start=1)
    ]
    yield Table.of_figures(RELIABILITY, header, rows)


def _scope_row(scope: Scope, measures: Sequence[str]) -> list[str]:
    row = [scope.name, str(scope.n), *_cells(scope.figures, measures)]
    for kind in (ALWAYS, TERMS):
        figures = scope.baselines[kind]
        row.append(f"{_value('accuracy', figures['accuracy'])}/{_value('f1', figures['f1'])}")
    return row


def _labels(measures: Sequence[str]) -> list[str]:
    """Return short column headers; the first table explains them in brackets."""
    return [LABELS[m].split(" (")[0].removesuffix(", found") for m in measures]


def _cells(figures: Mapping[str, Estimate], measures: Sequence[str]) -> list[str]:
    # Two measures have intervals, to show a row's precision; all intervals are in --json.
    return [
        _with_interval(m, figures[m])
        if m in ("accuracy", "false_positive_rate")
        else _value(m, figures[m])
        for m in measures
    ]


def error_lines(errors: Iterable[ErrorText]) -> Iterator[str]:
    """Yield a line for each text whose prediction differs from its label."""
    for e in errors:
        kind = f" as {e.bias_type}" if e.bias_type else ""
        yield f"{e.kind} {e.score:.3f}{kind} {e.id}: {' '.join(e.text.split())}"


def _value(name: str, figure: Estimate) -> str:
    # False positive rates are small: 0.4 % and 0.5 % must be distinguishable.
    return f"{figure.value:.{4 if name == 'false_positive_rate' else 3}f}"


def _with_interval(name: str, figure: Estimate) -> str:
    return f"{_value(name, figure)} {interval_text(name, figure)}".strip()


def interval_text(name: str, figure: Estimate) -> str:
    """Return the interval of the measure ``name``, empty if there is none."""
    if math.isnan(figure.low):
        return ""
    digits = 4 if name == "false_positive_rate" else 3
    return f"[{figure.low:.{digits}f}, {figure.high:.{digits}f}]"


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}".removesuffix("0")


def markdown_table(table: Table) -> str:
    """Return a table as Markdown; its texts are guard's own."""
    return table.markdown(escape=lambda cell: cell.replace("|", "\\|"), rule="---")
