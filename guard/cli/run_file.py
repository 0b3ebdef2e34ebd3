"""The run file: the options of ``guard audit run`` in ``audit.toml``; the command overrides it.

The table ``[run]`` has a key for each option, spelled as the option with ``_`` for ``-``; an option
that can be repeated is a list. Tables in it take what ``--set`` and ``--guard`` do:
``[run.settings]``, ``[run.analyst_settings]``, ``[run.options.SUITE]`` and ``[run.guard]``. They
are merged with the command's by key; any other option of the command replaces the file's. Paths are
relative to the file. Its other tables are tolerances (:mod:`guard.audit.tolerances`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from guard.cli.audit_options import PATH, STDOUT, AuditOptions, RunTables
from guard.errors import ConfigError

_TABLES_KEY: Final = "guard.cli.run_file"
_VALUES_KEY: Final = "guard.cli.run_file.values"
_TABLES = ("settings", "analyst_settings", "options", "guard")
# Not for a file: tables replace --set and --guard, and the file itself is the --config.
_OF_COMMAND_ONLY = ("json", "config", "set", "guard", "help", "answers")
_SQLITE = "sqlite:///"
# An option of the command -> what it overrides in the file, since both exclude each other.
_OVERRIDES: Mapping[str, Mapping[str, Any]] = {
    "quick": {"size": None, "allocate": "even"},
    "size": {"quick": False},
    "allocate": {"quick": False},
    "models": {"replay": None},
    # What is about the whole run; the same file, given after the merge, has it.
    "shard": {
        "baseline": None, "axes": (), "allowed": (), "fail_on": (), "history": None,
        "release": None, "config": None, "table": None,
    },
    "replay": {
        "models": (), "analyst": None, "scorer": None, "dropped": (), "system": None,
        "api_base": None, "headers": (), "max_calls": None, "max_cost": None,
    },
}  # fmt: skip


def run_file_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the optional argument FILE, whose values are the defaults of its options."""
    argument = click.argument(
        "run_file",
        metavar="[FILE]",
        required=False,
        type=PATH,
        is_eager=True,
        callback=_read_file_argument,
    )
    return argument(command)


def run_or_file_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the argument RUN, a run or the run file that has its folder as ``out``."""
    return click.argument(
        "run", metavar="RUN", type=PATH, is_eager=True, callback=_read_run_argument
    )(command)


def audit_options(**values: Any) -> AuditOptions:
    """Return a command's options with the tables of its run file, without what it overrides.

    A plan has those of a run too: what the run would refuse, the plan refuses.
    """
    context = click.get_current_context()
    if context.command.name == "plan":
        values = {**_options_of_run(context, values["suites"]), **values}
    tables: RunTables = context.meta.get(_TABLES_KEY, RunTables())
    for name, overridden in _OVERRIDES.items():
        if _of_command(context, name):
            values |= {
                other: value
                for other, value in overridden.items()
                if not _of_command(context, other)
            }
    if values.get("replay") is not None and _of_command(context, "replay"):
        tables = replace(tables, settings={}, analyst_settings={})  # a replay sends nothing
    if _of_command(context, "dropped"):
        kept = {k: v for k, v in tables.settings.items() if k not in values["dropped"]}
        tables = replace(tables, settings=kept)
    return AuditOptions(**values, tables=tables)


def _options_of_run(context: click.Context, suites: str) -> dict[str, Any]:
    """Return the values that the options of ``guard audit run`` have by the run file, if any."""
    values = context.meta.get(_VALUES_KEY, {})
    command = _audit_group(context).commands["run"]
    by_name = {
        str(option.name): values[k] for k, option in _options_by_key(command).items() if k in values
    }
    suite = ["--suite", suites]
    with command.make_context("run", suite, context.parent, default_map=by_name) as run_context:
        return run_context.params


def _of_command(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _read_file_argument(
    context: click.Context, _: click.Parameter, place: Path | None
) -> Path | None:
    if place is not None and not context.resilient_parsing:
        _apply_file(context, place)
    return place


def _read_run_argument(context: click.Context, _: click.Parameter, place: Path) -> Path:
    if place.suffix != ".toml" or context.resilient_parsing:
        return place
    table = _apply_file(context, place)
    if "out" not in table:
        raise ConfigError(f"{place}: [run] has no out; add it, or give the run's folder as RUN.")
    context.meta["run_file"] = place
    return place.parent / str(table["out"])


def run_file_of_report() -> Path | None:
    """Return the run file that the current command was given as RUN, if any."""
    place: Path | None = click.get_current_context().meta.get("run_file")
    return place


def _apply_file(context: click.Context, place: Path) -> Mapping[str, Any]:
    """Make the values of the run file at ``place`` the defaults of the command's options."""
    from guard.audit.tolerances import load_tolerances, tables_of

    table = tables_of(place).get("run", {})
    load_tolerances(
        place
    )  # its tolerances and floors are checked, whether this command needs them or not
    commands = _audit_group(context).commands
    options = {**_options_by_key(commands["plan"]), **_options_by_key(commands["run"])}
    context.meta[_TABLES_KEY] = _run_tables(table, place, options)
    values = context.meta[_VALUES_KEY] = _option_values(table, place, options, context)
    own = _options_by_key(context.command)
    context.default_map = {str(own[k].name): value for k, value in values.items() if k in own}
    return table


def _audit_group(context: click.Context) -> click.Group:
    assert context.parent is not None
    group = context.parent.command
    assert isinstance(group, click.Group)
    return group


def _options_by_key(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command by their key in a file."""
    return {
        name.removeprefix("--").replace("-", "_"): param
        for param in command.params
        if isinstance(param, click.Option)
        for name in param.opts
        if name.startswith("--") and name.removeprefix("--") not in _OF_COMMAND_ONLY
    }


def _run_tables(table: Mapping[str, Any], place: Path, options: Mapping[str, Any]) -> RunTables:
    for key in table:
        if key not in options and key not in _TABLES:
            raise ConfigError(f"{place}: [run] has no key {key!r}; {_near_key(key, options)}")
    tables = {name: _as_table(table.get(name, {}), f"{place}: [run.{name}]") for name in _TABLES}
    for name in ("settings", "analyst_settings"):
        for key, value in tables[name].items():
            _refuse_times(value, f"{place}: [run.{name}] {key}")
    suites = _suite_names(table.get("suite", ()))
    for suite, suite_options in tables["options"].items():
        where = f"{place}: [run.options.{suite}]"
        if suite not in suites:
            near = f"; did you mean {n[0]}?" if (n := get_close_matches(suite, suites, 1)) else "."
            raise ConfigError(f"{where} is of no suite in [run] suite{near}")
        values = dict(_as_table(suite_options, where))
        if isinstance(values.get("data"), str):
            values["data"] = str(place.parent / values["data"])
        tables["options"] = {**tables["options"], suite: values}
    _check_guard(tables["guard"], f"{place}: [run.guard]")
    return RunTables(**tables)


def _check_guard(values: Mapping[str, Any], where: str) -> None:
    from guard.config import policy_from

    policy_from(values, where=where)


def _near_key(key: str, options: Mapping[str, Any]) -> str:
    known = [*options, *_TABLES]
    # "models" and "fail-on" are what people write first.
    near = get_close_matches(key.replace("-", "_"), known, n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}."


def _as_table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where} must be a table, got {value!r}.")
    return value


def _refuse_times(value: Any, where: str) -> None:
    try:
        json.dumps(value)
    except TypeError:
        raise ConfigError(f"{where} takes what JSON has, got {value}; quote a date.") from None


def _suite_names(value: Any) -> list[str]:
    texts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
    return [name.strip() for text in texts for name in str(text).split(",")]


def _option_values(
    table: Mapping[str, Any],
    place: Path,
    options: Mapping[str, click.Option],
    context: click.Context,
) -> dict[str, Any]:
    """Return the checked values of ``[run]`` by key, as the options' defaults."""
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in _TABLES:
            continue
        option, where = options[key], f"{place}: [run] {key}"
        if key == "suite":
            values[key] = ",".join(_as_texts(value, where))
            if context.command.name == "report":
                values[key] = [name for name in _suite_names(value) if ":" in name]
        elif option.multiple:
            values[key] = [
                _beside_file(text, option, place.parent) for text in _as_texts(value, where)
            ]
        else:
            values[key] = _beside_file(
                _checked_value(value, option, where, context), option, place.parent
            )
    return values


def _as_texts(value: Any, where: str) -> list[str]:
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise ConfigError(f"{where} takes a text or a list of texts, got {value!r}.")
    return texts


def _checked_value(value: Any, option: click.Option, where: str, context: click.Context) -> Any:
    """Return ``value`` if it is of the option's type and range."""
    kind: tuple[type, ...] = (str,)
    what = "a text"
    if option.is_flag:
        kind, what = (bool,), "true or false"
    elif isinstance(option.type, click.types.IntParamType):
        kind, what = (int,), "a whole number"
    elif isinstance(option.type, click.types.FloatParamType):
        kind, what = (int, float), "a number"
    if not isinstance(value, kind) or (isinstance(value, bool) and not option.is_flag):
        raise ConfigError(f"{where} takes {what}, got {value!r}.")
    try:
        option.type.convert(value, option, context)
    except click.BadParameter as error:
        raise ConfigError(f"{where}: {error.message.rstrip('.')}.") from None
    return value


def _beside_file(value: Any, option: click.Option, folder: Path) -> Any:
    """Return ``value``, with a path in it relative to ``folder``."""
    if option.type is PATH:
        return value if value == str(STDOUT) else str(folder / value)
    if option.name == "history":
        if "://" not in value:
            return str(folder / value)
        path = value.removeprefix(_SQLITE)
        return f"{_SQLITE}{folder / path}" if value.startswith(_SQLITE) else value
    if option.name in ("models", "analyst", "embedder"):
        scheme, colon, path = value.partition(":")
        local = scheme == "local" and bool(colon)
        place = folder / (path if local else value)
        if (local or option.name == "embedder") and place.is_dir():
            return f"local:{place}" if local else str(place)
    return value
