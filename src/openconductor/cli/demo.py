"""``openconductor demo``: the trained Conductor at work in the gym, first one question live, then hundreds of them.

In: a number of held-out questions and a seed. Out: the picture of one episode on stderr, the table on stdout; with
``--json`` nothing but the table's values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openconductor.cli import console
from openconductor.cli.runs import AsJson

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from openconductor.conductor import Planner
    from openconductor.evaluation.headroom import GymTable
    from openconductor.gym.questions import GymQuestion
    from openconductor.protocols import CallContext, OnText, Provider
    from openconductor.types import Completion, Message, Sampling

PACE = 0.3  # a simulated second lasts so long in the live picture
LOOKED_AT = 100  # questions among which the live one is sought
BAR, SHORTEST_BAR = 30, 6  # cells of a bar of 100 %, where there is room; below the latter it shows nothing
LEVELS = {
    "oracle": ("oracle: the best workflow of each question", "bold"),
    "conductor": ("Conductor", "bold green"),
    "best_fixed": ("best fixed workflow", ""),
}


def demo(
    questions: Annotated[int, typer.Option("--questions", min=1, help="How many held-out questions.")] = 400,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Draws the questions and the workers' answers.")] = 0,
    conductor: Annotated[Path | None, typer.Option("--conductor", help="Another Conductor's folder.")] = None,
    quick: Annotated[bool, typer.Option("--quick", "--no-live", help="Only the table.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a trained Conductor at work in the gym: no key, no GPU."""
    import asyncio

    from openconductor.conductor import Conductor
    from openconductor.evaluation.headroom import gym_table
    from openconductor.evaluation.systems import find_planner
    from openconductor.gym.workers import gym_pool

    pool = gym_pool(seed)
    playing = Conductor(find_planner(None if conductor is None else str(conductor), pool), pool=pool)
    if not quick and not as_json:
        _play_one(playing.planner, seed)
    with console.progress_bar("asking") as advance:
        table = asyncio.run(gym_table(playing, questions=questions, seed=seed, on_progress=advance))
    if as_json:
        console.show_json(table.to_json())
    else:
        show_gym_table(table)


# ── one question, live ───────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class PacedWorker:
    """A simulated worker that takes its time, so that one can watch; what it answers stays the same."""

    provider: Provider
    seconds: float

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
    ) -> Completion:
        """Wait, then answer."""
        import asyncio

        await asyncio.sleep(self.seconds)
        return await self.provider.complete(messages, sampling, call=call, on_text=on_text)


def live_question(seed: int) -> GymQuestion:
    """The question that is shown: the first smudged one, for there steps run side by side and a check pays."""
    from openconductor.gym.questions import draw_questions

    drawn = draw_questions("test", LOOKED_AT, seed=seed)
    return next((question for question in drawn if question.smudged), drawn[0])


def _play_one(planner: Planner, seed: int) -> None:
    from openconductor.cli.live import EpisodeView, filling_in
    from openconductor.conductor import Conductor
    from openconductor.gym.workers import PROFILES, gym_pool
    from openconductor.pool import Worker, WorkerPool
    from openconductor.providers import resolve

    workers = [worker for _, worker in gym_pool(seed)]
    pool = WorkerPool(
        [
            Worker(PacedWorker(resolve(worker.provider), PACE * profile.seconds), name=worker.name, price=worker.price)
            for worker, profile in zip(workers, PROFILES, strict=True)
        ]
    )
    question = live_question(seed)
    expected = " ".join(question.answer)

    def judge(answer: str) -> tuple[bool, str]:
        return answer.split() == list(question.answer), expected

    view = EpisodeView(question.text, pool, judge=judge, simulated=True)
    screen = console.messages()
    screen.print(
        f"One question first. The workers are simulated; their seconds pass {1 / PACE:.0f} times as fast here.\n"
    )
    with filling_in(view, screen):
        Conductor(planner, pool=pool).ask_sync(question.text, on_event=view)
    screen.print()


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────
def show_gym_table(table: GymTable) -> None:
    """Print who is right how often, how the Conductor works, and what its lead is."""
    from rich.text import Text

    from openconductor.cli.live import COLOURS
    from openconductor.gym.workers import PROFILES

    screen, labelled = console.results(), console.labelled
    head = (f"{table.questions:,} held-out questions of the gym", "bold")
    screen.print(Text.assemble(head, f", seed {table.seed}, in {table.seconds:.1f} s"))
    screen.print(_accuracies(table, screen.width), "")
    given = table.accuracy_given_valid
    valid = f"{table.validity:.1%} are valid{'' if given is None else f'; of the valid, {given:.1%} are right'}"
    masked = f"; {table.masked} could not be decided and are left out" if table.masked else ""
    screen.print(labelled("Workflows", valid + masked))
    kinds = " → ".join(f"{kind} {_steps(count)}" for kind, count in table.mean_steps_by_kind.items())
    screen.print(labelled("Steps", f"{_steps(table.mean_steps)} on average; {kinds}"))
    shapes = sorted(table.topology_share.items(), key=lambda entry: -entry[1])
    screen.print(labelled("Shapes", ", ".join(f"{name} {share:.0%}" for name, share in shapes) or "none"))
    colours = {profile.name: COLOURS[ordinal % len(COLOURS)] for ordinal, profile in enumerate(PROFILES)}
    asked = sorted(((name, share) for name, share in table.worker_share.items() if share > 0), key=lambda one: -one[1])
    shares = Text(", ").join(Text.assemble((name, colours.get(name, "")), f" {share:.0%}") for name, share in asked)
    screen.print(labelled("Workers", Text.assemble(shares, " of the steps") if asked else Text("none")))
    bits = f"{table.routing_entropy_bits:.2f} bits of entropy over the workers (all to one: 0, an even spread: 3)"
    screen.print(labelled("Routing", bits))
    used, dollars = table.usage, float(table.usage.dollars)
    tokens = f"{used.input_tokens:,} tokens read, {used.output_tokens:,} written"
    each = f"${dollars:.4f} in all: ${dollars / max(1, table.questions):.6f} a question, at the gym's prices"
    screen.print(labelled("Cost", Text(f"{tokens}, {each}")), "")
    screen.print(labelled("In short", _verdict(table)))


def _accuracies(table: GymTable, room: int) -> Table:
    """Who is right how often. No figure is cut off: in a narrow room bars are shorter or left out, and names fold."""
    from rich import box
    from rich.table import Table

    best = _best_worker(table)
    rows = [(name, table.levels[key].value, key, style) for key, (name, style) in LEVELS.items()]
    for name, share in sorted(table.workers.items(), key=lambda entry: -entry[1]):
        note = " alone, the best worker" if name == best else " alone"
        rows.append((name + note, share, "best_worker" if name == best else "", "" if name == best else "dim"))
    rows.append(("random workflows", table.levels["random"].value, "random", ""))
    cells = min(BAR, room - max(len(name) for name, *_ in rows) - len("100.0%95 % interval") - 9)
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    made.add_column("", overflow="fold")
    made.add_column("right", justify="right", no_wrap=True, min_width=len("right") + 1)
    made.add_column("95 % interval", justify="right", no_wrap=True, min_width=len("95 % interval"))
    if cells >= SHORTEST_BAR:
        made.add_column("", no_wrap=True)
    for name, share, key, style in rows:
        level = table.levels[key] if key else None
        interval = "" if level is None else f"{100 * level.low:.1f} – {100 * level.high:.1f}"
        drawn = [bar(share, cells)] if cells >= SHORTEST_BAR else []
        made.add_row(name, f"{share:.1%}", interval, *drawn, style=style)
    return made


def _verdict(table: GymTable) -> Text:
    """The lead over the best worker and the best fixed workflow, and the share of the oracle."""
    from rich.text import Text

    ours, oracle = table.levels["conductor"], table.levels["oracle"]
    text = Text.assemble("The Conductor is right on ", (f"{ours.value:.1%}", "bold green"), " of the questions: ")
    leads: list[str] = []
    for key, name in (
        ("best_worker", f"the best worker alone ({_best_worker(table)})"),
        ("best_fixed", "the best fixed workflow"),
    ):
        other = table.levels[key]
        points = 100 * (ours.value - other.value)
        doubt = " (the intervals overlap)" if ours.low <= other.high and other.low <= ours.high else ""
        leads.append(f"{abs(points):.1f} percentage points {'above' if points >= 0 else 'below'} {name}{doubt}")
    text.append(", ".join(leads))
    if oracle.value > 0:
        text.append(f", and {ours.value / oracle.value:.1%} of what the oracle reaches")
    return text.append(".")


def _best_worker(table: GymTable) -> str:
    return max(table.workers.items(), key=lambda entry: entry[1])[0]


def _steps(count: float | None) -> str:
    return "none" if count is None else f"{count:.2f}"


def bar(share: float, whole: int = BAR) -> str:
    """A bar of a share in [0, 1], to the eighth of a cell; 1 is ``whole`` cells.

    >>> bar(0.05)
    '█▌'
    """
    full, eighths = divmod(round(8 * whole * max(0.0, min(1.0, share))), 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[eighths] * (eighths > 0)
