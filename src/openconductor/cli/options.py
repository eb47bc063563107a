"""The options that several verbs share, alone or in groups.

A group is a dataclass whose fields are options. A command that takes one as a parameter is
decorated with ``spread``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal, InvalidOperation
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import openconductor as oc
from openconductor.errors import ConfigError
from openconductor.prompt import ExampleName, Template
from openconductor.types import OnNoPlan, Undecided

if TYPE_CHECKING:
    from openconductor.conductor import Planner
    from openconductor.serving.serve_config import ServeConfig


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has an option for each field of its parameters that are dataclasses."""
    groups: dict[str, Any] = {}
    parameters: list[Parameter] = []
    for name, parameter in signature(command, eval_str=True).parameters.items():
        if is_dataclass(parameter.annotation):
            kind: Any = parameter.annotation
            groups[name] = kind
            parameters += signature(kind, eval_str=True).parameters.values()
        else:
            parameters.append(parameter)

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            options = {option.name: values.pop(option.name) for option in fields(group)}
            values[name] = group(**options)
        command(**values)

    by_name = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
    vars(run)["__signature__"] = Signature(by_name)  # which Typer reads
    return run


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


Traced = Annotated[
    bool,
    typer.Option("--traces", help="Send traces by OpenTelemetry, as its OTEL_ variables say."),
]
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
Cards = Annotated[
    bool | None,
    typer.Option(
        "--cards/--no-cards",
        help="Show a prompted Conductor what is known of the workers (default: with brief).",
        show_default=False,
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Take workers that the Conductor was not trained with."),
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
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Check everything, estimate what can be, and ask nobody."),
]
Offline = Annotated[
    bool,
    typer.Option("--offline", help="With --dry-run: fetch nothing, exit 0 if nothing is wrong."),
]
Journal = Annotated[
    str | None,
    typer.Option(
        "--journal",
        metavar="FILE|URL",
        help="A file, or a PostgreSQL database, that keeps all calls, so that none is paid twice.",
    ),
]
JudgeName = Annotated[
    str | None,
    typer.Option(
        "--judge",
        metavar="NAME",
        help="The worker that decides free-form answers which the rules cannot.",
    ),
]
UndecidedFate = Annotated[
    Undecided | None,
    typer.Option(
        "--undecided",
        help="The fate of answers that cannot be decided: masked, or wrong.",
        show_default="masked",
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


def pool_file_hint() -> str:
    """Return a hint to the pool file in this folder; "": there is none."""
    if not Path("pool.toml").is_file():
        return ""
    return "pool.toml is here: add --pool pool.toml --conductor worker:NAME to use it"


Run = Annotated[
    Path | None,
    typer.Option("--from", help="The folder of an evaluation, whose systems answer."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How a Conductor plans, and what happens without a plan. None: the default."""

    cards: Cards = None
    examples: Annotated[
        ExampleName | None,
        typer.Option(
            "--examples",
            help="The worked examples that a prompted Conductor is shown.",
            show_default="none",
        ),
    ] = None
    template: Annotated[
        Template | None,
        typer.Option(
            "--template",
            help="The instructions of a prompted Conductor; full is the paper's.",
            show_default="brief",
        ),
    ] = None
    force: Force = False
    max_steps: Annotated[
        int | None,
        typer.Option(
            "--max-steps", min=1, help="The most steps of a workflow (default: as trained, or 5)."
        ),
    ] = None
    max_rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds",
            min=1,
            help="The most rounds; with 1 nothing is revised.",
            show_default="1",
        ),
    ] = None
    on_no_plan: Annotated[
        OnNoPlan | None,
        typer.Option(
            "--on-no-plan",
            help="Without a valid plan: another try, then the pool's default worker; or an error.",
            show_default="default_worker",
        ),
    ] = None
    direct_below_tokens: Annotated[
        int | None,
        typer.Option(
            "--direct-below-tokens",
            min=1,
            help="Shorter questions go to the default worker, without a plan.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions(PlanOptions):
    """How a Conductor answers, and the most that an answer may cost."""

    base_url: BaseUrl = None
    key_env: KeyEnv = None
    fallback: Annotated[
        bool, typer.Option(help="Give a failed step to the best other healthy worker.")
    ] = True
    calls: Annotated[
        int | None, typer.Option("--budget-calls", min=0, help="The most calls, plans included.")
    ] = None
    tokens: Annotated[
        int | None,
        typer.Option("--budget-tokens", min=0, help="The most tokens, read and written."),
    ] = None
    dollars: Annotated[
        Decimal | None,
        typer.Option(
            "--budget-dollars", parser=read_dollars, metavar="AMOUNT", help="The most US dollars."
        ),
    ] = None
    seconds: Annotated[
        float | None, typer.Option("--budget-seconds", min=0, help="The most seconds.")
    ] = None

    def open_conductor(
        self, named: str | None, pool: oc.WorkerPool, *, simulated: bool = False
    ) -> oc.Conductor:
        """Make the Conductor that ``--conductor`` names."""
        from openconductor.evaluation.eval_config import find_planner

        planner = find_planner(
            named, pool, base_url=self.base_url, key_env=self.key_env, simulated=simulated
        )
        return make_conductor(planner, pool, self)

    @property
    def of_conductor(self) -> dict[str, object]:
        """The options that say how a Conductor plans, by name."""
        return {
            "--conductor-base-url": self.base_url,
            "--conductor-key-env": self.key_env,
            "--cards": self.cards is not None,
            "--examples": self.examples,
            "--template": self.template,
            "--force": self.force,
            "--max-steps": self.max_steps,
            "--rounds": self.max_rounds,
        }

    @property
    def budget(self) -> oc.Budget:
        """The most that one answer may cost."""
        return oc.Budget(self.calls, self.tokens, self.dollars, self.seconds)


def make_conductor(
    planner: Planner,
    pool: oc.WorkerPool,
    settings: AnswerOptions | ServeConfig,
    timeout_s: float | None = None,
) -> oc.Conductor:
    """Make a Conductor for users: prompted as they choose, and with a fallback."""
    conductor = oc.Conductor(
        planner,
        pool=pool,
        max_steps=settings.max_steps,
        max_rounds=settings.max_rounds or 1,
        timeout_s=timeout_s,
        fallback=settings.fallback,
        on_no_plan=settings.on_no_plan or "default_worker",
        direct_below_tokens=settings.direct_below_tokens,
        force=settings.force,
    )
    return oc.prompted(
        conductor,
        template=settings.template,
        examples=settings.examples,
        cards=settings.cards,
    )


def check_measured(given: Mapping[str, object], where: str) -> None:
    """Check that nothing is chosen of a Conductor that the recipe of a run describes.

    Raises:
        ConfigError: something is.
    """
    chosen = [name for name, value in given.items() if value is not None and value is not False]
    if chosen:
        raise ConfigError(
            f"{where}: got {', '.join(chosen)} beside a run, whose systems answer as they were "
            "measured; leave it out"
        )
