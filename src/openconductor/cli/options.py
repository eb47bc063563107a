"""The options that several verbs share."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated

import typer

from openconductor.errors import ConfigError
from openconductor.types import Budget


def check_dollars(text: str | None) -> str | None:
    """Return an amount of US dollars as plain digits.

    Raises:
        ConfigError: the text is not an amount.
    """
    if text is None:
        return None
    try:
        amount = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount < 0:
        raise ConfigError(
            f"--budget-dollars: got {text!r}, expected an amount of US dollars such as 2.50"
        )
    return format(amount, "f")


def make_budget(
    calls: int | None, tokens: int | None, dollars: str | None, seconds: float | None
) -> Budget:
    """Return the budget of one answer."""
    amount = None if dollars is None else Decimal(dollars)
    return Budget(calls, tokens, amount, seconds)


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
BaseUrl = Annotated[
    str | None,
    typer.Option("--conductor-base-url", help="The address of its API, with /v1."),
]
KeyEnv = Annotated[
    str | None,
    typer.Option("--conductor-key-env", help="The environment variable that holds its key."),
]
Unsafe = Annotated[
    bool,
    typer.Option(
        "--unsafe-code-exec",
        help="Run programs unprotected if no sandbox works: they can do anything.",
    ),
]
AnswerCalls = Annotated[
    int | None, typer.Option("--budget-calls", min=0, help="The most calls, plans included.")
]
AnswerTokens = Annotated[
    int | None,
    typer.Option("--budget-tokens", min=0, help="The most tokens, read and written."),
]
AnswerDollars = Annotated[
    str | None,
    typer.Option("--budget-dollars", callback=check_dollars, help="The most US dollars."),
]
AnswerSeconds = Annotated[
    float | None, typer.Option("--budget-seconds", min=0, help="The most seconds.")
]
Fallback = Annotated[bool, typer.Option(help="Give a failed step to the next healthy worker.")]
MaxSteps = Annotated[
    int | None,
    typer.Option(
        "--max-steps", min=1, help="The most steps of a workflow (default: as trained, or 5)."
    ),
]
Rounds = Annotated[
    int, typer.Option("--rounds", min=1, help="The most rounds; with 1 nothing is revised.")
]
Dollars = Annotated[
    str | None,
    typer.Option(
        "--budget-dollars", callback=check_dollars, help="The most US dollars of all runs together."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="The run's folder; a run in it is resumed.",
        show_default="a new one in runs/",
    ),
]
PlannerName = Annotated[
    str | None,
    typer.Option(
        "--conductor",
        help="provider:model, a checkpoint folder, or worker:NAME.",
        show_default="bundled",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The seed that draws the questions.")]
PoolFile = Annotated[
    Path | None, typer.Option("--pool", help="A pool file (TOML).", show_default="the gym's")
]
