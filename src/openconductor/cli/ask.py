"""``openconductor ask``: ask one question of a Conductor and a pool.

The answer goes to stdout, or with ``--json`` the Episode. A terminal also gets the live picture of
the episode and its bill, on stderr.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

import openconductor as oc
from openconductor.calls.dispatcher import FanOut
from openconductor.calls.worker import run_blocking
from openconductor.cli import console, options
from openconductor.cli.bill import bill, say_interrupted
from openconductor.cli.live import EpisodeView, live_view
from openconductor.events import CallEnded, Chosen, Event, Planned, RoundEnded, StepStarted
from openconductor.gym.questions import UNREADABLE, is_readable
from openconductor.gym.workers import gym_pool
from openconductor.ledger import draw_up
from openconductor.prompt import QUESTION_LIMIT, check_question, find_answer_form
from openconductor.protocols import OnEvent, Orchestrator
from openconductor.store import CompletionStore, open_store
from openconductor.store.episode_json import episode_json
from openconductor.traces import TracesTable, open_traces

CIRCUIT_OPEN = "it failed too often recently; nothing was sent"
REASON_CHARACTERS = 120  # shown of why a worker failed


@options.spread
def ask(  # noqa: PLR0913 - the options of a command
    question: Annotated[
        str, typer.Argument(help="The question; - reads it from stdin.", show_default=False)
    ],
    *,
    run: options.Run = None,
    system: Annotated[
        str | None,
        typer.Option("--system", help="With --from: the system that answers.", show_default="auto"),
    ] = None,
    pool: options.PoolFile = None,
    conductor: options.PlannerName = None,
    how: options.AnswerOptions,
    seed: Annotated[
        int | None, typer.Option("--seed", help="The seed of the gym's answers (default 0).")
    ] = None,
    journal: options.Journal = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="With --journal: make all calls again, and keep them too."),
    ] = False,
    traces: options.Traced = False,
    as_json: options.AsJson = False,
) -> None:
    """Ask one question: a Conductor plans, workers answer."""
    text = _read_stdin() if question == "-" else question
    check_question(text)
    if fresh and journal is None:
        raise oc.ConfigError("--fresh requires --journal")
    if run is None:
        if system is not None:
            raise oc.ConfigError("--system requires --from RUN")
        simulated = pool is None
        workers = _load_pool(text, pool, seed)
        planned = how.open_conductor(conductor, workers, simulated=simulated)
        form = find_answer_form(text, planned.prompt.answer_forms)
        if form:
            console.say(f"for workers only, the Conductor is not shown: {form}")
        source = _Source(planned.pool, simulated, partial(_replaying, planned))
    else:
        given = {"--conductor": conductor, "--seed": seed, **how.of_conductor}
        options.check_measured(given, "ask")
        source = _open_run(run, pool, system, how)
        if source.simulated:
            _check_readable(text)
    with open_traces(TracesTable() if traces else None) as tracing:
        episode = _ask_once(
            source, text, how.budget, journal, tracing, fresh=fresh, as_json=as_json
        )
        _show_answer(episode, source.pool.names, as_json=as_json)


def _ask_once(
    source: _Source,
    question: str,
    budget: oc.Budget,
    journal: str | None,
    tracing: OnEvent | None,
    *,
    fresh: bool,
    as_json: bool,
) -> oc.Episode:
    """Ask, and keep and trace the calls; an error shows the episode that it ended."""
    names = source.pool.names
    listener = Listener(names, verbose=not console.messages().is_interactive)
    try:
        with nullcontext() if journal is None else open_store(journal) as sink:
            orchestrator = source.open(None if fresh else sink)
            sinks = [each for each in (sink, tracing, listener) if each is not None]
            return _ask(orchestrator, source, question, budget, FanOut(*sinks))
    except KeyboardInterrupt:
        _say_how_to_resume(listener, journal, fresh)
        raise
    except oc.OpenConductorError as error:
        if as_json and error.episode is not None and error.episode.rounds:
            console.show_json(episode_json(error.episode, names))
        raise


def _show_answer(episode: oc.Episode, names: Mapping[int, str], *, as_json: bool) -> None:
    """Print an episode that has ended, or fail with its error."""
    if as_json:
        console.show_json(episode_json(episode, names))
    if isinstance(episode.error, oc.WorkflowError):
        message = f"the Conductor wrote no workflow: {episode.error}"
        console.fail(message, hint="--json shows its text.")
    if episode.answer is None:
        raise episode.error or oc.OpenConductorError("no answer and no error")
    if not as_json:
        console.show_text(episode.answer)


def _read_stdin() -> str:
    """Return the text on stdin, without the line break at its end."""
    most_bytes = 4 * QUESTION_LIMIT  # no character of UTF-8 has more than four
    data = sys.stdin.buffer.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise oc.ConfigError(
            f"stdin: got more than {most_bytes} bytes, expected at most {QUESTION_LIMIT} characters"
        )
    try:
        return data.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        message = f"stdin: byte {error.start} is not UTF-8; expected a question in UTF-8"
        raise oc.ConfigError(message) from error


def _load_pool(question: str, pool_file: Path | None, seed: int | None) -> oc.WorkerPool:
    """Return the workers of the pool file, or the gym's if they can read the question."""
    if pool_file is not None:
        if seed is not None:
            raise oc.ConfigError("--seed is for the gym's workers; leave it out with --pool")
        return oc.WorkerPool.from_toml(pool_file)
    hint = options.pool_file_hint()
    _check_readable(question, hint)
    if hint:
        console.say(hint)
    return gym_pool(seed or 0)


def _check_readable(question: str, hint: str = "") -> None:
    """Check that the gym's workers can read the question; ``hint`` helps if they cannot."""
    if not is_readable(question):
        another = (
            "`openconductor gym question` shows another. Any other question requires a pool and a "
            "Conductor: --pool pool.toml --conductor openai:MODEL"
        )
        console.fail(UNREADABLE, hint=hint or another)


# ── who answers ───────────────────────────────────────────────────────────────────────────────────
class _Source(NamedTuple):
    """Where an answer comes from.

    Attributes:
        pool: the workers.
        simulated: True if they are the gym's.
        open: opens the system that answers; it gets the journal that it replays, or None.
    """

    pool: oc.WorkerPool
    simulated: bool
    open: Callable[[CompletionStore | None], Orchestrator]


def _replaying(conductor: oc.Conductor, store: CompletionStore | None) -> oc.Conductor:
    return conductor if store is None else conductor.replaying(store)


def _open_run(
    folder: Path, pool_file: Path | None, system: str | None, how: options.AnswerOptions
) -> _Source:
    """Open a system of a run; None: ``auto``, and say what that is."""
    from openconductor.cli.runs import require_evaluation
    from openconductor.evaluation.eval_config import GYM
    from openconductor.serving.measured import AUTO, MeasuredRun, for_users

    name = system or AUTO
    require_evaluation(folder)
    measured = MeasuredRun(folder, None if pool_file is None else str(pool_file))

    def open_system(store: CompletionStore | None) -> Orchestrator:
        measured.workshop.journal = store
        return for_users(
            measured.make(name),
            fallback=how.fallback,
            on_no_plan=how.on_no_plan or "default_worker",
            direct_below_tokens=how.direct_below_tokens,
        )

    open_system(None)  # whatever is missing is said before anything is written
    if name == AUTO:
        console.say(measured.say_auto())
    return _Source(measured.pool, measured.config.pool == GYM, open_system)


def _ask(
    orchestrator: Orchestrator,
    source: _Source,
    question: str,
    budget: oc.Budget,
    on_event: OnEvent,
) -> oc.Episode:
    """Ask; on a terminal show the live picture and the bill."""

    def ask(sink: OnEvent) -> oc.Episode:
        return run_blocking(lambda: orchestrator.ask(question, budget=budget, on_event=sink))

    screen = console.messages()
    if not screen.is_interactive:
        return ask(on_event)
    view = EpisodeView(question, source.pool.names, simulated=source.simulated)
    episode: oc.Episode | None = None
    try:
        with live_view(view, screen):
            episode = ask(FanOut(on_event, view))
            return episode
    except oc.OpenConductorError as error:
        if error.episode is not None and error.episode.rounds:
            episode = error.episode
        raise
    finally:
        if episode is not None:
            screen.print(bill(draw_up(episode)))
        screen.print()


def _say_how_to_resume(listener: Listener, journal: str | None, fresh: bool) -> None:
    command = "the same command"
    if fresh:
        command += " without --fresh"
    elif journal is None:
        command += ", which makes all calls again (with --journal FILE it would not)"
    say_interrupted(listener.calls, listener.usage, command, kept=journal is not None)


# ── without a live picture ────────────────────────────────────────────────────────────────────────
@dataclass(slots=True)
class Attempted:
    """A step's worker, and how the last attempt at it ended."""

    worker: int
    reason: str = CIRCUIT_OPEN


@dataclass(slots=True)
class Listener:
    """Adds up what an episode spends, as its ``on_event``, and says who takes over a failed step.

    Attributes:
        names: the workers' names, by ordinal.
        verbose: True to print a line on stderr when a step falls back to another worker.
        calls, usage: what was paid so far.
        steps: the attempts at the steps of the round.
    """

    names: Mapping[int, str]
    verbose: bool
    calls: int = 0
    usage: oc.Usage = field(default_factory=oc.Usage)
    steps: dict[int, Attempted] = field(default_factory=dict[int, Attempted])
    wants_text: bool = False

    def __call__(self, event: Event) -> None:
        """Take an event in."""
        match event:
            case Planned(workflow=workflow):
                self.steps = {
                    index: Attempted(step.worker) for index, step in enumerate(workflow or ())
                }
            case Chosen():
                self.steps = {0: Attempted(self._say_choice(event))}
            case StepStarted(step=index, worker=worker):
                # A system that announces no workflow begins each step with its own worker.
                previous = self.steps.setdefault(index, Attempted(worker))
                if worker != previous.worker:
                    self._say_fallback(index, previous, worker)
                    self.steps[index] = Attempted(worker)
            case CallEnded(call=call, step=index):
                if not call.replayed:
                    self.calls += 1
                    self.usage += call.usage
                if index is not None:
                    self.steps[index].reason = _reason(call)
            case RoundEnded():
                self.steps = {}
            case _:
                pass

    def _say_choice(self, event: Chosen) -> int:
        """Say who answers without a plan, and why; return its ordinal."""
        (step,) = event.workflow
        if self.verbose:
            reason = "the question is short" if event.reason is None else f"no plan: {event.reason}"
            console.say(f"{reason}; {self.names[step.worker]} answers alone")
        return step.worker

    def _say_fallback(self, index: int, previous: Attempted, worker: int) -> None:
        if self.verbose:
            failed = f"{self.names[previous.worker]} failed ({previous.reason})"
            console.say(f"step {index}: {failed}; {self.names[worker]} takes over")


def _reason(call: oc.Call) -> str:
    """Say in short how a call ended."""
    if call.error is None:
        reasons = {"answered": "a blank answer", "cut": "cut before any text"}
        return reasons.get(call.outcome, call.outcome)
    error = call.error
    message = error.message if isinstance(error, oc.WorkerError) else str(error)
    if len(message) > REASON_CHARACTERS:
        message = f"{message[:REASON_CHARACTERS]}…"
    return f"{call.outcome}: {message}"
