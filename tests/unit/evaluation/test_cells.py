"""Cells: their names, and the numbers by which their calls are told apart."""

from __future__ import annotations

import json

from openconductor.evaluation.cells import Cell, Sheet, System, cell_key, cells_of, sample_number
from openconductor.graders.exact import ExactGrader
from openconductor.protocols import OnEvent
from openconductor.types import Budget, Episode, Problem, Question, Usage


class Silent:
    """An orchestrator that nobody asks here."""

    async def ask(
        self, question: Question, *, budget: Budget | None = None, on_event: OnEvent | None = None, sample: int = 0
    ) -> Episode:
        return Episode(question, (), None, None, Usage(), 0.0)


SYSTEMS = [System(name, Silent()) for name in ("a", "b")]
SHEETS = [Sheet(task, [Problem(f"{task}{i}", "Q", "A", task) for i in range(3)], ExactGrader()) for task in ("x", "y")]
CELLS = list(cells_of(SYSTEMS, SHEETS, 4))


def test_every_cell_has_a_sample_number_of_its_own() -> None:
    numbers = {cell.sample(shared=False) for cell in CELLS}
    assert len(CELLS) == len(numbers) == 2 * 2 * 3 * 4
    assert max(numbers) < 2**53


def test_systems_that_share_calls_have_the_same_numbers_and_questions_never() -> None:
    numbers = [cell.sample(shared=True) for cell in CELLS]
    assert len(set(numbers)) == len(CELLS) / 2
    assert numbers[0::2] == numbers[1::2]


def test_a_sample_number_does_not_depend_on_what_else_is_asked() -> None:
    alone = next(iter(cells_of(SYSTEMS[1:], SHEETS[1:], 1)))
    whole = next(cell for cell in CELLS if cell.key == alone.key)
    assert alone.sample(shared=False) == whole.sample(shared=False)
    assert sample_number("conductor", "gym", "gym-1", 2) == 7105550647508994  # resuming depends on it: never changed


def test_the_cells_come_question_by_question_so_that_what_a_stop_leaves_is_paired() -> None:
    assert [(cell.problem.id, cell.repeat, cell.system.name) for cell in CELLS[:4]] == [
        ("x0", 0, "a"),
        ("x0", 0, "b"),
        ("x0", 1, "a"),
        ("x0", 1, "b"),
    ]


def test_a_key_names_all_four_whatever_stands_in_them() -> None:
    cell = Cell(System('w:"1"', Silent()), SHEETS[0], Problem("ü\ud800,", "Q", "A", "x"), 7)
    assert json.loads(cell.key) == ['w:"1"', "x", "ü\ud800,", 7]
    assert cell.key.isascii()
    assert cell_key("a", "b", "c", 1) != cell_key("a", "b,c", "", 1)
