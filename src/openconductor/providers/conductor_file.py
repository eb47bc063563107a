"""``conductor.json``: how a trained Conductor wants to be asked. In: its folder. Out: what the file says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import PositiveInt

from openconductor.config import validate
from openconductor.errors import ConfigError
from openconductor.prompt import PromptOptions

NAME = "conductor.json"


@dataclass(frozen=True, slots=True)
class ConductorFile:
    """What a training wrote down.

    Attributes:
        prompt: how the Conductor was asked.
        max_tokens: of a completion.
        max_steps: of a workflow.
        chat: ``plain`` is the messages' contents in a row (the tiny Conductor); ``template`` the tokenizer's own.
    """

    prompt: PromptOptions
    max_tokens: PositiveInt
    max_steps: PositiveInt = 5
    chat: Literal["plain", "template"] = "plain"


def read_conductor_file(folder: Path) -> ConductorFile:
    """Read the file.

    Raises:
        ConfigError: it is not there, or malformed.
    """
    where = folder / NAME
    try:
        said = json.loads(where.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        wanted = "the folder `conductor` of a training run, or transformers:FOLDER for a model that is only prompted"
        raise ConfigError(f"{where}: cannot be read: {error}; expected {wanted}") from error
    if not isinstance(said, dict):
        raise ConfigError(f"{where}: got {type(said).__name__}, expected a JSON object")
    return validate(said, ConductorFile, where=str(where))
