"""``openconductor ask``: one question, answered by a Conductor and a pool.

In: a question and, by option, a pool file, a Conductor, a journal. Out: the answer on stdout, or
with ``--json`` the Episode; on a terminal the picture of the episode on stderr, as it happens, and
its bill.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer

import openconductor as oc
from openconductor.cli import console, options
from openconductor.cli.live import EpisodeView, bill, filling_in, say_interrupted
from openconductor.episode import FanOut
from openconductor.evaluation.eval_config import find_planner
from openconductor.events import CallEnded, Event, Planned, StepStarted
from openconductor.gym.questions import read_question
from openconductor.gym.workers import gym_pool
from openconductor.ledger import draw_up
from openconductor.prompt import QUESTION_LIMIT, check_question
from openconductor.protocols import OnEvent
from openconductor.store import open_store
from openconductor.store.episode_json import episode_json

CLOSED = "it has failed too often just now: nothing was sent"
WHY = 120  # characters of why a worker failed
EXAMPLE = "Take 4 17 9, sort the list, then double every number."


def ask(  # noqa: PLR0913, PLR0917 - the options of a command
    question: Annotated[
        str, typer.Argument(help="The question; - reads it from stdin.", show_default=False)
    ],
    pool: options.PoolFile = None,
    conductor: options.PlannerName = None,
    base_url: options.BaseUrl = None,
    key_env: options.KeyEnv = None,
    max_steps: options.MaxSteps = None,
    rounds: options.Rounds = 1,
    calls: options.AnswerCalls = None,
    tokens: options.AnswerTokens = None,
    dollars: options.AnswerDollars = None,
    seconds: options.AnswerSeconds = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Draws the gym's answers (default 0).")
    ] = None,
    fallback: options.Fallback = True,
    journal: Annotated[
        Path | None, typer.Option("--journal", help="Keeps all calls; none is paid for twice.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="With --journal: make all calls anew, and add them.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Ask one question: a Conductor plans, workers answer."""
    text = _read(question)
    budget = oc.Budget(calls, tokens, None if dollars is None else Decimal(dollars), seconds)
    if fresh and journal is None:
        raise oc.ConfigError(
            "--fresh: makes calls anew that a journal holds; expected --journal beside it"
        )
    workers = _pool(text, pool, seed)
    planner = find_planner(
        conductor, workers, base_url=base_url, key_env=key_env, simulated=pool is None
    )
    asked = oc.Conductor(
        planner, pool=workers, max_steps=max_steps, max_rounds=rounds, fallback=fallback
    )
    names = {ordinal: worker.name for ordinal, worker in workers}
    listener = Listener(names, aloud=not console.messages().is_interactive)
    try:
        with nullcontext() if journal is None else open_store(journal) as sink:
            if sink is not None and not fresh:
                asked = asked.replaying(sink)
            listening = listener if sink is None else FanOut(sink, listener)
            episode = _ask(asked, text, budget, listening, simulated=pool is None)
    except KeyboardInterrupt:
        kept = "" if journal is not None else ", which asks anew (with --journal FILE it would not)"
        again = f"the same command{' without --fresh' if fresh else kept}"
        say_interrupted(listener.calls, listener.usage, again, kept=journal is not None)
        raise
    except oc.OpenConductorError as error:
        if as_json and error.episode is not None and error.episode.rounds:
            console.show_json(episode_json(error.episode, names))
        raise
    if as_json:
        console.show_json(episode_json(episode, names))
    if isinstance(episode.error, oc.WorkflowError):
        console.fail(
            f"the Conductor wrote no workflow: {episode.error}", hint="--json shows what it wrote."
        )
    if episode.answer is None:
        raise episode.error or oc.OpenConductorError("no answer and no error")
    if not as_json:
        console.show_text(episode.answer)


def _read(question: str) -> str:
    """The question, from the command line or from stdin (its last line break is no part of it)."""
    if question == "-":
        most = 4 * QUESTION_LIMIT  # bytes; no character of UTF-8 has more than four
        data = sys.stdin.buffer.read(most + 1)
        if len(data) > most:
            raise oc.ConfigError(
                f"stdin: got more than {most} bytes, expected at most {QUESTION_LIMIT} characters"
            )
        try:
            question = data.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise oc.ConfigError(
                f"stdin: byte {error.start} is not UTF-8; expected a question in UTF-8"
            ) from error
    check_question(question)
    return question


def _pool(question: str, pool_file: Path | None, seed: int | None) -> oc.WorkerPool:
    """The workers: those of the pool file, or the gym's, who must be able to read the question."""
    if pool_file is not None:
        if seed is not None:
            raise oc.ConfigError(
                "--seed: draws the gym's answers, got a pool file beside it; expected one of them"
            )
        return oc.WorkerPool.from_toml(pool_file)
    if read_question(question) is None:
        console.fail(
            "the gym cannot read this question: its simulated workers know only lists of numbers and a small English, "
            f"such as: {EXAMPLE}",
            hint="`openconductor gym question` shows another. For any other question name a pool and a Conductor: "
            "--pool pool.toml --conductor openai:MODEL",
        )
    return gym_pool(seed or 0)


def _ask(
    conductor: oc.Conductor,
    question: str,
    budget: oc.Budget,
    listening: OnEvent,
    *,
    simulated: bool,
) -> oc.Episode:
    """Ask, with the live picture and the bill where stderr is a terminal."""
    screen = console.messages()
    if not screen.is_interactive:
        return conductor.ask_sync(question, budget=budget, on_event=listening)
    view = EpisodeView(question, conductor.pool, simulated=simulated)
    stopped: oc.Episode | None = None
    try:
        with filling_in(view, screen):
            episode = stopped = conductor.ask_sync(
                question, budget=budget, on_event=FanOut(listening, view)
            )
            return episode
    except oc.OpenConductorError as error:
        stopped = error.episode if error.episode is not None and error.episode.rounds else None
        raise
    finally:
        if stopped is not None:
            screen.print(bill(draw_up(stopped)))
        screen.print()


# ── what is said where there is no picture ────────────────────────────────────────────────────────
@dataclass(slots=True)
class Listener:
    """Hears what an episode spends (it is an ``on_event``), and ``aloud`` it says who takes over from whom, and why.

    Attributes:
        names: the workers', by ordinal.
        aloud: whether each fallback to another worker is a line on stderr.
        calls, usage: what was paid until now.
        asked: of each step of the round, who has it, and how the last attempt at it ended.
    """

    names: Mapping[int, str]
    aloud: bool
    calls: int = 0
    usage: oc.Usage = field(default_factory=oc.Usage)
    asked: dict[int, tuple[int, str]] = field(default_factory=dict[int, tuple[int, str]])
    wants_text: bool = False

    def __call__(self, event: Event) -> None:
        """Take an event in."""
        match event:
            case Planned(workflow=workflow):
                self.asked = {
                    index: (step.worker, CLOSED) for index, step in enumerate(workflow or ())
                }
            case StepStarted(step=step, worker=worker):
                before, why = self.asked[step]
                if self.aloud and worker != before:
                    left, right = self.names[before], self.names[worker]
                    console.say(f"step {step}: {left} failed ({why}); {right} takes over")
                self.asked[step] = (worker, CLOSED if worker != before else why)
            case CallEnded(call=call, step=step):
                if not call.replayed:
                    self.calls, self.usage = self.calls + 1, self.usage + call.usage
                if step is not None:
                    self.asked[step] = (self.asked[step][0], _why(call))
            case _:
                pass


def _why(call: oc.Call) -> str:
    """How a call ended, in short."""
    if call.error is None:
        return {"answered": "a blank answer", "cut": "cut before any text"}.get(
            call.outcome, call.outcome
        )
    said = call.error.message if isinstance(call.error, oc.WorkerError) else str(call.error)
    return f"{call.outcome}: {said if len(said) <= WHY else f'{said[:WHY]}…'}"
