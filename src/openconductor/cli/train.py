"""``openconductor train``: train a Conductor by a recipe; with ``--study`` over several seeds.

Results go to stdout, progress to stderr; the run's folder holds everything else.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openconductor.cli import console
from openconductor.cli.console import percent
from openconductor.cli.options import AsJson, Offline, Traced
from openconductor.cli.runs import ask_command, interruptible, is_first_process
from openconductor.config import needing
from openconductor.errors import ConfigError
from openconductor.evaluation.dry_run import missing_keys
from openconductor.pool import simulated_pool
from openconductor.traces import TracesTable, open_traces
from openconductor.training.checks import check_training, require_names
from openconductor.training.train_config import UNTRIED, TrainConfig, draw_seeds, load_train_config

if TYPE_CHECKING:
    from openconductor.training.estimate import CallNeeds, ModelNeeds

SEEDS = "1,2,3,4,5"
JOBS = 2
_MOST_DRAWN = 100

_Record = dict[str, Any]


def train(  # noqa: PLR0913, PLR0917 - the options of a command
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
        str | None,
        typer.Option(
            "--seeds",
            help=f"The study's seeds (default: {SEEDS}); drawn:10 draws ten from the recipe.",
        ),
    ] = None,
    controls: Annotated[
        bool | None,
        typer.Option(
            "--controls/--no-controls", help="The study's shuffled and flipped rewards (default)."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help=f"The study's runs at once (default: {JOBS})."),
    ] = None,
    traces: Traced = False,
    journal: Annotated[
        str | None,
        typer.Option("--journal", metavar="URL", help="The PostgreSQL database of --join."),
    ] = None,
    join: Annotated[
        bool,
        typer.Option("--join", help="Share the study's runs with other processes over --journal."),
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Start processes that join the study on a Ray cluster, one on each node.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Check everything, and estimate memory, calls, dollars and hours."
        ),
    ] = False,
    offline: Offline = False,
    as_json: AsJson = False,
) -> None:
    """Train a Conductor by a recipe (needs the extra train)."""
    config = load_train_config(recipe, overrides or ())
    if dry_run:
        _dry_run(config, offline=offline, as_json=as_json)
        return
    if offline:
        raise ConfigError("--offline requires --dry-run")
    folder = out or Path("runs") / f"{date.today():%Y-%m-%d}-{config.name}"
    if study is not None:
        if out is not None or resume:
            raise ConfigError(
                "--study cannot be combined with --out or --resume; a study always resumes"
            )
        if traces:
            raise ConfigError("--traces cannot be combined with --study; its runs have no traces")
        if (join or ray is not None) != bool(journal):
            raise ConfigError(
                "--join and --ray require --journal postgresql://USER@HOST/DATABASE, and --journal "
                "one of them"
            )
        options = StudyOptions(seeds, controls is not False, jobs or JOBS, journal or "", ray)
        results = _study(config, study, options)
    else:
        of_study = {"--seeds": seeds, "--controls or --no-controls": controls, "--jobs": jobs}
        of_study |= {"--join": join or None, "--journal": journal, "--ray": ray}
        for name, value in of_study.items():
            if value is not None:
                raise ConfigError(f"{name} requires --study")
        if resume and out is None:
            raise ConfigError("--resume requires --out with the folder of the run")
        command = ["openconductor", "train", str(recipe), *(overrides or ())]
        command += ["--out", str(folder), "--resume"]
        with interruptible(folder, shlex.join(command)):
            results = _train(config, folder, resume=resume, traces=traces)
    if not is_first_process():
        return
    if as_json:
        console.show_json(results)
    elif study is not None:
        _show_study(results)
    else:
        _show_run(results)
        console.say(_next_commands(folder, config))


def _train(config: TrainConfig, folder: Path, *, resume: bool, traces: bool) -> _Record:
    require_names(config, folder if is_first_process() else None, resume=resume)
    with needing("train", "train"):
        from openconductor.training.run import train as run
    table = TracesTable() if traces and is_first_process() else None
    with open_traces(table) as tracing, console.only_results_on_stdout():
        return run(config, folder, resume=resume, on_progress=console.say, traces=tracing)


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """The options of a study; ``study`` describes them.

    Attributes:
        seeds: None: the default ones.
        ray: the address of a Ray cluster whose nodes join. None: only this process.
    """

    seeds: str | None
    controls: bool
    jobs: int
    journal: str
    ray: str | None


def _study(config: TrainConfig, folder: Path, options: StudyOptions) -> _Record:
    numbers = _read_seeds(SEEDS if options.seeds is None else options.seeds, config)
    require_names(config)
    with needing("train", "train"):
        from openconductor.training.study import study as run
    make_runs = partial(
        run,
        config,
        folder,
        seeds=numbers,
        controls=options.controls,
        jobs=options.jobs,
        journal=options.journal,
        on_progress=console.say,
    )
    with console.only_results_on_stdout():
        if options.ray is not None:
            _join_on_ray(options.ray, options.jobs, make_runs)
        return make_runs()


def _join_on_ray(address: str, jobs: int, make_runs: Callable[[], object]) -> None:
    """Make the runs on a Ray cluster: ``jobs`` at once on each node, each with a CPU."""
    from openconductor.evaluation.eval_config import RayTable
    from openconductor.evaluation.joined.ray_cluster import join_on_ray

    table = RayTable(cpus=jobs)
    join_on_ray(
        address,
        table,
        make_runs,
        command="train --study --ray",
        cpus_option="--jobs",
        say=console.say,
    )


def _read_seeds(text: str, config: TrainConfig) -> tuple[int, ...]:
    word, _, count = text.partition(":")
    if word == "drawn" and count.isdecimal() and 0 < int(count) <= _MOST_DRAWN:
        seeds = draw_seeds(config, int(count))
        console.say(f"seeds drawn from the recipe: {','.join(map(str, seeds))}")
        return seeds
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len(set(parts)) != len(parts):
        raise ConfigError(
            f"--seeds: got {text!r}, expected different whole numbers with commas between them, "
            f"such as 1,2,3, or drawn:10 (at most drawn:{_MOST_DRAWN})"
        )
    return tuple(int(part) for part in parts)


# ── results ───────────────────────────────────────────────────────────────────────────────────────
def _show_run(results: _Record) -> None:
    console.show(f"{results['name']}, seed {results['seed']}")
    phases = {
        "start": "before learning",
        "sampled": "learnt, sampled at temperature 1",
        "greedy": "learnt, greedy",
    }
    rows: list[list[str]] = []
    for key, name in phases.items():
        phase = results[key]
        entropy = f"{phase['routing_entropy_bits']:.2f} bits"
        shares = _percents(phase, ("accuracy", "accuracy_given_valid", "validity"))
        rows.append([name, *shares, entropy])
    recorded = results.get("workers")
    if recorded:
        for worker, accuracy in recorded["alone"].items():
            rows.append([f"{worker} alone", percent(accuracy), "", "", ""])
        rows.append(
            ["the best worker of each question", percent(recorded["best_of_each"]), "", "", ""]
        )
    console.show_table(("", "accuracy", "given valid", "validity", "routing entropy"), rows)
    if results.get("control", "none") != "none":
        console.show(f"A control with {results['control']} rewards: it must not learn.")


def _next_commands(folder: Path, config: TrainConfig) -> str:
    commands = [
        f"openconductor report {shlex.quote(str(folder))}",
        ask_command(folder, config.pool),
        f"openconductor export {shlex.quote(str(folder))}",
    ]
    return "\nNext: the curve; a question; a folder for servers\n  " + "\n  ".join(commands)


def _show_study(results: _Record) -> None:
    rows: list[list[str]] = []
    for row in results["rows"]:
        name = f"control: {row['control']} rewards"
        if row["control"] == "none":
            name = f"seed {row['seed']}"
        measured = ("start", "sampled", "greedy", "share_of_oracle", "validity")
        rows.append([name, *_percents(row, measured)])
    head = ("run", "before learning", "sampled", "greedy", "of the oracle", "validity")
    console.show_table(head, rows)
    levels = [
        f"{name.replace('_', ' ')} {percent(level)}" for name, level in results["levels"].items()
    ]
    median = percent(results["median_share_of_oracle"])
    worst = percent(results["worst_share_of_oracle"])
    console.show(
        f"Levels: {', '.join(levels)}",
        f"{results['learnt']} of {results['seeds']} seeds learnt (three times random, and more "
        f"than the best worker); of the oracle they reach {median} in the median, "
        f"{worst} at worst.",
    )


def _percents(record: _Record, keys: Sequence[str]) -> list[str]:
    return [percent(record[key]) for key in keys]


# ── the dry run ───────────────────────────────────────────────────────────────────────────────────
def _dry_run(config: TrainConfig, *, offline: bool, as_json: bool) -> None:
    """Check everything, estimate what can be estimated, and print both."""
    with console.only_results_on_stdout():
        checked = check_training(config, offline=offline)
    lines: list[str] = []
    record: _Record = {"checks": checked.checklist.checks}
    if checked.pool is not None and checked.checklist.is_right:
        from openconductor.training.estimate import call_needs

        calls = call_needs(config, checked.pool, checked.held_out)
        record |= asdict(calls) | {"missing_keys": missing_keys(checked.pool)}
        lines += call_lines(config, calls)
    if checked.model is not None:
        record |= asdict(checked.model)
        lines += model_lines(config, checked.model)
    if as_json:
        console.show_json(record)
    else:
        console.show_checks(checked.checklist.checks)
        console.show(*lines)
    console.finish_checks(checked.checklist, offline=offline)


def call_lines(config: TrainConfig, needs: CallNeeds) -> list[str]:
    """Return the estimate of the calls in lines for people, with its assumptions."""
    from openconductor.training import estimate as assumed

    read, written = assumed.CALL_TOKENS
    steps = assumed.steps_of(config)
    if simulated_pool(config.pool) is not None:
        dollars = "none: the workers are simulated"
    elif needs.dollars is None:
        dollars = "not known: a worker of the pool has no price"
    else:
        dollars = f"{needs.dollars:,.0f} for the workers, each asked equally often"
    calls = f"{needs.calls:,} of workers, at {steps} steps a workflow"
    if needs.recorded:
        calls = f"{needs.calls:,} live; steps that see no other one are answered from the record"
    parts = {
        "rollouts": f"{needs.rollouts:,}, measurements included",
        "calls": calls,
        "tokens": f"{needs.tokens / 1e6:.0f} million, {read} read and {written} written a call",
        "dollars": dollars,
    }
    return _labelled(parts)


def model_lines(config: TrainConfig, needs: ModelNeeds) -> list[str]:
    """Return the estimate of the model in lines for people, with its assumptions."""
    from openconductor.training import estimate as assumed

    base = config.model.base or "a fresh tiny model"
    parts = {
        "model": f"{base}: {_billions(needs.parameters)} parameters",
        "learnt": f"{_billions(needs.learnt)} parameters",
    }
    if needs.prompt_tokens is not None:
        parts["prompt"] = f"{needs.prompt_tokens:.0f} tokens on average"
    for cards, memory in needs.memory.items():
        sizes = ", ".join(f"{name} {size:.1f}" for name, size in memory.items() if name != "peak")
        peak = memory["peak"]
        hours = needs.hours[cards]
        name = "1 GPU" if cards == 1 else f"{cards} GPUs"
        parts[name] = f"{peak:.0f} GiB each ({sizes}), {hours:.0f} hours"
    if needs.context is not None:
        parts["context"] = f"{needs.context} tokens for vLLM (of a server: --max-model-len)"
    if needs.disk >= 0.1:
        parts["disk"] = (
            f"{needs.disk:.0f} GiB: {assumed.CHECKPOINTS} checkpoints of "
            f"{assumed.CHECKPOINT_BYTES} bytes a parameter that learns, and the models"
        )
    if needs.hours:
        parts["hours"] = (
            f"assume {assumed.SAMPLED} tokens/s sampled of a 7B a card by vLLM, at most "
            f"{assumed.SAMPLED_PLAINLY} by transformers, {assumed.FLOPS:.0e} "
            f"FLOP/s, {assumed.COMPLETION_TOKENS} tokens a completion, and "
            f"{assumed.CALL_SECONDS} s a step for the slowest workflow"
        )
        parts["untried"] = UNTRIED
    return _labelled(parts)


def _billions(count: int) -> str:
    return f"{count / 1e9:.2f} B" if count >= 1e8 else f"{count / 1e6:.2f} M"


def _labelled(parts: dict[str, str]) -> list[str]:
    return [f"{name:<12} {text}" for name, text in parts.items()]
