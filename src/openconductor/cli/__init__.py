"""The command line: one file a verb, which parses and prints.

Results go to stdout, all else to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage or settings,
130 interrupted. Each error of this package becomes one message without a traceback. Only the module
of the requested verb is imported.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import TracebackType
from typing import Annotated, cast

import typer

from openconductor.cli import console
from openconductor.config import nearest
from openconductor.errors import ConfigError, OpenConductorError

VERBS = {
    "demo": "Watch a trained Conductor at work in the gym: no key, no GPU.",
    "ask": "Ask one question: a Conductor plans, workers answer.",
    "pool": "Draft a pool file, check its workers, measure its headroom.",
    "gym": "Look at the gym: questions, workers, best workflows.",
    "task": "List benchmarks, look at their problems, check their graders.",
    "grade": "Grade answers from elsewhere: JSON lines in, verdicts out.",
    "train": "Train a Conductor by a recipe (needs the extra train).",
    "eval": "Evaluate systems on tasks, with intervals and costs; resumable.",
    "show": "Look at the answers of an evaluation: plan, steps, verdict, reason.",
    "view": "Look at episodes in a browser: workflow, steps, times, costs.",
    "report": "Say whether orchestrating gained anything, with a page and plots.",
    "export": "Write a trained Conductor as a folder that vLLM and transformers serve.",
    "serve": "Serve a Conductor behind the OpenAI and Anthropic APIs.",
    "keys": "Make, list and revoke API keys while servers run.",
    "store": "Remove what is old from a store.",
    "mcp": "Offer the pool to coding agents as one MCP tool, over stdio.",
    "doctor": "Say what works, and what would install the rest.",
}
"""The list of ``--help``. The module of a verb holds a function or a Typer of its name."""
GROUPS = ("gym", "keys", "pool", "store", "task")
"""The verbs with commands of their own."""
SURE = 0.75
"""How like a command of a group a word has to be."""

# Old versions of Typer raise click's errors, new ones those of their own copy of click; both are
# reached through the base class.
_UsageProblem = cast("type[Exception]", typer.BadParameter.__bases__[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. ``arguments`` None: those of the process."""
    console.prepare_streams()
    if arguments is None:
        arguments = sys.argv[1:]
        sys.excepthook = _ask_for_report
    try:
        code = _run(list(arguments))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        console.discard(sys.stdout)
        return console.OK
    except OSError as error:
        console.discard(sys.stdout)
        console.show_error(f"a file or a stream failed: {error}")
        return console.FAILED
    return code


def _ask_for_report(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print an error that nothing expected, and what a report of it should hold."""
    import openconductor

    sys.__excepthook__(kind, error, trace)
    console.say(
        f"This is a bug of openconductor {openconductor.__version__} (Python "
        f"{platform.python_version()}, {platform.system()}). Please report it with the lines "
        "above and the command."
    )


def build_app(verb: str = "") -> typer.Typer:
    """Build the command line as a Typer app; verbs other than ``verb`` have only a short help."""
    app = typer.Typer(
        name="openconductor",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # its tables cut the names of options at 80 columns
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_openconductor)
    for name, about in VERBS.items():
        if name == verb:
            command = getattr(import_module(f"{__name__}.{name}"), name)
        else:
            command = _not_imported
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, help=about)
        else:
            app.command(name, short_help=about)(command)
    return app


def _not_imported() -> None:
    """Stand for a verb that is only listed."""


def _print_version(wanted: bool) -> None:
    if wanted:
        import openconductor

        print(openconductor.__version__)
        raise typer.Exit


def _openconductor(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """A small language model that writes workflows over a pool of workers.

    Begin with `openconductor demo`: no key, no GPU.
    """


def _run(arguments: list[str]) -> int:
    # The app's own main would print errors and end the process by itself.
    command = typer.main.get_command(build_app(arguments[0] if arguments else ""))
    try:
        with command.make_context("openconductor", arguments) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except OpenConductorError as error:
        console.show_error(error)
        return console.USAGE if isinstance(error, ConfigError) else console.FAILED
    except _UsageProblem as problem:
        _show_problem(problem, getattr(problem, "ctx", None))
        return console.USAGE
    except (KeyboardInterrupt, typer.Abort):
        return console.INTERRUPTED
    return console.OK


def _show_problem(problem: Exception, context: typer.Context | None) -> None:
    """Print what is wrong with a command line, the nearest valid word, and where the help is."""
    message = cast("str", getattr(problem, "message", "")) or str(problem)
    if context is None:  # an option that ends the line without its value
        console.show_error(message[:1].lower() + message[1:])
        return
    if message.startswith("Missing command"):  # the name of a group alone: list its commands
        print(context.get_help(), file=sys.stderr)
        return
    names = [name for parameter in context.command.params for name in parameter.opts]
    options = ["--help", *(name for name in names if name.startswith("--"))]
    if type(problem).__name__ == "NoSuchOption":
        wrong = cast("str", getattr(problem, "option_name", ""))
        message = f"no option {wrong!r}; the nearest is {nearest(wrong, options)!r}"
        if any(parameter.name == "overrides" for parameter in context.command.params):
            message += f". A setting of the file has no dashes: {wrong.lstrip('-')}=VALUE"
    elif message.startswith("No such command"):
        wrong = message.split("'")[1]
        commands = cast("Mapping[str, object]", getattr(context.command, "commands", {}))
        known = [*commands, *options]
        near = nearest(wrong, known, at_least=SURE)
        if near is None and context.parent is None:
            near = nearest(wrong, _grouped_commands(), at_least=SURE)
        near = near or nearest(wrong, known) or ""
        message = f"no command {wrong!r}; the nearest is {near.replace('.', ' ')!r}"
    else:
        message = cast("str", getattr(problem, "format_message", lambda: message)())
        message = message[:1].lower() + message[1:]
        if "unexpected extra argument" in message:
            message += "; a text of several words stands in quotes"
        validation = getattr(problem.__context__, "errors", None)  # pydantic's
        if validation is not None:
            first = validation()[0]
            cause = first.get("ctx", {}).get("error")
            got = repr(first["input"])
            if isinstance(cause, ConfigError):
                message = str(cause)
            elif got not in message:
                message += f", got {got}"
            message = message.replace("Value error, ", "")
    console.show_error(message, hint=f"See `{context.command_path} --help`.")


def _grouped_commands() -> list[str]:
    """Return the commands of groups as ``group.command``, whose last part a word may be like."""
    grouped: list[str] = []
    for group in GROUPS:
        app: typer.Typer = getattr(import_module(f"{__name__}.{group}"), group)
        grouped += [f"{group}.{command.name}" for command in app.registered_commands]
    return grouped


__all__ = ["build_app", "main"]
