"""Figures of a training and of an evaluation, like the paper's and beyond, one column wide.

``FIGURES`` names them, ``draw`` draws one of them from a ``Material``, ``save_all`` writes them as
SVG and PNG. Needs the extra ``plots`` (matplotlib), which importing this package does not import.
"""

from openconductor.plots.material import Material
from openconductor.plots.saving import FIGURES, OF_TRAINING, Picture, draw, rendered, save_all

__all__ = ["FIGURES", "OF_TRAINING", "Material", "Picture", "draw", "rendered", "save_all"]
