"""The command line: one file a verb. In: arguments. Out: results on stdout, all else on stderr, and an exit code.

0 is done, 1 failed, 2 wrong usage or settings, 130 interrupted. Every error of this package is one
message and no traceback. Only the module of the verb that is asked for is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
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
    "report": "Say whether orchestrating gained anything, with a page and plots.",
    "export": "Write a trained Conductor as a folder that vLLM and transformers serve.",
    "serve": "Serve a Conductor behind the OpenAI and Anthropic APIs.",
    "mcp": "Offer the pool to coding agents as one MCP tool, over stdio.",
    "doctor": "Say what works, and what would install the rest.",
}
"""What ``--help`` lists. The module of a verb holds a function or a Typer of its name."""

# Typer used to stand on click and now brings a copy of its own: the errors of usage are found by
# way of a child.
_UsageProblem = cast("type[Exception]", typer.BadParameter.__bases__[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; ``arguments`` are those of the process by default. Returns the exit code."""
    console.prepare_streams()
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        console.let_go(sys.stdout)
        return console.OK
    except OSError as error:
        console.let_go(sys.stdout)
        console.show_error(f"a file or a stream failed: {error}")
        return console.FAILED
    return code


def build_app(verb: str = "") -> typer.Typer:
    """The command line as a Typer app; of all verbs but the one that is named it knows no more than ``VERBS``."""
    app = typer.Typer(
        name="openconductor",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # its tables cut the names of options at 80 columns
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_openconductor)
    for name, about in VERBS.items():
        command = (
            getattr(import_module(f"{__name__}.{name}"), name) if name == verb else _not_imported
        )
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, help=about)
        else:
            app.command(name, short_help=about)(command)
    return app


def _not_imported() -> None:
    """Stand for a verb that is only listed."""


def _version(wanted: bool) -> None:
    if wanted:
        import openconductor

        print(openconductor.__version__)
        raise typer.Exit


def _openconductor(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A small language model that writes workflows over a pool of workers.

    Begin with `openconductor demo`: no key, no GPU.
    """


def _run(arguments: list[str]) -> int:
    # Not by the app's own main: that would print errors, and end the process, by itself.
    command = typer.main.get_command(build_app(arguments[0] if arguments else ""))
    try:
        with command.make_context("openconductor", arguments) as context:
            command.invoke(context)
    except typer.Exit as asked:
        return asked.exit_code
    except OpenConductorError as error:
        console.show_error(error)
        return console.USAGE if isinstance(error, ConfigError) else console.FAILED
    except _UsageProblem as problem:
        _show_problem(problem, cast("typer.Context", getattr(problem, "ctx", None)))
        return console.USAGE
    except (KeyboardInterrupt, typer.Abort):
        return console.INTERRUPTED
    return console.OK


def _show_problem(problem: Exception, context: typer.Context) -> None:
    """A wrong command line: what is wrong, the nearest that would be right, and where to read on."""
    message = cast("str", getattr(problem, "message", "")) or str(problem)
    if message.startswith(
        "Missing command"
    ):  # a group's name alone: what is in it, but this is not a result
        print(context.get_help(), file=sys.stderr)
        return
    if type(problem).__name__ == "NoSuchOption":
        wrong = cast("str", getattr(problem, "option_name", ""))
        known = [
            name
            for parameter in context.command.params
            for name in parameter.opts
            if name.startswith("--")
        ]
        message = f"no option {wrong!r}; the nearest is {nearest(wrong, [*known, '--help'])!r}"
    elif message.startswith("No such command"):
        wrong = message.split("'")[1]
        verbs = cast("Mapping[str, object]", getattr(context.command, "commands", {}))
        message = f"no command {wrong!r}; the nearest is {nearest(wrong, verbs)!r}"
    else:
        message = cast("str", getattr(problem, "format_message", lambda: message)())
        message = message[:1].lower() + message[1:]
    console.show_error(message, hint=f"`{context.command_path} --help` says what there is.")


__all__ = ["build_app", "main"]
