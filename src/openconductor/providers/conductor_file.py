"""``conductor.json``: how a trained Conductor wants to be asked. In: its folder. Out: what the file says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal, cast

from pydantic import PositiveInt

from openconductor.config import validate
from openconductor.errors import ConfigError
from openconductor.prompt import PromptOptions
from openconductor.store.serialisation import dumps
from openconductor.types import Question

NAME = "conductor.json"


@dataclass(frozen=True, slots=True)
class ConductorFile:
    """What a training wrote down.

    Attributes:
        prompt: how the Conductor was asked.
        max_tokens: of a completion.
        max_steps: of a workflow.
        chat: ``plain`` is the messages' contents in a row (the tiny Conductor); ``template`` the
            tokenizer's own.
        learnt_splits: ``task/split`` of the problems that it learnt from.
        learnt_questions: the ``question_digest`` of each of them; none of those that are drawn.
    """

    prompt: PromptOptions
    max_tokens: PositiveInt
    max_steps: PositiveInt = 5
    chat: Literal["plain", "template"] = "plain"
    learnt_splits: tuple[str, ...] = ()
    learnt_questions: tuple[str, ...] = ()


def question_digest(question: Question) -> str:
    """What tells one question from another, whatever its id and task are called."""
    return blake2b(dumps(question).encode(), digest_size=8).hexdigest()


def read_conductor_file(folder: Path) -> ConductorFile:
    """Read the file.

    Raises:
        ConfigError: it is not there, or malformed.
    """
    where = folder / NAME
    if not where.is_file():
        found = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
        shown = ", ".join(found[:5]) + (", …" if len(found) > 5 else "") if found else "nothing"
        raise ConfigError(
            f"checkpoint folder {str(folder)!r}: holds {shown}; expected {NAME}, which a training writes into its "
            f"folder `conductor`; a model that is only prompted is transformers:{folder}"
        )
    try:
        said = json.loads(where.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: cannot be read: {error}; expected a JSON object") from error
    if not isinstance(said, dict):
        raise ConfigError(f"{where}: got {type(said).__name__}, expected a JSON object")
    return validate(cast("dict[str, object]", said), ConductorFile, where=str(where))
