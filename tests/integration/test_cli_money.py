"""``ask`` and its money: what a journal holds is not paid for again, and every wasted call is on the bill."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from chat_server import Answer, ChatServer, completion, says, write_pool
from test_cli import QUESTION, in_a_terminal, plans, scripted, serving

from openconductor.types import Step, Workflow

CHAIN = Workflow((Step(1, "Work it out."), Step(2, "Check it.", (0,))))
ALONE = Workflow((Step(1, "Work it out."),))
DOWN = says({"error": {"message": "overloaded"}}, status=500)
BAD = says({"error": {"message": "no"}}, status=400)
CALL = Decimal("0.000022")


@pytest.fixture(autouse=True)
def _retries_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openconductor.calls.policies.FIRST_WAIT_S", 0.0)


def asking(folder: Path, server: ChatServer) -> tuple[str, ...]:
    """Three workers of the server, the first of which plans, and a journal; $1 in, $2 out: 22 millionths a call."""
    pool = write_pool(
        folder, server.url, "boss", "ada", "bob", more="price = { input = 1, output = 2 }"
    )
    journal = str(folder / "journal.sqlite")
    return (
        "ask",
        "What is 6 * 7?",
        "--pool",
        pool,
        "--conductor",
        "worker:boss",
        "--journal",
        journal,
    )


def answers(text: str) -> Answer:
    return says(completion(text))


def test_the_same_question_with_the_same_journal_is_not_paid_for_again_unless_asked_afresh(
    run, tmp_path
) -> None:
    anew = (plans(CHAIN), answers("43"), answers("No."))
    with serving(plans(CHAIN), answers("42"), answers("It is 42."), *anew) as server:
        asked = (*asking(tmp_path, server), "--json")
        first, again = run(*asked), run(*asked)
        assert len(server.bodies) == 3
        fresh = run(*asked, "--fresh")
        assert len(server.bodies) == 6
    assert (first.code, again.code) == (0, 0)
    paid, replayed = first.json(), again.json()
    assert (paid["answer"], replayed["answer"], fresh.json()["answer"]) == (
        "It is 42.",
        "It is 42.",
        "No.",
    )
    counts = [one["ledger"]["replayed"]["attempts"] for one in (paid, replayed, fresh.json())]
    assert counts == [0, 3, 0]
    ledger = replayed["ledger"]
    assert Decimal(ledger["replayed"]["dollars"]) == Decimal(ledger["total"]["dollars"]) == 3 * CALL
    attempts = [one for step in replayed["rounds"][0]["steps"] for one in step["attempts"]]
    attempts += replayed["rounds"][0]["planning"]["attempts"]
    assert all(one["replayed"] and not one["wasted"] for one in attempts)


def test_a_failed_step_goes_to_the_next_worker_and_what_was_wasted_is_told(run, tmp_path) -> None:
    with serving(plans(ALONE), DOWN, DOWN, DOWN, answers("42")) as server:
        ran = run(*asking(tmp_path, server), "--json")
        assert [body["model"] for body in server.bodies] == ["boss", "ada", "ada", "ada", "bob"]
    episode = ran.json()
    assert (ran.code, episode["answer"]) == (0, "42")
    [step] = episode["rounds"][0]["steps"]
    assert (step["worker_name"], step["answered_by"]) == ("ada", "bob")
    seen = [
        (one["worker"], one["attempt"], one["outcome"], one["wasted"]) for one in step["attempts"]
    ]
    assert seen == [
        *(("ada", number, "server_failed", True) for number in range(3)),
        ("bob", 0, "answered", False),
    ]
    assert episode["ledger"]["wasted"]["attempts"] == 3
    assert Decimal(episode["ledger"]["total"]["dollars"]) == 2 * CALL


def test_the_gyms_draws_of_another_seed_are_not_taken_from_the_journal(run, tmp_path) -> None:
    plan = Workflow((Step(3, "sort the list"), Step(1, "make each twice as big", (0,))))
    with serving(plans(plan)) as server:
        asked = (
            "ask",
            QUESTION,
            *scripted(server),
            "--journal",
            tmp_path / "journal.sqlite",
            "--json",
        )
        first, other = run(*asked, "--seed", "1"), run(*asked, "--seed", "2")
        assert len(server.bodies) == 1  # the plan is the same call
    assert [ran.json()["ledger"]["replayed"]["attempts"] for ran in (first, other)] == [0, 1]


@pytest.mark.parametrize("journal", ["no/such/folder/journal.sqlite", "text.sqlite"])
def test_a_journal_that_cannot_be_used_is_one_message(run, tmp_path, monkeypatch, journal) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.sqlite").write_text("This is no journal.\n" * 400, "utf-8")
    scripted = ("--conductor", "vllm:m", "--conductor-base-url", "http://127.0.0.1:9/v1")
    ran = run("ask", QUESTION, *scripted, "--journal", journal)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: ") and ran.err.count("error:") == 1 and journal in ran.err


def test_a_terminal_sees_a_short_bill_with_what_was_wasted(tmp_path) -> None:
    with serving(plans(ALONE), BAD, answers("42"), answers("42")) as server:
        environment = {"NO_COLOR": "1", "COLUMNS": "160"}
        code, shown = in_a_terminal(*asking(tmp_path, server), env=environment)
        again, replayed = in_a_terminal(*asking(tmp_path, server), env=environment)
    assert (code, again) == (0, 0)
    assert "bob (instead)" in shown and "after rejected: " in shown
    assert "Bill" in shown and "wasted: rejected" in shown
    assert "replayed, not paid again" in replayed
