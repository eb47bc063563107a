# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
"""How long workflows are, by task or kind of question (like the paper's Figure 8).

In: the Conductor's records. Out: a figure of one bar of shares a row, darker for longer workflows.
"""

from __future__ import annotations

from collections import Counter
from statistics import fmean

from openconductor.plots.material import Material, by_part, first_workflows, label
from openconductor.plots.sheet import INK, Drawn, in_percent, in_rows, opened

_COLOURS = ("#F0F6FC", "#D0E1F2", "#A6CEE4", "#6AAED6", "#3787C0", "#105BA4", "#08306B")


def workflow_length(material: Material) -> Drawn:
    """Draw it; in words where no workflow of ours is there."""
    if why := material.no_workflow():
        return why
    ours = material.by_system[material.ours]
    parts = by_part(ours)
    questions = {name: first_workflows(part) for name, part in parts.items()}
    lengths = {
        name: [len(flow) for flows in of.values() for flow in flows]
        for name, of in questions.items()
    }
    figure, (panel,) = opened(0.8 + 0.21 * len(parts))
    start = [0.0] * len(parts)
    for steps, colour in enumerate(_COLOURS, start=1):
        counts = [
            Counter(min(one, len(_COLOURS)) for one in some)[steps] for some in lengths.values()
        ]
        if any(counts):
            shares = [
                count / (len(some) or 1)
                for count, some in zip(counts, lengths.values(), strict=True)
            ]
            name = f"{steps}{'+' if steps == len(_COLOURS) else ''} step{'s' if steps > 1 else ''}"
            bars = panel.barh(
                range(len(parts)),
                shares,
                0.72,
                start,
                color=colour,
                edgecolor=INK,
                linewidth=0.3,
                label=name,
            )
            written = [f"{100 * share:.0f}" if share >= 0.08 else "" for share in shares]
            panel.bar_label(
                bars, written, label_type="center", color="white" if steps > 4 else "black"
            )
            start = [low + share for low, share in zip(start, shares, strict=True)]
    means = {
        name: [fmean(map(len, flows)) for flows in of.values() if flows]
        for name, of in questions.items()
    }
    beside = [
        f"n = {len(lengths[name]):,}" + (f", mean {fmean(means[name]):.1f}" if means[name] else "")
        for name in parts
    ]
    in_rows(panel, [label(name) for name in parts], beside)
    in_percent(panel, "x", "workflows (%)")
    panel.set_xlim(0, 1)
    wrote = sum(record.valid is not None for record in ours)
    none = f"{sum(record.valid is False for record in ours):,} of {wrote:,} texts were none and are left out"
    total, asked = sum(map(len, lengths.values())), len({(one.task, one.problem) for one in ours})
    counted = f"n = {total:,} valid first workflows of {asked:,} questions"
    return figure, (
        f"{label(material.ours)}: {counted}; {none if wrote else 'nobody wrote them in words'}. Means weigh each "
        "question the same."
    )
