"""Draw the two figures of docs/learning.md.

    python -m benchmarks.learning_figures GYM_RUN REPLAY_RUN ... [--out docs/images/learning]

GYM_RUN is a training of ``recipes/gym.toml``; the REPLAY_RUNs are trainings of
``recipes/replay.toml`` over one table, which differ in their seeds. Needs the extra ``plots``.
"""

# matplotlib's types leave the keyword arguments of nearly every method open.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import argparse
import json
from importlib import resources
from pathlib import Path
from statistics import fmean

from benchmarks.replay import Votes, find_cascades, read_run
from matplotlib import rc_context, rc_params_from_file
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from openconductor.config import read_toml

SIZE = (4.6, 2.6)
"""Width and height of a figure, in inches."""
WINDOW = 8
"""The rounds or iterations over which a curve is averaged."""
KINDS = {
    "single": ("#0072B2", "-"),
    "pair": ("#009E73", "--"),
    "triple": ("#D55E00", "-."),
    "smudged": ("#CC79A7", ":"),
}
"""The colour (Okabe and Ito's) and the dashes of each kind of question of the gym."""


def draw_gym(axes: Axes, run: Path) -> None:
    """Draw the share of right answers by kind of question, over imitation and GRPO."""
    lines = (run / "curves.jsonl").read_text("utf-8").splitlines()
    curve = [json.loads(line) for line in lines]
    rounds = sum(point["phase"] == "imitate" for point in curve)
    for kind, (colour, dashes) in KINDS.items():
        shares = [100 * point["accuracy_by_kind"][kind] for point in curve]
        imitated = shares[:rounds]
        reinforced = [
            fmean(shares[max(rounds, place - WINDOW + 1) : place + 1])
            for place in range(rounds, len(shares))
        ]
        axes.plot(imitated + reinforced, dashes, color=colour, label=kind)
    axes.axvline(rounds - 0.5, color="#8A8A8A", linewidth=0.6)
    axes.set_ylim(0, 100)
    axes.text(rounds - 2, 2, "imitation", ha="right", fontsize=6.2)
    axes.text(rounds + 1, 2, f"GRPO (means of {WINDOW} iterations)", fontsize=6.2)
    axes.set_xlabel("round of imitation, then iteration of GRPO")
    axes.set_ylabel("sampled workflows that are right, %")
    axes.legend(loc="center right", bbox_to_anchor=(1, 0.3))


def draw_replay(axes: Axes, runs: list[Path]) -> None:
    """Draw accuracy against answers a question: fixed rules as lines, trainings as stars."""
    config = read_toml(runs[0] / "config.toml")
    table = Path(config["data"]["path"])
    train, held_out = Votes(table, "train"), Votes(table, config["held_out"]["split"])
    sizes = range(1, len(held_out.models) + 1)
    for weighted, dashes in ((False, "--"), (True, "-")):
        levels = [100 * fmean(held_out.vote_of(size, weighted=weighted)) for size in sizes]
        name = "weighted vote" if weighted else "vote"
        axes.plot(sizes, levels, dashes, color="#0072B2", marker="o", label=name)
    rules = [held_out.cascade(rule.first, rule.more) for rule in find_cascades(train).values()]
    axes.plot(
        [rule.calls for rule in rules],
        [100 * rule.right for rule in rules],
        "s",
        color="#E69F00",
        label="cascade by a fixed rule",
    )
    letters = {row["id"]: row["answer"] for row in held_out.rows}
    for place, run in enumerate(runs):
        right, answers = read_run(run, letters)
        label = f"trained, {len(runs)} seeds" if place == 0 else None
        axes.plot(answers, 100 * fmean(right.values()), "*", color="black", ms=7, label=label)
    axes.set_xlabel("models' answers a question")
    axes.set_ylabel("right, %")
    axes.legend(loc="lower right")


def main() -> None:
    """Read the runs and write both figures as SVG."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("gym_run", type=Path, help="the folder of a training in the gym")
    parser.add_argument("replay_runs", nargs="+", type=Path, help="trainings over one table")
    help_ = "the folder for gym.svg and replay.svg (default: docs/images/learning)"
    parser.add_argument("--out", type=Path, default=Path("docs/images/learning"), help=help_)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    style = resources.files("openconductor.plots") / "paper.mplstyle"
    with resources.as_file(style) as file:
        settings = rc_params_from_file(file, use_default_template=False)
    with rc_context(settings):
        for name in ("gym", "replay"):
            figure = Figure(figsize=SIZE, layout="constrained")
            axes = figure.subplots()
            if name == "gym":
                draw_gym(axes, arguments.gym_run)
            else:
                draw_replay(axes, arguments.replay_runs)
            figure.savefig(arguments.out / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
