"""``openconductor demo``: the trained Conductor at work in the gym, first one question live, then hundreds of them.

In: a number of held-out questions and a seed. Out: the picture of one episode on stderr, the table
on stdout; with ``--json`` nothing but the table's values.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from openconductor.cli import console
from openconductor.cli.console import labelled
from openconductor.cli.live import COLOURS, EpisodeView, filling_in
from openconductor.cli.options import AsJson
from openconductor.conductor import Conductor
from openconductor.evaluation.eval_config import find_planner
from openconductor.evaluation.gym_table import GymTable, gym_table
from openconductor.gym.questions import draw_questions
from openconductor.gym.workers import PROFILES, gym_pool
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext, OnText, Provider
from openconductor.providers import resolve
from openconductor.types import Completion, Message, Sampling

PACE = 0.3  # a simulated second lasts so long in the live picture
LOOKED_AT = 100  # questions among which the live one is sought
BAR, SHORTEST_BAR = (
    30,
    6,
)  # cells of a bar of 100 %, where there is room; below the latter it shows nothing


def demo(
    questions: Annotated[
        int, typer.Option("--questions", min=1, help="How many held-out questions.")
    ] = 400,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Draws the questions and the workers' answers.")
    ] = 0,
    conductor: Annotated[
        Path | None, typer.Option("--conductor", help="Another Conductor's folder.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", help="A worker that is not there; repeatable.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", "--no-live", help="Only the table.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a trained Conductor at work in the gym: no key, no GPU."""
    pool = gym_pool(seed)
    absent = {pool.ordinal_of(name) for name in without or ()}
    pool = pool.subset([ordinal for ordinal in pool.ordinals if ordinal not in absent])
    playing = Conductor(
        find_planner(None if conductor is None else str(conductor), pool), pool=pool
    )
    if not quick and not as_json:
        _play_one(playing, seed)
    with console.progress_bar("asking", piped=False) as advance:
        table = asyncio.run(gym_table(playing, questions=questions, seed=seed, on_progress=advance))
    if as_json:
        console.show_json(table.to_json())
    else:
        show_gym_table(table)


# ── one question, live ────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class PacedWorker(Provider):
    """A simulated worker that takes its time, so that one can watch; what it answers stays the same."""

    provider: Provider
    seconds: float

    async def complete(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        *,
        call: CallContext,
        on_text: OnText | None = None,
    ) -> Completion:
        """Wait, then answer."""
        await asyncio.sleep(self.seconds)
        return await self.provider.complete(messages, sampling, call=call, on_text=on_text)


def _play_one(playing: Conductor, seed: int) -> None:
    """Show the first smudged question of the seed, for there steps run side by side and a check pays."""
    drawn = draw_questions("test", LOOKED_AT, seed=seed)
    question = next((one for one in drawn if one.smudged), drawn[0])
    paced = {
        ordinal: Worker(
            PacedWorker(resolve(worker.provider), PACE * PROFILES[ordinal].seconds),
            name=worker.name,
            price=worker.price,
        )
        for ordinal, worker in playing.pool
    }
    pool, screen = WorkerPool(paced), console.messages()
    view = EpisodeView(question.text, pool, expected=" ".join(question.answer), simulated=True)
    screen.print(
        f"One question first. The workers are simulated; their seconds pass {1 / PACE:.0f} times as fast here.\n"
    )
    with filling_in(view, screen):
        replace(playing, pool=pool).ask_sync(question.text, on_event=view)
    screen.print()


# ── the table ─────────────────────────────────────────────────────────────────────────────────────
def show_gym_table(table: GymTable) -> None:
    """Print who is right how often, how the Conductor works, and what its lead is."""
    best = max(table.workers, key=lambda name: table.workers[name])
    title = (f"{table.questions:,} held-out questions of the gym", "bold")
    console.show(Text.assemble(title, f", seed {table.seed}, in {table.seconds:.1f} s"))
    _show_accuracies(table, best)
    given = (
        ""
        if table.accuracy_given_valid is None
        else f"; of the valid, {table.accuracy_given_valid:.1%} are right"
    )
    masked = f"; {table.masked} could not be decided and are left out" if table.masked else ""
    kinds = " → ".join(
        f"{kind} {_steps(count)}" for kind, count in table.mean_steps_by_kind.items()
    )
    shapes = sorted(table.topology_share.items(), key=lambda entry: -entry[1])
    asked = sorted(
        ((name, share) for name, share in table.worker_share.items() if share > 0),
        key=lambda one: -one[1],
    )
    colours = {
        profile.name: COLOURS[ordinal % len(COLOURS)] for ordinal, profile in enumerate(PROFILES)
    }
    shares = Text(", ").join(
        Text.assemble((name, colours.get(name, "")), f" {share:.0%}") for name, share in asked
    )
    bits = f"{table.routing_entropy_bits:.2f} bits of entropy over the workers (all to one: 0, an even spread: 3)"
    used, dollars = table.usage, float(table.usage.dollars)
    tokens = f"{used.input_tokens:,} tokens read, {used.output_tokens:,} written"
    each = f"${dollars:.4f} in all: ${dollars / max(1, table.questions):.6f} a question, at the gym's prices"
    console.show(
        "",
        labelled("Workflows", f"{table.validity:.1%} are valid{given}{masked}"),
        labelled("Steps", f"{_steps(table.mean_steps)} on average; {kinds}"),
        labelled("Shapes", ", ".join(f"{name} {share:.0%}" for name, share in shapes) or "none"),
        labelled("Workers", Text.assemble(shares, " of the steps") if asked else "none"),
        labelled("Routing", bits),
        labelled("Cost", f"{tokens}, {each}"),
        "",
        labelled("In short", _verdict(table, best)),
    )


def _show_accuracies(table: GymTable, best: str) -> None:
    """Who is right how often. In a narrow room bars are shorter or left out, and names fold."""
    alone, fixed = (
        sorted(table.workers.items(), key=lambda entry: -entry[1]),
        "best_fixed" in table.levels,
    )
    rows = [
        (
            "oracle: the best workflow of each question",
            "bold",
            table.levels["oracle"].value,
            "oracle",
        ),
        ("Conductor", "bold green", table.levels["conductor"].value, "conductor"),
        *(
            [("best fixed workflow", "", table.levels["best_fixed"].value, "best_fixed")]
            if fixed
            else []
        ),
        (f"{best} alone, the best worker", "", table.workers[best], "best_worker"),
        *((f"{name} alone", "dim", share, "") for name, share in alone if name != best),
        ("random workflows", "", table.levels["random"].value, "random"),
    ]
    cells = min(
        BAR,
        console.results().width
        - max(len(name) for name, *_ in rows)
        - len("100.0%  95 % interval")
        - 4,
    )
    bars = cells >= SHORTEST_BAR
    drawn: list[list[Text]] = []
    for name, style, share, key in rows:
        level = table.levels.get(key)
        interval = "" if level is None else f"{100 * level.low:.1f} – {100 * level.high:.1f}"
        texts = (name, f"{share:.1%}", interval, *([bar(share, cells)] if bars else []))
        drawn.append([Text(text, style=style) for text in texts])
    console.show_table(("", "right", "95 % interval", *([""] if bars else [])), drawn, words=(0, 3))


def _verdict(table: GymTable, best: str) -> Text:
    """The lead over the best worker and the best fixed workflow, and the share of the oracle."""
    ours, oracle = table.levels["conductor"], table.levels["oracle"]
    leads: list[str] = []
    for key, name in (
        ("best_worker", f"the best worker alone ({best})"),
        ("best_fixed", "the best fixed workflow"),
    ):
        if (other := table.levels.get(key)) is None:
            continue
        points = 100 * (ours.value - other.value)
        doubt = (
            " (the intervals overlap)" if ours.low <= other.high and other.low <= ours.high else ""
        )
        leads.append(
            f"{abs(points):.1f} percentage points {'above' if points >= 0 else 'below'} {name}{doubt}"
        )
    if oracle.value > 0:
        leads.append(f"and {ours.value / oracle.value:.1%} of what the oracle reaches")
    right = (f"{ours.value:.1%}", "bold green")
    return Text.assemble(
        "The Conductor is right on ", right, " of the questions: ", ", ".join(leads), "."
    )


def _steps(count: float | None) -> str:
    return "none" if count is None else f"{count:.2f}"


def bar(share: float, whole: int = BAR) -> str:
    """A bar of a share in [0, 1], to the eighth of a cell; 1 is ``whole`` cells.

    >>> bar(0.05)
    '█▌'
    """
    full, eighths = divmod(round(8 * whole * max(0.0, min(1.0, share))), 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[eighths] * (eighths > 0)
