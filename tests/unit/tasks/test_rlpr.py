"""The shapes of free-form rows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from shapes import items_of, task_of

from openconductor.errors import TaskError
from openconductor.graders.freeform import FreeFormAnswer

LOCAL = {"id": "a", "question": "How long is it?", "answer": "9.8 m", "kind": "number", "tolerance": 0.01}
PUBLISHED = {
    "data_source": "WebInstruct-verified",
    "prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": "How long is it?"}],
    "ability": "Physics",
    "reward_model": {"ground_truth": "9.8 m", "style": "rule"},
    "extra_info": None,
}


def test_a_local_row_gives_kind_and_tolerance(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "rlpr", LOCAL)
    assert item.problem.reference == FreeFormAnswer("9.8 m", "number", 0.01)
    (item,) = items_of(tmp_path, "rlpr", {"id": "a", "question": "How many?", "answer": 3})
    assert item.problem.reference == FreeFormAnswer("3", None, None)


def test_a_published_row_asks_its_last_user_turn(tmp_path: Path) -> None:
    (item,) = items_of(tmp_path, "rlpr", PUBLISHED)
    assert item.problem.question.startswith("How long is it?\n\n")
    assert item.problem.reference == FreeFormAnswer("9.8 m")
    assert (item.problem.id, item.problem.kind, item.subject) == ("rlpr/train/0", "Physics", "Physics")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**LOCAL, "kind": "numbr"}, "field 'kind': got 'numbr', expected one of choice, number, math, text"),
        (
            {**LOCAL, "kind": "choice"},
            "field 'answer': got '9.8 m', expected a letter of ABCDEFGHIJ where kind is choice",
        ),
        ({**LOCAL, "tolerance": 1}, "field 'tolerance': got 1.0, expected a number from 0 to below 1"),
        ({**LOCAL, "tolerance": "1%"}, "field 'tolerance': got '1%', expected a number"),
        ({**PUBLISHED, "prompt": [{"role": "system", "content": "x"}]}, "field 'prompt': got .* expected a chat with"),
        ({**PUBLISHED, "prompt": "How?"}, "field 'prompt': got 'How\\?', expected a list of objects"),
        (
            {**PUBLISHED, "reward_model": {}},
            "field 'reward_model': got {}, expected an object with the text ground_truth",
        ),
    ],
)
def test_a_wrong_row_is_an_error(tmp_path: Path, row: dict[str, object], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        items_of(tmp_path, "rlpr", row)


@pytest.mark.parametrize("answer", ["9.8 m/s^2", "(B)", "C", "$\\frac{1}{2}$", "the mitochondrion", "x^2 + 1", "-3"])
async def test_the_grader_accepts_the_canonical_reply(tmp_path: Path, answer: str) -> None:
    task = task_of(tmp_path, "rlpr", {"id": "a", "question": "What?", "answer": answer})
    (item,) = task.read().items
    assert item.canonical is not None
    assert (await task.grader.grade(item.problem, item.canonical)).correct is True
