"""Tables in narrow terminals: every word and every figure stays whole, in as few parts as the room allows."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from openconductor.cli.tables import tables

HEAD = ("", "questions", "right, %", "strategies, %")
ROWS = (
    ("single", "8", "100.0 (67.6 to 100.0)", "single 100"),
    ("smudged", "1,200", "57.1 (31.2 to 79.7)", Text("best-of-n 50, aggregate 30, chain 20")),
)


def drawn(width: int, monkeypatch: pytest.MonkeyPatch, head=HEAD, rows=ROWS, **given) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    shown: list[str] = []
    for table in tables(head, rows, **{"words": (0, 3), **given}):
        file = io.StringIO()
        Console(file=file, width=width).print(table)
        shown.append(file.getvalue())
    return shown


def test_where_there_is_room_it_is_one_table_and_nothing_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    [table] = drawn(100, monkeypatch)
    assert len(table.splitlines()) == 4
    assert "best-of-n 50, aggregate 30, chain 20" in table


@pytest.mark.parametrize("width", [36, 44, 60, 80])
def test_in_a_narrow_terminal_no_word_and_no_figure_is_broken(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = drawn(width, monkeypatch)
    assert all(len(line) <= width for part in parts for line in part.splitlines())
    whole = "\n".join(parts)
    assert "100.0 (67.6 to 100.0)" in whole and "57.1 (31.2 to 79.7)" in whole
    words = {word for row in (HEAD, *ROWS) for cell in row for word in str(cell).split()}
    assert words <= set(whole.split())
    for part in parts:
        assert "single" in part and "smudged" in part, "each part names its rows"


def test_a_name_that_no_room_can_hold_is_broken_and_the_figures_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "consensus:" + "x" * 40
    [table] = drawn(44, monkeypatch, ("system", "gym, %"), ((name, "80.0 ± 5.1"),), words=(0,))
    assert "80.0 ± 5.1" in table
    assert name not in table and "x" * 20 in table


def test_all_first_columns_that_name_a_row_stand_in_every_part(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (("maven", "gym", *["123456789"] * 6),)
    parts = drawn(40, monkeypatch, ("system", "task", *"abcdef"), rows, words=(0, 1), names=2)
    assert len(parts) > 1
    assert all(part.split()[:2] == ["system", "task"] and "gym" in part for part in parts)


def test_names_alone_are_a_table_and_an_empty_one_is_none_the_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    [table] = drawn(80, monkeypatch, ("kind", "question"), (("a", "b"),), words=(0, 1), names=2)
    assert "kind" in table
    [empty] = drawn(80, monkeypatch, ("kind", "n"), (), words=(0,))
    assert "kind" in empty
