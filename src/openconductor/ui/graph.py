"""The workflow of an episode as a graph: steps are nodes, access is edges, rounds are lanes.

On a wide screen a graph grows to the right: a step's column is the length of the longest chain of
steps that it sees, and the columns share the width. An upright graph has a row for each part, so
that it fits a narrow screen. Lanes stand below each other. The layout is arithmetic.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from openconductor.measures import direct_access
from openconductor.types import Step, Workflow
from openconductor.ui.parts import Part, RoundParts

NODE_HEIGHT = 82

_MARGIN = 8
_INSET = 2 * _MARGIN  # from the edge of a drawing to its nodes
_HEAD = 30  # the height of a lane's title
_WIDTH = 1128  # of a graph on a wide screen, unless a round has more columns than fit
_MIN_GAP, _SPREAD = 28, 14  # between columns, and between the nodes of a column
_LEAST_PITCH = 182  # from a column to the next
_MOST_WIDTH = 280  # of a node on a wide screen
_ARC = 26  # how far an edge passes below the nodes that it skips
_UPRIGHT_WIDTH, _UPRIGHT_NODE, _UPRIGHT_GAP = 328, 252, 26
_LEFT, _RIGHT = 20, 40  # the room beside the nodes of an upright graph, for its arcs

EdgeKind = Literal["access", "implied", "plan"]
"""What an edge says.

- access: the target sees the answer of the source.
- implied: so it does, and that follows from other edges or is of an earlier round.
- plan: the source planned the target, which waits for no other step.
"""


class Point(NamedTuple):
    """A place in a drawing, in pixels."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Node:
    """A part of the episode, and where its box stands."""

    part: Part
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow between two parts.

    Attributes:
        source, target: the keys of the parts.
        kind: what it says.
        path: the curve, as SVG has it.
        end: where its head is.
        angle: of its head, in degrees from pointing right.
    """

    source: str
    target: str
    kind: EdgeKind
    path: str
    end: Point
    angle: int


@dataclass(frozen=True, slots=True)
class Lane:
    """The strip of a round."""

    title: str
    y: int
    height: int


@dataclass(frozen=True, slots=True)
class Graph:
    """A drawing: sizes in pixels, and everything in it."""

    width: int
    height: int
    node_width: int
    lanes: Sequence[Lane]
    nodes: Sequence[Node]
    edges: Sequence[Edge]


def draw_graph(rounds: Sequence[RoundParts], *, upright: bool = False) -> Graph:
    """Lay out the graph of an episode's rounds."""
    layout = _Upright() if upright else _Wide(rounds)
    lanes: list[Lane] = []
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    top = _MARGIN
    for played in rounds:
        placed = layout.place(played, top + _HEAD)
        nodes |= {node.part.key: node for node in placed}
        bottom = max((node.y + NODE_HEIGHT for node in placed), default=top + _HEAD)
        skips = False
        for source, target, kind in _links_of(played, rounds):
            span = layout.span(nodes[source], nodes[target])
            skips = skips or span > 1
            curve = layout.curve(nodes[source], nodes[target], span, bottom, kind)
            edges.append(Edge(source, target, kind, *_write_curve(*curve)))
        if skips and not upright:
            bottom += _ARC
        lanes.append(Lane(played.title, top, bottom - top + _MARGIN))
        top = bottom + 2 * _MARGIN
    return Graph(
        width=layout.width,
        height=top,
        node_width=layout.node_width,
        lanes=lanes,
        nodes=list(nodes.values()),
        edges=edges,
    )


def _links_of(
    played: RoundParts, rounds: Sequence[RoundParts]
) -> Iterator[tuple[str, str, EdgeKind]]:
    """Yield the edges that end in a round: the keys of both parts, and the kind."""
    workflow = Workflow(tuple(Step(0, "", part.sees) for part in played.steps))
    direct = direct_access(workflow)
    for index, part in enumerate(played.steps):
        if played.planning is not None and not part.sees:
            yield played.planning.key, part.key, "plan"
        for seen in part.sees:
            kind: EdgeKind = "access" if seen in direct[index] else "implied"
            yield played.steps[seen].key, part.key, kind
        if part.sees_answer is not None:
            yield rounds[part.sees_answer].steps[-1].key, part.key, "implied"


def _columns(played: RoundParts) -> list[int]:
    """Return the column of each part: the planning first, then the depths of the steps."""
    columns: list[int] = []
    first = 0 if played.planning is None else 1
    for part in played.steps:
        columns.append(max((columns[seen] + 1 for seen in part.sees), default=first))
    return columns if played.planning is None else [0, *columns]


Curve = tuple[Point, Point, Point, Point]
"""The start, the two points that pull, and the end."""


class _Wide:
    """The layout of a graph that grows to the right.

    Args:
        rounds: all rounds, which share their columns.
    """

    def __init__(self, rounds: Sequence[RoundParts]) -> None:
        columns = [0]
        for played in rounds:
            columns += _columns(played)
        count = max(columns) + 1
        room = max(_WIDTH - 2 * _INSET, count * _LEAST_PITCH)
        self.width = room + 2 * _INSET
        self.node_width = min(_MOST_WIDTH, room // count - _MIN_GAP)
        self._pitch = (room - self.node_width) / max(1, count - 1)

    def place(self, played: RoundParts, top: int) -> list[Node]:
        """Return the nodes of a lane; a column with fewer ones than the largest is centred."""
        columns = _columns(played)
        sizes = Counter(columns)
        most = max(sizes.values(), default=1)
        filled = Counter[int]()
        nodes: list[Node] = []
        for part, column in zip(played.parts, columns, strict=True):
            row = filled[column] + (most - sizes[column]) / 2
            filled[column] += 1
            x = _INSET + round(column * self._pitch)
            y = top + round(row * (NODE_HEIGHT + _SPREAD))
            nodes.append(Node(part, x, y))
        return nodes

    def span(self, source: Node, target: Node) -> int:
        """Return how many columns further the target is; 0: it is in another round."""
        if source.part.round != target.part.round:
            return 0
        return round((target.x - source.x) / self._pitch)

    def curve(self, source: Node, target: Node, span: int, bottom: int, _kind: EdgeKind) -> Curve:
        """Return the curve of an edge; one that skips columns passes below its lane's nodes."""
        if span == 0:
            return _down(source, target, self.node_width)
        height = 0.8 if span > 1 else 0.5
        start = Point(source.x + self.node_width, source.y + height * NODE_HEIGHT)
        end = Point(target.x, target.y + height * NODE_HEIGHT)
        if span == 1:
            middle = (start.x + end.x) / 2
            return start, Point(middle, start.y), Point(middle, end.y), end
        # A curve goes three quarters of the way to the points that pull it.
        low = bottom + _ARC + (bottom - start.y) / 3
        return start, Point(start.x + 16, low), Point(end.x - 16, low), end


class _Upright:
    """The layout of a graph with a row for each part; edges that skip rows are arcs beside them."""

    width = _UPRIGHT_WIDTH
    node_width = _UPRIGHT_NODE

    def place(self, played: RoundParts, top: int) -> list[Node]:
        """Return the nodes of a lane."""
        pitch = NODE_HEIGHT + _UPRIGHT_GAP
        x = _INSET + _LEFT
        return [Node(part, x, top + row * pitch) for row, part in enumerate(played.parts)]

    def span(self, source: Node, target: Node) -> int:
        """Return about how many rows further the target is."""
        return (target.y - source.y) // (NODE_HEIGHT + _UPRIGHT_GAP)

    def curve(self, source: Node, target: Node, span: int, _bottom: int, kind: EdgeKind) -> Curve:
        """Return the curve of an edge: straight down, or an arc; a plan's are at the left."""
        if span == 1:
            return _down(source, target, self.node_width)
        low, high = source.y + 0.7 * NODE_HEIGHT, target.y + 0.3 * NODE_HEIGHT
        if kind == "plan":
            edge, side = source.x, source.x - _LEFT
        else:
            edge = source.x + self.node_width
            side = edge + min(_RIGHT, 12 + 8 * span)
        return Point(edge, low), Point(side, low), Point(side, high), Point(edge, high)


def _down(source: Node, target: Node, node_width: int) -> Curve:
    """Return a curve from the bottom of a node to the top of another."""
    start = Point(source.x + node_width / 2, source.y + NODE_HEIGHT)
    end = Point(target.x + node_width / 2, target.y)
    middle = (start.y + end.y) / 2
    return start, Point(start.x, middle), Point(end.x, middle), end


def _write_curve(start: Point, first: Point, second: Point, end: Point) -> tuple[str, Point, int]:
    """Return the path of a curve, its end, and the angle at which it comes there."""
    pulls = ", ".join(f"{point.x:g} {point.y:g}" for point in (first, second, end))
    angle = math.degrees(math.atan2(end.y - second.y, end.x - second.x))
    return f"M{start.x:g} {start.y:g} C{pulls}", end, round(angle)
