"""``openconductor demo``: the trained Conductor in the gym, first one question live, then hundreds.

The live picture goes to stderr, the table to stdout; with ``--json`` only the table's values.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.text import Text

from openconductor.calls.dispatcher import FanOut
from openconductor.cli import console
from openconductor.cli.console import labelled
from openconductor.cli.live import EpisodeView, colour_of, live_view
from openconductor.cli.options import AsJson
from openconductor.conductor import Conductor
from openconductor.config import needing
from openconductor.evaluation.eval_config import find_planner
from openconductor.evaluation.gym_table import GymTable, gym_table
from openconductor.gym.questions import EXAMPLE, draw_questions
from openconductor.gym.workers import PROFILES, gym_pool
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext, OnEvent, OnText, Provider
from openconductor.providers import resolve
from openconductor.store import open_store
from openconductor.types import Completion, Message, Sampling, Usage

PACE = 0.3  # seconds that a simulated second takes in the live picture
SEARCHED = 100  # questions among which the live one is chosen
JOURNAL = Path("runs/demo/journal.sqlite")  # where --view keeps it; `view` finds it there
BAR = 14  # cells of a bar of 100 %
WIDE = 80  # columns from which bars are drawn

Name = TypeVar("Name", bound=str)


def demo(
    questions: Annotated[
        int, typer.Option("--questions", min=1, help="How many held-out questions.")
    ] = 400,
    seed: Annotated[
        int,
        typer.Option("--seed", min=0, help="The seed of the questions and the workers' answers."),
    ] = 0,
    conductor: Annotated[
        Path | None, typer.Option("--conductor", help="The folder of another Conductor.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", help="A worker to leave out; repeatable.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", "--no-live", help="Only the table.")] = False,
    journal: Annotated[
        Path | None, typer.Option("--journal", help="A file that keeps what the Conductor does.")
    ] = None,
    view: Annotated[
        bool, typer.Option("--view", help=f"Look at it in a browser then (kept in {JOURNAL}).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a trained Conductor at work in the gym: no key, no GPU."""
    if view:
        with needing("demo --view", "ui"):
            import_module("openconductor.ui.site")  # what is absent is said before the demo
        journal = journal or JOURNAL
    pool = gym_pool(seed)
    absent = {pool.ordinal_of(name) for name in without or ()}
    present = [ordinal for ordinal in pool.ordinals if ordinal not in absent]
    pool = pool.subset(present)
    name = None if conductor is None else str(conductor)
    asked = Conductor(find_planner(name, pool), pool=pool)
    with _kept(journal) as store:
        if not quick and not as_json:
            _play_one(asked, seed, store)
        with console.progress_bar("asking", quiet=True) as advance:
            measured = gym_table(
                asked, questions=questions, seed=seed, on_progress=advance, on_event=store
            )
            table = asyncio.run(measured)
    if as_json:
        console.show_json(table.to_json())
    else:
        show_gym_table(table)
    if view:
        from openconductor.cli.serve import serve_demo

        serve_demo(str(journal))
    elif not quick and not as_json:
        _say_next(journal)


def _kept(journal: Path | None) -> AbstractContextManager[OnEvent | None]:
    """Open the journal, in a folder that is made if it is absent; None: nothing is kept."""
    if journal is None:
        return nullcontext()
    journal.parent.mkdir(parents=True, exist_ok=True)
    return open_store(journal)


def _say_next(journal: Path | None) -> None:
    """Print the commands to type next."""
    look = ["demo", "--view"] if journal is None else ["view", str(journal)]
    program = console.own_path()
    console.say(
        f"\nAsk a question of your own next:\n  {shlex.join([program, 'ask', EXAMPLE])}\n"
        f"Look at what it did in a browser:\n  {shlex.join([program, *look])}"
    )


# ── one question, live ────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class PacedWorker(Provider):
    """A simulated worker that takes its time before it answers."""

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


def _play_one(conductor: Conductor, seed: int, store: OnEvent | None) -> None:
    """Show the seed's first smudged question: its steps run side by side, and a check pays."""
    drawn = draw_questions("test", SEARCHED, seed=seed)
    question = next((question for question in drawn if question.smudged), drawn[0])
    workers: dict[int, Worker] = {}
    for ordinal, worker in conductor.pool:
        seconds = PACE * PROFILES[ordinal].seconds
        paced = PacedWorker(resolve(worker.provider), seconds)
        workers[ordinal] = Worker(paced, name=worker.name, price=worker.price)
    pool = WorkerPool(workers)
    screen = console.messages()
    view = EpisodeView(
        question.text, pool.names, expected=" ".join(question.answer), simulated=True
    )
    screen.print(
        "One question first. The workers are simulated; "
        f"their seconds pass {1 / PACE:.0f} times as fast here.\n"
    )
    with live_view(view, screen):
        sinks = [view] if store is None else [view, store]
        replace(conductor, pool=pool).ask_sync(question.text, on_event=FanOut(*sinks))
    screen.print()


# ── the table ─────────────────────────────────────────────────────────────────────────────────────
def show_gym_table(table: GymTable) -> None:
    """Print the accuracies, how the Conductor works, and its lead."""
    best = max(table.workers, key=lambda name: table.workers[name])
    title = (f"{table.questions:,} held-out questions of the gym", "bold")
    console.show(Text.assemble(title, f", seed {table.seed}, in {table.seconds:.1f} s"))
    _show_accuracies(table, best)
    shapes = [f"{name} {share:.0%}" for name, share in _descending(table.topology_share)]
    console.show(
        "",
        labelled("Workflows", _validity_text(table)),
        labelled("Steps", _steps_text(table)),
        labelled("Shapes", ", ".join(shapes) or "none"),
        labelled("Workers", _workers_text(table)),
        labelled(
            "Routing",
            f"{table.routing_entropy_bits:.2f} bits of entropy over the workers "
            "(all to one: 0, an even spread: 3)",
        ),
        labelled("Cost", _cost_text(table.usage, table.questions)),
        "",
        labelled("In short", _summary(table, best)),
    )


def _show_accuracies(table: GymTable, best: str) -> None:
    """Print the accuracies, with bars if there is room."""
    names = {
        "oracle": "oracle: the best workflow of each question",
        "conductor": "Conductor",
        "vote": f"vote of {table.votes} answers of {best}, equal cost",
        "best_fixed": "best fixed workflow",
        "best_worker": f"{best} alone, the best worker",
        "random": "random workflows",
    }
    styles = {"oracle": "bold", "conductor": "bold green"}
    rows: list[list[Text]] = []
    for key, name in names.items():
        if key in table.levels:
            level = table.levels[key]
            interval = f"{100 * level.low:.1f} – {100 * level.high:.1f}"
            rows.append(_accuracy_row(name, level.value, interval, styles.get(key, "")))
    for name, share in _descending(table.workers):
        if name != best:
            rows.insert(-1, _accuracy_row(f"{name} alone", share, "", "dim"))
    head = ["", "right", "95 % interval"]
    if console.results().width >= WIDE:
        head.append("")  # a column without a head is not printed
    console.show_table(head, rows, words=(0, 3))


def _accuracy_row(name: str, share: float, interval: str, style: str) -> list[Text]:
    texts = (name, f"{share:.1%}", interval, bar(share))
    return [Text(text, style=style) for text in texts]


def _validity_text(table: GymTable) -> str:
    text = f"{table.validity:.1%} are valid"
    if table.accuracy_given_valid is not None:
        text += f"; of the valid, {table.accuracy_given_valid:.1%} are right"
    if table.masked:
        text += f"; {table.masked} could not be decided and are left out"
    return text


def _steps_text(table: GymTable) -> str:
    by_kind = table.mean_steps_by_kind
    kinds = " → ".join(f"{kind} {_mean_text(mean)}" for kind, mean in by_kind.items())
    return f"{_mean_text(table.mean_steps)} on average; {kinds}"


def _mean_text(mean: float | None) -> str:
    return "none" if mean is None else f"{mean:.2f}"


def _workers_text(table: GymTable) -> Text:
    colours = {profile.name: colour_of(ordinal) for ordinal, profile in enumerate(PROFILES)}
    parts: list[Text] = []
    for name, share in _descending(table.worker_share):
        if share > 0:
            parts.append(Text.assemble((name, colours.get(name, "")), f" {share:.0%}"))
    if not parts:
        return Text("none")
    return Text.assemble(Text(", ").join(parts), " of the steps")


def _cost_text(usage: Usage, questions: int) -> str:
    dollars = float(usage.dollars)
    tokens = f"{usage.input_tokens:,} tokens read, {usage.output_tokens:,} written"
    each = f"${dollars / max(1, questions):.6f} a question, at the gym's prices"
    return f"{tokens}, ${dollars:.4f} in all: {each}"


def _summary(table: GymTable, best: str) -> Text:
    """State the leads over the references, the fairest first, and the oracle's share."""
    vote = f"a vote of the best worker's answers at equal cost ({table.votes} of {best})"
    parts = [
        _lead_text(table, "vote", vote),
        _lead_text(table, "best_worker", f"the best worker alone ({best})"),
    ]
    if "best_fixed" in table.levels:
        parts.append(_lead_text(table, "best_fixed", "the best fixed workflow"))
    right = table.levels["conductor"].value
    oracle = table.levels["oracle"].value
    if oracle > 0:
        parts.append(f"and {right / oracle:.1%} of what the oracle reaches")
    share = (f"{right:.1%}", "bold green")
    leads = ", ".join(parts)
    return Text.assemble("The Conductor is right on ", share, f" of the questions: {leads}.")


def _lead_text(table: GymTable, key: str, name: str) -> str:
    ours = table.levels["conductor"]
    other = table.levels[key]
    points = 100 * (ours.value - other.value)
    side = "above" if points >= 0 else "below"
    text = f"{abs(points):.1f} percentage points {side} {name}"
    if ours.low <= other.high and other.low <= ours.high:
        text += " (the intervals overlap)"
    return text


def _descending(shares: Mapping[Name, float]) -> list[tuple[Name, float]]:
    return sorted(shares.items(), key=lambda item: -item[1])


def bar(share: float) -> str:
    """Return a bar for a share in [0, 1], to the eighth of a cell.

    >>> bar(0.25)
    '███▌'
    """
    cells = round(8 * BAR * share)
    full, eighths = divmod(cells, 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[eighths].strip()
