"""``openconductor train``: a recipe becomes a Conductor; with ``--study``, over several seeds and two controls.

In: a recipe and ``key=value`` overrides. Out: a run folder; the results on stdout, progress on
stderr.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from openconductor.cli import console
from openconductor.cli.console import percent
from openconductor.cli.options import AsJson
from openconductor.cli.runs import interruptible
from openconductor.config import needing
from openconductor.errors import ConfigError
from openconductor.training.train_config import TrainConfig, load_train_config

SEEDS = "1,2,3,4,5"
JOBS = 2

_Record = dict[str, Any]


def train(
    recipe: Annotated[Path, typer.Argument(help="A recipe (TOML).", show_default=False)],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value, as rollout.iterations=50.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="The run's folder (default: one in runs/).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in --out.")] = False,
    study: Annotated[
        Path | None, typer.Option("--study", help="A folder: train several seeds and controls.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help=f"The study's seeds (default: {SEEDS}).")
    ] = None,
    controls: Annotated[
        bool | None,
        typer.Option("--controls/--no-controls", help="Shuffled and flipped rewards (default)."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help=f"Runs at once (default: {JOBS}).")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Check everything, and estimate memory, calls, dollars and hours."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a Conductor by a recipe (needs the extra train)."""
    config = load_train_config(recipe, overrides or ())
    if dry_run:
        _show_estimate(config, as_json=as_json)
        return
    if study is not None:
        if out is not None or resume:
            raise ConfigError(
                "--study: got --out or --resume beside it; a study goes on by itself with what is there"
            )
        several = _seeds(SEEDS if seeds is None else seeds)
        options = {"seeds": several, "controls": controls is not False, "jobs": jobs or JOBS}
        results = _run("training.study", "study", config, study, **options)
    else:
        given = {"--seeds": seeds, "--controls or --no-controls": controls, "--jobs": jobs}
        if names := [name for name, value in given.items() if value is not None]:
            raise ConfigError(
                f"{names[0]}: got it without --study, expected both: one training has none of these"
            )
        if resume and out is None:
            raise ConfigError("--resume: expected --out with the folder of the run to resume")
        folder = out or Path("runs") / f"{date.today():%Y-%m-%d}-{config.name}"
        command = (
            "openconductor",
            "train",
            str(recipe),
            *(overrides or ()),
            "--out",
            str(folder),
            "--resume",
        )
        with interruptible(folder, shlex.join(command)):
            results = _run("training.run", "train", config, folder, resume=resume)
    if os.environ.get("RANK", "0") != "0":  # of the processes of one training, the first one speaks
        return
    if as_json:
        console.show_json(results)
    elif study is not None:
        _show_study(results)
    else:
        _show_run(results)


def _run(module: str, name: str, config: TrainConfig, folder: Path, **options: object) -> _Record:
    """Call ``<module>.<name>``; what the training libraries print goes to stderr."""
    run = _of_training(module, name)
    if os.environ.get("RANK", "0") == "0":
        console.say(f"{'run' if name == 'train' else name} folder: {folder}")
    with console.only_results_on_stdout():
        return run(config, folder, on_progress=console.say, **options)


def _of_training(module: str, name: str) -> Callable[..., Any]:
    with needing("train", "train"):
        return cast("Callable[..., Any]", getattr(import_module(f"openconductor.{module}"), name))


def _show_estimate(config: TrainConfig, *, as_json: bool) -> None:
    with console.only_results_on_stdout():
        found = _of_training("training.estimate", "estimate")(config)
    if as_json:
        console.show_json(found)
    else:
        console.show(*_of_training("training.estimate", "described")(config, found))


def _seeds(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len(set(parts)) != len(parts):
        raise ConfigError(
            f"--seeds: got {text!r}, expected different whole numbers with commas between, such as 1,2,3"
        )
    return tuple(map(int, parts))


def _show_run(results: _Record) -> None:
    console.show(f"{results['name']}, seed {results['seed']}")
    names = {
        "start": "before learning",
        "sampled": "learnt, sampled at temperature 1",
        "greedy": "learnt, greedy",
    }
    rows: list[list[str]] = []
    for key, name in names.items():
        phase = results[key]
        shares = [
            percent(phase[measure]) for measure in ("accuracy", "accuracy_given_valid", "validity")
        ]
        rows.append([name, *shares, f"{phase['routing_entropy_bits']:.2f} bits"])
    console.show_table(("", "accuracy", "given valid", "validity", "routing entropy"), rows)
    if results.get("control", "none") != "none":
        console.show(f"A control with {results['control']} rewards: it must not learn.")


def _show_study(results: _Record) -> None:
    rows: list[list[str]] = []
    for row in results["rows"]:
        name = (
            f"seed {row['seed']}"
            if row["control"] == "none"
            else f"control: {row['control']} rewards"
        )
        rows.append(
            [
                name,
                *(
                    percent(row[key])
                    for key in ("start", "sampled", "greedy", "share_of_oracle", "validity")
                ),
            ]
        )
    console.show_table(
        ("run", "before learning", "sampled", "greedy", "of the oracle", "validity"), rows
    )
    levels = ", ".join(
        f"{name.replace('_', ' ')} {percent(value)}" for name, value in results["levels"].items()
    )
    console.show(
        f"Levels: {levels}",
        f"{results['learnt']} of {results['seeds']} seeds learnt (three times random, and more than the best worker); "
        f"of the oracle they reach {percent(results['median_share_of_oracle'])} in the median, "
        f"{percent(results['worst_share_of_oracle'])} at worst.",
    )
