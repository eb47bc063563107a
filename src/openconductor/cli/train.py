"""``openconductor train``: a recipe becomes a Conductor; with ``--study``, over several seeds and two controls.

In: a recipe and ``key=value`` overrides. Out: a run folder; the results on stdout, progress on stderr.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from openconductor.cli import console
from openconductor.cli.runs import new_folder
from openconductor.errors import ConfigError

if TYPE_CHECKING:
    from openconductor.training.config import TrainConfig

Record = Mapping[str, object]

SEEDS = "1,2,3,4,5"
JOBS = 2
INSTALL = 'pip install "openconductor[train]"'


def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe (TOML).", show_default=False)],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value, such as rollout.iterations=50.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The run's folder (default: runs/<date>-<name>).", show_default=False)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    study: Annotated[
        Path | None, typer.Option("--study", help="A folder: train over several seeds, with two controls.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help=f"The study's seeds (default: {SEEDS}).", show_default=False)
    ] = None,
    controls: Annotated[
        bool | None,
        typer.Option("--controls/--no-controls", help="The study's controls: shuffled and flipped rewards (default)."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help=f"The study's runs at the same time (default: {JOBS}).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Train a Conductor by a recipe (needs the extra train)."""
    from openconductor.training.config import load_train_config

    config = load_train_config(recipe, overrides or ())
    if study is not None:
        if out is not None or resume:
            raise ConfigError("--study: got --out or --resume beside it; a study goes on by itself with what is there")
        results = _study(config, study, _seeds(SEEDS if seeds is None else seeds), controls is not False, jobs or JOBS)
    else:
        _refuse_without_study(seeds, controls, jobs)
        results = _train(config, _folder(config, out, resume), resume)
    if as_json:
        console.show_json(results)
    elif study is not None:
        _show_study(results)
    else:
        _show_run(results)


def _refuse_without_study(seeds: str | None, controls: bool | None, jobs: int | None) -> None:
    given = {"--seeds": seeds, "--controls or --no-controls": controls, "--jobs": jobs}
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise ConfigError(f"{names[0]}: got it without --study, expected both: one training has none of these")


def _train(config: TrainConfig, folder: Path, resume: bool) -> Record:
    try:
        from openconductor.training.run import train as run
    except ImportError as error:
        raise _without_extra(error) from error
    console.say(f"run folder: {folder}")
    with console.only_results_on_stdout():
        return cast("Record", run(config, folder, resume=resume, on_progress=console.say))


def _study(config: TrainConfig, folder: Path, seeds: Sequence[int], controls: bool, jobs: int) -> Record:
    try:
        from openconductor.training.study import study as run
    except ImportError as error:
        raise _without_extra(error) from error
    console.say(f"study folder: {folder}")
    with console.only_results_on_stdout():
        return cast("Record", run(config, folder, seeds=seeds, controls=controls, jobs=jobs, on_progress=console.say))


def _without_extra(error: ImportError) -> Exception:
    """What a missing package means: the extra is not installed; a missing module of ours is a fault of ours."""
    if (error.name or "").startswith("openconductor"):
        return error
    return ConfigError(f"train: {error}; expected the extra 'train' to be installed: {INSTALL}")


def _seeds(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len(set(parts)) != len(parts):
        raise ConfigError(f"--seeds: got {text!r}, expected different whole numbers with commas between, such as 1,2,3")
    return tuple(map(int, parts))


def _folder(config: TrainConfig, out: Path | None, resume: bool) -> Path:
    if out is not None:
        return out
    if resume:
        raise ConfigError("--resume: expected --out with the folder of the run to go on with")
    return new_folder(config.name)


def _show_run(results: Record) -> None:
    table = console.table(title=f"{results['name']}, seed {results['seed']}")
    table.add_column("")
    for column in ("accuracy", "given valid", "validity", "routing entropy"):
        table.add_column(column, justify="right")
    names = {"start": "before learning", "sampled": "learnt, sampled at temperature 1", "greedy": "learnt, greedy"}
    for key, name in names.items():
        phase = cast("Record", results[key])
        table.add_row(
            name,
            *(_percent(phase[measure]) for measure in ("accuracy", "accuracy_given_valid", "validity")),
            f"{_number(phase['routing_entropy_bits']):.2f} bits",
        )
    console.show(table)
    if results.get("control", "none") != "none":
        console.show(f"A control with {results['control']} rewards: it must not learn.")


def _show_study(results: Record) -> None:
    levels = cast("Mapping[str, object]", results["levels"])
    table = console.table()
    table.add_column("run")
    for column in ("before learning", "sampled", "greedy", "of the oracle", "validity"):
        table.add_column(column, justify="right")
    for row in cast("Sequence[Record]", results["rows"]):
        control = row["control"]
        name = f"seed {row['seed']}" if control == "none" else f"control: {control} rewards"
        keys = ("start", "sampled", "greedy", "share_of_oracle", "validity")
        table.add_row(name, *(_percent(row[key]) for key in keys))
    console.show(table)
    console.show(
        "Levels: " + ", ".join(f"{name.replace('_', ' ')} {_percent(value)}" for name, value in levels.items())
    )
    console.show(
        f"{results['learnt']} of {results['seeds']} seeds learnt (three times random, and more than the best worker); "
        f"of the oracle they reach {_percent(results['median_share_of_oracle'])} in the median, "
        f"{_percent(results['worst_share_of_oracle'])} at worst."
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _percent(value: object) -> str:
    return "–" if value is None else f"{_number(value):.1%}"
