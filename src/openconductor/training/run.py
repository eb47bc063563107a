"""One training from recipe to checkpoint, in a folder that can be resumed at any moment.

In: a TrainConfig and a folder. Out: in that folder ``config.toml``, ``environment.json``,
``start.json``, ``cold_start/``, ``imitated/``, ``checkpoints/``, ``curves.jsonl``,
``journal.sqlite`` (every completion with its reward, and what the workers said and cost),
``conductor/`` (what ``Conductor`` loads) and ``results.json``. Every file appears whole or not at
all; a checkpoint counts only when its mark of completeness is there. Started by ``accelerate
launch`` or ``torchrun``, the processes learn together, and the first one alone writes, measures and
pays.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import platform
import shutil
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast

import torch
from accelerate import PartialState
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

import openconductor
from openconductor.errors import ConfigError, TrainingStopped
from openconductor.pool import open_pool, simulated_pool
from openconductor.store import open_store
from openconductor.store.storage import write_whole
from openconductor.training.checkpoint import (
    build_model,
    build_tokenizer,
    check_base,
    is_complete,
    is_conductor,
    is_tiny,
    last_checkpoint,
    load_model,
    save_conductor,
    save_learnt,
    servers_read_alike,
    storing,
)
from openconductor.training.curves import Curve, Record, kind_of, measure, model_card, read_curve
from openconductor.training.examples import (
    Setup,
    held_out_problems,
    load_questions,
    training_problems,
)
from openconductor.training.grpo import PATIENCE_S, Rewards, run_grpo
from openconductor.training.imitation import imitate, lost_kinds
from openconductor.training.rollout import (
    Sampled,
    Scorer,
    check_masked,
    complete,
    draw_pool,
    unreadable,
    write_prompt,
)
from openconductor.training.supervised import cold_start, fresh_phrases
from openconductor.training.train_config import (
    TrainConfig,
    differences,
    dump_train_config,
    load_train_config,
)

_PACKAGES = (
    "openconductor",
    "torch",
    "transformers",
    "trl",
    "accelerate",
    "tokenizers",
    "datasets",
    "peft",
    "vllm",
)
_SHOWN = 3  # completions of a start that writes too few valid workflows


def keep_quiet(line: str) -> None:
    """What hears progress where nobody listens."""


def train(
    config: TrainConfig,
    folder: str | Path,
    *,
    resume: bool = False,
    on_progress: Callable[[str], None] | None = None,
) -> Record:
    """Train a Conductor.

    Args:
        config: the recipe.
        folder: where the run is written; it must be new or empty, unless ``resume``.
        resume: continue from the last whole checkpoint; the curve is the one of an uninterrupted
            run, and no call that the run's journal holds is paid for again. A run that is finished
            returns its results.
        on_progress: gets lines for people, from the first process.

    Returns:
        The results: the start, and the trained Conductor at temperature 1 and greedy, each measured
        on held-out questions, with seconds of work.

    Raises:
        ConfigError: the folder is in use, its run has another recipe, or there is no such base
            model.
        TaskError: data are absent, or a question is both learnt from and held out.
        TrainingStopped: the model writes too few valid workflows to begin with, or too many rewards
            are masked, of an iteration or of a measurement.
        BudgetExceeded: the training's budget is spent; a larger one resumes it.
        JournalError: the disk failed; what was written before stays.
    """
    folder, simulated = Path(folder), simulated_pool(config.pool)
    state = PartialState(cpu=not torch.cuda.is_available(), timeout=timedelta(seconds=PATIENCE_S))
    say = on_progress if on_progress is not None and state.is_main_process else keep_quiet
    questions = load_questions(config)
    tiny = not config.model.base or is_tiny(config.model.base)
    if tiny:
        torch.set_num_threads(1)  # a tiny model is up to four times slower on several threads
    with (
        quiet_libraries(bars=not tiny),
        ExitStack() as opened,
    ):  # a large model may have to be downloaded
        _check_installed(config)
        if config.model.base:
            check_base(config.model.base)
        if state.is_main_process and (changed := _open_folder(config, folder, resume=resume)):
            say(changed)
        state.wait_for_everyone()
        results = folder / "results.json"
        if results.is_file():
            say(f"the run in {folder} is finished; these are its results")
            return json.loads(results.read_text(encoding="utf-8"))
        pool = open_pool(config.pool, config.seed)
        scorer: Scorer | None = None
        if state.is_main_process:
            journal = opened.enter_context(open_store(folder / "journal.sqlite"))
            pool = pool.replaying(journal) if simulated is None else pool
            scorer = Scorer(config, pool, questions.grader, journal)
            opened.callback(scorer.close)
        if tiny:  # its runtime computes in float32, and so must what is sampled and learnt
            config = config.model_copy(
                update={"optim": config.optim.model_copy(update={"bf16": False})}
            )
        _run(Setup(config, folder, pool, questions, scorer, say), state)
        state.wait_for_everyone()
        return json.loads(results.read_text(encoding="utf-8"))


def _run(setup: Setup, state: PartialState) -> None:
    config, folder, say = setup.config, setup.folder, setup.say
    begun = time.perf_counter()
    model, tokenizer = _starting_point(setup)
    started = time.perf_counter()
    if state.is_main_process:
        start = _measure_start(setup, cast("Any", model).to(state.device), tokenizer)
        say(f"start: accuracy {start['accuracy']:.3f}, validity {start['format']['validity']:.3f}")
    state.wait_for_everyone()
    del model  # each phase loads its own, and holds no other
    lost = _learn(setup, state)
    learnt = time.perf_counter()
    if not state.is_main_process:
        return
    model, tokenizer = load_model(folder / "conductor")
    cast("Any", model).to(state.device)
    results: Record = {
        "name": config.name,
        "seed": config.seed,
        "control": config.reward.control,
        "lost": lost,
        "start": json.loads((folder / "start.json").read_text(encoding="utf-8")),
        "sampled": _score(
            setup, _sample(setup, model, tokenizer, temperature=1.0), phase="sampled"
        ),
        "greedy": _score(setup, _sample(setup, model, tokenizer, temperature=None), phase="greedy"),
        "seconds": {"start": started - begun, "learning": learnt - started},
    }
    write_whole(folder / "results.json", json.dumps(results, indent=2) + "\n")


def _check_installed(config: TrainConfig) -> None:
    """Make sure that what samples and what tracks is there, before anything is written, learnt or paid for."""
    wanted = {
        "rollout.engine": ("vllm",) if config.rollout.engine != "transformers" else (),
        "trackers": config.trackers,
    }
    for key, packages in wanted.items():
        if missing := [package for package in packages if find_spec(package) is None]:
            raise ConfigError(
                f"{key}: {', '.join(missing)} not installed; pip install {' '.join(missing)}"
            )


@contextmanager
def quiet_libraries(*, bars: bool = False) -> Generator[None]:
    """Keep out of a training's lines what its libraries say to their developers: FutureWarnings, and bars unless asked.

    Their other warnings and their errors are shown, as ours are.
    """
    shown = logging.is_progress_bar_enabled()
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    with warnings.catch_warnings():
        libraries = r"(torch|transformers|trl|accelerate|datasets)(\.|$)"
        warnings.filterwarnings("ignore", category=FutureWarning, module=libraries)
        if not bars:
            logging.disable_progress_bar()
        try:
            yield
        finally:
            if shown:
                logging.enable_progress_bar()


def _open_folder(config: TrainConfig, folder: Path, *, resume: bool) -> str:
    """Make the run's folder, or check that its run may be resumed; returns what is no longer as it was."""
    stored, environment = folder / "config.toml", folder / "environment.json"
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"run folder {folder}: is a file, expected a folder")
    if not stored.is_file():
        begun = (
            "environment.json",
            "config.toml",
        )  # or a part of one: of a run that was killed while it began
        if folder.is_dir() and not all(one.name.startswith(begun) for one in folder.iterdir()):
            raise ConfigError(
                f"run folder {folder}: is not empty and holds no run, expected a new folder"
            )
        if resume:
            raise ConfigError(f"run folder {folder}: holds no run to resume")
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(environment, json.dumps(_environment(), indent=2) + "\n")
        write_whole(stored, dump_train_config(config))
        return ""
    if not resume:
        raise ConfigError(
            f"run folder {folder}: holds a run already; resume it, or choose another folder"
        )
    before = load_train_config(stored)
    free = {
        "budget": config.budget,
        "alarms": config.alarms,
    }  # both may change when a run is resumed
    if changed := differences(before.model_copy(update=free), config):
        raise ConfigError(
            f"run folder {folder}: its run has another recipe (config.toml: {changed}), expected the same"
        )
    if before != config:
        write_whole(stored, dump_train_config(config))
    begun, now = json.loads(environment.read_text(encoding="utf-8")), _environment()
    latest = begun.get("resumed", [begun])[-1]
    if not (changed := ", ".join(name for name in now if latest.get(name) != now[name])):
        return ""
    write_whole(
        environment,
        json.dumps({**begun, "resumed": [*begun.get("resumed", []), now]}, indent=2) + "\n",
    )
    return f"resumed with another {changed} than before (environment.json): the curve may differ from an uninterrupted one"


def _environment() -> dict[str, object]:
    """The versions and the machine that a run is made with."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "versions": {
            found.name: found.version for found in distributions() if found.name in _PACKAGES
        },
        "source": source_hash(),
    }


def source_hash() -> str:
    """A hash of the package's code: two runs with the same one were made by the same program."""
    root = Path(openconductor.__file__).parent
    files = (
        path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes()
        for path in sorted(root.rglob("*.py"))
    )
    return hashlib.sha256(b"\0".join((*files, b""))).hexdigest()


def _starting_point(setup: Setup) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model that GRPO starts from: a base model or Conductor, or what a cold start has made of it."""
    config, folder = setup.config, setup.folder / "cold_start"
    if not config.cold_start.steps:
        return load_model(config.model.base)
    if not is_complete(folder):
        if config.model.base:
            model, tokenizer = load_model(config.model.base)
        else:
            tokenizer = build_tokenizer(fresh_phrases(config, setup.questions.learnt))
            model = build_model(config.model, tokenizer, seed=config.seed)
        trainer = cold_start(model, tokenizer, setup, setup.folder / "cold_start_checkpoints")
        save_learnt(trainer, tokenizer, config, folder)
        shutil.rmtree(setup.folder / "cold_start_checkpoints", ignore_errors=True)
    return load_model(folder)


def _learn(setup: Setup, state: PartialState) -> list[str]:
    """Imitation, then GRPO, from the last whole checkpoint to the last iteration, and into ``conductor/``.

    Returns:
        The kinds of question that imitation lost, for which GRPO was not started.
    """
    config, conductor, path = (
        setup.config,
        setup.folder / "conductor",
        setup.folder / "curves.jsonl",
    )
    imitated, checkpoints = setup.folder / "imitated", setup.folder / "imitate_checkpoints"
    learnt = setup.questions.learnt
    if config.imitate.rounds and not is_complete(imitated):
        model, tokenizer = _starting_point(setup)
        save_learnt(
            imitate(model, tokenizer, setup, checkpoints), tokenizer, config, imitated, learnt
        )
        del model
        gc.collect()  # the trainer and its optimiser hold each other
    shutil.rmtree(checkpoints, ignore_errors=True)
    rounds = [record for record in read_curve(path) if record["phase"] == "imitate"]
    lost = lost_kinds(rounds)
    if is_complete(conductor):
        return lost
    model, tokenizer = load_model(imitated) if config.imitate.rounds else _starting_point(setup)
    if lost or not config.rollout.iterations:
        if lost:
            setup.say(
                f"warning: GRPO is not started: {', '.join(lost)} had been solved and no longer is"
            )
        if state.is_main_process:
            save_conductor(model, tokenizer, config, conductor, learnt=learnt)
        state.wait_for_everyone()
        return lost
    checkpoint, done = last_checkpoint(setup.folder / "checkpoints")
    after = len(rounds)
    curve = (
        Curve.open(path, after=after, done=done)
        if state.is_main_process
        else Curve(path, after=after)
    )
    state.wait_for_everyone()
    rewards = Rewards(setup, training_problems(config, setup.questions), curve)
    folder = setup.folder / "checkpoints"
    trainer = run_grpo(
        model, tokenizer, rewards, folder, checkpoint=checkpoint, processes=state.num_processes
    )
    save_learnt(trainer, tokenizer, config, conductor, learnt)
    return lost


def _measure_start(
    setup: Setup, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> Record:
    """How the model does before it learns from rewards; measured once, and kept.

    Raises:
        TrainingStopped: it writes too few valid workflows.
    """
    path, settings = setup.folder / "start.json", setup.config.start
    if path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))
    count = max(settings.prompts, settings.workflows)
    sampled = _sample(setup, model, tokenizer, count, temperature=1.0)
    pools = [draw_pool(setup.config, setup.pool, one.key) for one in sampled]
    reasons = [
        unreadable(one.completion, setup.config, pool.ordinals)
        for one, pool in zip(sampled, pools, strict=True)
    ]
    validity = reasons.count("") / count
    if validity < settings.validity:
        shown = [
            f"--- completion {index + 1}: {reasons[index]}\n{sampled[index].completion.text[:1000]}"
            for index in [place for place, reason in enumerate(reasons) if reason][:_SHOWN]
        ]
        for line in shown:
            setup.say(line)
        raise TrainingStopped(
            f"the start: {reasons.count('')} of {count} completions are valid workflows, expected a share of "
            f"{settings.validity} (start.validity); no worker was paid. Teach the form first (cold_start.steps), take "
            "another model.base, or a shorter prompt"
        )
    record = _score(setup, sampled[: settings.workflows], phase="start")
    record["format"] = {"prompts": count, "validity": validity}
    write_whole(path, json.dumps(record, indent=2) + "\n")
    return record


def _sample(
    setup: Setup,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    count: int | None = None,
    *,
    temperature: float | None,
) -> list[Sampled]:
    """Let the model plan for the held-out questions: once each, or ``count`` times in turn.

    All workers are offered, unless they are others for each question.
    """
    config, problems = setup.config, held_out_problems(setup.config, setup.questions)
    simulated = simulated_pool(config.pool)
    redrawn = simulated is not None and simulated.redrawn
    asked = [problems[index % len(problems)] for index in range(count or len(problems))]
    keys = [f"held out/{problem.id}" if redrawn else "" for problem in asked]
    prompts = [
        write_prompt(tokenizer, problem.question, config, draw_pool(config, setup.pool, key))
        for problem, key in zip(asked, keys, strict=True)
    ]
    completions = complete(
        model, tokenizer, prompts, config=config, temperature=temperature, seed=0
    )
    return [
        Sampled(problem, said, index // len(problems), key)
        for index, (problem, said, key) in enumerate(zip(asked, completions, keys, strict=True))
    ]


def _score(setup: Setup, sampled: Sequence[Sampled], *, phase: str) -> Record:
    """Play and grade what the model planned, and measure it.

    Raises:
        TrainingStopped: too much of it could not be decided.
    """
    assert setup.scorer is not None
    scored = setup.scorer.score(sampled, phase=phase)
    check_masked(scored)
    return measure([kind_of(one.problem) for one in sampled], scored, setup.pool)


def export(
    run: Path, folder: Path, *, dtype: Literal["bfloat16", "float16", "float32"] | None = None
) -> Path:
    """Write a finished run's Conductor into a new folder, which is returned.

    Args:
        run: the folder of the training.
        folder: where to write; it must not be there yet.
        dtype: of the weights; default: bfloat16, and float32 for a tiny Conductor, whose runtime
            reads no other.

    Raises:
        ConfigError: the run is not finished, the folder is there, or a tiny Conductor is wanted in
            another dtype.
        JournalError: the disk failed.
    """
    conductor = run / "conductor"
    if not is_conductor(str(conductor)) or not (run / "results.json").is_file():
        raise ConfigError(
            f"export: {run} holds no finished training, expected conductor/ and results.json in it"
        )
    if folder.exists():
        raise ConfigError(f"export: {folder} is there already, expected a new folder")
    tiny = is_tiny(str(conductor))
    if tiny and dtype not in (None, "float32"):
        raise ConfigError(
            f"export: got dtype {dtype} for a tiny Conductor, expected float32: its runtime reads no other"
        )
    wanted = getattr(torch, dtype or ("float32" if tiny else "bfloat16"))
    model, tokenizer = load_model(conductor, dtype=cast("torch.dtype", wanted))
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    with storing(folder):
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        shutil.copy(conductor / "conductor.json", part)
        results = cast("Record", json.loads((run / "results.json").read_text(encoding="utf-8")))
        (part / "README.md").write_text(
            model_card(run, results, served=servers_read_alike(part)), encoding="utf-8"
        )
        part.replace(folder)
    return folder
