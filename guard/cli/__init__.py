"""The command line: one small module for each command, imported when the command runs."""

from __future__ import annotations

import importlib
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import wraps
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import click

from guard import __version__
from guard.errors import BiasIndexError, GuardError, UsageError, WeightsError
from guard.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

# Command -> its module and one line of help: `guard --help` imports no command.
_COMMANDS = {
    "audit": ("guard.cli.audit", "Run bias suites against a model, plain and guarded."),
    "bench": ("guard.cli.bench", "Measure what the guard itself costs."),
    "check": ("guard.cli.check", "Judge text: biased or not, which group, on what evidence."),
    "dashboard": ("guard.cli.dashboard", "Show a store of events as a local web page."),
    "demo": ("guard.cli.demo", "Watch guarded streams being written, and a biased one cut."),
    "doctor": ("guard.cli.doctor", "Report what is installed, verified and missing."),
    "eval": ("guard.cli.eval", "Measure the detector on labelled data, with intervals."),
    "events": ("guard.cli.events", "Manage a store of events: stats, forget, prune."),
    "index": ("guard.cli.index", "Manage a bias index: build, add, remove, search, stats."),
    "models": ("guard.cli.models", "Download models that run on this machine."),
    "rates": ("guard.cli.rates", "Report how much bias was found and stopped, and if it rose."),
    "review": ("guard.cli.review", "Mark sampled decisions; see what guard misses or overblocks."),
    "serve": ("guard.cli.serve", "Serve a detector over HTTP to guards in other processes."),
    "suites": ("guard.cli.suites", "List the bias suites."),
    "train": ("guard.cli.train", "Train a detector, an adapter or a band (in a checkout)."),
}


_Command = TypeVar("_Command", bound=Callable[..., Any])
_Options = TypeVar("_Options")


def with_options(*options: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Give a command these options, in their order."""

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def takes(
    make: Callable[..., _Options],
) -> Callable[[Callable[[_Options], None]], Callable[..., None]]:
    """Have a command take its options as one value, which ``make`` makes of click's values."""

    def wrap(command: Callable[[_Options], None]) -> Callable[..., None]:
        @wraps(command)
        def with_values(**values: Any) -> None:
            command(make(**values))

        return with_values

    return wrap


class Number(click.FloatRange):
    """A finite number of at least ``low``: click's own range lets nan pass.

    ``wrong`` says what another value is.
    """

    def __init__(
        self,
        low: float,
        high: float | None = None,
        *,
        min_open: bool = False,
        wrong: str = "no number",
    ) -> None:
        super().__init__(low, high, min_open)
        self._wrong = wrong

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is {self._wrong}.", param, ctx)
        return number


# Not click.Choice: guard.places lists the names, and the error for an unknown name has them.
detector_option = click.option(
    "--detector",
    metavar="NAME",
    help="The detector that judges: encoder, encoder-small, cascade, generative:FOLDER, "
    "judge:MODEL, cascade:FIRST,NEXT or http://HOST:PORT.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def listening_options(port: int, token: str, purpose: str) -> Callable[[_Command], _Command]:
    """Give a command the options of what listens; ``token`` is the variable of the token.

    ``purpose`` says what the token is for.
    """
    return with_options(
        click.option(
            "--host", default="127.0.0.1", show_default=True, help="The address to listen on."
        ),
        click.option(
            "--port",
            default=port,
            show_default=True,
            type=click.IntRange(0, 65_535),
            help="The port to listen on; 0 takes any free one.",
        ),
        click.option(
            "--token",
            envvar=token,
            show_envvar=True,
            help=f"{purpose}; made and printed if --host or --allow-host is not a loopback name.",
        ),
        click.option(
            "--allow-host",
            "allowed",
            multiple=True,
            metavar="NAME",
            help="A further host name to answer to; may be given several times.",
        ),
    )


def stdout_kept() -> redirect_stdout[Any]:
    """Redirect LiteLLM's output to standard error; standard output is for results."""
    return redirect_stdout(sys.stderr)


def results_console() -> Console:
    """Return a console for standard output, as wide as the terminal or COLUMNS.

    In a pipe without COLUMNS it is 200 wide, so that tables are not folded.
    """
    from rich.console import Console

    return Console(highlight=False, width=200 if in_pipe() else None)


def in_pipe() -> bool:
    """Whether the width of the output is unknown: it is no terminal, and COLUMNS is not set."""
    from rich.console import Console

    return not (Console().is_terminal or os.environ.get("COLUMNS", "").isdigit())


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """Show a progress bar on standard error while it has tasks; None if that is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Left

    from guard.progress import bar_console

    console = bar_console()
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Left())
    with Progress(*columns, console=console, transient=True) as bar:
        yield bar


def without_nan(value: Any) -> Any:
    """Return plain values with None for nan and infinity, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: without_nan(v) for k, v in value.items()}
    return [without_nan(v) for v in value] if isinstance(value, list | tuple) else value


def print_json(value: Any) -> None:
    """Print a value as one line of JSON, with null for nan."""
    click.echo(json.dumps(without_nan(value), ensure_ascii=False))


def print_result(value: Any, text: str, as_json: bool) -> None:
    """Print ``value`` as JSON, or ``text``."""
    print_json(value) if as_json else click.echo(text)


class _Lazy(click.Group):
    """Loads a command's module only when that command runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = _COMMANDS[cmd_name][0]
        if cmd_name == "train" and find_spec(module) is None:
            return _without_training
        command = getattr(importlib.import_module(module), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            # Where the locale has no arrow or dash: a wrong character, not a wrong exit code.
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            if error.errno is None:  # a library's subclass, not an error of the system
                raise
            # Standard output has no name.
            named = f"{error.filename}: " if error.filename is not None else ""
            click.echo(f"Error: {named}{error.strerror}.", err=True)
            sys.exit(ExitCode.MISTAKE)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (UsageError, WeightsError, BiasIndexError) as error:
            raise _Exit(str(error), ExitCode.MISTAKE) from None
        except GuardError as error:
            raise _Exit(str(error), ExitCode.FAILED) from None
        except BrokenPipeError as error:
            # click would exit with 1, and Python flush standard output again at its exit.
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise _Exit(f"{error.strerror}.", ExitCode.MISTAKE) from None
        except EOFError as error:
            # click would take it for an interrupt.
            raise RuntimeError("A file ended unexpectedly.") from error
        except KeyboardInterrupt:
            click.echo("\nAborted!", err=True)
            raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


@click.command(
    "train",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def _without_training() -> None:
    """Train a detector, an adapter or a band (in a checkout)."""
    from guard.installed import checkout_command

    raise UsageError(
        "Training needs a checkout, because its code and texts are not part of the installed "
        f"package; run: {checkout_command('train')}"
    )


class _Exit(click.ClickException):
    """One sentence and an exit code instead of a traceback."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click declares it on the class


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="guard")
def main() -> None:
    """Judge model output for social bias while it streams, and stop it before it is read."""
    # For module:Class of a suite, as with python -m; last, so that no file here hides a library.
    with suppress(OSError):  # the folder may be gone
        here = os.getcwd()
        if here not in sys.path and not getattr(sys.flags, "safe_path", False):
            sys.path.append(here)
