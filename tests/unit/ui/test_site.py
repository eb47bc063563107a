"""The pages: what they show, as HTML and as data, and that they stay small."""

from __future__ import annotations

import ast
import asyncio
import csv
import io
import json
import shlex
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from episodes_of import FLOW, HOSTILE, NAMES, ask, fill, live, pool
from runs_of import write_training
from sites import PAGE_BYTES, Markup, check_pages, visited
from starlette.requests import Request
from starlette.responses import StreamingResponse
from tests.places import Place

from openconductor import Worker, WorkerPool
from openconductor.errors import JournalError, Refused
from openconductor.events import Asked
from openconductor.report.runs.run_folders import RunFolder
from openconductor.store import EpisodeLine, Journal, Store, read_store
from openconductor.testing import Scripted
from openconductor.types import Completion, Message
from openconductor.ui import changes
from openconductor.ui.door import Visitor
from openconductor.ui.episode_list import read_listing
from openconductor.ui.links import Links
from openconductor.ui.pages import colour_class
from openconductor.ui.replies import PageProblem
from openconductor.ui.runs import Runs


@pytest.fixture
def store(tmp_path: Path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield journal


async def pages_of(client: httpx.AsyncClient, kinds: dict[str, str]) -> dict[str, httpx.Response]:
    """Return the pages of a store, by address."""
    addresses = ["/ui/episodes", f"/ui/compare?id={kinds['plain']}&id={kinds['rounds']}"]
    for identifier in kinds.values():
        episode = f"/ui/episodes/{identifier}"
        data = (await client.get(f"{episode}.json")).json()
        addresses.append(episode)
        for played in data["rounds"]:
            if played["planning"]["attempts"]:
                addresses.append(f"{episode}/parts/{played['round']}")
            for step in played["steps"]:
                addresses.append(f"{episode}/parts/{played['round']}-{step['step']}")
    return {address: await client.get(address) for address in addresses}


async def test_every_page_of_every_kind_of_episode_is_there_small_and_also_data(store) -> None:
    kinds = await fill(store)
    async with visited(store) as visit:
        pages = await pages_of(visit.client, kinds)
        assert len(pages) > 40
        await check_pages(visit, pages)


async def test_an_episode_shows_its_plan_steps_answer_and_bill(store: Store) -> None:
    kinds = await fill(store)
    async with visited(store) as visit:
        address = f"/ui/episodes/{kinds['rounds']}"
        text = Markup((await visit.client.get(address)).text).text
        for shown in ("In two rounds?", "Check the answer.", "the answer of round 1"):
            assert shown in text, shown
        part = Markup((await visit.client.get(f"{address}/parts/1-0")).text).text
        assert "Check the answer." in part
        assert "In two rounds?" in part, "the messages that were sent"
        invalid = Markup((await visit.client.get(f"/ui/episodes/{kinds['invalid']}")).text).text
        assert "forward_access" in invalid
        retried = await visit.client.get(f"/ui/episodes/{kinds['retried']}/parts/0-1")
        assert "server_failed" in Markup(retried.text).text


async def test_the_data_of_an_episode_are_those_of_the_server_with_its_code(store: Store) -> None:
    asked = await ask(store, "What's 6 * 7?")
    store.flush()
    async with visited(store) as visit:
        data = (await visit.client.get(f"/ui/episodes/{asked.id}.json")).json()
    assert data["answer"] == "42"
    assert data["outcome"] == "answered"
    assert [step["worker_name"] for step in data["rounds"][0]["steps"]] == [
        "anna",
        "bert",
        "carl",
        "anna",
    ]
    words = shlex.split(data["curl"])
    body = json.loads(words[words.index("-d") + 1])
    assert body["messages"] == [{"role": "user", "content": "What's 6 * 7?"}]
    module = ast.parse(data["python"])
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call)]
    steps = [call for call in calls if ast.unparse(call.func) == "oc.Step"]
    written = [tuple(ast.literal_eval(value) for value in step.args) for step in steps]
    assert written == [(step.worker, step.subtask, step.access) for step in FLOW]


async def test_the_code_of_an_episode_has_its_images_and_calls_of_tools(store: Store) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    chat = [
        Message("user", "What is it?", (image,)),
        Message("assistant", "", ({"tool_calls": [call]},)),
        Message("tool", "a cat", ({"tool_call_id": "call_1"},)),
    ]
    asked = await ask(store, chat)
    store.flush()
    async with visited(store) as visit:
        data = (await visit.client.get(f"/ui/episodes/{asked.id}.json")).json()
    words = shlex.split(data["curl"])
    user, assistant, tool = json.loads(words[words.index("-d") + 1])["messages"]
    assert user["content"] == [{"type": "text", "text": "What is it?"}, image]
    assert (assistant["tool_calls"], tool["tool_call_id"]) == ([call], "call_1")
    calls = [node for node in ast.walk(ast.parse(data["python"])) if isinstance(node, ast.Call)]
    turns = [one for one in calls if ast.unparse(one.func) == "oc.Message"]
    assert [Message(*map(ast.literal_eval, turn.args)) for turn in turns] == chat


async def test_the_list_is_filtered_sorted_and_paged_by_the_server(store: Store) -> None:
    kinds = await fill(store)
    async with visited(store) as visit:

        async def listed(query: str) -> list[str]:
            answer = await visit.client.get(f"/ui/episodes.json?{query}")
            return [episode["id"] for episode in answer.json()["episodes"]]

        assert set(await listed("")) == set(kinds.values())
        assert await listed("outcome=failed&error=WorkflowError") == [kinds["invalid"]]
        assert await listed("text=two+rounds") == [kinds["rounds"]]
        assert await listed("worker=nobody") == []
        assert (await listed("order=dollars"))[0] == kinds["rounds"]
        assert await listed("since=2999-01-01") == []
        assert len(await listed("since=1h")) == len(kinds)
        assert await listed("page=2") == []
        wrong = (await visit.client.get("/ui/episodes.json?since=soon&outcome=ok")).json()
        assert len(wrong["problems"]) == 2
        page = Markup((await visit.client.get("/ui/episodes?text=zzz")).text)
        assert "No episode matches." in page.text


async def test_csv_has_a_row_for_each_episode_and_nothing_that_a_spreadsheet_runs(store) -> None:
    await fill(store)
    await ask(store, "=HYPERLINK(1)")
    store.flush()
    async with visited(store) as visit:
        answer = await visit.client.get("/ui/episodes.csv?text=HYPERLINK")
    (row,) = csv.DictReader(io.StringIO(answer.text))
    assert row["question"] == "'=HYPERLINK(1)"
    assert (row["outcome"], row["steps"], row["workers"]) == ("answered", "4", "anna bert carl")


async def test_the_exported_file_holds_every_text_and_needs_nothing_else(store: Store) -> None:
    asked = await ask(store, "What is it? " + "x" * 200_000, workers=pool("y" * 150_000))
    store.flush()
    async with visited(store) as visit:
        answer = await visit.client.get(f"/ui/episodes/{asked.id}/export")
    assert "attachment" in answer.headers["content-disposition"]
    page = Markup(answer.text)
    assert "x" * 200_000 in page.text
    assert page.text.count("y" * 150_000) >= 4
    assert "script" not in page.tags
    assert all(address.startswith("#part-") for address in page.addresses), page.addresses
    targets = {value for _, name, value in page.attributes if name == "id"}
    assert {address.removeprefix("#") for address in page.addresses} <= targets
    assert "default-src 'none'" in answer.text


async def check_sizes(store: Store, episode: str) -> None:
    """Check that all pages of an episode are there and small."""
    async with visited(store) as visit:
        kinds = {"plain": episode, "rounds": episode}
        for address, page in (await pages_of(visit.client, kinds)).items():
            assert page.status_code == 200, address
            assert len(page.content) < PAGE_BYTES, (address, len(page.content))


@pytest.mark.parametrize(
    "reply",
    [
        Refused("<b>é" * 250_000, worker="anna"),
        Completion("!", tool_calls=({"arguments": "<b>é" * 5_000},) * 100),
    ],
)
async def test_errors_and_calls_of_megabytes_do_not_make_a_page_large(store: Store, reply) -> None:
    workers = [Worker(Scripted([reply], identity=name), name=name) for name in NAMES]
    answered = await ask(store, "?", workers=WorkerPool(workers))
    store.flush()
    await check_sizes(store, answered.id)


@pytest.mark.parametrize("megabytes", [1, pytest.param(10, marks=pytest.mark.slow)])
async def test_texts_of_megabytes_do_not_make_a_page_large(store: Store, megabytes) -> None:
    chat = [Message("user", "<&>" * 3_000), Message("assistant", "é" * 9_000)]
    chat = [*chat * 40, Message("user", HOSTILE * 1000)]
    asked = await ask(store, chat, workers=pool("<b>é" * 250_000 * megabytes))
    store.flush()
    await check_sizes(store, asked.id)


async def test_a_store_without_content_says_so_and_shows_the_rest(tmp_path: Path) -> None:
    with Journal(tmp_path / "none.sqlite", content="none") as journal:
        kinds = await fill(journal)
        async with visited(journal) as visit:
            pages = await pages_of(visit.client, kinds)
            assert {page.status_code for page in pages.values()} == {200}
            episode = Markup(pages[f"/ui/episodes/{kinds['plain']}"].text)
            assert "keeps no texts" in episode.text
            assert "anna" in episode.text
            assert "6 * 7" not in "".join(page.text for page in pages.values())


async def test_an_empty_store_says_what_to_do_next(store: Store) -> None:
    async with visited(store) as visit:
        page = Markup((await visit.client.get("/ui/episodes")).text)
        assert "openconductor ask" in page.text
        assert "Two episodes are needed" in (await visit.client.get("/ui/compare")).text
        for missing in ("/ui/episodes/nobody", "/ui/episodes/nobody/parts/0", "/ui/nothing"):
            answer = await visit.client.get(missing)
            assert answer.status_code == 404, missing
            assert "html" in answer.headers["content-type"]


async def test_a_change_of_an_episode_is_told_until_it_has_ended(store: Store) -> None:
    asked = await ask(store, "?")
    store.flush()
    async with visited(store) as visit:
        answer = await visit.client.get(f"/ui/episodes/{asked.id}/changes?seen=before")
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [line for line in answer.text.splitlines() if line and line[0] != ":"]
        assert events[0].startswith("data: ")
        assert events[1:] == ["event: end", "data: end"]
        seen = events[0].removeprefix("data: ")
        again = await visit.client.get(f"/ui/episodes/{asked.id}/changes?seen={seen}")
        assert "data: end" in again.text
        assert f"data: {seen}" not in again.text


async def test_an_unfinished_episode_of_a_run_is_loaded_again_only_when_it_changed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journals = [tmp_path / f"{name}.sqlite" for name in ("absent", "run")]
    monkeypatch.setattr(changes, "_STREAM_S", 0.1)
    monkeypatch.setattr(Runs, "journals", lambda _: iter(journals))
    with Journal(journals[1]) as run:
        writing = live(run)
        next(writing)
        async with visited(store) as visit:
            page = Markup((await visit.client.get("/ui/episodes/e1")).text)
            address = next(value for _, name, value in page.attributes if name == "data-live")
            unchanged = await visit.client.get(address)
            assert "data:" not in unchanged.text
            for _ in writing:
                run.flush()
            changed = await visit.client.get(address)
            assert "data: end" in changed.text
            missing = await visit.client.get("/ui/episodes/nobody/changes")
            assert missing.status_code == 404


async def test_runs_are_searched_for_an_episode_until_it_is_found(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    def journals(_: Runs) -> Iterator[Path]:
        for name in ("absent", "run", "later"):
            opened.append(tmp_path / f"{name}.sqlite")
            yield opened[-1]

    monkeypatch.setattr(Runs, "journals", journals)
    with Journal(tmp_path / "run.sqlite") as run:
        asked = await ask(run, "?")
    async with visited(store) as visit:
        assert (await visit.client.get(f"/ui/episodes/{asked.id}")).status_code == 200
    assert [path.stem for path in opened] == ["absent", "run"]


@pytest.mark.parametrize("since", ["nand", "infh", "-infw", "d", "yesterday"])
def test_an_age_that_is_no_number_is_no_filter(since: str) -> None:
    listing = read_listing({"since": since}, None)
    assert listing.chosen.since is None
    assert listing.problems[0].startswith(f"since: got {since!r}")


async def test_the_streams_of_one_key_keep_no_other_key_out(monkeypatch) -> None:
    monkeypatch.setattr(changes, "_MOST_STREAMS", 1)
    streams = changes.Changes(lambda: False)

    def follow(key: str) -> AsyncGenerator[str]:
        request = Request({"type": "http", "query_string": b"", "headers": []})
        state = changes.PageState("1")
        answer = streams.stream(request, Visitor(key), lambda: state, 60.0)
        return cast("AsyncGenerator[str]", cast("StreamingResponse", answer).body_iterator)

    first = follow("ann")
    await anext(first)
    with pytest.raises(PageProblem, match="Too many pages"):
        follow("ann")
    await anext(follow("kim"))
    await first.aclose()
    await anext(follow("ann"))


async def test_an_episode_whose_writer_is_gone_is_stopped_and_not_running(place: Place) -> None:
    async def state() -> str:
        with place.read() as store:
            async with visited(store) as visit:
                (line,) = store.lines()
                page = await visit.client.get("/ui/episodes/e1")
                assert f">{line.state}</span>" in page.text
                assert ("data-live" in page.text) == (line.state == "running")
        return line.state

    with place.open() as journal:
        next(live(journal))
        assert await state() == "running"
    assert await state() == "stopped"


def test_an_episode_that_began_before_the_writer_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    with Journal(path) as journal:
        journal(Asked("before", 0, 0.0, "?"))
    with Journal(path) as journal, read_store(path) as reader:
        journal(Asked("now", 0, 0.0, "?"))
        journal.flush()
        for store in (journal, reader):
            states = {line.id: line.state for line in store.lines()}
            assert states == {"before": "stopped", "now": "running"}


@pytest.mark.parametrize("others", [0, 1, 2])
async def test_links_that_several_processes_write_are_all_kept(place: Place, others: int) -> None:
    with place.open() as store:
        first, *later = [await ask(store, f"{number}?") for number in range(2 + others)]
        store.flush()

        async def keep(name: str, record: Mapping[str, object]) -> None:
            await asyncio.sleep(0)
            store.put_record(name, record, texts=False)
            await store.wait_durable()

        adding = [Links(store, keep).add(first.id, episode.id, "again") for episode in later]
        await asyncio.gather(*adding)
        links = Links(store, keep)
        made_into = {link.line.id for link in links.of(first.id, Visitor(None)).made_into}
        assert made_into == {episode.id for episode in later}
        for episode in later:
            made_from = links.of(episode.id, Visitor(None)).made_from
            assert made_from is not None
            assert made_from.line.id == first.id


async def test_of_three_marked_episodes_the_page_says_that_it_compares_two(store: Store) -> None:
    kinds = await fill(store)
    marked = "&".join(f"id={kinds[kind]}" for kind in ("plain", "rounds", "chat"))
    async with visited(store) as visit:
        page = Markup((await visit.client.get(f"/ui/compare?{marked}")).text)
    assert "3 episodes were marked. The first two of them are compared." in page.text


async def test_beside_another_an_episode_without_an_answer_has_none(store: Store) -> None:
    store(Asked("e1", 0, 0.0, "?"))
    store.flush()
    async with visited(store) as visit:
        page = Markup((await visit.client.get("/ui/compare?id=e1&id=e1")).text)
    assert "Two episodes" in page.text and "None" not in page.text


async def test_the_page_that_is_shown_is_marked_in_the_navigation(store: Store) -> None:
    asked = await ask(store, "?")
    store.flush()
    async with visited(store) as visit:
        for path in ("episodes", f"episodes/{asked.id}", "compare", f"episodes/{asked.id}/parts/0"):
            page = (await visit.client.get(f"/ui/{path}")).text
            assert 'href="/ui/episodes" aria-current="page"' in page, path


def test_a_ninth_worker_has_no_other_workers_colour() -> None:
    classes = [colour_class(ordinal) for ordinal in range(8)]
    assert len(set(classes)) == 8
    assert colour_class(8) not in classes


async def test_a_run_that_goes_while_its_changes_are_told_ends_the_stream(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_training(tmp_path / "first")
    named = Runs.named
    found = [True]

    def find_once(*arguments: Any) -> RunFolder:
        if not found:
            raise PageProblem(404, "It is gone.")
        found.pop()
        return named(*arguments)

    monkeypatch.setattr(Runs, "named", find_once)
    async with visited(store, root=tmp_path) as visit:
        answer = await visit.client.get("/ui/trainings/first/changes")
    assert answer.text == ": a message is a change of the page\n\n"


async def test_a_store_that_fails_while_changes_are_told_ends_the_stream(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = await ask(store, "?")
    store.flush()
    async with visited(store) as visit:
        found = [store.lines(limit=1)]

        def fail(*_: object, **__: object) -> Sequence[EpisodeLine]:
            if found:
                return found.pop()
            raise JournalError("disk I/O error")

        monkeypatch.setattr(store, "lines", fail)
        answer = await visit.client.get(f"/ui/episodes/{asked.id}/changes")
        assert answer.status_code == 200
        assert answer.text == ": a message is a change of the page\n\n"
        assert (await visit.client.get(f"/ui/episodes/{asked.id}")).status_code == 500
