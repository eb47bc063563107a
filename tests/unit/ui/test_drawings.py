"""Drawings are the episode: steps are the nodes, access lists the edges, times the bars."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from episodes_of import FLOW, REVISION, ask, fill, pool
from hypothesis import given, settings, strategies as st

from openconductor.events import Asked, CallEnded
from openconductor.store import Journal
from openconductor.types import (
    Call,
    Completion,
    Episode,
    Message,
    Round,
    Sampling,
    Step,
    StepResult,
    Transcript,
    Usage,
    Workflow,
)
from openconductor.ui.graph import NODE_HEIGHT, Graph, draw_graph
from openconductor.ui.parts import read_rounds, rounds_of
from openconductor.ui.timeline import critical_path, draw_timeline

WORKERS = {0: "anna", 1: "bert", 2: "carl"}


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    steps: list[Step] = []
    for index in range(draw(st.integers(1, 5))):
        indices = st.lists(st.integers(0, index - 1), max_size=index) if index else st.just([])
        access = draw(st.one_of(st.just("all"), indices))
        steps.append(Step(draw(st.integers(0, 2)), f"Do {index}.", access))
    return Workflow(tuple(steps))


def executed(workflow: Workflow, began: float = 0.0) -> Round:
    """Return a round in which each step took as many seconds as its place, plus one."""
    results: list[StepResult] = []
    for index, step in enumerate(workflow):
        seen = [results[place].ended or 0.0 for place in workflow.visible(index)]
        start = max([began, *seen])
        usage = Usage(10, 0, index, dollars=Decimal(index) / 1000)
        results.append(
            StepResult(
                step,
                Completion("yes"),
                worker=step.worker,
                usage=usage,
                started=start,
                ended=start + index + 1,
            )
        )
    return Round(Completion("plan"), workflow, Transcript(workflow, tuple(results)))


def episode_of(*flows: Workflow) -> Episode:
    rounds: list[Round] = []
    began = 0.0
    for flow in flows:
        played = executed(flow, began)
        assert played.transcript is not None
        began = max(result.ended or 0.0 for result in played.transcript.results)
        rounds.append(played)
    return Episode("?", tuple(rounds), "yes", None, Usage(), began, "e1")


def overlaps(graph: Graph) -> list[tuple[str, str]]:
    """Return the pairs of nodes that share a place."""
    found: list[tuple[str, str]] = []
    for index, one in enumerate(graph.nodes):
        for other in graph.nodes[index + 1 :]:
            apart_x = abs(one.x - other.x) >= graph.node_width
            apart_y = abs(one.y - other.y) >= NODE_HEIGHT
            if not apart_x and not apart_y:
                found.append((one.part.key, other.part.key))
    return found


@given(st.lists(workflows(), min_size=1, max_size=4), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_nodes_and_edges_of_a_graph_are_those_of_the_episode(flows, upright) -> None:
    rounds = read_rounds(episode_of(*flows), WORKERS)
    graph = draw_graph(rounds, upright=upright)
    nodes = [(node.part.round, node.part.step, node.part.name) for node in graph.nodes]
    expected = []
    edges = set()
    for number, flow in enumerate(flows):
        expected.append((number, None, "Conductor"))
        for index, step in enumerate(flow):
            expected.append((number, index, WORKERS[step.worker]))
            edges |= {(f"{number}-{seen}", f"{number}-{index}") for seen in flow.visible(index)}
            if not flow.visible(index):
                edges.add((f"{number}", f"{number}-{index}"))
            if number and step.access == "all":
                last = len(flows[number - 1]) - 1
                edges.add((f"{number - 1}-{last}", f"{number}-{index}"))
    assert nodes == expected
    assert {(edge.source, edge.target) for edge in graph.edges} == edges
    assert len(graph.edges) == len(edges)
    assert overlaps(graph) == []
    assert len(graph.lanes) == len(flows)
    for node in graph.nodes:
        assert 0 <= node.x <= graph.width - graph.node_width
        assert 0 <= node.y <= graph.height - NODE_HEIGHT
        lane = graph.lanes[node.part.round]
        assert lane.y <= node.y <= lane.y + lane.height - NODE_HEIGHT


@given(workflows())
@settings(max_examples=60, deadline=None)
def test_the_critical_path_has_no_gap_and_ends_with_the_round(flow: Workflow) -> None:
    (played,) = read_rounds(episode_of(flow), WORKERS)
    path = [played.steps[int(key.partition("-")[2])] for key in critical_path(played)[:-1]]
    assert path[0].ended == max(part.ended or 0.0 for part in played.steps)
    for later, earlier in pairwise(path):
        assert later.started == earlier.ended
        assert earlier.step in later.sees
    assert path[-1].started == 0.0


def test_an_edge_that_follows_from_others_is_marked() -> None:
    graph = draw_graph(read_rounds(episode_of(FLOW), WORKERS))
    by_kind = {
        kind: {(edge.source, edge.target) for edge in graph.edges if edge.kind == kind}
        for kind in ("implied", "plan")
    }
    assert by_kind == {"implied": {("0-0", "0-3")}, "plan": {("0", "0-0")}}


@pytest.mark.parametrize("upright", [False, True])
def test_an_arrow_ends_at_the_side_of_the_node_that_it_points_into(upright: bool) -> None:
    graph = draw_graph(read_rounds(episode_of(FLOW, REVISION), WORKERS), upright=upright)
    nodes = {node.part.key: node for node in graph.nodes}
    for edge in graph.edges:
        node = nodes[edge.target]
        x, y = edge.end.x - node.x, edge.end.y - node.y
        if edge.angle == 90:
            assert (x, y) == (graph.node_width / 2, 0), edge
        else:
            assert x == (graph.node_width if abs(edge.angle) > 90 else 0), edge
            assert 0 < y < NODE_HEIGHT, edge
        assert edge.path.endswith(f"{edge.end.x:g} {edge.end.y:g}")


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_a_graph_fills_a_wide_screen_and_fits_a_narrow_one(steps: int) -> None:
    chain = Workflow([Step(0, "Do.", [place - 1] if place else []) for place in range(steps)])
    rounds = read_rounds(episode_of(chain), WORKERS)
    wide, narrow = draw_graph(rounds), draw_graph(rounds, upright=True)
    assert max(node.x for node in wide.nodes) + wide.node_width > 0.95 * wide.width
    assert (wide.width, narrow.width) == (1128, 328)


def test_a_bar_shows_when_a_part_ran_and_what_share_of_the_dearest_it_cost() -> None:
    timeline = draw_timeline(read_rounds(episode_of(FLOW), WORKERS), 20.0)
    bars = {bar.part.key: bar for bar in timeline.bars}
    assert (bars["0-0"].left, bars["0-0"].width, bars["0-0"].level) == (0.0, 5.0, 0)
    assert (bars["0-2"].left, bars["0-2"].width, bars["0-2"].level) == (5.0, 15.0, 3)
    assert bars["0-3"].level == 4
    assert [key for key, bar in bars.items() if bar.critical] == ["0-0", "0-2", "0-3"]
    assert timeline.seconds == 20.0
    assert draw_timeline(()).bars == ()


async def test_states_retries_and_rules_are_told(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.sqlite") as journal:
        kinds = await fill(journal)
        rounds = {kind: rounds_of(journal.episode(one)) for kind, one in kinds.items()}  # type: ignore[arg-type]
    assert rounds["invalid"][0].planning.state == "invalid"  # type: ignore[union-attr]
    assert "forward_access" in str(rounds["invalid"][0].planning.error)  # type: ignore[union-attr]
    assert [part.state for part in rounds["plain"][0].parts] == ["planned", *["answered"] * 4]
    assert len(rounds["retried"][0].steps[1].attempts) == 2
    assert [part.state for part in rounds["failed"][0].steps][:2] == ["answered", "failed"]
    assert rounds["failed"][0].steps[3].state == "not reached"
    assert "default worker" in rounds["unplanned"][-1].title
    assert rounds["rounds"][1].steps[0].access == "the answer of round 1"
    assert rounds["plain"][0].steps[3].access == "step 0, step 1, step 2"


def test_of_a_running_episode_the_planned_steps_are_there_before_they_begin(tmp_path) -> None:
    plan = "model_id = [0, 1]\nsubtasks = ['A', 'B']\naccess_list = [[], [0]]"
    call = Call("planner", "answered", (Message("user", "?"),), Sampling(), Completion(plan))
    with Journal(tmp_path / "journal.sqlite") as journal:
        journal(Asked("e1", 0, 0.0, "?", workers=WORKERS))
        journal(CallEnded("e1", 0, 1.0, None, call))
        journal.flush()
        (played,) = rounds_of(journal.episode("e1"))  # type: ignore[arg-type]
    assert [(part.name, part.state) for part in played.steps] == [
        ("anna", "running"),
        ("bert", "waiting"),
    ]
    assert played.steps[1].sees == (0,)


@pytest.mark.parametrize("content", ["full", "none"])
async def test_without_content_the_drawing_is_the_same(tmp_path: Path, content) -> None:
    with Journal(tmp_path / "journal.sqlite", content=content) as journal:
        asked = await ask(journal, "?", FLOW, REVISION, workers=pool(), max_rounds=2)
        graph = draw_graph(rounds_of(journal.episode(asked.id)))  # type: ignore[arg-type]
    live = draw_graph(read_rounds(asked, WORKERS))
    assert [(node.part.key, node.x, node.y) for node in graph.nodes] == [
        (node.part.key, node.x, node.y) for node in live.nodes
    ]
    assert graph.edges == live.edges
