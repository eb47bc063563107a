"""The workflow of an episode as a graph: steps are nodes, access is edges, rounds are lanes.

A step's column is the length of the longest chain of steps that it sees, so the layout is
arithmetic. Lanes stand below each other. A graph grows to the right, or downwards on a narrow
screen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from openconductor.measures import direct_access
from openconductor.types import Step, Workflow
from openconductor.ui.parts import Part, RoundParts

NODE_HEIGHT = 66
_MARGIN = 8
_LETTER = 7  # about the width of a letter of a lane's title
_HEAD = 30  # the height of a lane's title
_ARC = 26  # how far an edge passes beside the nodes that it skips

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Node:
    """A part of the episode, and where its box stands."""

    part: Part
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow from a step to one that sees it.

    Attributes:
        source, target: the keys of the parts.
        path: the curve, as SVG has it.
        implied: True if the target sees the source through another step, too.
    """

    source: str
    target: str
    path: str
    implied: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """The strip of a round."""

    title: str
    y: int
    height: int


@dataclass(frozen=True, slots=True)
class Graph:
    """A drawing: sizes in pixels, the most letters of a lane's title, and everything in it."""

    width: int
    height: int
    node_width: int
    upright: bool
    most_letters: int
    lanes: tuple[Lane, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class _Look:
    """The sizes of a graph.

    Attributes:
        upright: True if it grows downwards.
        width: of a node.
        gap: between columns, where the arrows are.
        spread: between the nodes of a column.
        most_letters: of a lane's title.
    """

    upright: bool
    width: int
    gap: int
    spread: int
    most_letters: int


_WIDE = _Look(upright=False, width=184, gap=44, spread=14, most_letters=90)
_NARROW = _Look(upright=True, width=154, gap=30, spread=10, most_letters=34)


def draw_graph(rounds: Sequence[RoundParts], *, upright: bool = False) -> Graph:
    """Lay out the graph of an episode's rounds."""
    look = _NARROW if upright else _WIDE
    lanes: list[Lane] = []
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    top = _MARGIN
    for played in rounds:
        placed = _place_nodes(played, look, top + _HEAD)
        bottom = max((node.y + NODE_HEIGHT for node in placed), default=top + _HEAD)
        end = max((node.x + look.width for node in placed), default=0) if upright else bottom
        workflow = Workflow(tuple(Step(0, "", part.sees) for part in played.steps))
        direct = direct_access(workflow)
        nodes |= {node.part.key: node for node in placed}
        depths = _depths(played.steps)
        skips = False
        for index, part in enumerate(played.steps):
            for seen in part.sees:
                source = nodes[played.steps[seen].key]
                span = depths[index] - depths[seen]
                skips = skips or span > 1
                path = _curve(source, nodes[part.key], look, span, end)
                edges.append(Edge(source.part.key, part.key, path, seen not in direct[index]))
            if part.sees_answer is not None:
                answering = rounds[part.sees_answer].steps[-1]
                path = _down(nodes[answering.key], nodes[part.key], look)
                edges.append(Edge(answering.key, part.key, path, implied=True))
        if skips and not upright:
            bottom += _ARC
        lanes.append(Lane(played.title, top, bottom - top + _MARGIN))
        top = bottom + 2 * _MARGIN
    right = max((node.x + look.width for node in nodes.values()), default=look.width)
    longest = max((len(lane.title) for lane in lanes), default=0)
    right = max(right, _LETTER * min(longest, look.most_letters))
    if upright:
        right += _ARC
    return Graph(
        width=right + 2 * _MARGIN,
        height=top,
        node_width=look.width,
        upright=upright,
        most_letters=look.most_letters,
        lanes=tuple(lanes),
        nodes=tuple(nodes.values()),
        edges=tuple(edges),
    )


def _depths(steps: Sequence[Part]) -> list[int]:
    """Return for each step the length of the longest chain of steps that it sees."""
    depths: list[int] = []
    for part in steps:
        depths.append(1 + max((depths[seen] for seen in part.sees), default=-1))
    return depths


def _place_nodes(played: RoundParts, look: _Look, top: int) -> list[Node]:
    """Return the nodes of a lane: the planning first, then a column for each depth."""
    depths = _depths(played.steps)
    columns = list(depths)
    if played.planning is not None:
        columns = [0, *(depth + 1 for depth in depths)]
    sizes = Counter(columns)
    most = max(sizes.values(), default=1)
    filled = Counter[int]()
    nodes: list[Node] = []
    for part, column in zip(played.parts, columns, strict=True):
        # A column with fewer nodes than the largest one is centred.
        row = filled[column] + (most - sizes[column]) / 2
        filled[column] += 1
        if look.upright:
            x = row * (look.width + look.spread)
            y = column * (NODE_HEIGHT + look.gap)
        else:
            x = column * (look.width + look.gap)
            y = row * (NODE_HEIGHT + look.spread)
        nodes.append(Node(part, round(x) + 2 * _MARGIN, round(y) + top))
    return nodes


def _curve(source: Node, target: Node, look: _Look, span: int, edge: int) -> str:
    """Return the curve of an edge; one that skips columns passes beside all nodes of its lane.

    Args:
        source: the node that is seen.
        target: the node that sees it.
        look: the sizes.
        span: how many columns further the target is.
        edge: where the nodes of the lane end, below or, in an upright graph, at the right.
    """
    if look.upright and span > 1:
        start = (source.x + 0.8 * look.width, source.y + NODE_HEIGHT)
        end = (target.x + 0.8 * look.width, target.y)
        side = _beyond(edge, start[0])
        return _bezier(start, (side, start[1] + 16), (side, end[1] - 16), end)
    if look.upright:
        return _down(source, target, look)
    if span > 1:
        start = (source.x + look.width, source.y + 0.8 * NODE_HEIGHT)
        end = (target.x, target.y + 0.8 * NODE_HEIGHT)
        low = _beyond(edge, start[1])
        return _bezier(start, (start[0] + 16, low), (end[0] - 16, low), end)
    start = (source.x + look.width, source.y + NODE_HEIGHT / 2)
    end = (target.x, target.y + NODE_HEIGHT / 2)
    middle = (start[0] + end[0]) / 2
    return _bezier(start, (middle, start[1]), (middle, end[1]), end)


def _beyond(edge: int, start: float) -> float:
    """Return where to pull a curve so that it passes an edge: it goes three quarters of the way."""
    return edge + _ARC + (edge - start) / 3


def _down(source: Node, target: Node, look: _Look) -> str:
    """Return a curve from the bottom of a node to the top of another."""
    start = (source.x + look.width / 2, source.y + NODE_HEIGHT)
    end = (target.x + look.width / 2, target.y)
    middle = (start[1] + end[1]) / 2
    return _bezier(start, (start[0], middle), (end[0], middle), end)


def _bezier(start: Point, first: Point, second: Point, end: Point) -> str:
    begin = f"M{start[0]:g} {start[1]:g}"
    points = ", ".join(f"{x:g} {y:g}" for x, y in (first, second, end))
    return f"{begin} C{points}"
