# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false, reportMissingTypeStubs=false
"""The length of workflows, by task or kind of question (like the paper's Figure 8).

The figure has one bar of shares a row, darker for longer workflows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from openconductor.evaluation.records import Frame, Record
from openconductor.plots.material import Material, by_part, first_workflows, label
from openconductor.plots.sheet import INK, Drawn, Look, in_percent, in_rows, opened

_COLOURS = ("#F0F6FC", "#D0E1F2", "#A6CEE4", "#6AAED6", "#3787C0", "#105BA4", "#08306B")
"""The colour of each length; longer workflows have the last one."""


def workflow_length(material: Material) -> Drawn:
    """Draw the lengths; in words if no workflow of ours is there."""
    why = material.no_workflow()
    if why:
        return why
    ours = material.by_system[material.ours]
    parts = by_part(ours)
    plans = _make_frame(parts)
    height = 0.8 + 0.21 * len(parts)
    figure, (panel,) = opened(height)
    lengths = plans["steps"].clip(upper=len(_COLOURS))
    counts = plans.groupby(["part", lengths]).size().unstack(fill_value=0)
    shares = counts.div(counts.sum(axis=1), axis=0).reindex(parts, fill_value=0.0)
    start = [0.0] * len(parts)
    for steps in shares.columns:
        widths = shares[steps].tolist()
        name = "1 step" if steps == 1 else f"{steps} steps"
        if steps == len(_COLOURS):
            name = f"{steps}+ steps"
        look: Look = {"color": _COLOURS[steps - 1], "edgecolor": INK, "linewidth": 0.3}
        bars = panel.barh(range(len(parts)), widths, 0.72, start, label=name, **look)
        texts = [f"{100 * width:.0f}" if width >= 0.08 else "" for width in widths]
        dark = steps > 4
        panel.bar_label(bars, texts, label_type="center", color="white" if dark else "black")
        start = [low + width for low, width in zip(start, widths, strict=True)]
    names = [label(part) for part in parts]
    in_rows(panel, names, _counts_and_means(plans, list(parts)))
    in_percent(panel, "x", "workflows (%)")
    panel.set_xlim(0, 1)
    questions = len({record.key for record in ours})
    return figure, (
        f"{label(material.ours)}: n = {len(plans):,} valid first workflows of {questions:,} "
        f"questions; {_count_invalid(ours)}. Means weigh each question the same."
    )


def _make_frame(parts: Mapping[str, Sequence[Record]]) -> Frame:
    """Return a frame with a row for each first workflow: its part, its question, its steps."""
    import pandas as pd

    rows: list[tuple[str, str, int]] = []
    for part, records in parts.items():
        for key, workflows in first_workflows(records).items():
            question = "\0".join(key)
            rows += [(part, question, len(workflow)) for workflow in workflows]
    return pd.DataFrame(rows, columns=["part", "question", "steps"])


def _counts_and_means(plans: Frame, parts: Sequence[str]) -> list[str]:
    """Write the number of workflows of each part, and their mean length."""
    counts = plans.groupby("part").size().reindex(parts, fill_value=0)
    by_question = plans.groupby(["part", "question"])["steps"].mean()
    means = by_question.groupby("part").mean()
    texts: list[str] = []
    for part in parts:
        text = f"n = {counts[part]:,}"
        if counts[part]:
            text += f", mean {means[part]:.1f}"
        texts.append(text)
    return texts


def _count_invalid(records: Sequence[Record]) -> str:
    """Say how many texts were no workflow."""
    wrote = sum(record.valid is not None for record in records)
    if not wrote:
        return "nobody wrote them in words"
    invalid = sum(record.valid is False for record in records)
    return f"{invalid:,} of {wrote:,} texts were none and are left out"
