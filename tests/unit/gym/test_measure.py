"""How near a Conductor comes to the oracle, by the exact chances of what it writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import fmean

import pytest

from openconductor.cli import main
from openconductor.conductor import Conductor
from openconductor.gym.exact import ALL, oracle_workflow
from openconductor.gym.measure import Recursion, draw_subset, nearness, recursion
from openconductor.gym.questions import draw_questions, read_question
from openconductor.gym.workers import LOST, gym_pool, profiles_of
from openconductor.prompt import PromptOptions, render_workflow
from openconductor.types import Message, Step, Workflow

QUESTIONS = draw_questions("test", 8, seed=5)


def oracle(messages: Sequence[Message]) -> str:
    """What writes the best workflow over the workers on offer, and for smudged lists none."""
    text = messages[-1].content
    question = read_question(text.split("Question: ")[1].strip())
    offered = {ordinal: one for ordinal, one in ALL.items() if f"Model {ordinal}\n" in text}
    return "no idea" if question.smudged else render_workflow(oracle_workflow(question, offered)[0])


def test_the_oracle_without_comparisons_reaches_what_the_other_kinds_are_worth() -> None:
    asked = Conductor(oracle, pool=gym_pool(), prompt=PromptOptions(template="compact"))
    found = nearness(asked, QUESTIONS, ALL)
    best = [oracle_workflow(question)[1] for question in QUESTIONS]
    clear = [
        0.0 if question.smudged else each for question, each in zip(QUESTIONS, best, strict=True)
    ]
    assert found.oracle == pytest.approx(sum(best) / 8)
    assert found.accuracy == pytest.approx(sum(clear) / 8)
    assert found.validity == sum(not question.smudged for question in QUESTIONS) / 8
    assert found.share == pytest.approx(sum(clear) / sum(best))


def test_over_some_workers_it_is_held_against_the_best_that_they_can_do() -> None:
    some = {ordinal: ALL[ordinal] for ordinal in (0, 2, 6, 7)}
    whole, part = gym_pool(), gym_pool().subset(list(some))
    asked, few = (
        Conductor(oracle, pool=pool, prompt=PromptOptions(template="compact"))
        for pool in (whole, part)
    )
    clear = [question for question in QUESTIONS if not question.smudged]
    found = nearness(few, clear, some)
    assert found.offered == (0, 2, 6, 7)
    assert found.share == pytest.approx(1.0)
    assert found.oracle < nearness(asked, clear, ALL).oracle


def test_a_second_round_mends_what_is_seen_to_have_failed_and_leaves_the_rest() -> None:
    def again(messages: Sequence[Message]) -> str:
        text = messages[-1].content.split("Question: ")[1]
        accepts = "\nAnswer: " in text and LOST not in text
        question = read_question(text.split("\n")[0])
        assert question is not None
        return render_workflow(Workflow(()) if accepts else oracle_workflow(question)[0])

    asked = Conductor(again, pool=gym_pool(), prompt=PromptOptions(template="compact"))
    none, one, two = recursion(asked, QUESTIONS, ALL, 2)
    assert none.accuracy == pytest.approx(
        fmean(oracle_workflow(question)[1] for question in QUESTIONS)
    )
    assert (none.fixed, none.broken, none.ceiling) == (0.0, pytest.approx(0.0), 0.0)
    assert one.fixed == pytest.approx(one.ceiling)
    assert two.fixed == pytest.approx(two.ceiling)
    assert 0.3 < one.fixed < two.fixed < 0.6
    assert (one.broken, one.accepted) == (pytest.approx(0.0), pytest.approx(1.0))
    assert none.accuracy < one.accuracy < two.accuracy
    assert none.calls < one.calls < 1.5 * none.calls


def test_of_what_there_is_none_no_share_is_made_up() -> None:
    options = PromptOptions(template="compact")
    silent = Conductor(lambda messages: "no idea", pool=gym_pool(), prompt=options)
    assert recursion(silent, QUESTIONS, ALL, 1)[1] == Recursion(
        1, 0.0, None, None, None, None, None
    )
    useless = Conductor(
        lambda messages: render_workflow(Workflow((Step(2, "hm"),))),
        pool=gym_pool(),
        prompt=options,
    )
    found = recursion(useless, QUESTIONS, ALL, 1)[1]
    assert (found.accuracy, found.fixed, found.broken, found.accepted) == (0.0, 0.0, None, None)
    assert found.ceiling == pytest.approx(
        fmean(oracle_workflow(question)[1] for question in QUESTIONS)
    )


def test_subsets_keep_four_workers_and_leave_one_out() -> None:
    drawn = [draw_subset(range(8), number, seed=0) for number in range(200)]
    assert {len(each) for each in drawn} == {4, 5, 6, 7}
    assert all(list(each) == sorted(set(each)) for each in drawn)
    assert drawn[:20] == [draw_subset(range(8), number, seed=0) for number in range(20)]


def test_the_command_measures_the_bundled_conductor_over_pools_and_worlds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--questions", "4", "--subsets", "2", "--seed", "1"]
    assert main(["gym", "measure", *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["pools"]
    assert len(found[0]["offered"]) == 8
    assert found[0]["share"] > 0.9
    assert main(["gym", "measure", *options, "--pool", "gym:3"]) == 0
    assert "2 subsets: of the oracle" in capsys.readouterr().out
    assert profiles_of(3) != profiles_of(0)
    assert main(["gym", "measure", "--pool", "pool.toml"]) == 2
    assert "expected gym, gym:NUMBER or gym:drawn" in capsys.readouterr().err
    capsys.readouterr()
    assert main(["gym", "measure", *options, "--pool", "gym:drawn", "--json"]) == 0
    others = json.loads(capsys.readouterr().out)["pools"]
    assert len({one["oracle"] for one in others}) == 3, "each pool has workers of its own"
