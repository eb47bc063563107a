"""Check what a training needs: names, files, keys, packages, data, the base model, TRL's settings.

``check_names`` comes first in every training. It takes no network and no torch, and little time.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from openconductor.checklist import Checklist
from openconductor.config import needing, one_of
from openconductor.errors import ConfigError, OpenConductorError
from openconductor.evaluation.dry_run import check_keys, check_pool, check_task
from openconductor.pool import WorkerPool, open_pool
from openconductor.tasks import load_task
from openconductor.training.train_config import (
    TrainConfig,
    differences,
    install_command,
    load_train_config,
)

if TYPE_CHECKING:
    from openconductor.training.estimate import ModelNeeds
    from openconductor.training.setup import Questions

VLLM_FLAGS = (
    """--weight-transfer-config '{"backend": "nccl"}' """
    "--logprobs-mode processed_logprobs --max-logprobs -1"
)
"""With these a server of vLLM takes new weights from TRL and returns what it learns from."""
CONFIG = "config.toml"  # of a run: its recipe
ENVIRONMENT = "environment.json"  # versions and machine
_CONNECT_S = 1.0


@dataclass(frozen=True, slots=True)
class Checked:
    """What a dry run has found.

    Attributes:
        checklist: every check.
        pool: the workers; None: the pool is wrong.
        held_out: the number of held-out questions: as many as the recipe wants, or as there are.
        model: the needs of the model; None: it is not here.
    """

    checklist: Checklist
    pool: WorkerPool | None
    held_out: int
    model: ModelNeeds | None


def check_training(config: TrainConfig, *, offline: bool) -> Checked:
    """Check everything that a recipe names.

    Args:
        config: the recipe.
        offline: True fetches nothing: what is on the hub is absent, unless it is in the cache.
    """
    checklist = Checklist()
    pool = check_names(config, checklist)
    _check_packages(config, checklist)
    if not checklist.is_right:
        return Checked(checklist, pool, config.held_out.questions, None)
    with needing("train", "train"):
        from openconductor.training.checkpoint import check_engine
        from openconductor.training.estimate import model_needs
        from openconductor.training.setup import held_out_problems
    engine = checklist.attempt("processes", check_engine)
    if engine and engine != "plain":
        checklist.ready("processes", f"they share the model by {engine}")
    questions = _check_data(config, checklist, offline=offline)
    held_out = config.held_out.questions
    if questions is not None:
        held_out = len(held_out_problems(config, questions))
        pool = _check_records(config, questions, checklist) or pool
    _check_settings(config, checklist)
    model = None
    if pool is not None and _check_base(config, checklist, offline=offline):
        model = checklist.attempt("model", lambda: model_needs(config, pool, questions))
    return Checked(checklist, pool, held_out, model)


def require_names(config: TrainConfig, folder: Path | None = None, *, resume: bool = False) -> None:
    """Check every name and local file of a recipe, and its run's folder, before torch is imported.

    Raises:
        ConfigError: some are wrong; the message has all of them.
    """
    if folder is not None:
        check_folder(config, folder, resume=resume)
    checklist = Checklist()
    check_names(config, checklist)
    faults = [check.text for check in checklist.checks if check.state == "wrong"]
    if faults:
        raise ConfigError("; ".join(dict.fromkeys(faults)))


def check_folder(config: TrainConfig, folder: Path, *, resume: bool) -> TrainConfig | None:
    """Check that a run may begin in a folder, or be resumed.

    Returns:
        The recipe of the run that is there; None: none is.

    Raises:
        ConfigError: it may not.
    """
    stored = folder / CONFIG
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"run folder {folder}: is a file, expected a folder")
    if not stored.is_file():
        # Files of a run that was killed while it began may be there.
        paths = list(folder.iterdir()) if folder.is_dir() else []
        if any(not path.name.startswith((ENVIRONMENT, CONFIG)) for path in paths):
            raise ConfigError(
                f"run folder {folder}: is not empty and holds no run, expected a new folder"
            )
        if resume:
            raise ConfigError(f"run folder {folder}: holds no run to resume")
        return None
    if not resume:
        raise ConfigError(
            f"run folder {folder}: holds a run already; resume it, or choose another folder"
        )
    before = load_train_config(stored)
    # Both may change when a run is resumed.
    free = {"budget": config.budget, "alarms": config.alarms}
    changed = differences(before.model_copy(update=free), config)
    if changed:
        raise ConfigError(
            f"run folder {folder}: its run has another recipe (config.toml: {changed}), expected "
            "the same"
        )
    return before


# ── names ─────────────────────────────────────────────────────────────────────────────────────────
def check_names(config: TrainConfig, checklist: Checklist) -> WorkerPool | None:
    """Check the names and files of a recipe; return its pool, or None if that is wrong."""
    pool = checklist.attempt("pool", lambda: open_pool(config.pool, config.seed))
    if pool is not None:
        _check_pool(config, pool, checklist)
    data = config.data
    check_task("data", checklist, data.task, split=data.split, path=data.path or None)
    split = config.held_out.split
    for name, path in config.held_out_paths.items():
        check_task("held out", checklist, name, split=split, path=path or None)
    return pool


def _check_pool(config: TrainConfig, pool: WorkerPool, checklist: Checklist) -> None:
    check_pool(config.pool, pool, checklist)
    if config.reward.judge:
        judge = config.reward.judge
        names = pool.names.values()
        if checklist.attempt("judge", lambda: one_of("reward.judge", judge, names)):
            checklist.ready("judge", judge)
    check_keys(config.pool, pool, checklist)


# ── packages ──────────────────────────────────────────────────────────────────────────────────────
def _check_packages(config: TrainConfig, checklist: Checklist) -> None:
    """Check that learning, sampling and tracking are installed, and that a server of vLLM runs."""
    if find_spec("trl") is None:
        install = 'pip install "openconductor[train]"'
        checklist.wrong("packages", f"the extra train is not installed: {install}")
    for name in config.trackers:
        if find_spec(name) is None:
            text = f"{name} is not installed: {install_command(name)} (needs the network)"
            checklist.absent("trackers", text)
    engine = config.rollout.engine
    if engine != "transformers" and find_spec("vllm") is None:
        text = f"vllm is not installed; it needs a GPU: {install_command('vllm')}"
        checklist.absent("engine", text)
    if engine == "vllm_server" and not _is_listening(config.rollout.vllm_url):
        text = (
            f"nothing listens at {config.rollout.vllm_url}; on a GPU of its own: "
            f"VLLM_SERVER_DEV_MODE=1 vllm serve {config.model.base} {VLLM_FLAGS}"
        )
        checklist.absent("engine", text)


def _is_listening(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 80), _CONNECT_S).close()
    except OSError:
        return False
    return True


# ── what takes torch ──────────────────────────────────────────────────────────────────────────────
def _check_data(config: TrainConfig, checklist: Checklist, *, offline: bool) -> Questions | None:
    """Read the questions, and check that none is both learnt from and held out."""
    from openconductor.training.setup import load_questions

    paths = {config.data.task: config.data.path} | config.held_out_paths
    tasks = [load_task(name, path=path or None) for name, path in paths.items()]
    on_hub = [name for task in tasks for name in task.hub_names]
    if offline and on_hub:
        names = ", ".join(dict.fromkeys(on_hub))
        checklist.absent("questions", f"not fetched offline (needs the network): {names}")
        return None
    try:
        questions = load_questions(config)
    except OpenConductorError as error:
        _add_failure(checklist, "questions", error)
        return None
    held_out = sum(len(problems) for problems in questions.held_out)
    text = f"{len(questions.learnt)} to learn from, {held_out} held out, none is both"
    drawn = questions.simulation is not None
    checklist.ready("questions", "drawn by seeds" if drawn else text)
    return questions


def _add_failure(checklist: Checklist, name: str, error: OpenConductorError) -> None:
    """Add what could not be loaded: absent if the hub could not be reached, else wrong."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, LocalEntryNotFoundError):
            checklist.absent(name, f"needs the network: {error}")
            return
        cause = cause.__cause__ or cause.__context__
    checklist.wrong(name, str(error))


def _check_records(
    config: TrainConfig, questions: Questions, checklist: Checklist
) -> WorkerPool | None:
    """Check which workers have recorded answers; return the pool with them."""
    from openconductor.training.setup import open_workers

    if not questions.recorded:
        return None
    pool = checklist.attempt("records", lambda: open_workers(config, questions))
    if pool is not None:
        names = [name for name in pool.names.values() if name in questions.recorded]
        text = f"{config.data.path}: the answers of {len(names)} of {len(pool)} workers"
        checklist.ready("records", f"{text} ({', '.join(names)})")
    return pool


def _check_settings(config: TrainConfig, checklist: Checklist) -> None:
    """Check that TRL takes the settings."""
    from openconductor.training.grpo import grpo_arguments
    from openconductor.training.run import quiet_libraries

    try:
        with quiet_libraries():
            grpo_arguments(config, Path("dry-run"))
    except (TypeError, ValueError) as error:  # ConfigError is one
        checklist.wrong("settings", str(error))
    else:
        checklist.ready("settings", "TRL takes them")


def _check_base(config: TrainConfig, checklist: Checklist, *, offline: bool) -> bool:
    """Check the base model; return True if its shape and its tokenizer are here."""
    from openconductor.training.models import check_base, is_folder_name

    base = config.model.base
    if not base:
        checklist.ready("model.base", "none: a fresh tiny model")
        return True
    if not Path(base).is_dir():
        if is_folder_name(base):
            checklist.absent(
                "model.base", f"{base}: no such folder yet; the recipe says what makes it"
            )
            return False
        if offline and not _is_cached(base):
            checklist.absent("model.base", f"{base}: not in the hub's cache (needs the network)")
            return False
    try:
        check_base(base)
    except ConfigError as error:
        _add_failure(checklist, "model.base", error)
        return False
    checklist.ready("model.base", f"{base}; its weights are hashed when the training begins")
    return True


def _is_cached(base: str) -> bool:
    """Return True if a model's shape and tokenizer are in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    needed = ("config.json", "tokenizer_config.json")
    return all(isinstance(try_to_load_from_cache(base, name), str) for name in needed)
