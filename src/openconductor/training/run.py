"""One training, from a recipe to a Conductor, in a folder that can be resumed at any moment.

The folder holds ``config.toml``, ``environment.json``, ``start.json``, ``cold_start/``,
``imitated/``, ``checkpoints/``, ``curves.jsonl``, ``journal.sqlite`` (every completion with its
reward, and what the workers said and cost), ``conductor/`` (what ``Conductor`` loads) and
``results.json``. Every file appears whole or not at all; a checkpoint counts only when it is marked
as complete. Started by ``accelerate launch`` or ``torchrun``, the processes learn together, and the
first one alone writes, measures and pays.
"""

from __future__ import annotations

import gc
import hashlib
import os
import platform
import shutil
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from accelerate import PartialState
from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

import openconductor
from openconductor.errors import ConfigError, TrainingStopped
from openconductor.prompt import SOLVE_SUBTASK, render_workflow
from openconductor.store import open_store
from openconductor.store.storage import write_whole
from openconductor.training.checkpoint import (
    check_checkpoint,
    check_engine,
    engine_name,
    is_complete,
    save_conductor,
    save_trained,
    unsharded,
)
from openconductor.training.checks import CONFIG, ENVIRONMENT, check_folder
from openconductor.training.completions import (
    complete,
    draw_pool,
    draws_ordinals,
    number_pool,
    why_invalid,
    write_prompt,
)
from openconductor.training.curves import (
    Record,
    kind_of,
    measure,
    read_curve,
    read_record,
    write_record,
)
from openconductor.training.grpo import GRPO, TIMEOUT_S
from openconductor.training.imitation import IMITATION, lost_kinds
from openconductor.training.models import build_model, check_base, digest_base, is_tiny, load_model
from openconductor.training.scoring import Sampled, Scorer, check_masked
from openconductor.training.setup import (
    Learner,
    Phase,
    Setup,
    held_out_problems,
    load_questions,
    open_workers,
)
from openconductor.training.supervised import COLD_START, fresh_tokenizer
from openconductor.training.train_config import (
    UNTRIED,
    TrainConfig,
    dump_train_config,
    install_command,
)
from openconductor.types import Completion, Step, Workflow

if TYPE_CHECKING:
    from openconductor.traces.tracer import Traces

PHASES: tuple[Phase, ...] = (COLD_START, IMITATION, GRPO)
"""The phases of a training, in order; each starts from the model of the one before."""
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
    """Ignore a line of progress."""


def is_untried(config: TrainConfig, processes: int) -> bool:
    """Return True if no GPU has run such a training yet (``UNTRIED``)."""
    uses_vllm = config.rollout.engine != "transformers"
    trains_all_weights = config.model.lora_rank == 0
    return processes > 1 or uses_vllm or trains_all_weights


def train(
    config: TrainConfig,
    folder: str | Path,
    *,
    resume: bool = False,
    on_progress: Callable[[str], None] | None = None,
    phases: Sequence[Phase] = PHASES,
    traces: Traces | None = None,
) -> Record:
    """Train a Conductor.

    Args:
        config: the recipe.
        folder: where the run is written; it must be new or empty, unless ``resume``.
        resume: continue from the last whole checkpoint; the curve is the one of an uninterrupted
            run, and no call that the run's journal holds is paid for again. A run that is finished
            returns its results.
        on_progress: gets lines for people, from the first process.
        phases: the phases, in order; a resumed run needs the same ones.
        traces: records the spans of each rollout. None: nobody does.

    Returns:
        The results: the start, and the trained Conductor at temperature 1 and greedy, each measured
        on held-out questions, with seconds of work.

    Raises:
        ConfigError: the folder is in use, its run has another recipe, the base model is unknown, or
            the engine of several processes cannot run here or go on from the run's checkpoint.
        TaskError: data are absent, or a question is both learnt from and held out.
        TrainingStopped: the model writes too few valid workflows to begin with, or too many rewards
            are masked, of an iteration or of a measurement.
        BudgetExceeded: the training's budget is spent; a larger one resumes it.
        JournalError: the disk failed; what was written before stays.
    """
    folder = Path(folder)
    check_engine()
    state = PartialState(cpu=not torch.cuda.is_available(), timeout=timedelta(seconds=TIMEOUT_S))
    say = on_progress if on_progress is not None and state.is_main_process else keep_quiet
    if torch.cuda.is_available() and is_untried(config, state.num_processes):
        say(f"warning: {UNTRIED}")
    questions = load_questions(config)
    tiny = not config.model.base or is_tiny(config.model.base)
    if tiny:
        torch.set_num_threads(1)  # a tiny model is up to four times slower on several threads
    with quiet_libraries(), ExitStack() as stack:
        _check_installed(config)
        base = config.model.base
        if base:
            check_base(base)
        if state.is_main_process:
            weights = digest_base(base) if base else ""
            changed = _open_folder(config, folder, weights, resume=resume)
            say(f"run folder: {folder}")
            if changed:
                say(changed)
        state.wait_for_everyone()
        results = folder / "results.json"
        if results.is_file():
            say(f"the run in {folder} is finished; these are its results")
            return read_record(results)
        for phase in phases:
            if not is_complete(phase.model_folder(folder)):
                check_checkpoint(phase.checkpoint_folder(folder), state.num_processes)
        scorer: Scorer | None = None
        if state.is_main_process:
            journal = stack.enter_context(open_store(folder / "journal.sqlite"))
            pool = open_workers(config, questions, journal)
            scorer = Scorer(config, pool, questions.grader, journal, traces)
            stack.callback(scorer.close)
        else:
            pool = open_workers(config, questions)
        if tiny:  # its runtime computes in float32, and so must what is sampled and learnt
            optim = config.optim.model_copy(update={"bf16": False})
            config = config.model_copy(update={"optim": optim})
        # The recipe decides, whatever the launcher's file says; DeepSpeed refuses two answers.
        os.environ["ACCELERATE_MIXED_PRECISION"] = "bf16" if config.optim.bf16 else "no"
        _run(Setup(config, folder, pool, questions, scorer, say), state, phases)
        state.wait_for_everyone()
        return read_record(results)


def _run(setup: Setup, state: PartialState, phases: Sequence[Phase]) -> None:
    """Run the phases, and write the results."""
    begun = time.perf_counter()
    form = [phase for phase in phases if not phase.graded]
    base = _run_phases(setup, state, form, base=None)
    started = time.perf_counter()
    if state.is_main_process:
        with unsharded():
            start = _measure_start(setup, base)
        validity = start["format"]["validity"]
        setup.say(f"start: accuracy {start['accuracy']:.3f}, validity {validity:.3f}")
    state.wait_for_everyone()
    graded = [phase for phase in phases if phase.graded]
    last = _run_phases(setup, state, graded, base=base)
    learnt_at = time.perf_counter()
    if state.is_main_process:
        with unsharded():
            results = _measure_end(setup, last)
        results["seconds"] = {"start": started - begun, "learning": learnt_at - started}
        write_record(setup.folder / "results.json", results)


# ── phases ────────────────────────────────────────────────────────────────────────────────────────
def _run_phases(
    setup: Setup, state: PartialState, phases: Sequence[Phase], *, base: Path | None
) -> Path | None:
    """Run the phases that the recipe wants; return the folder of the last model.

    ``base`` is the folder of the model before. None: ``model.base``, or a fresh model.
    """
    for phase in phases:
        if not phase.is_wanted(setup.config):
            continue
        folder = phase.model_folder(setup.folder)
        if not is_complete(folder):
            lost = _lost_kinds(setup)
            if lost:
                setup.say(
                    f"warning: {phase.name} is not started: {', '.join(lost)} had been solved and "
                    "no longer is"
                )
                return base
            _run_phase(setup, phase, base)
        if state.is_main_process and folder.name != "conductor":
            shutil.rmtree(phase.checkpoint_folder(setup.folder), ignore_errors=True)
        base = folder
    return base


def _run_phase(setup: Setup, phase: Phase, base: Path | None) -> None:
    """Train one phase, and store its model whole."""
    model, tokenizer = _load(setup, base)
    learner = Learner(model, tokenizer, phase.checkpoint_folder(setup.folder))
    trainer = phase.run(setup, learner)
    learnt = setup.questions.learnt if phase.graded else ()
    folder = phase.model_folder(setup.folder)
    save_trained(
        trainer,
        tokenizer,
        setup.config,
        folder,
        setup.pool,
        learnt,
        setup.questions.answer_forms,
        before=base,
    )
    del model, learner, trainer
    gc.collect()  # a trainer and its optimiser hold each other


def _load(setup: Setup, base: Path | None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load the model of a phase. None: the recipe's base model, or a fresh tiny one."""
    config = setup.config
    if base is not None:
        return load_model(base)
    if config.model.base:
        return load_model(config.model.base, options=config.model.chat_template_kwargs)
    tokenizer = fresh_tokenizer(config, setup.questions, setup.pool)
    return build_model(config.model, tokenizer, seed=config.seed), tokenizer


def _load_alone(setup: Setup, base: Path | None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a model onto the device of the first process, which alone measures it."""
    model, tokenizer = _load(setup, base)
    cast("Any", model).to(PartialState().device)
    return model, tokenizer


def _lost_kinds(setup: Setup) -> list[str]:
    """Return the kinds of question that imitation lost; [] before its end."""
    if not is_complete(IMITATION.model_folder(setup.folder)):
        return []
    records = read_curve(setup.curve_path)
    return lost_kinds([record for record in records if record["phase"] == "imitate"])


# ── measurements ──────────────────────────────────────────────────────────────────────────────────
def _measure_start(setup: Setup, base: Path | None) -> Record:
    """Measure the model before it learns from rewards; the record is kept.

    Raises:
        TrainingStopped: it writes too few valid workflows.
    """
    path = setup.folder / "start.json"
    settings = setup.config.start
    if path.is_file():
        return read_record(path)
    model, tokenizer = _load_alone(setup, base)
    count = max(settings.prompts, settings.workflows)
    sampled = _plan_held_out(setup, model, tokenizer, count, temperature=1.0)
    reasons: list[str] = []
    for one in sampled:
        pool = draw_pool(setup.config, setup.pool, one.key)
        reasons.append(why_invalid(one.completion, setup.config, pool.ordinals))
    valid = reasons.count("")
    if valid / count < settings.validity:
        invalid = [place for place, reason in enumerate(reasons) if reason]
        for place in invalid[:_SHOWN]:
            text = sampled[place].completion.text[:1000]
            setup.say(f"--- completion {place + 1}: {reasons[place]}\n{text}")
        raise TrainingStopped(
            f"the start: {valid} of {count} completions are valid workflows, expected a share of "
            f"{settings.validity} (start.validity); no worker was paid. Teach the form first "
            "(cold_start.steps), take another model.base, or a shorter prompt"
        )
    record = _score(setup, sampled[: settings.workflows], phase="start")
    record["format"] = {"prompts": count, "validity": valid / count}
    write_record(path, record)
    return record


def _measure_end(setup: Setup, last: Path | None) -> Record:
    """Save the Conductor, unless GRPO did, and measure it as it is read from its folder.

    Returns:
        The results, without seconds.
    """
    config, conductor = setup.config, setup.folder / "conductor"
    if not is_complete(conductor):
        model, tokenizer = _load(setup, last)
        save_conductor(
            model,
            tokenizer,
            config,
            conductor,
            pool=setup.pool,
            learnt=setup.questions.learnt,
            answer_forms=setup.questions.answer_forms,
            before=last,
        )
    model, tokenizer = _load_alone(setup, conductor)
    return {
        "name": config.name,
        "seed": config.seed,
        "control": config.reward.control,
        "lost": _lost_kinds(setup),
        "start": read_record(setup.folder / "start.json"),
        "sampled": _measure_plans(setup, model, tokenizer, "sampled", temperature=1.0),
        "greedy": _measure_plans(setup, model, tokenizer, "greedy", temperature=None),
        "workers": _measure_workers(setup),
    }


def _plan_held_out(
    setup: Setup,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    count: int | None = None,
    *,
    temperature: float | None,
) -> list[Sampled]:
    """Let the model plan for the held-out questions.

    ``count`` completions, the questions in turn; None: one of each. All workers are offered, unless
    each question has workers or ordinals of its own.
    """
    config = setup.config
    problems = held_out_problems(setup.config, setup.questions)
    asked = [problems[index % len(problems)] for index in range(count or len(problems))]
    drawn = draws_ordinals(config)
    keys = [f"held out/{problem.id}" if drawn else "" for problem in asked]
    prompts: list[str] = []
    for problem, key in zip(asked, keys, strict=True):
        pool = draw_pool(config, setup.pool, key)
        question = setup.questions.planned(problem)
        prompts.append(write_prompt(tokenizer, question, config, pool))
    completions = complete(
        model, tokenizer, prompts, config=config, temperature=temperature, seed=0
    )
    return [
        Sampled(problem, completion, index // len(problems), key)
        for index, (problem, completion, key) in enumerate(
            zip(asked, completions, keys, strict=True)
        )
    ]


def _measure_plans(
    setup: Setup,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    phase: str,
    *,
    temperature: float | None,
) -> Record:
    """Measure what the model plans for the held-out questions.

    Returns:
        The measures of first rounds. In recursion ``rounds`` has those of whole episodes.
    """
    config = setup.config
    assert setup.scorer is not None
    sampled = _plan_held_out(setup, model, tokenizer, temperature=temperature)
    kinds = [kind_of(plan.problem) for plan in sampled]
    scored = setup.scorer.score(sampled, phase=phase)
    check_masked(scored)
    pools = [number_pool(config, setup.pool, plan.key) for plan in sampled]
    record = measure(kinds, scored, pools)
    if config.rollout.rounds == 1:
        return record
    places = [place for place, first in enumerate(scored) if first.episode.answer is not None]
    if not places:
        return record
    prompts: list[str] = []
    for place in places:
        problem, previous = sampled[place].problem, scored[place].episode.rounds[-1]
        pool = draw_pool(config, setup.pool, sampled[place].key)
        question = setup.questions.planned(problem)
        prompts.append(write_prompt(tokenizer, question, config, pool, previous))
    completions = complete(
        model, tokenizer, prompts, config=config, temperature=temperature, seed=1
    )
    seconds: list[Sampled] = []
    for place, completion in zip(places, completions, strict=True):
        previous = scored[place].episode.rounds[-1]
        seconds.append(replace(sampled[place], completion=completion, previous=previous))
    ends = list(scored)
    played = setup.scorer.score(seconds, phase=f"{phase}, round 1")
    for place, second in zip(places, played, strict=True):
        # An invalid second round leaves the answer of the first one standing. One that
        # infrastructure failed leaves the question undecided.
        if second.episode.answer is not None or second.correct is None:
            ends[place] = second
    check_masked(ends)
    record["rounds"] = measure(kinds, ends, pools)
    return record


def _measure_workers(setup: Setup) -> Record:
    """Measure each worker alone on the held-out questions, as far as its answers are recorded.

    Returns:
        The accuracy by worker, and that of the best worker of each question as ``best_of_each``;
        {}: no answers are recorded.
    """
    assert setup.scorer is not None
    problems = held_out_problems(setup.config, setup.questions)
    accuracies: Record = {}
    solved: set[str] = set()
    for ordinal, worker in setup.pool:
        if worker.name not in setup.questions.recorded:
            continue
        plan = Completion(render_workflow(Workflow((Step(ordinal, SOLVE_SUBTASK),))))
        alone = [Sampled(problem, plan, 0) for problem in problems]
        scored = setup.scorer.score(alone, phase=f"alone: {worker.name}")
        right = {problem.id for problem, one in zip(problems, scored, strict=True) if one.correct}
        accuracies[worker.name] = len(right) / len(problems)
        solved |= right
    if not accuracies:
        return {}
    return {"alone": accuracies, "best_of_each": len(solved) / len(problems)}


def _score(setup: Setup, sampled: Sequence[Sampled], *, phase: str) -> Record:
    """Play and grade what the model planned, and measure it.

    Raises:
        TrainingStopped: too much of it could not be decided.
    """
    assert setup.scorer is not None
    scored = setup.scorer.score(sampled, phase=phase)
    check_masked(scored)
    kinds = [kind_of(one.problem) for one in sampled]
    pools = [number_pool(setup.config, setup.pool, one.key) for one in sampled]
    return measure(kinds, scored, pools)


# ── the folder and its surroundings ───────────────────────────────────────────────────────────────
def _check_installed(config: TrainConfig) -> None:
    """Check that sampling and tracking are installed, before anything is written or paid for."""
    packages: dict[str, tuple[str, ...]] = {"trackers": config.trackers}
    if config.rollout.engine != "transformers":
        packages["rollout.engine"] = ("vllm",)
    if engine_name().startswith("ZeRO"):
        packages["engine"] = ("deepspeed",)
    for key, names in packages.items():
        for name in names:
            if find_spec(name) is None:
                raise ConfigError(f"{key}: {name} is not installed; {install_command(name)}")


@contextmanager
def quiet_libraries() -> Generator[None]:
    """Hide FutureWarnings of the libraries, and their progress bars, but for those of downloads.

    Their other warnings and their errors are shown.
    """
    had_bars = logging.is_progress_bar_enabled()
    shows_downloads = not are_progress_bars_disabled()
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # else DeepSpeed warns where it is installed
    with warnings.catch_warnings():
        libraries = r"(torch|transformers|trl|accelerate|datasets)(\.|$)"
        warnings.filterwarnings("ignore", category=FutureWarning, module=libraries)
        logging.disable_progress_bar()
        if shows_downloads:
            enable_progress_bars()  # the hub's, which the line above also hides
        try:
            yield
        finally:
            if had_bars:
                logging.enable_progress_bar()


def _open_folder(config: TrainConfig, folder: Path, weights: str, *, resume: bool) -> str:
    """Make the run's folder, or check that its run may be resumed.

    Returns what is different from the machine that began the run, for people; "" if nothing is.
    ``weights`` is a digest of those of the base.
    """
    stored = folder / CONFIG
    before = check_folder(config, folder, resume=resume)
    if before is None:
        folder.mkdir(parents=True, exist_ok=True)
        write_record(folder / ENVIRONMENT, _environment(weights))
    if before != config:
        write_whole(stored, dump_train_config(config))
    return "" if before is None else _note_environment(folder / ENVIRONMENT, weights)


def _note_environment(path: Path, weights: str) -> str:
    """Note in a resumed run's file with what it goes on; return what is different, for people."""
    begun = read_record(path)
    now = _environment(weights)
    earlier = begun.get("resumed", [])
    latest = earlier[-1] if earlier else begun
    changed = [name for name in now if latest.get(name, "") != now[name]]
    if not changed:
        return ""
    write_record(path, {**begun, "resumed": [*earlier, now]})
    return (
        f"resumed with another {', '.join(changed)} than before (environment.json): the curve may "
        "differ from an uninterrupted one"
    )


def _environment(weights: str) -> Record:
    """Return the versions, the machine and the base's weights that a run is made with."""
    installed = [package for package in distributions() if package.name in _PACKAGES]
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "versions": {package.name: package.version for package in installed},
        "source": source_hash(),
        "base": weights,
    }


def source_hash() -> str:
    """Return a hash of the package's code: equal hashes are the same program."""
    root = Path(openconductor.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix().encode()
        digest.update(name + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
