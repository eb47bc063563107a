"""Figures of a training and of an evaluation, like the paper's and beyond, fit for a column in print.

In: Records, a curve. Out: matplotlib Figures; as files SVG and PNG. One figure a file; ``FIGURES`` names them lazily as
``module:attribute``, and each attribute is a function ``plot(results) -> Figure`` of a ``Material``.

Needs the extra ``plots`` (matplotlib); importing this package alone does not import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openconductor.plots.material import Material as Material
    from openconductor.plots.saving import draw_all as draw_all
    from openconductor.plots.saving import rendered as rendered
    from openconductor.plots.saving import save as save
    from openconductor.plots.saving import save_all as save_all

FIGURES: dict[str, str] = {
    "accuracy_cost": "openconductor.plots.accuracy_cost:plot",
    "headroom": "openconductor.plots.headroom:plot",
    "worker_kind": "openconductor.plots.worker_kind:plot",
    "workflow_length": "openconductor.plots.workflow_length:plot",
    "topology_kind": "openconductor.plots.topology_kind:plot",
    "worker_rounds": "openconductor.plots.worker_rounds:plot",
    "training_accuracy": "openconductor.plots.training_accuracy:plot",
    "format_gain": "openconductor.plots.format_gain:plot",
    "worker_share": "openconductor.plots.worker_share:plot",
    "diversity": "openconductor.plots.diversity:plot",
}
OF_TRAINING = frozenset({"training_accuracy", "format_gain", "worker_share", "diversity"})
"""The figures that are drawn from a curve; all others are drawn from records."""

__all__ = ["FIGURES", "OF_TRAINING", "Material", "draw_all", "rendered", "save", "save_all"]

_PLACES = {"Material": "material"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"openconductor.plots.{_PLACES.get(name, 'saving')}"), name)
