"""The pages about trainings: their curves, their rollouts, and several over each other."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from runs_of import record_of, write_curve, write_training
from sites import Markup, Visit, check_pages, visited
from starlette.requests import Request

from openconductor.store import Journal
from openconductor.ui import trainings
from openconductor.ui.charts import MOST_POINTS, draw_chart
from openconductor.ui.door import Visitor
from openconductor.ui.replies import PageProblem
from openconductor.ui.runs import Runs

ALL = Visitor(None)
PAGES = (
    "/ui/runs",
    "/ui/trainings/first",
    "/ui/trainings/first/iterations/1",
    "/ui/trainings?run=first&run=study:second",
)


@pytest.fixture
async def visit(tmp_path: Path) -> AsyncIterator[Visit]:
    write_training(tmp_path / "first")
    write_training(tmp_path / "study" / "second", iterations=2)
    with Journal(tmp_path / "asked.sqlite") as journal:
        async with visited(journal, root=tmp_path) as entered:
            yield entered


# ── pages ─────────────────────────────────────────────────────────────────────────────────────────
async def test_every_page_is_there_small_and_also_data(visit: Visit) -> None:
    await check_pages(visit, PAGES)


async def test_every_listed_run_has_its_pages_whatever_its_folder_is_called(
    visit: Visit, tmp_path: Path
) -> None:
    for name in ("a:b", "seed#1", "why?", "50%", "study:x/c:d", "ä b&c"):
        write_training(tmp_path / name)
    listed = Markup((await visit.client.get("/ui/runs")).text)
    addresses = [link for link in listed.addresses if link.startswith("/ui/trainings/")]
    assert len(addresses) == 8
    for address in addresses:
        page = await visit.client.get(address)
        assert page.status_code == 200, address
        assert f'data-live="{address.replace("&", "&amp;")}/changes' in page.text
        assert (await visit.client.get(f"{address}.json")).status_code == 200, address
        assert (await visit.client.get(f"{address}/iterations/1")).status_code == 200, address


async def test_a_page_has_nothing_inline_and_leads_nowhere_else(visit: Visit) -> None:
    for address in PAGES:
        markup = Markup((await visit.client.get(address)).text)
        names = {name for _, name, _ in markup.attributes}
        assert not [name for name in names if name.startswith("on") or name == "style"], address
        assert "img" not in markup.tags
        assert markup.tags.count("script") == 1
        for link in markup.addresses:
            assert link.startswith(("/ui/", "?", "#")), (address, link)


async def test_a_training_shows_its_curves_and_a_table_that_says_the_same(visit: Visit) -> None:
    page = (await visit.client.get("/ui/trainings/first")).text
    markup = Markup(page)
    for title in ("Does it learn?", "Who works", "Dollars so far", "Seconds an iteration"):
        assert title in markup.text
    assert "3 of 4" in markup.text  # iterations, of a round of imitation and three of GRPO
    assert "$0.0900" in markup.text  # three decided rollouts an iteration, a cent each
    for words in ("imitate", "grpo", "45.0%", "75.0%", "anna", "2.00"):
        assert words in markup.text
    data = (await visit.client.get("/ui/trainings/first.json")).json()
    assert data["curve"]["accuracy"] == [0.25, 0.35, 0.45]
    assert data["curve"]["worker_share/anna"] == [0.75] * 3


async def test_the_table_has_the_workers_of_a_training_that_began_without_a_workflow(
    visit: Visit, tmp_path: Path
) -> None:
    nobody = record_of(0, worker_share={"anna": 0.0, "bert": 0.0})
    write_curve(tmp_path / "late", [nobody, record_of(1)])
    page = await visit.client.get("/ui/trainings/late")
    assert '<th scope="col">anna</th><th scope="col">bert</th>' in page.text


async def test_rollouts_stand_in_groups_with_reward_and_reason(visit: Visit) -> None:
    page = (await visit.client.get("/ui/trainings/first/iterations/1")).text
    markup = Markup(page)
    headings = re.findall(r'<h2 id="group-\d" dir="auto">(.*?)</h2>', page)
    assert headings == ["What is 6 * 7?", "problem 1"], "the id, where no text is kept"
    for words in ("problem 0", "problem 1", "mean reward 0.75", "no workflow: unknown worker"):
        assert words in markup.text
    assert "alert(1)" in markup.text  # the hostile text is text
    assert markup.text.count("teaches nothing") == 1  # the second group has one reward
    data = (await visit.client.get("/ui/trainings/first/iterations/1.json")).json()
    assert [rollout["reward"] for rollout in data["rollouts"]] == [1.0, 0.5, 0.0, None]


async def test_a_page_of_rollouts_parts_no_group(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainings, "ROLLOUTS", 3)
    for page, problem in ((1, "problem 0"), (2, "problem 1")):
        address = f"/ui/trainings/first/iterations/1.json?page={page}"
        rollouts = (await visit.client.get(address)).json()["rollouts"]
        assert [rollout["problem"] for rollout in rollouts] == [problem] * 2


async def test_trainings_are_drawn_over_each_other(visit: Visit) -> None:
    page = (await visit.client.get("/ui/trainings?run=first&run=study:second")).text
    charts = re.findall(r'aria-label="Accuracy, over 3 iterations.*?</svg>', page, re.DOTALL)
    assert charts[0].count('class="curve') == 2


async def test_compared_trainings_are_linked_whatever_their_folders_are_called(
    visit: Visit, tmp_path: Path
) -> None:
    write_training(tmp_path / "seed#1")
    page = await visit.client.get("/ui/trainings", params={"run": "seed#1"})
    links = [link for link in Markup(page.text).addresses if "seed" in link]
    assert links == ["/ui/trainings/seed%231"]


async def test_a_run_whose_store_cannot_be_opened_is_an_error_of_its_own_pages_only(
    visit: Visit, tmp_path: Path
) -> None:
    recipe = tmp_path / "first" / "config.toml"
    recipe.write_text(f'journal = "mysql://there"\n{recipe.read_text()}')
    page = await visit.client.get("/ui/trainings/first/iterations/1")
    assert page.status_code == 500
    assert "got a URL (mysql:" in page.text
    assert (await visit.client.get("/ui/episodes/absent")).status_code == 404


async def test_what_is_not_there_is_said_with_what_to_do_next(tmp_path: Path) -> None:
    write_curve(tmp_path / "begun", [])
    with Journal(tmp_path / "asked.sqlite") as journal:
        async with visited(journal, root=tmp_path) as visit:
            begun = await visit.client.get("/ui/trainings/begun")
            assert "No iteration has ended yet" in begun.text
            assert (await visit.client.get("/ui/trainings/begun/iterations/0")).status_code == 404
            assert (await visit.client.get("/ui/trainings/other")).status_code == 404
            assert "press" in (await visit.client.get("/ui/trainings")).text
        async with visited(journal, root=tmp_path / "nowhere") as visit:
            assert "openconductor eval" in (await visit.client.get("/ui/runs")).text


async def test_a_key_sees_no_run(tmp_path: Path) -> None:
    write_training(tmp_path / "first")
    with Journal(tmp_path / "asked.sqlite") as journal:
        keys = {"oc-ann": "ann"}
        async with visited(journal, root=tmp_path, keys=keys) as visit:
            await visit.enter(key="oc-ann")
            for address in (*PAGES, "/ui/trainings/first/changes"):
                assert (await visit.client.get(address)).status_code == 404, address
            assert "/ui/runs" not in (await visit.client.get("/ui/episodes")).text


async def test_the_page_of_a_server_without_keys_shows_runs(tmp_path: Path) -> None:
    write_training(tmp_path / "first")
    with Journal(tmp_path / "asked.sqlite") as journal:
        async with visited(journal, root=tmp_path, key="") as visit:
            for address in (*PAGES[:3], "/ui/pool"):
                assert (await visit.client.get(address)).status_code == 200, address


async def test_a_line_that_is_no_record_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    write_curve(tmp_path / "broken", [{"iteration": 0}])
    with Journal(tmp_path / "asked.sqlite") as journal:
        async with visited(journal, root=tmp_path) as visit:
            page = await visit.client.get("/ui/trainings/broken")
    assert page.status_code == 500
    assert "curves.jsonl, line 1" in page.text


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────
def test_a_run_is_running_until_its_results_are_there_or_it_is_silent(tmp_path: Path) -> None:
    folder = tmp_path / "first"
    write_training(folder)
    runs = Runs(tmp_path)
    assert runs.find("first", "training", ALL).state == "running"
    for file in folder.iterdir():
        os.utime(file, (1e9, 1e9))
    assert runs.find("first", "training", ALL).state == "stopped"
    (folder / "journal.sqlite-wal").write_bytes(b"")  # as somebody leaves it who only reads
    assert runs.find("first", "training", ALL).state == "stopped"
    (folder / "results.json").write_text(json.dumps({}))
    assert runs.find("first", "training", ALL).state == "finished"


@pytest.mark.parametrize("name", ["", "..", "..:first", "first:..", ".", "a/b", "x\0y", "first:"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    write_training(tmp_path / "first")
    with pytest.raises(PageProblem, match="There is no training"):
        Runs(tmp_path).find(name, "training", ALL)


def test_an_evaluation_is_found_whatever_its_folder_is_called(tmp_path: Path) -> None:
    (tmp_path / "trainings").mkdir()
    (tmp_path / "trainings" / "config.toml").write_text('[[task]]\nname = "gym"\n')
    scope = {"type": "http", "server": ("127.0.0.1", 80), "headers": [], "query_string": b""}
    scope["path"] = "/ui/evaluations/trainings/questions"
    scope["path_params"] = {"run": "trainings"}
    assert Runs(tmp_path).named(Request(scope), ALL).kind == "evaluation"


# ── charts ────────────────────────────────────────────────────────────────────────────────────────
def test_a_curve_ends_at_a_gap_and_begins_anew_after_it() -> None:
    chart = draw_chart("Share", {"a": [0.0, 0.5, None, 1.0]}, top=1.0)
    assert chart.shapes[0].path == "M0 1000L333 500M1000 0"
    assert chart.ticks == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_areas_stand_on_each_other_and_fill_the_drawing() -> None:
    shares = {"a": [0.25, 0.5], "b": [0.75, 0.5]}
    chart = draw_chart("Shares", shares, top=1.0, stacked=True)
    below, above = (area.path for area in chart.shapes)
    assert below == "M0 750L1000 500L1000 1000L0 1000Z"
    assert above == "M0 0L1000 0L1000 500L0 750Z"


def test_a_long_curve_is_drawn_as_means_of_neighbours() -> None:
    chart = draw_chart("Share", {"a": [float(number % 2) for number in range(4800)]}, top=1.0)
    path = chart.shapes[0].path
    assert path.count("L") == MOST_POINTS - 1
    assert set(re.findall(r" (\d+)", path)) == {"500"}
    assert chart.length == 4800


@pytest.mark.parametrize(
    ("largest", "top"),
    [(0.0, 1.0), (0.7, 0.8), (7.0, 8.0), (1.0, 1.0), (95.0, 100.0), (3e-5, 3e-5)],
)
def test_an_axis_ends_at_a_round_number_above_the_largest_value(largest: float, top: float) -> None:
    chart = draw_chart("Amount", {"a": [largest]})
    assert chart.ticks[-1] == pytest.approx(top)
    assert 3 <= len(chart.ticks) <= 6


async def test_a_curve_of_an_earlier_version_has_gaps(tmp_path: Path) -> None:
    record = record_of(0)
    for name in ("reward", "truncated", "seconds", "dollars", "phase"):
        del record[name]
    write_curve(tmp_path / "old", [record])
    with Journal(tmp_path / "asked.sqlite") as journal:
        async with visited(journal, root=tmp_path) as visit:
            page = await visit.client.get("/ui/trainings/old")
    assert page.status_code == 200
    assert "–" in page.text
