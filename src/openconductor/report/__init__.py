"""The orchestration report: what a Conductor's lead is made of, judged by rules that were written down before.

In: the records of an evaluation, if wanted those of the untrained Conductor, a training's curve,
replays. Out: figures with intervals, a verdict of one line with its reasons, as plain values, as
text, and as one self-contained HTML page.
"""

from openconductor.report.orchestration import Orchestration, orchestration
from openconductor.report.verdict import Judgement, judge

__all__ = ["Judgement", "Orchestration", "judge", "orchestration"]
