"""The task of specialists: its questions, what is held out, and a tiny stand-in of the pool."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

import openconductor as oc
from openconductor.prompt import SOLVE_SUBTASK
from openconductor.tasks import load_task
from openconductor.tasks.specialists import (
    COUNTS,
    NEW_NUMBERS,
    NEW_PAIRS,
    PAIRS,
    SKILLS,
    Skill,
    SkillQuestion,
    SpecialistsTask,
    draw_question,
    write_instruction,
    write_items,
)
from openconductor.types import Message, Step, Workflow

LEARNT = [draw_question("train", index) for index in range(600)]
TESTED = [draw_question("test", index) for index in range(600)]
CASES = {
    "digits": ("forty-two, seventy, ninety, thirteen", "42, 70, 90, 13"),
    "sort": ("40, 75, 90, 13", "13, 40, 75, 90"),
    "reverse": ("box, wolf, city, child", "child, city, wolf, box"),
    "plural": ("box, wolf, city, child", "boxes, wolves, cities, children"),
    "capitals": ("box, forty-two, city, child", "BOX, FORTY-TWO, CITY, CHILD"),
    "words": ("42, 70, 90, 13", "forty-two, seventy, ninety, thirteen"),
    "largest": ("40, 75, 90, 13", "90"),
}


@pytest.mark.parametrize("name", SKILLS)
def test_a_skill_turns_a_list_into_its_answer(name: str) -> None:
    asked, answer = CASES[name]
    assert write_items(SKILLS[name].do(tuple(asked.split(", ")))) == answer


def numbers_of(question: SkillQuestion) -> set[str]:
    """Return the numbers of a question's list, in digits; none if it is a list of nouns."""
    numbers = {item for item in question.items if item.isdigit()}
    if question.skills[0] == "digits":
        numbers = set(SKILLS["digits"].do(question.items))
    return numbers


def test_the_test_split_has_wordings_numbers_and_a_third_of_the_pairs_to_itself() -> None:
    learnt, tested = (
        {wording for question in part for wording in question.wordings} for part in (LEARNT, TESTED)
    )
    assert learnt.isdisjoint(tested)
    assert not any(numbers_of(question) & set(NEW_NUMBERS) for question in LEARNT)
    with_numbers = [numbers_of(question) for question in TESTED if numbers_of(question)]
    assert with_numbers
    assert all(numbers & set(NEW_NUMBERS) for numbers in with_numbers)
    pairs = Counter(question.skills for question in LEARNT if len(question.skills) > 1)
    assert set(pairs) == set(PAIRS)
    new = {question.skills for question in TESTED if question.kind == "new pair"}
    assert new == set(NEW_PAIRS)
    assert 3 * len(NEW_PAIRS) == len(PAIRS) + len(NEW_PAIRS)


def test_the_order_of_two_skills_decides_an_answer_where_both_change_it() -> None:
    question = next(question for question in LEARNT if question.skills == ("digits", "sort"))
    first, second = question.answers
    assert sorted(first.split(", "), key=int) == second.split(", ")
    assert question.problem().reference == second


async def test_an_answer_is_compared_exactly_but_for_blanks() -> None:
    task = load_task("specialists", limit=6)
    for item in task.read().items:
        answer = str(item.canonical)
        assert (await task.grader.grade(item.problem, f" {answer}\n")).correct
        assert not (await task.grader.grade(item.problem, f"{answer}.")).correct


def test_a_question_depends_on_its_index_and_seed_alone() -> None:
    task = SpecialistsTask(limit=9, seed=4)
    ids = [problem.id for problem in task.load("train")]
    assert ids == [f"train/4/{index}" for index in range(9)]
    assert task.load("train")[8].question == draw_question("train", 8, seed=4).text
    assert [len(SpecialistsTask().load(split)) for split in ("train", "test")] == [
        COUNTS["train"],
        COUNTS["test"],
    ]


def test_subtasks_for_random_plans_name_the_skills_in_known_words() -> None:
    task = SpecialistsTask()
    for problem, question in zip(task.load("train")[:40], LEARNT, strict=False):
        subtasks = task.draw_subtasks(problem, random.Random(1))
        known = [map(write_instruction, SKILLS[name].wordings) for name in question.skills]
        assert all(subtask in own for subtask, own in zip(subtasks, known, strict=True))


# ── a tiny stand-in ───────────────────────────────────────────────────────────────────────────────
class StandIn:
    """A function with one skill: it reads the last list that it is shown, and its subtask."""

    def __init__(self, skill: Skill) -> None:
        self.skill = skill

    def __call__(self, turns: list[Message]) -> str:
        known = [*self.skill.wordings, *self.skill.new_wordings]
        last = turns[-1].content.casefold()
        if not any(last.endswith(wording) for wording in known):
            return "I do not know."
        shown = [turn.content for turn in turns if turn.role == "assistant"]
        text = shown[-1] if shown else turns[0].content
        items = re.findall(r"[\w-]+(?:, [\w-]+){3}", text)
        try:
            return write_items(self.skill.do(tuple(items[-1].split(", "))))
        except (KeyError, ValueError, IndexError):
            return "I cannot read this."


POOL = oc.WorkerPool([oc.Worker(StandIn(skill), name=name) for name, skill in SKILLS.items()])


async def share_right(questions: list[SkillQuestion], *, blank: bool = False) -> float:
    """Return how often the specialists of a question, in a row, answer it."""
    right = 0
    for question in questions:
        steps: list[Step] = []
        for index, name in enumerate(question.skills):
            subtask = write_instruction(question.wordings[index])
            if blank:
                subtask = SOLVE_SUBTASK
            steps.append(Step(POOL.ordinal_of(name), subtask, (index - 1,) if index else ()))
        transcript = await oc.execute(Workflow(tuple(steps)), POOL, question.text)
        right += transcript.answer == question.answers[-1]
    return right / len(questions)


async def test_two_specialists_in_a_row_answer_pairs_and_neither_does_alone() -> None:
    pairs = [question for question in TESTED[:60] if question.kind != "single"]
    assert await share_right(pairs) > 0.9
    assert await share_right(pairs, blank=True) < 0.2
