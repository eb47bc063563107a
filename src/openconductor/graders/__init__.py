"""Graders: each takes a problem and an answer and returns a Grade.

``GRADERS`` names them lazily as ``module:attribute``.
"""

GRADERS: dict[str, str] = {
    "choice": "openconductor.graders.choice:ChoiceGrader",
    "code": "openconductor.graders.code:CodeGrader",
    "exact": "openconductor.graders.exact:ExactGrader",
    "freeform": "openconductor.graders.freeform:FreeFormGrader",
    "math": "openconductor.graders.math:MathGrader",
}
