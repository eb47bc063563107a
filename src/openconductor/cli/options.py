"""The options that several verbs share."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated

import typer

from openconductor import types
from openconductor.errors import ConfigError
from openconductor.prompt import ExampleName, Template


def read_dollars(text: str, option: str = "--budget-dollars") -> Decimal:
    """Return an amount of US dollars.

    Raises:
        ConfigError: the text is not an amount.
    """
    try:
        amount = Decimal(text.removeprefix("$"))
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount < 0:
        raise ConfigError(f"{option}: got {text!r}, expected an amount of US dollars such as 2.50")
    return amount


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
    Decimal | None,
    typer.Option(
        "--budget-dollars", parser=read_dollars, metavar="AMOUNT", help="The most US dollars."
    ),
]
AnswerSeconds = Annotated[
    float | None, typer.Option("--budget-seconds", min=0, help="The most seconds.")
]
Cards = Annotated[
    bool | None,
    typer.Option(
        "--cards/--no-cards",
        help="Show a prompted Conductor what is known of the workers (default: with brief).",
        show_default=False,
    ),
]
Examples = Annotated[
    ExampleName | None,
    typer.Option(
        "--examples",
        help="The worked examples that a prompted Conductor is shown.",
        show_default="none",
    ),
]
PromptTemplate = Annotated[
    Template | None,
    typer.Option(
        "--template",
        help="The instructions of a prompted Conductor; full is the paper's.",
        show_default="brief",
    ),
]
Fallback = Annotated[bool, typer.Option(help="Give a failed step to the next healthy worker.")]
Force = Annotated[
    bool,
    typer.Option("--force", help="Take workers that the Conductor was not trained with."),
]
OnNoPlan = Annotated[
    types.OnNoPlan | None,
    typer.Option(
        "--on-no-plan",
        help="Without a valid plan: another try, then the pool's default worker; or an error.",
        show_default="default_worker",
    ),
]
DirectBelow = Annotated[
    int | None,
    typer.Option(
        "--direct-below-tokens",
        min=1,
        help="Shorter questions go to the default worker, without a plan.",
    ),
]
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
    Decimal | None,
    typer.Option(
        "--budget-dollars",
        parser=read_dollars,
        metavar="AMOUNT",
        help="The most US dollars of all runs together.",
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
