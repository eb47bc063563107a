"""Figures of a training and of an evaluation, like the paper's and beyond, fit for a column in print.

In: Records, a curve. Out: matplotlib Figures; as files SVG and PNG. ``FIGURES`` names them.

Needs the extra ``plots`` (matplotlib); importing this package alone does not import it.
"""

from openconductor.plots.material import Material
from openconductor.plots.saving import FIGURES, OF_TRAINING, Picture, draw, rendered, save_all

__all__ = ["FIGURES", "OF_TRAINING", "Material", "Picture", "draw", "rendered", "save_all"]
