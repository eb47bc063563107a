"""The folder of an evaluation: what it was told, what it found, and whether a resumed run is the same.

In: a folder, a recipe, the description of its inputs. Out: ``config.toml``, ``environment.json`` (versions, inputs) and
beside them ``journal.sqlite``; each file appears whole or not at all. ``config.toml`` is written last: without it there
is no run yet.
"""

from __future__ import annotations

import json
import platform
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import cast

from openconductor.errors import ConfigError
from openconductor.evaluation.config import EvalConfig, differences, dump_eval_config, make_eval_config
from openconductor.evaluation.inputs import Plain
from openconductor.storage import write_whole

CONFIG = "config.toml"
ENVIRONMENT = "environment.json"
JOURNAL = "journal.sqlite"
_PACKAGES = ("openconductor", "httptools", "numpy", "scikit-learn", "safetensors", "tokenizers", "math-verify")
_OURS = {CONFIG, ENVIRONMENT, JOURNAL}


def check_folder(folder: Path, config: EvalConfig, inputs: Plain) -> bool:
    """Whether a run stands in the folder already; one that is there must be the same evaluation.

    Raises:
        ConfigError: the folder holds something else, or an evaluation that differs; the message names what differs.
    """
    if not (folder / CONFIG).is_file():
        strangers = sorted(path.name for path in folder.glob("*") if not _is_ours(path.name)) if folder.exists() else []
        if strangers or (folder.exists() and not folder.is_dir()):
            what = f"holds {strangers[0]!r}" if strangers else "is no folder"
            raise ConfigError(f"{folder}: {what}, expected a new folder or one of an evaluation")
        return False
    before, environment = read_folder(folder)
    found = differences(before, config) or input_differences(cast("Plain", environment.get("inputs", {})), inputs)
    if found:
        raise ConfigError(
            f"{folder}: its evaluation is another one: {'; '.join(found)}; expected the same, or a new folder (--out)"
        )
    return True


def holds(folder: Path, config: EvalConfig) -> bool:
    """Whether the run in a folder was told the same, with files at the same places (``check_folder`` reads these)."""
    try:
        before, _ = read_folder(folder)
    except ConfigError:
        return False
    return not differences(before, config, places=True)


def write_folder(folder: Path, config: EvalConfig, inputs: Plain, *, sandbox: str | None = None) -> None:
    """Say in a new folder what the run is; in one that has said so, what has changed since (``resumed``).

    Args:
        folder: the folder.
        config: the recipe.
        inputs: what ``inputs`` describes.
        sandbox: the level of what programs run in; None where none run.

    Raises:
        JournalError: the disk failed.
    """
    now: dict[str, object] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "sandbox": sandbox,
    }
    if not (folder / CONFIG).is_file():
        _write_environment(folder, {**now, "inputs": inputs})
    else:
        _, before = read_folder(folder)
        changed = input_differences({name: before.get(name) for name in now}, now)
        resumed = cast("list[list[str]]", before.get("resumed", []))
        if changed and changed not in resumed:
            _write_environment(folder, {**before, "resumed": [*resumed, changed]})
    write_whole(folder / CONFIG, dump_eval_config(config))


def read_folder(folder: Path) -> tuple[EvalConfig, Plain]:
    """The recipe and the environment of the run in a folder.

    Raises:
        ConfigError: no evaluation stands there.
    """
    try:
        values = tomllib.loads((folder / CONFIG).read_text("utf-8"))
        config = make_eval_config(values, where=str(folder / CONFIG))
        environment: object = json.loads((folder / ENVIRONMENT).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder}: {error}; expected the folder of an evaluation") from error
    if not isinstance(environment, dict):
        raise ConfigError(f"{folder / ENVIRONMENT}: got {type(environment).__name__}, expected an object")
    return config, cast("Plain", environment)


def input_differences(before: Plain, now: Plain) -> list[str]:
    """What of two descriptions differs: ``where: got …, expected …``."""
    found: list[str] = []
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            inner = input_differences(cast("Plain", old), cast("Plain", new))
            found += [f"{name}: {one}" for one in inner]
        elif isinstance(old, list) and isinstance(new, list):
            inner = input_differences(_numbered(cast("list[object]", old)), _numbered(cast("list[object]", new)))
            found += [f"{name} {one}" for one in inner]
        else:
            found.append(f"{name}: got {_short(cast('object', new))}, expected {_short(cast('object', old))}")
    return found


def _write_environment(folder: Path, environment: Plain) -> None:
    write_whole(folder / ENVIRONMENT, json.dumps(environment, indent=2) + "\n")


def _is_ours(name: str) -> bool:
    return name.removesuffix(".part") in _OURS or name.startswith(f"{JOURNAL}-")


def _numbered(items: list[object]) -> dict[str, object]:
    return {str(index): item for index, item in enumerate(items)}


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 100 else f"{text[:99]}…"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
