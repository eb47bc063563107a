"""The dashboard for Grafana: each of its queries names metrics and labels that /metrics has."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from openconductor.errors import WorkflowError, WorkflowReason
from openconductor.serving.metrics import Metrics
from openconductor.types import Call, Episode, Message, Round, Sampling, Usage

USED = Usage(100, 40, 30, 10, Decimal("0.125"), unpriced_calls=1)
OF_PROMETHEUS = {"job", "instance"}  # it adds these labels to whatever it reads


def labels_of_metrics() -> dict[str, set[str]]:
    """Return the labels of each metric of a server that counted one of each kind."""
    metrics = Metrics()
    metrics.count_call(Call("w", "answered", (Message("user", "Hi"),), Sampling(), usage=USED))
    metrics.count_false_claim("w")
    metrics.count_charge("ann", Decimal("0.25"))
    metrics.count_request("chat", "conductor", 200, 3.0)
    metrics.first_byte("chat", 0.2)
    no_plan = Round(None, error=WorkflowError(WorkflowReason.MISSING_LIST, "none"))
    answered = Round(None, rule="default_worker")
    metrics.count_unplanned(Episode("?", (no_plan, answered), "x", None, Usage(), 1.0))
    labels: defaultdict[str, set[str]] = defaultdict(set)
    with metrics.in_flight("chat"):
        page = metrics.render().decode()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels[sample.name] |= set(sample.labels)
    return labels


def queries(dashboard: dict[str, object]) -> list[str]:
    """Return all queries: of the panels, and of the variables."""
    found = re.findall(r'"(?:expr|definition)": ("(?:[^"\\]|\\.)*")', json.dumps(dashboard))
    return [json.loads(query) for query in found]


def test_each_query_of_the_dashboard_names_metrics_and_labels_that_there_are(root: Path) -> None:
    known = labels_of_metrics()
    dashboard = json.loads((root / "deploy/grafana/openconductor.json").read_text("utf-8"))
    named: set[str] = set()
    for query in queries(dashboard):
        metrics = re.findall(r"openconductor_\w+", query)
        assert metrics, query
        named |= set(metrics)
        assert query.count("(") == query.count(")")
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\"", query))
        for group in re.findall(r"by \(([^)]*)\)", query):
            labels |= {label.strip() for label in group.split(",")}
        for metric in metrics:
            assert metric in known, query
            assert labels <= known[metric] | OF_PROMETHEUS, query
    shown = {name for name in known if not name.endswith(("_created", "_sum", "_count"))}
    assert named == shown  # nothing that a server counts is left out


def test_each_panel_of_the_dashboard_has_a_place_and_an_id_of_its_own(root: Path) -> None:
    dashboard = json.loads((root / "deploy/grafana/openconductor.json").read_text("utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        taken = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, panel["title"]
        assert max(columns) < 24
        cells |= taken
