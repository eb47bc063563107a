"""The command line: one file a verb. In: arguments. Out: results on stdout, all else on stderr, and an exit code.

0 is done, 1 failed, 2 wrong usage or settings, 130 interrupted. Every error of this package is one message and no
traceback. Verbs import what they need when they run, so that ``--help`` is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib import import_module
from typing import Annotated, cast

import typer

from openconductor.cli import console
from openconductor.errors import OpenConductorError

# Typer used to stand on click and now brings a copy of its own: the errors of usage are found by way of a child.
_UsageProblem = cast("type[Exception]", typer.BadParameter.__bases__[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; ``arguments`` are those of the process by default. Returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    console.prepare_streams()
    try:
        code = _run(given)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        console.let_go(sys.stdout)
        return console.OK
    except OSError as error:
        console.let_go(sys.stdout)
        console.show_error(f"a file or a stream failed: {error}")
        return console.FAILED
    return code


VERBS = ("demo", "ask", "pool", "gym", "task", "grade", "train", "eval", "report", "doctor")


def build_app(only: str = "") -> typer.Typer:
    """The command line as a Typer app, of all verbs or of one; its module holds a function or Typer of its name."""
    app = typer.Typer(
        name="openconductor",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # its tables cut the names of options at 80 columns
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_openconductor)
    for name in (only,) if only in VERBS else VERBS:
        verb = getattr(import_module(f"{__name__}.{name}"), "evaluate" if name == "eval" else name)
        if isinstance(verb, typer.Typer):
            app.add_typer(verb)
        else:
            app.command(name)(verb)
    return app


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
        return console.exit_code(error)
    except _UsageProblem as problem:
        _show_problem(problem)
        return console.USAGE
    except (KeyboardInterrupt, typer.Abort):
        return console.INTERRUPTED
    return console.OK


def _show_problem(problem: Exception) -> None:
    """A wrong command line: what is wrong, the nearest that would be right, and where to read on."""
    from openconductor.config import nearest

    context = cast("typer.Context | None", getattr(problem, "ctx", None))
    message = cast("str", getattr(problem, "message", "")) or str(problem)
    option = cast("str | None", getattr(problem, "option_name", None))
    if context is None:
        console.show_error(message)
        return
    if message.startswith("Missing command"):  # a group's name alone: what is in it, but this is not a result
        with redirect_stdout(sys.stderr):
            print(context.get_help())
        return
    if type(problem).__name__ == "NoSuchOption" and option is not None:
        known = [name for parameter in context.command.params for name in parameter.opts if name.startswith("--")]
        known.append("--help")
        message = f"no option {option!r}; the nearest is {nearest(option, known)!r}"
    elif message.startswith("No such command"):
        verbs = cast("Mapping[str, object]", getattr(context.command, "commands", {}))
        wrong = message.split("'")[1]
        message = f"no command {wrong!r}; the nearest is {nearest(wrong, verbs)!r}"
    else:
        message = cast("str", getattr(problem, "format_message", lambda: message)())
        message = message[:1].lower() + message[1:]
    console.show_error(message, hint=f"`{context.command_path} --help` says what there is.")


__all__ = ["build_app", "main"]
