"""The recipe and the inputs of an evaluation in a database, which all its processes agree on.

The first process writes them there, as a record of their own. Every other one compares its own with
them before it asks anything, so that it may begin in a folder that is still empty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from openconductor.errors import ConfigError
from openconductor.evaluation.eval_config import (
    EvalConfig,
    differences,
    make_eval_config,
    plain_config,
    what_differs,
)
from openconductor.evaluation.records import CONFIG, DESCRIPTION, Plain, journal_place
from openconductor.store import RecordClaims, Store, place_name

_POLL_S = 0.1  # while another process writes the recipe


def write_description(store: Store, config: EvalConfig, inputs: Plain) -> None:
    """Write the recipe and the inputs of an evaluation into its store."""
    recipe = plain_config(config)
    del recipe["journal"]  # the same database may have several names
    values: dict[str, object] = {"recipe": recipe, "inputs": inputs}
    store.put_record(DESCRIPTION, values)


async def agree(store: Store, config: EvalConfig, inputs: Plain, folder: Path) -> None:
    """Check that a store holds this evaluation; write its recipe if it is new.

    ``folder`` is the run's, which has been checked.

    Raises:
        ConfigError: the store holds another evaluation, or answers of an unknown one.
        JournalError: the store failed.
    """
    assert isinstance(store, RecordClaims)
    while True:
        answer = await asyncio.to_thread(store.claim_records, [DESCRIPTION], 1)
        if answer.kept:
            _check_same(store, config, inputs)
            return
        if answer.claimed:
            try:
                _check_copied(store, config.journal, folder)
                write_description(store, config, inputs)
            finally:
                store.release(DESCRIPTION)
            await store.wait_durable()
            return
        await asyncio.sleep(_POLL_S)


def _check_same(store: Store, config: EvalConfig, inputs: Plain) -> None:
    kept = cast("Mapping[str, Any]", store.find_record(DESCRIPTION))
    title = place_name(config.journal)
    before = make_eval_config(kept["recipe"], where=title)
    changed = differences(before, config) or what_differs(kept["inputs"], inputs)
    if changed:
        raise ConfigError(
            f"{title}: holds another evaluation: {'; '.join(changed)}; expected the same, or "
            "another database or schema (--journal)"
        )


def _check_copied(store: Store, url: str, folder: Path) -> None:
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
