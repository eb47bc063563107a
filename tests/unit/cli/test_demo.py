"""The demo's table: every figure is there, and its words say no more than the figures."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from openconductor.cli.demo import show_gym_table
from openconductor.evaluation.gym_table import GymTable
from openconductor.evaluation.statistics import Estimate
from openconductor.store import read_store
from openconductor.types import Usage
from openconductor.ui.door import Visitor

TABLE = GymTable(
    questions=400,
    seed=7,
    levels={
        "conductor": Estimate(0.7, 0.65, 0.75, 400),
        "random": Estimate(0.05, 0.03, 0.08, 400),
        "best_worker": Estimate(0.2, 0.16, 0.24, 400),
        "best_fixed": Estimate(0.5, 0.45, 0.55, 400),
        "vote": Estimate(0.6, 0.55, 0.65, 400),
        "oracle": Estimate(0.8, 0.76, 0.84, 400),
    },
    workers={"maven": 0.2, "jack": 0.15},
    votes=9,
    masked=0,
    validity=0.995,
    accuracy_given_valid=0.7035,
    routing_entropy_bits=2.25,
    worker_share={"maven": 0.6, "jack": 0.4},
    topology_share={"single": 0.3, "chain": 0.7},
    mean_steps=2.5,
    mean_steps_by_kind={"single": 1.0, "pair": 2.0},
    usage=Usage(12345, output_tokens=678, dollars=Decimal("0.0412")),
    seconds=9.25,
)


def with_conductor(value: float, low: float, high: float, **changes: Any) -> GymTable:
    levels = {**TABLE.levels, "conductor": Estimate(value, low, high, 400)}
    return replace(TABLE, levels=levels, **changes)


@pytest.fixture
def printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    def show(table: GymTable = TABLE, *, width: int = 100) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        show_gym_table(table)
        return capsys.readouterr().out

    return show


def test_absent_workers_are_left_out_of_every_level(run) -> None:
    names = ("scribe", "lister", "counter", "converter")
    without = [word for name in names for word in ("--without", name)]
    options = ("demo", "--json", "--questions", 16)
    some, all_ = run(*options, *without).json(), run(*options).json()
    assert set(some["workers"]) == {"maven", "novice", "referee", "jack"}
    levels = {"conductor", "random", "best_worker", "vote", "oracle"}
    assert set(some["accuracy"]) == levels, "the best fixed workflow needs the others"
    assert some["accuracy"]["oracle"] < all_["accuracy"]["oracle"] - 0.2
    ran = run(*options, "--without", "nobody")
    assert ran.code == 2 and "worker 'nobody' is not in the pool" in ran.err


def test_the_lead_and_the_share_of_the_oracle_are_said(printed) -> None:
    summary = " ".join(printed().split())
    assert "50.0 percentage points above the best worker alone (maven)" in summary
    assert "20.0 percentage points above the best fixed workflow" in summary
    assert "87.5% of what the oracle reaches" in summary
    vote = "a vote of the best worker's answers at equal cost (9 of maven)"
    assert f"10.0 percentage points above {vote} (the intervals overlap), 50.0" in summary
    assert summary.count("overlap") == 1


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_no_figure_is_cut_in_a_narrow_terminal(printed, width: int) -> None:
    text = printed(width=width)
    assert "…" not in text
    for figure in ("70.0%", "65.0 – 75.0", "20.0%", "16.0 – 24.0", "50.0%", "5.0%", "3.0 – 8.0"):
        assert figure in text, figure
    assert max(map(len, text.splitlines())) <= width
    assert ("█" in text) == (width >= 80)


def test_a_worse_conductor_is_below_and_a_lead_within_the_intervals_is_uncertain(printed) -> None:
    worse = " ".join(printed(with_conductor(0.1, 0.07, 0.13)).split())
    assert (
        "10.0 percentage points below the best worker alone" in worse
        and "points above" not in worse
    )
    close = " ".join(printed(with_conductor(0.53, 0.48, 0.58)).split())
    assert "fixed workflow (the intervals overlap)" in close


def test_figures_that_could_not_be_measured_are_left_out(printed) -> None:
    table = with_conductor(
        0.0,
        0.0,
        0.01,
        accuracy_given_valid=None,
        validity=0.0,
        mean_steps=None,
        masked=3,
        mean_steps_by_kind={"single": None},
        worker_share={"jack": 0.0},
        topology_share={},
    )
    text = printed(table)
    assert "nan" not in text and "jack 0%" not in text
    assert "3 could not be decided" in text


def test_what_the_demo_did_is_kept_and_how_to_look_at_it_is_said(run, tmp_path: Path) -> None:
    journal = tmp_path / "new" / "journal.sqlite"
    ran = run("demo", "--questions", "3", "--journal", str(journal))
    assert f"view {journal}" in " ".join(ran.err.split())
    with read_store(journal) as store:
        lines = store.lines()
    assert len(lines) == 4, "one live, and three"
    assert {line.outcome for line in lines} == {"answered"}
    assert "demo --view" in " ".join(run("demo", "--questions", "3").err.split())


def test_the_demo_opens_a_page_of_what_it_did_where_one_may_ask(run, tmp_path, monkeypatch) -> None:
    from openconductor.serving import app

    served: list[tuple[object, ...]] = []
    opened: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(app, "run", lambda *given: served.append(given))
    monkeypatch.setattr("webbrowser.open", opened.append)
    run("demo", "--questions", "3", "--quick", "--view")
    ((config, gateway, _, listeners, door),) = served
    listeners[0].close()
    assert (config.journal, config.allow_asking) == ("runs/demo/journal.sqlite", True)
    assert gateway.example
    assert "token" not in opened[0], "everybody sees the command line of a browser"
    file = Path(opened[0].removeprefix("file://"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    link, _, token = file.read_text().partition("url=")[2].partition('"')[0].partition("#token=")
    assert link == f"http://127.0.0.1:{config.port}/ui/episodes"
    cookies = {door.cookie: door.exchange(token=token)}
    assert door.visitor({}, cookies) == Visitor(None), "everything is shown"
    with read_store("runs/demo/journal.sqlite") as store:
        assert len(store.lines()) == 3


def test_the_demo_says_what_its_page_needs_before_it_asks(run, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for module in ("openconductor.ui.site", "openconductor.ui.pages"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    ran = run("demo", "--view")
    assert (ran.code, ran.out) == (2, "")
    assert "openconductor[ui]" in ran.err.replace("\n", "")
