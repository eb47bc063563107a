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
from openconductor.cli.progress import progress_bar

if TYPE_CHECKING:
    from openconductor.conductor import Planner
    from openconductor.gym.questions import GymQuestion
    from openconductor.protocols import CallContext, OnText, Provider
    from openconductor.types import Completion, Message, Sampling

PACE = 0.3  # a simulated second lasts so long in the live picture
LOOKED_AT = 100  # questions among which the live one is sought


def demo(
    questions: Annotated[int, typer.Option("--questions", min=1, help="How many held-out questions.")] = 400,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Draws the questions and the workers' answers.")] = 0,
    conductor: Annotated[
        Path | None, typer.Option("--conductor", help="Another Conductor's folder (default: the bundled one).")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", "--no-live", help="Only the table, without the live question before it.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the table's values as JSON, and nothing else.")
    ] = False,
) -> None:
    """Watch a trained Conductor orchestrate eight simulated workers: no key, no GPU."""
    import asyncio

    from openconductor.cli.conductors import find_planner
    from openconductor.conductor import Conductor
    from openconductor.evaluation.gym_table import gym_table
    from openconductor.gym.workers import gym_pool

    pool = gym_pool(seed)
    playing = Conductor(find_planner(None if conductor is None else str(conductor), pool), pool=pool)
    if not quick and not as_json:
        _play_one(playing.planner, seed)
    with progress_bar("asking") as advance:
        table = asyncio.run(gym_table(playing, questions=questions, seed=seed, on_progress=advance))
    if as_json:
        console.show_json(table.to_json())
        return
    from openconductor.cli.gym_report import GymReport

    console.show(GymReport(table.to_json()))


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
