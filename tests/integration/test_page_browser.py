"""The page in a real browser: Debian's Chromium without a screen, driven by Playwright.

``openconductor view`` runs as a process of its own beside a store that the test writes. Skipped
where Chromium or Playwright is absent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from episodes_of import FLOW, HOSTILE, REVISION, fill, live

from integration.browsing import CHROMIUM, Visit, viewed, wrong_sizes
from openconductor.store import Journal

pytest.importorskip("jinja2", reason="needs the extra 'ui'")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
SIZES = [(1280, "light"), (1280, "dark"), (360, "light"), (2560, "dark")]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    path = tmp_path_factory.mktemp("page") / "journal.sqlite"
    # Playwright has an event loop in this thread.
    with Journal(path) as journal, ThreadPoolExecutor() as elsewhere:
        kinds = elsewhere.submit(lambda: asyncio.run(fill(journal))).result()
        yield {**kinds, "path": str(path)}


@pytest.fixture(scope="module")
def visit(browser: Any, kinds: dict[str, str]) -> Iterator[Visit]:
    with viewed(Path(kinds["path"])) as link:
        visit = Visit(browser, link)
        yield visit
        visit.close()


def graph_of(page: Any) -> tuple[list[str], set[tuple[str, str]]]:
    """Return the nodes and the edges that are drawn."""
    nodes = page.eval_on_selector_all(
        ".wide a.node", "all => all.map(one => one.dataset.part + ' ' + one.textContent)"
    )
    edges = page.eval_on_selector_all(
        ".wide .edge", "all => all.map(one => [one.dataset.from, one.dataset.to])"
    )
    return nodes, {(source, target) for source, target in edges}


def test_a_newcomer_finds_an_episode_and_reads_what_was_sent(visit, kinds) -> None:
    page = visit.goto("/episodes?text=two+rounds")
    page.click(".go")
    page.wait_for_selector("svg.graph")
    nodes, edges = graph_of(page)
    assert [node.split()[0] for node in nodes] == [
        "0",
        *(f"0-{step}" for step in range(len(FLOW))),
        "1",
        *(f"1-{step}" for step in range(len(REVISION))),
    ]
    expected = {(f"0-{seen}", f"0-{i}") for i in range(len(FLOW)) for seen in FLOW.visible(i)}
    expected |= {("0-3", "1-0"), ("1-0", "1-1"), ("0", "0-0"), ("1", "1-0")}
    assert edges == expected
    page.click(".wide [data-part='0-1'] .box")
    page.wait_for_selector("#panel article")
    shown = page.inner_text("#panel")
    assert "Solve it." in shown
    assert "In two rounds?" in shown
    assert page.url.endswith("#part-0-1")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#panel #part-0-2")
    page.keyboard.press("Escape")
    assert page.is_hidden("#panel")
    assert visit.said == []


def test_a_permalink_opens_its_part(visit, kinds) -> None:
    page = visit.open()
    page.goto(f"{visit.origin}/ui/episodes/{kinds['plain']}#part-0-2")
    page.wait_for_selector("#panel #part-0-2")
    page.close()


def test_a_link_that_is_pasted_into_the_page_for_strangers_opens_it(browser, kinds) -> None:
    with viewed(Path(kinds["path"])) as link:
        context = browser.new_context()
        page = context.new_page()
        page.goto(link.partition("#")[0])
        page.wait_for_selector("text=Open the link")
        page.goto(link)
        page.wait_for_selector("h1:has-text('Episodes')")
        assert "token" not in page.url
        context.close()


@pytest.mark.slow
def test_everything_can_be_done_by_keys(visit, kinds) -> None:
    page = visit.goto("/episodes")
    page.keyboard.press("/")
    page.keyboard.type("two rounds")
    page.keyboard.press("Enter")
    page.wait_for_url("**text=two+rounds**")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("svg.graph")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("#panel #part-0-0")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.part") == "0-0", "focus comes back"


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_no_page_is_wider_than_the_screen_and_no_text_too_small(
    visit, kinds, width: int, scheme: str
) -> None:
    page = visit.open()
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    paths = [f"/episodes/{one}" for name, one in kinds.items() if name != "path"]
    paths += ["/episodes", f"/compare?id={kinds['plain']}&id={kinds['rounds']}", "/nothing"]
    paths += [f"/episodes/{kinds['hostile']}/parts/0-1"]
    for path in paths:
        page.goto(f"{visit.origin}/ui{path}")
        assert wrong_sizes(page, width) == [], path
    page.close()


@pytest.mark.slow
def test_hostile_text_does_nothing_in_a_browser(visit, kinds) -> None:
    visit.said.clear()
    for path in ("", "/parts/0", "/parts/0-1"):
        page = visit.goto(f"/episodes/{kinds['hostile']}{path}")
        page.wait_for_timeout(200)
        assert "<script>alert(1)</script>" in page.text_content("main")
        assert page.locator("main img, main svg svg").count() == 0
    assert visit.said == []
    assert "alert(1)" in HOSTILE


@pytest.mark.slow
def test_the_exported_file_opens_from_a_disk(visit, kinds, tmp_path: Path, browser) -> None:
    page = visit.goto(f"/episodes/{kinds['rounds']}")
    with page.expect_download() as waiting:
        page.click("text=Save as a file")
    path = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(path)
    said: list[str] = []
    context = browser.new_context(offline=True)
    alone = context.new_page()
    alone.on("console", lambda message: said.append(message.text))
    alone.goto(path.as_uri())
    nodes, edges = graph_of(alone)
    assert len(nodes) == 2 + len(FLOW) + len(REVISION)
    assert len(edges) == 9
    alone.click(".wide [data-part='1-0'] .box")
    assert alone.url.endswith("#part-1-0")
    assert alone.evaluate("getComputedStyle(document.body).marginTop") == "0px", "it is styled"
    assert said == []
    context.close()


@contextmanager
def live_visit(browser: Any, folder: Path) -> Iterator[tuple[Visit, Iterator[str]]]:
    """Visit an episode that is asked; each further state is written when it is taken."""
    with Journal(folder / "live.sqlite") as journal:
        states = live(journal)
        assert next(states) == "asked"
        with viewed(folder / "live.sqlite") as link:
            visit = Visit(browser, link)
            visit.goto("/episodes/e1").wait_for_selector(
                "text=The Conductor is writing a workflow."
            )
            yield visit, states
            visit.context.close()


def test_an_episode_fills_in_while_it_runs(browser, tmp_path: Path) -> None:
    with live_visit(browser, tmp_path) as (visit, states):
        page = visit.page
        assert next(states) == "planned"
        page.wait_for_selector(".wide .node.is-running:has-text('anna')")
        assert page.locator(".wide .node.is-waiting:has-text('bert')").count() == 1
        for name in ("anna", "bert"):
            assert next(states) == name
            page.wait_for_selector(f".wide .node.is-answered:has-text('{name}')")
        assert next(states) == "answered"
        page.wait_for_selector(".facts .badge.is-answered")
        assert page.locator("[data-live]").count() == 0
        assert visit.said == []


def test_a_page_fills_in_although_it_once_could_not_be_loaded(browser, tmp_path: Path) -> None:
    failed: list[str] = []

    def fail_once(route: Any) -> None:
        failed.append(route.request.url)
        route.abort()

    with live_visit(browser, tmp_path) as (visit, states):
        visit.page.route("**/episodes/e1", fail_once, times=1)
        assert list(states)[-1] == "answered"
        visit.page.wait_for_selector(".facts .badge.is-answered", timeout=20_000)
        assert len(failed) == 1
