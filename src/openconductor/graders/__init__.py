"""Graders: who decides whether an answer is right. In: a problem and an answer. Out: a Grade.

``GRADERS`` names them lazily as ``module:attribute``.
"""

GRADERS: dict[str, str] = {"exact": "openconductor.graders.exact:ExactGrader"}
