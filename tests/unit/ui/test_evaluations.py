"""The pages about evaluations: verdict, tables, accuracy against cost, and who was right where."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from sites import Markup, Visit, check_pages, visited

from openconductor.errors import ConfigError
from openconductor.evaluation.eval_config import make_eval_config
from openconductor.evaluation.grid import run_grid
from openconductor.evaluation.records import Record, Results
from openconductor.evaluation.tables import make_table
from openconductor.plots.accuracy_cost import DOLLARS, MEASURES
from openconductor.report.runs import numbers_reader
from openconductor.report.runs.numbers import read_numbers
from openconductor.report.runs.numbers_reader import NumbersReader
from openconductor.store import Journal
from openconductor.store.serialisation import plain
from openconductor.ui import evaluations

pytest.importorskip("pandas", reason="needs the extra 'eval'")
pytest.importorskip("tokenizers", reason="needs the extra 'gym'")

PAGES = ("/ui/evaluations/first", "/ui/evaluations/first/questions", "/ui/runs")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an evaluation of the gym's Conductor and workers, and one of a worker alone."""
    folder = tmp_path_factory.mktemp("runs")
    task = [{"name": "gym", "limit": 6}]
    for name, systems in {"first": ["conductor", "workers"], "alone": ["worker:jack"]}.items():
        values = {"systems": systems, "pool": "gym", "task": task, "repeats": 2}
        asyncio.run(run_grid(make_eval_config(values, where="test"), folder / name))
    return folder


@pytest.fixture
async def visit(root: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Visit]:
    monkeypatch.setattr(numbers_reader, "_read", read_here)
    with Journal(root / "asked.sqlite") as journal:
        async with visited(journal, root=root) as entered:
            yield entered


def read_here(folder: Path) -> Any:
    """Read numbers as the process does, without the process."""
    return json.loads(json.dumps(plain(read_numbers(folder))))


async def test_every_page_is_there_small_inert_and_also_data(visit: Visit) -> None:
    await check_pages(visit, PAGES)
    for address in PAGES:
        page = await visit.client.get(address)
        markup = Markup(page.text)
        names = {name for _, name, _ in markup.attributes}
        assert not [name for name in names if name.startswith("on") or name == "style"], address
        for link in markup.addresses:
            assert link.startswith(("/ui/", "?", "#")), (address, link)


async def test_the_numbers_are_those_of_table_and_report(visit: Visit, root: Path) -> None:
    data = (await visit.client.get("/ui/evaluations/first.json")).json()
    table = make_table(Results.load(root / "first"))
    assert data["table"] == plain(table.to_json())
    assert data["report"]["system"] == data["ours"] == "conductor"
    markup = Markup((await visit.client.get("/ui/evaluations/first")).text)
    for text in (data["report"]["line"].partition(": ")[2], *data["report"]["reasons"]):
        assert text[1:].replace(" %", "%") in markup.text
    for head in ("Accuracy against cost", "What the verdict asks", "What the pool could give"):
        assert head in markup.text
    circles = [value for tag, name, value in markup.attributes if (tag, name) == ("circle", "cx")]
    assert len(circles) == len(data["plane"]["places"]) == 9


async def test_an_evaluation_without_a_conductor_says_why_there_is_no_verdict(visit) -> None:
    page = await visit.client.get("/ui/evaluations/alone")
    assert page.status_code == 200
    assert "No verdict" in page.text
    assert "no system here writes plans" in page.text


async def test_a_system_without_a_cost_is_named_beside_the_drawing(visit, monkeypatch) -> None:
    measure = MEASURES[DOLLARS]

    def with_a_free_one(record: Record) -> float:
        return 0.0 if record.system == "worker:jack" else measure(record)

    monkeypatch.setitem(MEASURES, DOLLARS, with_a_free_one)
    page = await visit.client.get("/ui/evaluations/first")
    assert page.status_code == 200
    markup = Markup(page.text)
    assert "Without a cost, so not drawn: worker:jack (" in markup.text
    circles = [value for tag, name, value in markup.attributes if (tag, name) == ("circle", "cx")]
    assert len(circles) == 8


async def test_a_mark_leads_to_the_episode_of_its_answer(visit: Visit, root: Path) -> None:
    results = Results.load(root / "first")
    page = (await visit.client.get("/ui/evaluations/first/questions")).text
    links = re.findall(r'href="(\S+/answers/(\d+)-(\d+)-(\d+))" aria-label="(\w+)"', page)
    assert len(links) == len(results.records) == 6 * 9 * 2
    data = (await visit.client.get("/ui/evaluations/first/questions.json")).json()
    records = {record.cell: record for record in results.records}
    for address, place, system, repeat, word in links[::17]:
        _, question = data["questions"][int(place)]
        cell = (data["systems"][int(system)], "gym", question["problem"], int(repeat))
        assert word == {True: "right", False: "wrong"}[records[cell].correct]
        leads = await visit.client.get(address)
        assert leads.headers["location"] == f"/ui/episodes/{records[cell].episode}"
        assert (await visit.client.get(leads.headers["location"])).status_code == 200
    assert (await visit.client.get("/ui/evaluations/first/answers/99-0-0")).status_code == 404
    assert (await visit.client.get("/ui/evaluations/first/answers/0-99-0")).status_code == 404


async def test_questions_are_chosen_by_who_was_right(visit: Visit) -> None:
    shown: dict[str, list[str]] = {}
    for show in ("all", "apart", "lost", "nobody"):
        address = f"/ui/evaluations/first/questions.json?show={show}"
        questions = (await visit.client.get(address)).json()["questions"]
        shown[show] = [question["marks"] for _, question in questions]
    assert len(shown["all"]) == 6
    for marks in shown["apart"]:
        assert 0 < sum("+" in mark for mark in marks.split(" ")) < 9
    assert all("+" not in marks for marks in shown["nobody"])
    assert all("+" in marks and "+" not in marks.split(" ")[0] for marks in shown["lost"])
    assert len(shown["apart"]) + len(shown["nobody"]) <= 6
    empty = await visit.client.get("/ui/evaluations/first/questions?show=unknown")
    assert "There is no such question" in empty.text


async def test_a_page_says_that_answers_are_read_and_fills_in_by_itself(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluations, "WAIT_S", 0.0)
    monkeypatch.setattr(NumbersReader, "read", lambda *_, **__: Future[Any]())
    for address in PAGES[:2]:
        page = await visit.client.get(address)
        assert "The answers are being read" in page.text
        assert "data-live" in page.text
    answer = await visit.client.get("/ui/evaluations/first/answers/0-0-0")
    assert answer.status_code == 503


def test_the_numbers_that_are_shown_again_and_again_are_kept(monkeypatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(numbers_reader, "_read", lambda folder: read.append(folder.name) or {})
    reader = NumbersReader()
    for name in ("first", "a", "first", "b", "first", "c", "first", "d", "first"):
        reader.read(Path(name), "1", running=False).result(9)
    assert read == ["first", "a", "b", "c", "d"]


async def test_numbers_that_cannot_be_read_are_an_error_that_says_why(
    visit: Visit, root: Path
) -> None:
    broken = root / "broken"
    broken.mkdir()
    (broken / "config.toml").write_text((root / "first" / "config.toml").read_text())
    page = await visit.client.get("/ui/evaluations/broken")
    assert page.status_code == 500
    assert "environment.json" in page.text


def test_numbers_are_read_again_when_the_evaluation_has_changed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    monkeypatch.setattr(numbers_reader, "_read", lambda folder: read.append(folder) or {})
    reader = NumbersReader()
    for version, running in (("1", False), ("1", False), ("2", True), ("3", False)):
        reader.read(root, version, running=running).result()
    assert len(read) == 2  # the second version is of a run that goes on, and was read just now


@pytest.mark.slow
def test_numbers_come_from_a_process_of_their_own(root: Path) -> None:
    numbers = NumbersReader().read(root / "first", "1", running=False).result()
    assert numbers == read_here(root / "first")


def test_a_reading_that_takes_too_long_ends_and_says_so(root: Path, monkeypatch) -> None:
    monkeypatch.setattr(numbers_reader, "_MOST_S", 0.01)
    reading = NumbersReader().read(root / "first", "1", running=False)
    with pytest.raises(ConfigError, match=r"first: its numbers were not read within 0\.01 s"):
        reading.result(20)


def test_no_module_of_the_current_folder_is_executed(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "tomllib.py").write_text("open('executed', 'w').close()")
    monkeypatch.chdir(tmp_path)
    reading = NumbersReader().read(tmp_path / "absent", "1", running=False)
    with pytest.raises(ConfigError, match="absent: does not exist"):
        reading.result()
    assert not (tmp_path / "executed").exists()


def test_the_pages_load_nothing_heavy() -> None:
    code = "import sys, openconductor.ui.site; print([*sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    for name in ("torch", "pandas", "scipy", "matplotlib", "numpy"):
        assert f"'{name}'".encode() not in loaded, name
