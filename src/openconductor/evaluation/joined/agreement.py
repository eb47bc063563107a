"""The recipe and the inputs of an evaluation in a database, which all its processes agree on.

The first process writes them there, as a record of their own. Every other one compares its own with
them before it asks anything, so that it may begin in a folder that is still empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from openconductor.errors import ConfigError
from openconductor.evaluation.eval_config import (
    EvalConfig,
    differences,
    make_eval_config,
    plain_config,
    what_differs,
)
from openconductor.evaluation.records import CONFIG, DESCRIPTION, Plain, journal_place
from openconductor.store import SharedStore, place_name

_POLL_S = 0.1  # while another process writes the recipe


def describe(config: EvalConfig, inputs: Plain) -> dict[str, object]:
    """Return the recipe and the inputs of an evaluation as its store keeps them."""
    recipe = plain_config(config)
    del recipe["journal"]  # the same database may have several names
    return {"recipe": recipe, "inputs": inputs}


async def agree(store: SharedStore, config: EvalConfig, inputs: Plain, folder: Path) -> None:
    """Check that a store holds this evaluation; write its recipe if it is new.

    ``folder`` is the run's, which has been checked.

    Raises:
        ConfigError: the store holds another evaluation, or answers of an unknown one.
        JournalError: the store failed.
    """
    title = place_name(config.journal)

    def compare(kept: Mapping[str, Any]) -> list[str]:
        before = make_eval_config(kept["recipe"], where=title)
        return differences(before, config) or what_differs(kept["inputs"], inputs)

    is_new = await agree_on(store, DESCRIPTION, title, compare)
    if is_new:
        try:
            _check_copied(store, config.journal, folder)
            store.put_record(DESCRIPTION, describe(config, inputs))
        finally:
            store.release(DESCRIPTION)
        await store.wait_durable()


async def agree_on(
    store: SharedStore, key: str, title: str, compare: Callable[[Mapping[str, Any]], list[str]]
) -> bool:
    """Compare what a record says with what this process is to do.

    Returns:
        True if there is no record yet: this process has claimed it, and writes it.

    Raises:
        ConfigError: they differ.
    """
    while True:
        answer = await asyncio.to_thread(store.claim_records, [key], 1)
        if answer.claimed:
            return True
        if answer.kept:
            changed = compare(store.find_record(key) or {})
            if not changed:
                return False
            raise ConfigError(
                f"{title}: holds another {key}: {'; '.join(changed)}; expected the same, or "
                "another database or schema (--journal)"
            )
        await asyncio.sleep(_POLL_S)


def _check_copied(store: SharedStore, url: str, folder: Path) -> None:
    """Check that a store without a recipe is empty, or was copied from the folder's journal."""
    title = place_name(url)
    before = journal_place(folder) if (folder / CONFIG).is_file() else None
    is_empty = next(iter(store.records()), None) is None
    if is_empty and before is not None and before != url:
        raise ConfigError(
            f"{title}: is empty, and {folder} has its answers in {place_name(before)}; copy them "
            "first (openconductor store copy FILE URL), or name a new folder (--out)"
        )
    if before is None and not is_empty:
        raise ConfigError(
            f"{title}: holds answers without a recipe; begin in the folder of the run that they "
            "were copied from (--out), or name another database or schema (--journal)"
        )
