"""Asking on the page: who may, what is paid, what is linked, and that no other site can."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path

import pytest
from episodes_of import BROKEN, FLOW, PRICE, REVISION, ask
from sites import ORIGIN, OWN, Markup, asked

import openconductor as oc
from openconductor.events import Asked
from openconductor.serving.key_ring import hash_key
from openconductor.serving.serve_config import KeyTable
from openconductor.store import Journal, open_store
from openconductor.testing import Scripted
from openconductor.types import Completion, Usage

NAMES = ("anna", "bert", "carl")
USED = Usage(100, 20, 7)


@pytest.fixture
def store(tmp_path: Path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield journal


class Cast:
    """Workers that number their answers, a planner, and the Conductor of both."""

    def __init__(self, *plans: oc.Workflow | str, price=PRICE, **options: object) -> None:
        self.providers = {name: self._worker(name) for name in NAMES}
        self.pool = oc.WorkerPool(
            [oc.Worker(one, name=name, price=price) for name, one in self.providers.items()]
        )
        self.planner = Scripted(list(plans or (FLOW,)), identity="planner")
        planner = oc.Worker(self.planner, name="planner", price=price)
        conductor = oc.Conductor(planner, pool=self.pool, **options)
        self.systems = {"conductor": conductor}

    @staticmethod
    def _worker(name: str) -> Scripted:
        def answer(call) -> Completion:
            return Completion(f"{name} {call.number}", usage=USED)

        return Scripted(answer, identity=f"scripted {name}")

    @property
    def called(self) -> dict[str, int]:
        return {name: len(one.calls) for name, one in self.providers.items()}


def keys(**tables: dict[str, object]) -> list[KeyTable]:
    return [KeyTable(name, hash_key(f"oc-{name}"), **table) for name, table in tables.items()]


# ── the box ───────────────────────────────────────────────────────────────────────────────────────
async def test_a_question_is_answered_and_its_page_is_there_at_once(store) -> None:
    cast = Cast()
    async with asked(store, cast.pool, cast.systems) as visit:
        page = Markup((await visit.client.get("/ui/ask?text=What%3F")).text)
        assert "What?" in page.text
        offered = (await visit.client.get("/ui/ask.json")).json()
        assert offered["models"][:2] == ["conductor", "direct:anna"]
        assert offered["workers"] == list(NAMES)
        answer = await visit.post("/ask", text="What is it?\r\nSay.", model="conductor")
        assert (await visit.client.get(answer.headers["location"])).status_code == 200
        data = await visit.episode(await visit.ended(answer))
    assert data["outcome"] == "answered"
    assert data["question"] == [{"role": "user", "content": "What is it?\nSay."}]
    assert data["model"] == "conductor"


async def test_of_one_worker_alone_the_page_is_there_while_it_answers(store) -> None:
    cast = Cast()
    cast.providers["anna"].script = (math.inf,)
    async with asked(store, cast.pool, cast.systems) as visit:
        answer = await visit.post("/ask", text="Hello?", model="direct:anna")
        page = await visit.client.get(answer.headers["location"])
        assert page.status_code == 200
        assert "Stop" in page.text
        identifier = answer.headers["location"].rpartition("/")[2]
        stopped = await visit.post(f"/episodes/{identifier}/stop")
        assert await visit.ended(stopped) == identifier
        page = await visit.client.get(f"/ui/episodes/{identifier}")
        assert "badge is-stopped" in page.text
        assert "data-live" not in page.text
        changes = await visit.client.get(f"/ui/episodes/{identifier}/changes")
        assert "event: end" in changes.text
    assert cast.providers["anna"].cancelled == 1


async def test_only_the_chosen_workers_are_offered_to_the_conductor(store) -> None:
    cast = Cast(oc.Workflow([oc.Step(0, "Answer.")]), oc.Workflow([oc.Step(1, "Answer.")]))
    async with asked(store, cast.pool, cast.systems) as visit:
        answer = await visit.post("/ask", text="?", model="conductor", workers=["bert", "carl"])
        data = await visit.episode(await visit.ended(answer))
        assert "unknown_worker" in data["error"]["message"]
        answer = await visit.post("/ask", text="?", model="conductor", workers=["bert", "carl"])
        await visit.ended(answer)
    assert cast.called == {"anna": 0, "bert": 1, "carl": 0}


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"text": "  "}, "blank"),
        ({"text": "?", "model": "x" * 999}, "model: got"),
        ({"text": "?", "workers": "nobody"}, "workers: got"),
        ({"text": "?", "dollars": "ten"}, "expected US dollars"),
        ({"text": "?", "dollars": "nan"}, "expected US dollars"),
        ({"text": "?", "dollars": "-1"}, "expected US dollars"),
    ],
)
async def test_what_is_wrong_is_said_beside_the_question_that_was_written(
    store, fields, fault
) -> None:
    cast = Cast()
    async with asked(store, cast.pool, cast.systems) as visit:
        answer = await visit.post("/ask", **{"model": "conductor", **fields})
        assert answer.status_code == 400
        page = Markup(answer.text)
        assert fault in page.text
        assert "textarea" in page.tags
    assert not cast.planner.calls


async def test_a_budget_ends_the_answer(store) -> None:
    cast = Cast()
    async with asked(store, cast.pool, cast.systems) as visit:
        answer = await visit.post("/ask", text="?", model="conductor", dollars="0.0000001")
        data = await visit.episode(await visit.ended(answer))
    assert data["error"]["type"] == "BudgetExceeded"


async def test_a_further_turn_goes_on_from_an_answer_and_both_are_linked(store) -> None:
    cast = Cast()
    async with asked(store, cast.pool, cast.systems) as visit:
        first = await visit.ended(await visit.post("/ask", text="First?", model="conductor"))
        page = Markup((await visit.client.get(f"/ui/episodes/{first}")).text)
        assert "Go on with a further turn" in page.text
        answer = await visit.post("/ask", text="And then?", follows=first)
        second = await visit.ended(answer)
        before, after = await visit.episode(first), await visit.episode(second)
        texts = [turn["content"] for turn in after["question"]]
        assert texts == ["First?", before["answer"], "And then?"]
        assert after["made_from"] == {"id": first, "change": "a further turn"}
        assert before["made_into"] == [{"id": second, "change": "a further turn"}]
        page = Markup((await visit.client.get(f"/ui/episodes/{second}")).text)
        assert f"/ui/episodes/{first}" in page.addresses
        assert "The conversation before: 2 turns" in page.text


async def test_a_further_turn_has_the_workers_of_the_first_and_a_budget(store) -> None:
    cast = Cast(oc.Workflow([oc.Step(1, "Answer.")]))
    async with asked(store, cast.pool, cast.systems) as visit:
        answer = await visit.post("/ask", text="?", model="conductor", workers=["bert", "carl"])
        first = await visit.ended(answer)
        page = Markup((await visit.client.get(f"/ui/episodes/{first}")).text)
        fields = page.form_with("follows")
        assert fields["workers"] == ["bert", "carl"]
        assert fields["dollars"] == [""]
        box_address = next(link for link in page.addresses if "/ask?follows=" in link)
        box = Markup((await visit.client.get(box_address)).text)
        assert "2 of 3" in box.text
        fields |= {"text": ["And then?"], "dollars": ["0.0000001"]}
        second = await visit.ended(await visit.post("/ask", **fields))
        assert store.episode(second).workers == {1: "bert", 2: "carl"}
        assert (await visit.episode(second))["error"]["type"] == "BudgetExceeded"


async def test_what_is_asked_on_the_page_is_counted_and_logged_as_over_the_apis(
    store, capsys, caplog
) -> None:
    cast = Cast()
    caplog.set_level("INFO", logger="openconductor.access")
    async with asked(store, cast.pool, cast.systems) as visit:
        await visit.ended(await visit.post("/ask", text="?", model="conductor"))
        await visit.ended(await visit.post("/ask", text="?", model="conductor", dollars="0"))
        metrics = (await visit.client.get("/metrics")).text
    for status in (200, 402):
        labels = f'api="page",model="conductor",status="{status}"'
        assert f"openconductor_requests_total{{{labels}}} 1.0" in metrics
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if '"page"' in line]
    assert [(line["status"], line["steps"]) for line in lines] == [(200, 4), (402, 0)]


async def test_an_internal_error_of_what_is_asked_is_logged(store, caplog) -> None:
    class Broken:
        async def ask(self, question, *, on_event, context, budget=None):
            on_event(Asked("e1", 0, 0.0, question, workers={}))
            raise RuntimeError("a bug")

    cast = Cast()
    async with asked(store, cast.pool, {"broken": Broken()}) as visit:
        answer = await visit.post("/ask", text="?", model="broken")
        assert answer.status_code == 500
        assert "internal error; request e1" in answer.text
    assert "a bug" in caplog.text


# ── again ─────────────────────────────────────────────────────────────────────────────────────────
async def test_a_step_by_another_worker_is_paid_with_what_sees_it_and_nothing_else(store) -> None:
    cast = Cast()
    async with asked(store, cast.pool, cast.systems) as visit:
        first = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
        assert cast.called == {"anna": 2, "bert": 1, "carl": 1}
        form = Markup((await visit.client.get(f"/ui/episodes/{first}/again?part=0-1")).text)
        assert "Solve it in another way." in form.text
        change = {"round": "0", "worker-1": "carl"}
        price = Markup((await visit.post(f"/episodes/{first}/again", **change)).text)
        assert "Round 1: step 1 by carl." in price.text
        assert price.text.count("recorded, nothing to pay") == 2
        assert cast.called == {"anna": 2, "bert": 1, "carl": 1}, "a price costs nothing"
        editing = await visit.post(f"/episodes/{first}/again", **change, do="edit")
        assert ("option", "selected", "") in Markup(editing.text).attributes
        assert "Show the price" in editing.text
        budget = next(v for tag, n, v in price.attributes if n == "value" and v.startswith("0."))
        change |= {"do": "ask", "dollars": budget}
        second = await visit.ended(await visit.post(f"/episodes/{first}/again", **change))
        assert cast.called == {"anna": 3, "bert": 1, "carl": 2}
        before, after = await visit.episode(first), await visit.episode(second)
    steps = after["rounds"][0]["steps"]
    assert [step["worker_name"] for step in steps] == ["anna", "carl", "carl", "anna"]
    assert [step["subtask"] for step in steps] == [step.subtask for step in FLOW]
    assert steps[0]["response"] == before["rounds"][0]["steps"][0]["response"]
    assert after["made_from"] == {"id": first, "change": "round 1: step 1 by carl"}
    assert before["made_into"] == [{"id": second, "change": "round 1: step 1 by carl"}]
    record = store.find_record(f"serve/{second}")
    assert Decimal(record["charged"]) == 2 * PRICE.dollars(USED)


async def test_a_step_is_dropped_edited_or_called_once_more(store) -> None:
    cast = Cast()
    async with asked(store, cast.pool, cast.systems) as visit:
        first = await visit.ended(await visit.post("/ask", text="?", model="conductor"))

        async def again(**change: str) -> list[tuple[str, str, object]]:
            fields = {"round": "0", "do": "ask", "calls": "9", **change}
            later = await visit.ended(await visit.post(f"/episodes/{first}/again", **fields))
            steps = (await visit.episode(later))["rounds"][0]["steps"]
            return [(step["worker_name"], step["subtask"], step["access"]) for step in steps]

        dropped = await again(**{"drop-0": "on"})
        assert dropped == [
            ("bert", "Solve it.", []),
            ("carl", "Solve it in another way.", []),
            ("anna", "Compare, and answer.", "all"),
        ]
        called = cast.called
        edited = await again(**{"subtask-3": "Answer\r\nbriefly."})
        assert edited[3] == ("anna", "Answer\nbriefly.", "all")
        assert cast.called == {**called, "anna": called["anna"] + 1}
        await again(**{"anew-3": "on"})
        assert cast.called == {**called, "anna": called["anna"] + 2}
        await again()
        assert cast.called == {**called, "anna": called["anna"] + 2}, "nothing is new"
        last = cast.providers["anna"].calls[-1]
        assert last.context.sample == 1, "a worker that draws its answers draws anew"


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r", "\n\x1b"])
async def test_a_subtask_of_several_lines_that_was_not_edited_is_not_paid(store, line_end) -> None:
    cast = Cast(oc.Workflow([oc.Step(0, f"First.{line_end}Second."), oc.Step(1, "Answer.", [0])]))
    async with asked(store, cast.pool, cast.systems) as visit:
        first = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
        path = f"/episodes/{first}/again"
        form = Markup((await visit.client.get(f"/ui{path}")).text)
        begin = form.text.index("First.")
        subtask = form.text[begin : form.text.index("Second.") + len("Second.")]
        change = {"round": "0", "worker-1": "carl", "subtask-0": subtask.replace("\n", "\r\n")}
        price = Markup((await visit.post(path, **change)).text)
        carried = next(v for _, n, v in price.attributes if n == "value" and "First." in v)
        change |= {"subtask-0": carried.replace("\n", "\r\n"), "do": "ask", "dollars": "1"}
        await visit.ended(await visit.post(path, **change))
    assert cast.called == {"anna": 1, "bert": 1, "carl": 1}


async def test_a_question_is_planned_anew_and_steps_that_come_out_the_same_are_not_paid(
    store,
) -> None:
    other = oc.Workflow([FLOW.steps[0], oc.Step(2, "Answer.", [0])])
    cast = Cast(FLOW, other)
    async with asked(store, cast.pool, cast.systems) as visit:
        first = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
        path = f"/episodes/{first}/again"
        price = Markup((await visit.post(path, what="plan")).text)
        assert "Planned anew." in price.text
        answer = await visit.post(path, what="plan", do="ask", dollars="1")
        second = await visit.episode(await visit.ended(answer))
    assert len(cast.planner.calls) == 2
    assert cast.called == {"anna": 2, "bert": 1, "carl": 2}
    assert [step["worker_name"] for step in second["rounds"][0]["steps"]] == ["anna", "carl"]
    assert second["made_from"]["change"] == "planned anew"


async def test_the_budget_of_asking_again_holds_for_new_calls_only(store) -> None:
    cast = Cast()
    spent = PRICE.dollars(USED)
    async with asked(store, cast.pool, cast.systems) as visit:
        first = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
        fields = {"round": "0", "do": "ask", "subtask-3": "Answer."}
        path = f"/episodes/{first}/again"
        enough = await visit.post(path, dollars=str(spent), **fields)
        assert (await visit.episode(await visit.ended(enough)))["outcome"] == "answered"
        too_little = await visit.post(path, dollars="0.0000001", **{**fields, "anew-3": "on"})
        failed = await visit.episode(await visit.ended(too_little))
        assert failed["error"]["type"] == "BudgetExceeded"
        assert "the budget of asking again" in failed["error"]["message"]
        missing = await visit.post(path, **fields)
        assert missing.status_code == 400
        assert "budget: it is missing" in missing.text


async def test_a_later_round_is_played_again_with_the_answer_before_it(store) -> None:
    cast = Cast(FLOW, REVISION, max_rounds=2)
    async with asked(store, cast.pool, cast.systems) as visit:
        first = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
        called = cast.called
        fields = {"round": "1", "do": "ask", "calls": "5", "worker-1": "anna"}
        later = await visit.ended(await visit.post(f"/episodes/{first}/again", **fields))
        before, after = await visit.episode(first), await visit.episode(later)
    assert cast.called == {**called, "anna": called["anna"] + 1}, "step 0 is recorded"
    (played,) = after["rounds"]
    sent = [turn["content"] for turn in played["steps"][0]["messages"]]
    assert before["rounds"][0]["steps"][3]["response"] in sent


async def test_on_postgresql_a_question_is_asked_goes_on_and_is_asked_again(postgres) -> None:
    cast = Cast()
    with open_store(postgres.new_place()) as store:
        async with asked(store, cast.pool, cast.systems) as visit:
            first = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
            further = await visit.post("/ask", text="And?", model="conductor", follows=first)
            second = await visit.ended(further)
            called = cast.called
            fields = {"round": "0", "do": "ask", "calls": "5", "worker-1": "carl"}
            third = await visit.ended(await visit.post(f"/episodes/{first}/again", **fields))
            before = await visit.episode(first)
            page = await visit.client.get("/ui/episodes")
    assert [link["id"] for link in before["made_into"]] == [third, second]
    assert cast.called == {**called, "anna": called["anna"] + 1, "carl": called["carl"] + 1}
    assert "running" not in Markup(page.text).text


async def test_without_a_known_price_the_budget_limits_the_calls(store) -> None:
    cast = Cast(price=None)
    async with asked(store, cast.pool, cast.systems) as visit:
        first = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
        change = {"round": "0", "worker-3": "carl"}
        price = Markup((await visit.post(f"/episodes/{first}/again", **change)).text)
        assert "The price of a worker is not known" in price.text
        assert ("input", "name", "calls") in price.attributes


async def test_an_episode_without_a_plan_can_only_be_planned_anew(store) -> None:
    cast = Cast(BROKEN)
    async with asked(store, cast.pool, cast.systems) as visit:
        first = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
        page = Markup((await visit.client.get(f"/ui/episodes/{first}/again")).text)
        assert "The steps of round" not in page.text
        assert "Plan anew" in page.text
        for fields in ({"round": "9"}, {"round": "x"}, {}, {"round": "0"}):
            answer = await visit.post(f"/episodes/{first}/again", **fields)
            assert answer.status_code == 400, fields


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"worker-0": "nobody"}, "nobody"),
        ({"subtask-0": " "}, "bad_subtask"),
        ({f"drop-{step}": "on" for step in range(4)}, "No step is left"),
    ],
)
async def test_steps_that_are_no_workflow_are_refused_before_anything_is_paid(
    store, fields, fault
) -> None:
    cast = Cast()
    async with asked(store, cast.pool, cast.systems) as visit:
        first = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
        called = cast.called
        for do in ("price", "ask"):
            more = {"round": "0", "do": do, "dollars": "1", **fields}
            answer = await visit.post(f"/episodes/{first}/again", **more)
            assert answer.status_code == 400
            assert fault in answer.text
    assert cast.called == called


async def test_without_texts_nothing_is_asked_again(tmp_path: Path) -> None:
    cast = Cast()
    with Journal(tmp_path / "none.sqlite", content="none") as journal:
        async with asked(journal, cast.pool, cast.systems) as visit:
            first = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
            page = Markup((await visit.client.get(f"/ui/episodes/{first}")).text)
            assert "Ask again" not in page.text
            assert "Go on" not in page.text
            assert (await visit.client.get(f"/ui/episodes/{first}/again")).status_code == 409
            assert (await visit.post("/ask", text="?", follows=first)).status_code == 409


# ── who may spend ─────────────────────────────────────────────────────────────────────────────────
async def test_a_page_that_may_not_spend_has_no_form_that_does(store) -> None:
    cast = Cast()
    episode = await ask(store, "?")
    store.flush()
    async with asked(store, cast.pool, cast.systems, allow_asking=False) as visit:
        for path in ("/ask", f"/episodes/{episode.id}/again", f"/episodes/{episode.id}/stop"):
            assert (await visit.post(path, text="?")).status_code in (404, 405), path
        page = Markup((await visit.client.get("/ui/episodes")).text)
        assert "/ui/ask" not in page.addresses
    assert not cast.planner.calls


async def test_an_empty_list_leads_to_the_box_and_a_key_is_no_filter(store) -> None:
    cast = Cast()
    async with asked(store, cast.pool, cast.systems) as visit:
        page = Markup((await visit.client.get("/ui/episodes")).text)
        assert "Ask the first question" in page.text
        assert "Show all" not in page.text
    async with asked(store, cast.pool, cast.systems, allow_asking=False) as visit:
        page = Markup((await visit.client.get("/ui/episodes")).text)
        assert "openconductor serve --ui --allow-asking" in page.text


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({}, {}),
        ({"origin": "https://evil.example", "sec-fetch-site": "cross-site"}, {}),
        ({"origin": "http://127.0.0.1:9999", "sec-fetch-site": "same-site"}, {}),
        ({"origin": "null", "sec-fetch-site": "cross-site"}, {}),
        ({"origin": ORIGIN, "sec-fetch-site": "cross-site"}, {}),
        (OWN, {"form_token": ""}),
        (OWN, {"form_token": "é" * 64}),
        (OWN, {"form_token": "0" * 64}),
    ],
)
async def test_another_sites_page_cannot_spend_for_somebody(store, headers, fields) -> None:
    cast = Cast()
    async with asked(store, cast.pool, cast.systems) as visit:
        first = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
        called = cast.called
        more = {"round": "0", "do": "ask", "calls": "9", "anew-0": "on", "model": "conductor"}
        for path in ("/ask", f"/episodes/{first}/again", f"/episodes/{first}/stop"):
            answer = await visit.post(path, headers, text="?", **{**more, **fields})
            assert answer.status_code == 403, path
        assert visit.gateway is not None
        assert not visit.gateway.running
    assert cast.called == called


async def test_the_token_of_a_form_is_that_of_its_session(store) -> None:
    cast = Cast()
    async with asked(store, cast.pool, cast.systems) as visit:
        earlier = visit.door.form_token(dict(visit.client.cookies))
        assert (await visit.enter(visit.door.new_token(""))).status_code == 303
        answer = await visit.post("/ask", text="?", model="conductor", form_token=earlier)
        assert answer.status_code == 403
        visit.client.cookies.clear()
        answer = await visit.post("/ask", text="?", model="conductor", form_token=earlier)
        assert answer.status_code == 401


async def test_a_key_asks_its_own_models_and_workers_within_its_money(store) -> None:
    cast = Cast()
    tables = keys(
        ann={"workers": ("anna",)},
        kim={"models": ("direct:bert",)},
        lee={"dollars": Decimal("0.0000001")},
        max={},
    )
    async with asked(store, cast.pool, cast.systems, keys=tables) as visit:
        bearer = {**OWN, "authorization": "Bearer oc-max"}
        answer = await visit.post("/ask", bearer, text="?", model="conductor", form_token="")
        assert answer.status_code == 403, "a form needs a session"
        await visit.enter(key="oc-max")
        theirs = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
        called = cast.called

        await visit.enter(key="oc-ann")
        assert (await visit.client.get("/ui/ask.json")).json()["workers"] == ["anna"]
        for path in (f"/episodes/{theirs}/again", f"/episodes/{theirs}/stop"):
            answer = await visit.post(path, round="0", do="ask", calls="9")
            assert answer.status_code == 404, "another key's"
        assert (await visit.post("/ask", text="?", follows=theirs)).status_code == 404
        assert (await visit.client.get(f"/ui/episodes/{theirs}/again")).status_code == 404
        own = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
        change = {"round": "0", "worker-0": "bert", "do": "ask", "calls": "9"}
        answer = await visit.post(f"/episodes/{own}/again", **change)
        assert answer.status_code == 400

        await visit.enter(key="oc-kim")
        assert (await visit.post("/ask", text="?", model="conductor")).status_code == 400
        alone = await visit.ended(await visit.post("/ask", text="?", model="direct:bert"))
        answer = await visit.post(f"/episodes/{alone}/again", round="0", do="ask", calls="9")
        assert answer.status_code == 403

        await visit.enter(key="oc-lee")
        poor = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
        assert (await visit.episode(poor))["error"]["type"] == "BudgetExceeded"
    assert cast.called == {**called, "bert": called["bert"] + 1}


async def test_a_link_to_an_episode_of_another_key_is_not_shown(store) -> None:
    cast = Cast()
    async with asked(store, cast.pool, cast.systems, keys=keys(ann={}, kim={})) as visit:
        await visit.enter(key="oc-ann")
        own = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
        await visit.enter(key="oc-kim")
        theirs = await visit.ended(await visit.post("/ask", text="?", model="conductor"))
        record = {"id": theirs, "change": "planned anew", "is_earlier": False}
        store.put_record(f"again/{own}", record, texts=False)
        store.flush()
        await visit.enter(key="oc-ann")
        assert (await visit.episode(own))["made_into"] == []
