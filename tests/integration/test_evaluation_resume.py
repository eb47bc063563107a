"""An evaluation that was cut off at any moment and then resumed equals one that was not.

The same ``openconductor eval`` runs once in peace and again and again with an end to it: SIGKILL at
random moments, Ctrl-C, a budget that is spent. In the end the tables are the same bytes, and the
server has been asked nothing again that stood in the journal. The server cannot see the sample that
a call belongs to, so requests are counted: in each life at most as many of a kind as a whole run
makes, less those that the journal held when that life began.
"""

from __future__ import annotations

import json
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from counting_server import answered
from nursery import Nursery, nursery
from sums import (
    AT_ONCE,
    LEARNT,
    QUESTIONS,
    SIDE_BY_SIDE,
    SYSTEMS,
    TABLES,
    Peace,
    Server,
    import_all,
    in_peace,
)

from openconductor import cli
from openconductor.errors import JournalError
from openconductor.store import JournalReader

KILLS, KILLS_SHARED = 7, 3  # where systems ask on their own, and where they share equal calls
TO_BEGIN = 0.3  # seconds, in about which a child has read its recipe and asks
SEED = 20_261_121


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server(SEED)
    yield server
    server.close()


@pytest.fixture(scope="module")
def peace(server: Server, tmp_path_factory: pytest.TempPathFactory, request: Any) -> Peace:
    """A recipe, and what comes of it; its parameter: whether systems share equal calls."""
    shared = getattr(request, "param", False)
    return in_peace(server, tmp_path_factory.mktemp("peace"), shared=shared)


# ── the child: this file as a program ─────────────────────────────────────────────────────────────
def raise_children() -> None:
    import_all()
    nursery(cli.main)


# ── what is checked after every life ──────────────────────────────────────────────────────────────
def acknowledged(folder: Path) -> Counter[str]:
    """Count the answered calls of each kind in the journal, which is whole and has none twice."""
    path = folder / "journal.sqlite"
    try:
        reader = JournalReader(path)
    except JournalError:
        return Counter()  # killed before the file was made
    with reader:
        found = answered(reader)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        # A key is the worker, the request and the sample.
        twice = "SELECT key FROM calls WHERE replayable AND NOT replayed "
        twice += "GROUP BY key HAVING count(*) > 1"
        assert connection.execute(twice).fetchall() == []
    return found


class Watch:
    """Looks after one folder: what each life may ask."""

    def __init__(self, peace: Peace, server: Server, folder: Path) -> None:
        self._peace, self._server, self.folder = peace, server, folder
        self.held: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self._before = len(server.asked)

    def check(self) -> None:
        """Check after a life that nothing was asked which stood in the journal when it began."""
        asked = Counter(self._server.asked[self._before :])
        self._before = len(self._server.asked)
        again = asked - (self._peace.requests - self.held)
        assert not again, f"{again.total()} calls that stood in the journal were made again"
        self.held = acknowledged(self.folder)
        self.asked += asked

    def wasted(self) -> int:
        """Check at the end that the tables are the same bytes; return the repeated calls."""
        assert self.held == self._peace.requests
        for name in TABLES:
            assert (self.folder / name).read_bytes() == self._peace.tables[name], name
        return (self.asked - self._peace.requests).total()


# ── the tests ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("peace", "kills"), [(False, KILLS), (True, KILLS_SHARED)], indirect=["peace"]
)
def test_a_kill_at_any_moment_repeats_no_acknowledged_call_and_changes_no_byte_of_the_tables(
    peace: Peace, kills: int, server: Server, tmp_path: Path
) -> None:
    draws = random.Random(SEED)
    children = Nursery(__file__)
    watch, in_the_middle = Watch(peace, server, tmp_path / "run"), 0
    try:
        for kill in range(kills):
            before = watch.held.total()
            children.begin(peace.command(watch.folder))
            left = (peace.requests - watch.held).total()
            if (
                kill % 3 == 0 or not left
            ):  # at any time, before the first call and after the last among it
                time.sleep(draws.uniform(0.0, 2 * TO_BEGIN))
            else:  # between calls
                server.wait_for(draws.randint(1, 1 + left // 4))
                time.sleep(draws.uniform(0.0, 0.03))
            assert children.end("kill") in (0, signal.SIGKILL)
            watch.check()
            in_the_middle += watch.held.total() > before
        children.begin(peace.command(watch.folder))
        assert children.end("wait") == 0
        watch.check()
    finally:
        children.close()
    wasted = watch.wasted()
    print(
        f"{kills} kills, {in_the_middle} while calls were made; "
        f"{wasted} calls in flight were repeated"
    )
    assert wasted <= kills * AT_ONCE * SIDE_BY_SIDE
    assert in_the_middle >= kills // 2, (
        "too few of the kills came while calls were made: the test lost its power"
    )


def test_a_command_that_is_interrupted_goes_on_where_it_was(peace, server, tmp_path) -> None:
    watch = Watch(peace, server, tmp_path / "run")
    command = [sys.executable, "-m", "openconductor", *peace.command(watch.folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    server.wait_for(peace.requests.total() // 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert (process.returncode, out) == (130, "")
    told = r"interrupted after \d+ calls, .*; finished calls are not paid for again\n"
    assert re.match(f"(.*\n)*{told}resume with: openconductor eval --out {watch.folder}\n", err)
    watch.check()
    assert cli.main(peace.command(watch.folder)) == 0
    watch.check()
    assert watch.wasted() <= AT_ONCE * SIDE_BY_SIDE


def test_a_budget_that_is_spent_leaves_a_table_and_a_larger_one_goes_on(
    peace: Peace, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    watch = Watch(peace, server, folder)
    whole = peace.requests.total()
    learnt = LEARNT * 3
    for calls in (learnt // 2, (learnt + whole) // 2):
        capsys.readouterr()
        assert cli.main(peace.command(folder, "--json", "--budget-calls", str(calls))) == 1
        printed = capsys.readouterr()
        for text in (f"paid {calls} calls", "goes on from there", f"far: {folder / 'table.md'}"):
            assert text in printed.err
        assert printed.out == ""
        watch.check()
        assert watch.asked.total() == calls  # to the call
        cancelled = calls - watch.held.total()  # beside the step that was refused
        assert cancelled < SIDE_BY_SIDE * AT_ONCE
        table = json.loads((folder / "table.json").read_text("utf-8"))
        assert 0 < table["missing"] <= QUESTIONS * len(SYSTEMS)
    cancelled = watch.asked.total() - watch.held.total()
    assert cli.main(peace.command(folder, "--json", "--budget-calls", str(whole + cancelled))) == 0
    watch.check()
    assert watch.wasted() == cancelled


if __name__ == "__main__":
    raise_children()
