"""Which shapes of workflow each kind of question gets.

In: the Conductor's records. Out: a Figure: one bar of shares a kind (of several tasks: a task and kind).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openconductor.measures import topology
from openconductor.plots.material import Material
from openconductor.plots.sheet import Look
from openconductor.plots.stacked import stacked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Shapes of workflows by kind of question"
_LOOKS: dict[str, Look] = {
    "single": {"color": "#E3E3E3"},
    "chain": {"color": "#56B4E9", "hatch": "////"},
    "parallel": {"color": "#E69F00", "hatch": "...."},
    "aggregate": {"color": "#009E73"},
    "tree": {"color": "#CC79A7", "hatch": "\\\\\\\\"},
    "dag": {"color": "#D55E00", "hatch": "xxxx"},
}


def plot(material: Material) -> Figure:
    """Draw it; in words where no system planned a workflow."""
    return stacked(material, TITLE, topology, _LOOKS, "Shapes by who sees whom.", {})
