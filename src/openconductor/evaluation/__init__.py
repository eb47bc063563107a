"""Evaluation: any Orchestrator over any problems, judged, counted, and said with how much certainty.

In: an Orchestrator, problems, a grader. Out: Outcomes, estimates with intervals, tables.
"""

from openconductor.evaluation.run import Outcome, evaluate

__all__ = ["Outcome", "evaluate"]
