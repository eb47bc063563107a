"""``ask`` and its money: journaled calls are not paid for again; wasted ones are on the bill."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from chat_server import Answer, ChatServer, completion, says, write_pool
from test_cli import CONDUCTOR, QUESTION, plans, scripted, serving

from openconductor.types import Step, Workflow

CHAIN = Workflow((Step(1, "Work it out."), Step(2, "Check it.", (0,))))
CALL = Decimal("0.000022")


def asking(folder: Path, server: ChatServer) -> tuple[str, ...]:
    """Ask with a journal, over three workers of $0.000022 a call, the first of which plans."""
    price = "price = { input = 1, output = 2 }"
    pool = write_pool(folder, server.url, "boss", "ada", "bob", more=price)
    options = ("--pool", pool, "--conductor", "worker:boss")
    return ("ask", "What is 6 * 7?", *options, "--journal", str(folder / "journal.sqlite"))


def answers(text: str) -> Answer:
    return says(completion(text))


def test_a_journaled_question_is_not_paid_for_again_unless_fresh(run, tmp_path) -> None:
    first = (plans(CHAIN), answers("42"), answers("It is 42."))
    with serving(*first, plans(CHAIN), answers("43"), answers("No.")) as server:
        command = (*asking(tmp_path, server), "--json")
        paid, replayed = run(*command).json(), run(*command).json()
        assert len(server.bodies) == 3
        fresh = run(*command, "--fresh").json()
        assert len(server.bodies) == 6
    episodes = (paid, replayed, fresh)
    assert [episode["answer"] for episode in episodes] == ["It is 42.", "It is 42.", "No."]
    assert [episode["ledger"]["replayed"]["attempts"] for episode in episodes] == [0, 3, 0]
    ledger = replayed["ledger"]
    assert Decimal(ledger["replayed"]["dollars"]) == Decimal(ledger["total"]["dollars"]) == 3 * CALL
    for step in replayed["rounds"][0]["steps"]:
        (attempt,) = step["attempts"]
        assert attempt["replayed"] and not attempt["wasted"]


def test_the_gyms_draws_of_another_seed_are_not_taken_from_the_journal(run, tmp_path) -> None:
    plan = Workflow((Step(3, "sort the list"), Step(1, "make each twice as big", (0,))))
    journal = ("--journal", tmp_path / "journal.sqlite")
    with serving(plans(plan)) as server:
        command = ("ask", QUESTION, *scripted(server), *journal, "--no-cards", "--json", "--seed")
        ledgers = [run(*command, seed).json()["ledger"] for seed in ("1", "2")]
        assert len(server.bodies) == 1  # the plan is the same call
    assert [ledger["replayed"]["attempts"] for ledger in ledgers] == [0, 1]


@pytest.mark.parametrize("journal", ["no/such/folder/journal.sqlite", "text.sqlite"])
def test_a_journal_that_cannot_be_used_is_one_message(run, tmp_path, monkeypatch, journal) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.sqlite").write_text("This is no journal.\n" * 400, "utf-8")
    ran = run("ask", QUESTION, *CONDUCTOR, "http://127.0.0.1:9/v1", "--journal", journal)
    assert (ran.code, ran.out, ran.err.count("error:")) == (1, "", 1)
    assert ran.err.startswith("error: ") and journal in ran.err
