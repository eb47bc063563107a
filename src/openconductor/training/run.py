"""One training from recipe to checkpoint, in a folder that can be resumed at any moment.

In: a TrainConfig and a folder. Out: in that folder ``config.toml``, ``environment.json``, ``cold_start/``,
``checkpoints/``, ``curves.jsonl``, ``conductor/`` (what ``Conductor`` loads) and ``results.json``; of a second act
``widened/`` and ``checkpoints_widened/``. Every file appears whole or not at all; a checkpoint counts only when its
mark of completeness is there. Over a pool file, what the workers said and cost is in ``journal.sqlite``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import platform
import random
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path
from typing import cast

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast, Qwen2ForCausalLM
from transformers.utils import logging

import openconductor
from openconductor.errors import ConfigError, WorkflowError
from openconductor.gym.questions import KINDS, GymQuestion, draw_question
from openconductor.gym.sampling import random_workflow, write_thought
from openconductor.gym.workers import gym_pool
from openconductor.gym.world import COMPARE
from openconductor.journal import Journal
from openconductor.parser import parse_workflow
from openconductor.policies import LONG_PATIENCE_S, patient
from openconductor.pool import WorkerPool
from openconductor.prompt import render_workflow
from openconductor.reward import RewardFunction, Scored
from openconductor.storage import write_whole
from openconductor.training.checkpoint import (
    build_model,
    build_tokenizer,
    end_id,
    is_complete,
    is_tiny,
    last_checkpoint,
    load_base_model,
    load_model,
    pad_id,
    save_conductor,
)
from openconductor.training.curves import Curve, Record, measure
from openconductor.training.examples import Setup, held_out_problems, load_questions, training_problems
from openconductor.training.grpo import WorkflowReward, run_grpo
from openconductor.training.rollout import complete, score_all, write_prompt
from openconductor.training.train_config import TrainConfig, differences, dump_train_config, load_train_config
from openconductor.types import Step, Workflow

_PACKAGES = ("openconductor", "torch", "transformers", "trl", "accelerate", "tokenizers", "datasets")


def train(
    config: TrainConfig, folder: str | Path, *, resume: bool = False, on_progress: Callable[[str], None] | None = None
) -> Record:
    """Train a Conductor.

    Args:
        config: the recipe.
        folder: where the run is written; it must be new or empty, unless ``resume``.
        resume: continue from the last whole checkpoint; the curve is the one of an uninterrupted run, and no call that
            the run's journal holds is paid for again.
        on_progress: gets lines for people.

    Returns:
        The results: the cold start, the trained Conductor at temperature 1 and greedy, each measured on held-out
        questions, with seconds of work.

    Raises:
        ConfigError: the folder is in use, or its run has another recipe.
        TaskError: data are absent, or a question is both learnt from and held out.
        JournalError: the disk failed; what was written before stays.
    """
    folder = Path(folder)
    questions = load_questions(config)
    say = on_progress or keep_quiet
    if changed := _open_folder(config, folder, resume=resume):
        say(changed)
    tiny = not config.model.base or is_tiny(config.model.base)
    if tiny:
        torch.set_num_threads(1)  # a tiny model is up to four times slower on several threads
    # The journal holds what was paid for: a resumed run does not make its calls again. The gym's workers cost nothing
    # and answer a repeated call alike, so nothing is written of them.
    keeping = nullcontext() if config.pool == "gym" else Journal(folder / "journal.sqlite")
    with keeping as journal, patient(LONG_PATIENCE_S):
        pool = gym_pool(config.seed) if journal is None else WorkerPool.from_toml(config.pool).replaying(journal)
        score = RewardFunction(
            pool,
            questions.grader,
            prompt=config.prompt.options(),
            max_steps=config.rollout.max_steps,
            grade_timeout_s=config.reward.grade_timeout_s,
            on_event=journal,
        )
        return _run(Setup(config, folder, pool, questions, score, say), tiny=tiny)


def _run(setup: Setup, *, tiny: bool) -> Record:
    config, folder = setup.config, setup.folder
    begun = time.perf_counter()
    with quiet_libraries(bars=not tiny):  # a large model may have to be downloaded
        model, tokenizer = _starting_point(setup)
    with quiet_libraries():
        started = time.perf_counter()
        before = _measure(setup, model, tokenizer, temperature=1.0, repeats=config.held_out.start_repeats)
        setup.say(f"start: accuracy {before['accuracy']:.3f}, validity {before['validity']:.3f}")
        model = _learn(setup, model, tokenizer)
        learnt = time.perf_counter()
        save_conductor(model, tokenizer, config, folder / "conductor")
        results: Record = {
            "name": config.name,
            "seed": config.seed,
            "control": config.reward.control,
            "start": before,
            "sampled": _measure(setup, model, tokenizer, temperature=1.0),
            "greedy": _measure(setup, model, tokenizer, temperature=None),
            "seconds": {"start": started - begun, "learning": learnt - started},
        }
    write_whole(folder / "results.json", json.dumps(results, indent=2) + "\n")
    return results


def keep_quiet(line: str) -> None:
    """What hears progress where nobody listens."""


@contextmanager
def quiet_libraries(*, bars: bool = False) -> Generator[None]:
    """Keep out of a training's lines what its libraries say to their developers: FutureWarnings, and bars unless asked.

    Their other warnings and their errors are shown, as ours are.
    """
    shown = logging.is_progress_bar_enabled()
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
        if folder.is_dir() and any(folder.iterdir()):
            raise ConfigError(f"run folder {folder}: is not empty and holds no run, expected a new folder")
        if resume:
            raise ConfigError(f"run folder {folder}: holds no run to resume")
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(environment, json.dumps(_environment(), indent=2) + "\n")
        write_whole(stored, dump_train_config(config))
        return ""
    if not resume:
        raise ConfigError(f"run folder {folder}: holds a run already; resume it, or choose another folder")
    if changed := differences(load_train_config(stored), config):
        raise ConfigError(
            f"run folder {folder}: its run has another recipe (config.toml: {changed}), expected the same"
        )
    begun, now = json.loads(environment.read_text(encoding="utf-8")), _environment()
    latest = begun.get("resumed", [begun])[-1]
    if not (changed := ", ".join(name for name in now if latest.get(name) != now[name])):
        return ""
    write_whole(environment, json.dumps({**begun, "resumed": [*begun.get("resumed", []), now]}, indent=2) + "\n")
    return (
        f"resumed with another {changed} than before (environment.json): the curve may differ from an uninterrupted one"
    )


def _environment() -> dict[str, object]:
    """The versions and the machine that a run is made with."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": "cuda" if torch.cuda.is_available() else "cpu",
        "versions": {found.name: found.version for found in distributions() if found.name in _PACKAGES},
        "source": source_hash(),
    }


def source_hash() -> str:
    """A hash of the package's code: two runs with the same one were made by the same program."""
    root = Path(openconductor.__file__).parent
    files = (
        path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() for path in sorted(root.rglob("*.py"))
    )
    return hashlib.sha256(b"\0".join((*files, b""))).hexdigest()


def _starting_point(setup: Setup) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model that GRPO starts from: a base model or Conductor, or a fresh tiny one after its cold start."""
    config, folder = setup.config, setup.folder / "cold_start"
    if config.model.base:
        return load_base_model(config.model.base)
    if is_complete(folder):
        return load_model(folder)
    tokenizer = build_tokenizer()
    model = build_model(config.model, tokenizer, seed=config.seed)
    cold_start(model, tokenizer, setup)
    save_conductor(model, tokenizer, config, folder)
    return load_model(folder)  # from the folder, where TRL finds the reference model of a KL term


def _learn(setup: Setup, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """GRPO, in one act or two, from the last whole checkpoint to the last iteration."""
    config, folder = setup.config, setup.folder
    if not config.widen.steps:
        return _act(setup, model, tokenizer, folder / "checkpoints")
    widened = folder / "widened"
    if not is_complete(widened):
        model = _act(setup, model, tokenizer, folder / "checkpoints")
        setup.say("the second act: the plans are varied")
        widen(cast("Qwen2ForCausalLM", model), cast("PreTrainedTokenizerFast", tokenizer), setup)
        save_conductor(model, tokenizer, config, widened)
    second = config.model_copy(
        update={
            "rollout": config.rollout.model_copy(update={"iterations": config.widen.iterations}),
            "data": config.data.model_copy(update={"easy": config.widen.easy, "curriculum": 1.0}),
        }
    )
    model, tokenizer = load_model(widened)
    after = config.rollout.iterations
    return _act(replace(setup, config=second), model, tokenizer, folder / "checkpoints_widened", after=after)


def _act(
    setup: Setup, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path, *, after: int = 0
) -> PreTrainedModel:
    """One act; ``after`` counts the iterations of the one before. The model is trained in place, and returned."""
    checkpoint, done = last_checkpoint(folder)
    problems = training_problems(setup.config, setup.questions, after=after)
    curve = Curve.open(setup.folder / "curves.jsonl", after=after, done=done)
    run_grpo(model, tokenizer, WorkflowReward(setup, problems, curve, end_id(tokenizer)), folder, checkpoint=checkpoint)
    return model


def _measure(
    setup: Setup,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    temperature: float | None,
    repeats: int = 1,
) -> Record:
    """Let the model orchestrate held-out questions, ``repeats`` times each."""
    config = setup.config
    problems = held_out_problems(config, setup.questions)
    prompts = [write_prompt(tokenizer, problem.question, config, setup.pool) for problem in problems]
    scored: list[Scored] = []
    for seed in range(repeats):
        completions = complete(
            model, tokenizer, prompts, max_tokens=config.rollout.max_tokens, temperature=temperature, seed=seed
        )
        asked = [(problem, said, seed) for problem, said in zip(problems, completions, strict=True)]
        scored += asyncio.run(score_all(setup.score, asked))
    return measure(problems * repeats, scored, setup.pool)


KEPT = 0.3
"""Share of the Conductor's own workflows that stay as they are."""
_WARMUP = 50  # steps
_SPARE = 20  # one more question in this many, for plans that cannot be read
_IGNORED = -100  # the label of a token that is not learnt

Row = tuple[list[int], list[int]]
"""The token ids of a prompt and of its completion, the end included."""


# ── supervised: the cold start, and widening between the acts ────────────────────────────────────────────────────────
def cold_start(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, setup: Setup) -> None:
    """Train the model in place, and say how it goes."""
    config, settings, pool = setup.config, setup.config.cold_start, setup.pool
    rng = random.Random(f"cold-start/{config.seed}")

    def row(index: int) -> Row:
        question = draw_question("train", KINDS[index % len(KINDS)], rng)
        workflow = random_workflow(rng, question, pool.ordinals, max_steps=config.rollout.max_steps)
        return _row(tokenizer, write_prompt(tokenizer, question.text, config, pool), workflow, question)

    rates = [
        settings.learning_rate * min((step + 1) / _WARMUP, 1.0) * max(0.02, 1 - step / settings.steps)
        for step in range(settings.steps)
    ]
    batches = ([row(index) for index in range(settings.batch)] for _ in rates)
    every = max(1, settings.steps // 10)
    for step, loss in enumerate(_imitate(model, batches, rates, pad=pad_id(tokenizer), decay=0.01)):
        if step % every == 0:
            setup.say(f"cold start: step {step} of {settings.steps}, loss {loss:.3f} nats a token")


def widen(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, setup: Setup) -> None:
    """Train the model in place on its own workflows, most of them varied; what it cannot plan is left out."""
    config, pool = setup.config, setup.pool
    settings, max_steps = config.widen, config.rollout.max_steps
    rng = random.Random(f"widen/{config.seed}")
    count = settings.steps * settings.batch
    questions = [draw_question("train", KINDS[index % len(KINDS)], rng) for index in range(count + count // _SPARE)]
    prompts = [write_prompt(tokenizer, question.text, config, pool) for question in questions]
    completions = complete(
        model, tokenizer, prompts, max_tokens=config.rollout.max_tokens, temperature=1.0, seed=config.seed
    )
    rows: list[Row] = []
    for question, prompt, completion in zip(questions, prompts, completions, strict=True):
        with suppress(WorkflowError):
            plan = parse_workflow(completion.text, pool.ordinals, max_steps=max_steps)
            if rng.random() >= KEPT:
                plan = vary(plan, rng, pool.ordinals, max_steps=max_steps)
            rows.append(_row(tokenizer, prompt, plan, question))
    rates = [
        settings.learning_rate * max(0.05, 1 - step / settings.steps)
        for step in range(min(settings.steps, len(rows) // settings.batch))
    ]
    batches = (rows[step * settings.batch : (step + 1) * settings.batch] for step in range(len(rates)))
    for _ in _imitate(model, batches, rates, pad=pad_id(tokenizer), decay=0.0):
        pass


def vary(plan: Workflow, rng: random.Random, ordinals: Sequence[int], *, max_steps: int) -> Workflow:
    """The plan in a random number of independent attempts, then a comparison by a random worker.

    A plan that has no room for a comparison stays as it is.
    """
    room = (max_steps - 1) // len(plan)
    if room < 1:
        return plan
    steps: list[Step] = []
    for attempt in range(rng.randint(1, room)):
        start = attempt * len(plan)
        steps += [
            Step(step.worker, step.subtask, tuple(start + seen for seen in plan.visible(index)))
            for index, step in enumerate(plan)
        ]
    return Workflow((*steps, Step(rng.choice(list(ordinals)), rng.choice(COMPARE), "all")))


def _row(tokenizer: PreTrainedTokenizerFast, prompt: str, workflow: Workflow, question: GymQuestion) -> Row:
    completion = render_workflow(workflow, write_thought(workflow, question))
    return tokenizer.encode(prompt), [*tokenizer.encode(completion), end_id(tokenizer)]


def _imitate(
    model: Qwen2ForCausalLM, batches: Iterable[list[Row]], rates: Sequence[float], *, pad: int, decay: float
) -> Iterator[float]:
    """One step of supervised learning a batch, at its rate, on the completions alone; yields each step's loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, betas=(0.9, 0.98), weight_decay=decay)
    model.train()
    for rate, rows in zip(rates, batches, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        longest = max(len(prompt) + len(completion) for prompt, completion in rows)
        ids = torch.full((len(rows), longest), pad)
        labels = torch.full((len(rows), longest), _IGNORED)
        for index, (prompt, completion) in enumerate(rows):
            end = len(prompt) + len(completion)
            ids[index, :end] = torch.tensor(prompt + completion)
            labels[index, len(prompt) : end] = torch.tensor(completion)
        mask = (ids != pad).long()
        loss = model(input_ids=ids, labels=labels, attention_mask=mask).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield float(loss.item())
