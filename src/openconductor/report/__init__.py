"""The orchestration report: the parts of a Conductor's lead, judged by rules written beforehand.

It is made from the records of an evaluation, and with ``--before``, ``--training`` and replays from
more. It comes as plain values, as text, and as one self-contained HTML page.
"""

from openconductor.report.orchestration import Orchestration, measure_orchestration
from openconductor.report.verdict import Judgement, judge

__all__ = ["Judgement", "Orchestration", "judge", "measure_orchestration"]
