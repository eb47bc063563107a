"""Asking on the page in a real browser, and its rules for people: keys, small screens, axe-core."""

from __future__ import annotations

import asyncio
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_server import completion, says, write_pool
from runs_of import write_training
from test_cli import plans, serving

from integration.browsing import CHROMIUM, Visit, asking, asking_config, running, wrong_sizes
from integration.installing import node_packages
from openconductor.gym.questions import EXAMPLE
from openconductor.gym.workers import gym_pool
from openconductor.store import read_store
from openconductor.types import Step, Workflow

pytest.importorskip("jinja2", reason="needs the extra 'ui'")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
OTHER = "Take 3 8 2, double every number, then sort the list."
PAGES = ("/episodes", "/episodes?text=nothing", "/ask", "/compare", "/runs", "/nothing")
ENDED = ".facts .badge:is(.is-answered, .is-failed)"
RULES = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}"


@pytest.fixture(scope="module")
def visit(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    with asking(tmp_path_factory.mktemp("asking")) as link:
        visit = Visit(browser, link)
        yield visit
        visit.close()


@pytest.fixture(scope="module")
def answered(visit: Visit) -> str:
    """The path of an episode that was asked on the page."""
    page = visit.goto("/ask")
    page.fill("textarea[name=text]", EXAMPLE)
    page.click("button:has-text('Ask')")
    page.wait_for_selector(ENDED)
    assert page.locator(".wide .node.is-answered").count() >= 2
    return page.url.partition("/ui")[2]


def test_a_newcomer_asks_the_example_and_sees_it_answered(visit: Visit) -> None:
    page = visit.goto("/episodes")
    page.click("nav >> text=Ask")
    page.click("text=They answer only >> a")
    page.wait_for_function("document.querySelector('textarea').value")
    page.click("button:has-text('Ask')")
    page.wait_for_selector(ENDED)
    assert EXAMPLE in page.inner_text("h1")
    assert visit.said == []


def test_a_step_is_run_again_with_another_worker_beside_the_old_one(visit, answered) -> None:
    page = visit.goto(answered)
    page.click(".wide [data-part='0-0'] .box")
    page.click("#panel >> text=Run again…")
    page.wait_for_selector("fieldset.marked")
    page.select_option("fieldset.marked select", "maven")
    page.click("button:has-text('Show the price') >> nth=0")
    page.wait_for_selector("h1:has-text('What it costs')")
    assert "step 0 by maven" in page.inner_text("main").lower()
    page.click("button:has-text('Change it')")
    page.wait_for_selector("fieldset")
    assert page.input_value("select[name=worker-0]") == "maven", "the change is kept"
    page.click("button:has-text('Show the price') >> nth=0")
    page.click("button:has-text('within this budget')")
    page.wait_for_selector(ENDED)
    assert page.locator(".wide .node:has-text('maven')").count() == 1
    page.click(".kin a >> nth=0")
    page.wait_for_selector(".kin:has-text('Made into')")
    page.click("text=Side by side")
    page.wait_for_selector("h1:has-text('Two episodes side by side')")
    assert visit.said == []


def waiting(text: str, released: threading.Event) -> Any:
    """Return an answer of a chat server that comes when it is released."""

    async def answer(request: Any) -> Any:
        while not released.is_set():  # noqa: ASYNC110 - the test runs in another thread
            await asyncio.sleep(0.01)
        return await says(completion(text))(request)

    return answer


def test_what_is_asked_fills_in_live_and_is_answered_before_a_stopping_server_ends(
    browser, tmp_path: Path
) -> None:
    flow = Workflow((Step(0, "Think."), Step(1, "Answer.", (0,))))
    first, second = threading.Event(), threading.Event()
    answers = (plans(flow), waiting("Hm.", first), waiting("42", second))
    with serving(*answers) as workers:
        pool = write_pool(tmp_path, workers.url, "anna", "bert")
        more = [f'pool = "{pool}"', 'conductor = "worker:anna"', "drain_s = 60"]
        with running("serve", "--config", asking_config(tmp_path, *more)) as (link, process):
            visit = Visit(browser, link)
            page = visit.goto("/ask")
            page.fill("textarea[name=text]", "What is 6 * 7?")
            page.click("button:has-text('Ask')")
            page.wait_for_selector(".wide .node.is-running:has-text('anna')")
            assert page.locator(".wide .node.is-waiting:has-text('bert')").count() == 1
            first.set()
            page.wait_for_selector(".wide .node.is-answered:has-text('anna')")
            page.wait_for_selector(".wide .node.is-running:has-text('bert')")
            assert visit.said == []
            process.terminate()
            visit.close()
            threading.Timer(0.5, second.set).start()
            assert process.wait(60) == 0
    with read_store(tmp_path / "serve.sqlite") as store:
        (line,) = store.lines()
    assert (line.outcome, line.answer) == ("answered", "42")


@pytest.mark.slow
def test_a_further_turn_a_new_plan_and_a_fault_by_keys_alone(visit, answered) -> None:
    page = visit.goto(answered)
    page.focus("#go-on summary")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type(OTHER)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=The conversation before: 2 turns")
    page.wait_for_selector(ENDED)

    page = visit.goto(f"{answered}/again")
    page.focus("button:has-text('price of a new plan')")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('What it costs')")
    page.keyboard.press("Enter")  # the budget has the focus
    page.wait_for_selector(".kin:has-text('planned anew')")

    page = visit.goto("/ask")
    page.keyboard.type("Who are you?")  # the box has the focus
    page.focus("button:has-text('Ask')")
    page.keyboard.press("Enter")
    page.wait_for_selector("[role=alert]")
    assert page.input_value("textarea") == "Who are you?"
    visit.said.clear()  # the browser notes that the answer was a 400


@pytest.mark.slow
def test_filters_narrow_the_list_and_can_be_taken_away(visit, answered) -> None:
    shown = visit.goto(answered).inner_text(".wide")
    worker = next(name for name in gym_pool().names.values() if name in shown)
    page = visit.goto("/episodes")
    everything = page.locator(".go").count()
    page.select_option("select[name=outcome]", "unfinished")
    page.click("button:has-text('Filter')")
    page.wait_for_selector("text=No episode matches.")
    page.click("text=Show all >> nth=0")
    page.wait_for_selector(".go")
    page.fill("input[name=worker]", worker)
    page.click("button:has-text('Filter')")
    page.wait_for_url(f"**worker={worker}**")
    page.wait_for_selector(".go")
    assert 0 < page.locator(".go").count() <= everything
    page.click("a:has-text('Cost')")
    page.wait_for_url("**order=dollars**")
    assert f"worker={worker}" in page.url


def pages_of(answered: str) -> list[str]:
    return [*PAGES, answered, f"{answered}/again?part=0-1", f"{answered}/parts/0-0"]


def open_price(page: Any, visit: Visit, answered: str) -> None:
    page.goto(f"{visit.origin}/ui{answered}/again")
    page.click("button:has-text('Show the price') >> nth=0")
    page.wait_for_selector("h1:has-text('What it costs')")


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (360, "dark"), (1280, "dark")])
def test_the_pages_that_ask_fit_a_small_screen(visit, answered, width, scheme) -> None:
    page = visit.open()
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    for path in pages_of(answered):
        page.goto(f"{visit.origin}/ui{path}")
        assert wrong_sizes(page, width) == [], path
    open_price(page, visit, answered)
    assert wrong_sizes(page, width) == []
    page.close()


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe-core; skips where npm cannot have it."""
    folder = node_packages("page", Path(__file__).parent / "page" / "package.json")
    return (folder / "axe-core" / "axe.min.js").read_text("utf-8")


def violations(page: Any, axe: str, where: str) -> list[str]:
    """Return what axe-core finds to be serious, or worse."""
    page.evaluate(axe)
    found = page.evaluate(f"axe.run(document, {RULES})")["violations"]
    grave = [one for one in found if one["impact"] in ("serious", "critical")]
    return [f"{where}: {one['id']}: {one['nodes'][0]['html']}" for one in grave]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(browser, visit, answered, axe, scheme: str) -> None:
    page = visit.open()
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    found: list[str] = []
    for path in pages_of(answered):
        page.goto(f"{visit.origin}/ui{path}")
        found += violations(page, axe, path)
    page.goto(f"{visit.origin}/ui{answered}")
    page.click(".wide [data-part='0-0'] .box")
    page.wait_for_selector("#panel article")
    found += violations(page, axe, "panel")
    open_price(page, visit, answered)
    found += violations(page, axe, "price")
    page.close()
    stranger = browser.new_context(color_scheme=scheme)
    page = stranger.new_page()
    page.goto(f"{visit.origin}/ui/episodes")
    found += violations(page, axe, "enter")
    stranger.close()
    assert found == []


@pytest.fixture(scope="module")
def runs(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    """A visit of a folder with a training and an evaluation."""
    folder = tmp_path_factory.mktemp("runs")
    write_training(folder / "runs" / "trained")
    command = [sys.executable, "-m", "openconductor", "eval", "conductor", "worker:jack"]
    command += ["--limit", "6", "--out", "runs/measured"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    with running("view", folder=folder) as (link, _):
        visit = Visit(browser, link)
        yield visit
        visit.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_of_runs_fit_a_small_screen_and_axe_finds_no_serious_violation(
    runs, axe, scheme
) -> None:
    paths = ["/runs", "/pool", "/trainings/trained", "/trainings/trained/iterations/1"]
    paths += ["/evaluations/measured", "/evaluations/measured/questions", "/trainings?run=trained"]
    page = runs.open()
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    found: list[str] = []
    for path in paths:
        page.set_viewport_size({"width": 1280, "height": 800})
        answer = page.goto(f"{runs.origin}/ui{path}")
        assert answer.status == 200, path
        found += violations(page, axe, path)
        page.set_viewport_size({"width": 360, "height": 800})
        found += [f"{path}: {fault}" for fault in wrong_sizes(page, 360)]
    page.close()
    assert found == []


class _Evil(http.server.BaseHTTPRequestHandler):
    """Another site, whose page frames ours and sends forms to it."""

    target = ""

    def do_GET(self) -> None:
        page = f"""<!doctype html><iframe id="framed" src="{self.target}/ui/ask"></iframe>
            <form method="post" action="{self.target}/ui/ask"><textarea name="text">?</textarea>
            <input name="model" value="conductor"><button>Win</button></form>"""
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.slow
def test_another_sites_page_cannot_frame_the_box_nor_spend_with_it(browser, tmp_path) -> None:
    with asking(tmp_path) as link:
        visit = Visit(browser, link)
        page = visit.open()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Evil)
        _Evil.target = visit.origin
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            page.goto(f"http://localhost:{server.server_port}/")
            framed = page.frames[-1]
            assert framed.locator("textarea[name=text]").count() == 0
            with page.expect_response("**/ui/ask") as waiting:
                page.click("button:has-text('Win')")
            assert waiting.value.status in (401, 403)
        finally:
            server.shutdown()
            server.server_close()
        assert visit.goto("/episodes").locator("text=Nothing was asked yet.").count() == 1
        visit.context.close()
