"""The file ``conductor.json``: how a trained Conductor is to be asked."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Literal

from pydantic import PositiveInt

from openconductor.config import validate
from openconductor.errors import ConfigError
from openconductor.prompt import PromptOptions
from openconductor.store.serialisation import dumps
from openconductor.types import Question, TrainedWorker, is_object

NAME = "conductor.json"


@dataclass(frozen=True, slots=True)
class ConductorFile:
    """The record that a training writes.

    Attributes:
        prompt: how the Conductor was asked.
        max_tokens: the most tokens of a completion.
        max_steps: the most steps of a workflow.
        chat: ``plain`` is the messages' contents in a row (the tiny Conductor); ``template`` is the
            tokenizer's chat template.
        chat_template_kwargs: the options of the template; the one in the folder has them set.
        learnt_splits: ``task/split`` of the problems that it learnt from.
        learnt_questions: the ``question_digest`` of each of them, except of generated questions.
        workers: the workers that it was trained with. Empty: they changed from question to
            question, or the file is of an earlier version.
    """

    prompt: PromptOptions
    max_tokens: PositiveInt
    max_steps: PositiveInt = 5
    chat: Literal["plain", "template"] = "plain"
    chat_template_kwargs: dict[str, bool | int | float | str] = field(
        default_factory=dict[str, bool | int | float | str]
    )
    learnt_splits: tuple[str, ...] = ()
    learnt_questions: tuple[str, ...] = ()
    workers: tuple[TrainedWorker, ...] = ()

    @property
    def trained_with(self) -> tuple[TrainedWorker, ...]:
        """The workers that it knows by their ordinals. Empty: it takes any, by their cards."""
        return () if self.prompt.cards else self.workers


def question_digest(question: Question) -> str:
    """Return a digest of a question, whatever its id and task are called."""
    return blake2b(dumps(question).encode(), digest_size=8).hexdigest()


def weights_digest(folder: Path) -> str:
    """Return a digest of the weights in a model's folder, as transformers loads them. "": none."""
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    digest = blake2b(digest_size=16)
    for file in files:
        with file.open("rb") as weights:
            digest.update(file_digest(weights, blake2b).digest())
    return digest.hexdigest() if files else ""


def find_checkpoint(folder: Path) -> Path:
    """Return the folder of the Conductor: of a training's run the folder ``conductor`` in it."""
    inner = folder / "conductor"
    if not (folder / NAME).is_file() and (inner / NAME).is_file():
        return inner
    return folder


def read_conductor_file(folder: Path) -> ConductorFile:
    """Read the file, in a Conductor's folder or in that of its training's run.

    Raises:
        ConfigError: it is missing or malformed.
    """
    path = find_checkpoint(folder) / NAME
    if not path.is_file():
        raise ConfigError(
            f"checkpoint folder {str(folder)!r}: no {NAME}, which a training writes into its "
            f"folder `conductor`; a model that is only prompted is transformers:{folder}"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}; expected a JSON object") from error
    if not is_object(content):
        raise ConfigError(f"{path}: got {type(content).__name__}, expected a JSON object")
    return validate(content, ConductorFile, where=str(path))
