"""What the figures of workflows have in common: when there is none, and what their captions say.

In: the records of the system that plans. Out: words.
"""

from __future__ import annotations

from openconductor.plots.material import Material, first_workflows
from openconductor.plots.words import labels


def nothing(results: Material) -> str:
    """Why there is no workflow to draw; "" where there is one."""
    if not results.records:
        return "No record of an evaluation was given."
    if results.ours is None:
        return "No system of this evaluation plans workflows: it holds workers alone and baselines."
    records = results.by_system[results.ours]
    if not any(first_workflows(records).values()):
        wrote, name = sum(record.valid is not None for record in records), labels([results.ours])[results.ours]
        return f"None of the {wrote:,} texts that {name} wrote is a workflow."
    return ""


def caption_of(results: Material, more: str) -> str:
    """What was counted, of which system, and what is left out."""
    name = results.ours or ""
    records = results.by_system[name]
    flows = first_workflows(records)
    count = sum(map(len, flows.values()))
    wrote, none = sum(record.valid is not None for record in records), sum(record.valid is False for record in records)
    said = f"{none:,} of {wrote:,} texts were none and are left out" if wrote else "nobody wrote them in words"
    return f"{labels([name])[name]}: n = {count:,} valid first workflows of {len(flows):,} questions; {said}. {more}"
