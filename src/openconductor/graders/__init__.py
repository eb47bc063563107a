"""Graders: who decides whether an answer is right. In: a problem and an answer. Out: a Grade.

``GRADERS`` names them lazily as ``module:attribute``.
"""

GRADERS: dict[str, str] = {
    "choice": "openconductor.graders.choice:ChoiceGrader",
    "code": "openconductor.graders.code:CodeGrader",
    "exact": "openconductor.graders.exact:ExactGrader",
    "freeform": "openconductor.graders.freeform:FreeFormGrader",
    "math": "openconductor.graders.math:MathGrader",
}
