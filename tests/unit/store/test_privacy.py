"""What the journal must not hold: content that is switched off or redacted, and keys."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any
from urllib.parse import quote

import pytest
from journaled import (
    PLAN,
    PRICE,
    ask,
    key_for,
    one_call,
    pool_of,
    says,
    talker,
)
from tests.places import Place

from openconductor import Conductor, Worker, WorkerPool
from openconductor.errors import JournalError, ServerFailed
from openconductor.events import Asked
from openconductor.privacy import Privacy, forms
from openconductor.types import Message


async def test_without_content_there_are_hashes_and_numbers_and_no_text(place: Place) -> None:
    words = ("ZEBRA-Q", "ZEBRA-SUB", "ZEBRA-ANSWER", "ZEBRA-ERROR", "ZEBRA-THOUGHT")
    plan = f"model_id = [0, 0, 1]\nsubtasks = ['{words[1]}', 'b', 'c']\naccess_list = [[], [], []]"
    answer = says(
        words[2], reasoning=words[4], body_sent={"model": "m", "messages": [], "x": words[0]}
    )
    pool = pool_of(talker(answer), talker(ServerFailed(words[3])), retries=0)
    with place.open(content="none") as journal:
        planner = Worker(talker(says(plan)), name="conductor", price=PRICE)
        episode = await Conductor(planner, pool=pool).ask(words[0], on_event=journal)
        calls = list(journal.calls())
        assert [journal.find_completion(call.key or "") for call in calls] == [None] * len(calls)
        assert journal.totals().spent.usage.dollars == episode.usage.dollars > 0
        assert b"ZEBRA" not in place.everything()
    assert b"ZEBRA" not in place.everything()
    assert all(len(call.request_hash) == 32 and call.key for call in calls)
    assert isinstance(calls[-1].error, ServerFailed)
    assert (calls[-1].error.message, calls[-1].messages) == ("", ())
    ((workflow, plan),) = place.rows("SELECT workflow, text FROM rounds")
    assert (json.loads(workflow)["steps"][2]["worker"], plan) == (1, None)


async def test_redaction_is_done_before_anything_is_written(place: Place) -> None:
    pool = pool_of(talker(says("Dear Ms Smith")), talker(says("4")))
    with place.open(redact=lambda text: text.replace("Smith", "***")) as journal:
        planner = Worker(
            talker(says(PLAN.replace("Think", "Greet Smith"))), name="conductor", price=PRICE
        )
        await Conductor(planner, pool=pool).ask(
            (Message("user", "I am Smith", ({"text": "Smith"},)),), on_event=journal
        )
        calls = list(journal.calls())
        assert b"Smith" not in place.everything()
        assert calls[1].completion.text == "Dear Ms ***"
        assert journal.find_completion(calls[1].key or "") is None  # not what came
        found = journal.find_completion(calls[2].key or "")
        assert found is not None  # as it came
        assert found.text == "4"
    assert b"Smith" not in place.everything()


@pytest.mark.parametrize(
    "redact", [lambda text: 1 / 0, lambda text: None], ids=["raises", "gives no text"]
)
async def test_a_redaction_that_fails_stops_the_journal_and_nothing_gets_by(
    place: Place, redact: Any
) -> None:
    journal = place.open(redact=redact)
    journal(Asked("e1", 0, 0.0, "Smith"))
    with pytest.raises(JournalError, match="redact"):
        await journal.wait_durable()
    with pytest.raises(JournalError, match="redact"):
        journal.close()
    assert b"Smith" not in place.everything()
    place.open().close()


@pytest.mark.parametrize(
    "secret",
    ["sk-canary-7Hq2Zx9LmT4vR8pW", 'od"d\\sécret/with+äll=\tof it', "Ab1" * 40, "p4ssw0rd"],
    ids=["usual", "odd", "long", "short"],
)
async def test_keys_of_the_environment_never_reach_the_file(
    place: Place, secret, monkeypatch
) -> None:
    monkeypatch.setenv("SOME_PROVIDERS_API_KEY", secret)
    shapes = {secret, quote(secret, safe=""), json.dumps(json.dumps(secret)[1:-1])}
    shapes |= {json.dumps({"k": secret}, ensure_ascii=ascii_only) for ascii_only in (True, False)}
    for text in (f"user:{secret}", f"x{secret}y", f"Bearer {secret}!"):
        shapes.add(b64encode(text.encode()).decode())
    echo = " ".join(f"<{shape}>" for shape in sorted(shapes))
    answer = says(echo, reasoning=echo, body_sent={secret: [echo], "messages": secret})
    failing = Worker(talker(ServerFailed(f"bad key {echo}")), name=f"w {secret}", retries=0)
    with place.open() as journal:
        planner = talker(says(PLAN.replace("Think", repr(echo)[1:-1].replace("'", "\\'"))))
        conductor = Conductor(planner, pool=WorkerPool([Worker(talker(answer), name="a"), failing]))
        await conductor.ask((Message("user", echo, ({secret: {"url": echo}},)),), on_event=journal)
        written = place.everything()
    written += place.everything()
    for shape in (secret, *forms(secret)):
        assert shape.encode() not in written
        assert json.dumps(shape)[1:-1].encode() not in written
    assert b"[key]" in written


async def test_a_key_that_is_set_while_the_journal_is_open_is_kept_out_too(
    place: Place, monkeypatch
) -> None:
    with place.open() as journal:
        await ask(journal)
        monkeypatch.setenv("LATE_TOKEN", "canary-came-late")
        await ask(journal, pool=pool_of(talker(says("canary-came-late")), talker(says("4"))))
        monkeypatch.delenv("LATE_TOKEN")
        await ask(journal, pool=pool_of(talker(says("canary-came-late!")), talker(says("4"))))
    assert b"canary" not in place.everything()


async def test_a_response_that_held_a_key_is_not_found_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "canary-in-response")
    event = one_call(says("your key is canary-in-response"))
    with place.open() as journal:
        journal(Asked("e1", 0, 0.0, "Q"))
        journal(event)
        journal.flush()
        assert journal.find_completion(key_for(event)) is None


def test_short_values_and_other_variables_are_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "abcdefg")
    monkeypatch.setenv("HARMLESS", "a rather long value")
    text = "abcdefg and a rather long value"
    assert Privacy(None).text(text) is text


def test_outcomes_are_content_and_are_cleaned_as_all_else(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "zebra-secret-1")
    with place.open(redact=lambda text: text.replace("Ann", "someone")) as journal:
        journal.put_record(
            "k zebra-secret-1", {"answer": "Ann said zebra-secret-1", "steps": [["Ask Ann."]]}
        )
        journal.flush()
        (kept,) = journal.records()
    assert (kept.key, kept.value) == (
        "k [key]",
        {"answer": "someone said [key]", "steps": [["Ask someone."]]},
    )
    assert b"zebra-secret-1" not in place.everything()
    with (
        place.open(content="none") as journal,
        pytest.raises(JournalError, match="keeps no content"),
    ):
        journal.put_record("k", {})


def test_an_outcome_without_texts_is_kept_where_content_is_not(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "zebra-secret-1")
    with place.open(content="none") as journal:
        journal.put_record("k", {"charged": "0.25", "key": "zebra-secret-1"}, texts=False)
        journal.flush()
        (kept,) = journal.records()
    assert kept.value == {"charged": "0.25", "key": "[key]"}
