"""Whole plans played otherwise: on another question, as a constant, in other words.

``play_plans`` plays every plan of a system, all its rounds, in the ways that the verdict asks for.
``measure_plays`` makes the figures of them. ``docs/report.md`` gives the reasons.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from statistics import fmean
from typing import NamedTuple

from openconductor.evaluation import for_each
from openconductor.evaluation.counterfactual import Rounds, Seen, Watch
from openconductor.evaluation.eval_config import ALONE
from openconductor.evaluation.records import Record
from openconductor.evaluation.statistics import (
    Difference,
    Estimate,
    Key,
    Scores,
    cross_fitted,
    difference,
    grouped,
    mean_estimate,
)
from openconductor.measures import group_by
from openconductor.report.answers import answer_text, plain_words
from openconductor.report.plays.again import Again, AgainFigures, measure_again, pair_up
from openconductor.tasks.simulated import instructions_for
from openconductor.types import Problem, Step, Workflow, text_of

CONSTANTS = 5
"""The most frequent plans of a system that are each played for all questions."""
COMMON = 0.2
"""A word in more than this share of the plans is the planner's own, not a question's."""
BLANK = "…"
"""Stands in a constant for a question's own words and numbers."""
UNREAD = 0.05
"""The share of a worker's unread answers above which it is asked once more, in other words."""
LEAST_QUOTED = 3
"""The fewest words that count as a quoted question."""
FEW_ANSWERS = 12
"""The most different answers of a task that are taken for its choices."""


class Transplant(NamedTuple):
    """A plan that was played on another question of its kind.

    Attributes:
        key: the question that the plan was written for.
        follows: True if the answer was the one that the plan gave at home.
        chance: how often another choice was given, of those that neither question had at home.
    """

    key: Key
    follows: bool
    chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plays:
    """The scores of a system's plans, played otherwise, by question.

    Attributes:
        played: the number of different plays.
        own: the plan as it is.
        strangers: every step by another worker.
        silent: every step told only to solve the question.
        other_shape: another question's plan, told only to solve the question.
        other_words: the own shape with another question's subtasks, and another plan of its kind.
        constants: for all questions, each of the most frequent plans, the most frequent one without
            clauses that speak of one question, and the most frequent shape told only to solve it.
        transplants: the plans on other questions of their kind.
        in_form: of workers that could not be read in their own form (``unread_workers``), by
            system, in the planner's most frequent words and with double room.
        errors: of plans whose own answer is wrong, 1 if other workers give the same wrong answer,
            less 1 if the own workers give it without the plan's words.
        again: the planning that was repeated; None: it was not.
    """

    played: int
    own: Scores
    strangers: Scores
    silent: Scores
    other_shape: Scores
    other_words: Scores
    constants: tuple[Scores, ...]
    transplants: tuple[Transplant, ...]
    in_form: Mapping[str, Scores] = field(default_factory=dict[str, Scores])
    errors: Mapping[Key, float] = field(default_factory=dict[Key, float])
    again: Again | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayFigures:
    """The figures of whole plans' plays; a difference is None where nothing was decided.

    Attributes:
        questions, played: the numbers of questions and of different plays.
        follows: the share of transplants that gave the answer of the plan's home, less chance.
        share, chance: both shares.
        remaining: the lead over the best worker if what plans told counts only as much as chance;
            None: there is no best worker.
        shape: the own shape less another question's, both told only to solve the question.
        words: the own plan less another question's subtasks in its shape.
        silence: the own plan less the same, told only to solve the question.
        astray: another question's subtasks less none.
        strangers: other workers less the own ones.
        constant: the own plans less the best constant, chosen on the other half of the questions.
        constant_lead: that constant's lead over the best worker.
        errors: how much more often other workers make the errors of the own plan than its own
            workers do without its words; None: it makes none.
        again: what repeated planning shows; None: it was not repeated.
    """

    questions: int
    played: int
    follows: Estimate | None
    share: float
    chance: float
    remaining: Difference | None
    shape: Difference | None
    words: Difference | None
    silence: Difference | None
    astray: Difference | None
    strangers: Difference | None
    constant: Difference | None
    constant_lead: Difference | None
    errors: Estimate | None = None
    again: AgainFigures | None = None


# ── what can be read ──────────────────────────────────────────────────────────────────────────────
def is_read(record: Record) -> bool:
    """Return True if an answer was read; one that was declined, or cut and wrong, was not."""
    is_decided = record.status in ("graded", "judged")
    return is_decided and not (record.cut and not record.correct)


def unread_share(records: Sequence[Record]) -> float:
    """Return the share of decided answers that were not read."""
    decided = [record for record in records if record.correct is not None]
    return fmean(not is_read(record) for record in decided) if decided else 0.0


def unread_workers(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the systems of workers alone of whose answers too many could not be read."""
    alone = [record for record in records if record.system.startswith(ALONE)]
    by_system = group_by(alone, lambda record: record.system)
    return tuple(name for name, answers in by_system.items() if unread_share(answers) > UNREAD)


# ── plays ─────────────────────────────────────────────────────────────────────────────────────────
class _Play(NamedTuple):
    """Rounds that are played on a question for a repeat."""

    key: Key
    rounds: Rounds
    repeat: int
    roomy: bool = False


async def play_plans(
    records: Sequence[Record],
    problems: Mapping[Key, Problem],
    watch: Watch,
    workers: Mapping[int, str],
    *,
    unread: Sequence[str] = (),
    roomy: Watch | None = None,
    seed: int = 0,
    concurrency: int = 64,
    on_progress: Callable[[int, int], None] | None = None,
) -> Plays:
    """Play one plan of each question in every way of ``Plays``.

    Where a question was asked several times, or of several seeds, the plans take turns.

    Args:
        records: of one system, or of it and its siblings (``Siblings.join``).
        problems: by task and id.
        watch: plays rounds.
        workers: those that a step may go to, by ordinal.
        unread: the systems of workers that are asked once more (``unread_workers``).
        roomy: plays those with double room; None: as all others.
        seed: of the deals.
        concurrency: the most plays at once.
        on_progress: told how many plays are done, of how many.

    Raises:
        OpenConductorError: an error of ``watch`` whose fate is *stop*; what runs is cancelled.
    """
    planned = [record for record in records if record.workflows and record.key in problems]
    by_question = group_by(planned, lambda record: record.key)
    in_turn = [plans[place % len(plans)] for place, plans in enumerate(by_question.values())]
    deck = _Deck(in_turn, problems, workers, seed)
    ways = deck.deal()
    for system in unread:
        ways[system] = deck.alone(system)
    trials = list(deck.transplants())
    plays = [play for of_way in ways.values() for play in of_way]
    plays += [trial.play for trial in trials]
    distinct = dict.fromkeys(plays)
    seen: dict[_Play, Seen] = {}

    async def see(play: _Play) -> None:
        stage = roomy if play.roomy and roomy is not None else watch
        outcome = await stage(problems[play.key], play.rounds, play.repeat)
        seen[play] = Seen(outcome.score, plain_words(outcome.answer))
        if on_progress is not None:
            on_progress(len(seen), len(distinct))

    await for_each(distinct, see, limit=max(1, concurrency))
    # A plan on another question of its kind is told another question's words, too.
    ways["other_words"] += [trial.play for trial in trials if not trial.agrees]
    scores: dict[str, Scores] = {}
    for way, of_way in ways.items():
        scores[way] = grouped((play.key, seen[play].score) for play in of_way)
    constants = tuple(scores[way] for way in scores if way.startswith("constant"))
    return Plays(
        played=len(distinct),
        own=scores["own"],
        strangers=scores["strangers"],
        silent=scores["silent"],
        other_shape=scores["other_shape"],
        other_words=scores["other_words"],
        constants=constants,
        transplants=tuple(trial.result(seen[trial.play].answer) for trial in trials),
        in_form={system: scores[system] for system in unread},
        errors=_compare_errors(ways, seen),
    )


def _compare_errors(
    ways: Mapping[str, Sequence[_Play]], seen: Mapping[_Play, Seen]
) -> dict[Key, float]:
    """Return for each plan that errs if others err alike (``Plays.errors``)."""
    errors: dict[Key, float] = {}
    trios = zip(ways["own"], ways["strangers"], ways["silent"], strict=True)
    for own, strangers, silent in trios:
        wrong = seen[own]
        if wrong.score == 0.0 and wrong.answer:
            by_others = seen[strangers].answer == wrong.answer
            without_words = seen[silent].answer == wrong.answer
            errors[own.key] = float(by_others) - float(without_words)
    return errors


class _Trial(NamedTuple):
    """A plan on another question of its kind.

    Attributes:
        play: the play.
        key: the question that the plan was written for.
        told: the answer that it gave there.
        others: the choices that neither question had at home.
        agrees: True if both questions had the same answer, so that only noise gives another one.
    """

    play: _Play
    key: Key
    told: str
    others: frozenset[str]
    agrees: bool = False

    def result(self, answer: str) -> Transplant:
        """Return what an answer says."""
        if self.agrees:
            return Transplant(self.key, follows=False, chance=float(answer in self.others))
        named = answer in self.others
        chance = named / len(self.others) if self.others else 0.0
        return Transplant(self.key, answer == self.told, chance)


class _Deck:
    """The plans of a system, dealt out among its questions."""

    def __init__(
        self,
        records: Sequence[Record],
        problems: Mapping[Key, Problem],
        workers: Mapping[int, str],
        seed: int,
    ) -> None:
        self._records = records
        self._workers = workers
        self._seed = seed
        self._told: dict[Key, str] = {}
        self._questions = {record.key: text_of(problems[record.key].question) for record in records}
        self._answers = {record.key: answer_text(record) for record in records}
        for record in records:
            question = problems[record.key].question
            self._told[record.key] = instructions_for(question).solve(question)
        plain = blank_plans(records, problems)
        constants = Counter(plain).most_common(CONSTANTS)
        shared = Counter(map(keep_shared_clauses, plain)).most_common(1)
        self._constants = list(dict.fromkeys(rounds for rounds, _ in [*constants, *shared]))
        self._words = Counter(rounds[-1].steps[-1].subtask for rounds in plain).most_common(1)
        shapes = Counter(_reworded(record.workflows, [BLANK]) for record in records)
        self._shapes = [rounds for rounds, _ in shapes.most_common(1)]

    def deal(self) -> dict[str, list[_Play]]:
        """Return the plays of each way, except for transplants."""
        ways: dict[str, list[_Play]] = {}

        def add(way: str, record: Record, rounds: Rounds) -> None:
            ways.setdefault(way, []).append(_Play(record.key, rounds, record.sample))

        for way in ("own", "strangers", "silent", "other_shape", "other_words"):
            ways[way] = []
        for record, giver in self._pairs():
            told = self._told[record.key]
            words = [step.subtask for workflow in giver.workflows for step in workflow]
            add("other_shape", record, _reworded(giver.workflows, [told]))
            add("other_words", record, _reworded(record.workflows, words))
        for record in self._records:
            told = self._told[record.key]
            add("own", record, record.workflows)
            add("strangers", record, self._by_strangers(record))
            add("silent", record, _reworded(record.workflows, [told]))
            for place, rounds in enumerate(self._constants):
                add(f"constant {place}", record, rounds)
            for rounds in self._shapes:
                add("constant shape", record, _reworded(rounds, [told]))
        return ways

    def alone(self, system: str) -> list[_Play]:
        """Return the plays of one worker in the planner's most frequent words."""
        name = system.removeprefix(ALONE)
        ordinals = [ordinal for ordinal, known in self._workers.items() if known == name]
        plays: list[_Play] = []
        for record in self._records:
            for ordinal, (words, _) in zip(ordinals, self._words, strict=False):
                rounds = (Workflow((Step(ordinal, words),)),)
                plays.append(_Play(record.key, rounds, record.sample, roomy=True))
        return plays

    def _pairs(self) -> Iterator[tuple[Record, Record]]:
        """Yield each record with one of another question of its task."""
        rng = random.Random(f"giver/{self._seed}")
        for of_task in group_by(self._records, lambda record: record.task).values():
            order = list(of_task)
            rng.shuffle(order)
            yield from pair_up(order)

    def _by_strangers(self, record: Record) -> Rounds:
        rng = random.Random(f"strangers/{self._seed}/{record.task}/{record.problem}")
        rounds: list[Workflow] = []
        for workflow in record.workflows:
            steps: list[Step] = []
            for step in workflow:
                others = [ordinal for ordinal in self._workers if ordinal != step.worker]
                steps.append(replace(step, worker=rng.choice(others or [step.worker])))
            rounds.append(Workflow(tuple(steps)))
        return tuple(rounds)

    def transplants(self) -> Iterator[_Trial]:
        """Yield the plan of each record on another question of its kind.

        A subtask that quotes its question quotes the other one there: a worker that answers what is
        quoted was told no answer. The answers of the two questions at home differ. Where a task has
        two answers, no other choice tells chance, so the plan is played on a question with the same
        answer, too.
        """
        rng = random.Random(f"transplants/{self._seed}")
        choices = self._choices()
        by_kind = group_by(self._records, lambda record: (record.task, record.kind))
        for of_kind in by_kind.values():
            order = [record for record in of_kind if self._answers[record.key]]
            rng.shuffle(order)
            for place, record in enumerate(order):
                told = self._answers[record.key]
                known = choices[record.task]
                wanted = {True, False} if len(known) == 2 else {False}
                for host in order[place + 1 :] + order[:place]:
                    answer = self._answers[host.key]
                    agrees = answer == told
                    if agrees in wanted:
                        wanted.remove(agrees)
                        rounds = self._quoting_host(record, host)
                        play = _Play(host.key, rounds, host.sample)
                        others = known - {told, answer}
                        yield _Trial(play, record.key, told, others, agrees)
                    if not wanted:
                        break

    def _quoting_host(self, record: Record, host: Record) -> Rounds:
        """Return a plan that quotes the other question wherever it quoted its own."""
        own, other = self._questions[record.key], self._questions[host.key]
        texts = [requote(text, own, other) for text in _texts(record.workflows)]
        return _reworded(record.workflows, texts)

    def _choices(self) -> dict[str, frozenset[str]]:
        """Return the answers of each task, if they are few enough to be choices."""
        choices: dict[str, frozenset[str]] = {}
        for task, of_task in group_by(self._records, lambda record: record.task).items():
            answers = {self._answers[record.key] for record in of_task} - {""}
            choices[task] = frozenset(answers if len(answers) <= FEW_ANSWERS else ())
        return choices


def requote(text: str, own: str, other: str) -> str:
    """Return a text with another question in place of its own one, where that is word for word.

    The first line counts alone, too: it is the question without its choices.
    """
    first_lines = (own.splitlines()[0], other.splitlines()[0]) if own and other else (own, other)
    for quoted, instead in ((own, other), first_lines):
        words = quoted.split()
        if len(words) >= LEAST_QUOTED:
            pattern = re.compile(r"\s+".join(map(re.escape, words)))
            pieces = pattern.split(text)
            text = instead.join(pieces)
    return text


def _reworded(rounds: Rounds, words: Sequence[str]) -> Rounds:
    """Return the rounds with other subtasks, over and over in order."""
    supply = cycle(words)
    reworded: list[Workflow] = []
    for workflow in rounds:
        steps = [replace(step, subtask=next(supply)) for step in workflow]
        reworded.append(Workflow(tuple(steps)))
    return tuple(reworded)


def blank_plans(records: Sequence[Record], problems: Mapping[Key, Problem]) -> list[Rounds]:
    """Return a system's plans, each question's own words and numbers blanked."""
    plans = [record.workflows for record in records]
    used: Counter[str] = Counter()
    for rounds in plans:
        used.update({word for text in _texts(rounds) for word in _words(text)})
    common = {word for word, count in used.items() if count > COMMON * len(plans)}
    blanked: list[Rounds] = []
    for record in records:
        own = _words(text_of(problems[record.key].question)) - common
        texts = [_blanked(text, own, common) for text in _texts(record.workflows)]
        blanked.append(_reworded(record.workflows, texts))
    return blanked


def _texts(rounds: Rounds) -> list[str]:
    return [step.subtask for workflow in rounds for step in workflow]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def _blanked(text: str, own: set[str], common: set[str]) -> str:
    """Return a subtask without the question's own words, and without numbers of its own."""

    def blank(found: re.Match[str]) -> str:
        word = found[0].casefold()
        if word in own or (word not in common and any(map(str.isdigit, word))):
            return BLANK
        return found[0]

    return re.sub(r"\w+", blank, text)


def keep_shared_clauses(rounds: Rounds) -> Rounds:
    """Return blanked rounds without the clauses that speak of one question, as a guard does."""
    texts: list[str] = []
    for text in _texts(rounds):
        clauses = re.split(r"(?<=[.,:;!?])\s+", text)
        shared = [clause for clause in clauses if BLANK not in clause]
        texts.append(" ".join(shared) or text)
    return _reworded(rounds, texts)


# ── figures ───────────────────────────────────────────────────────────────────────────────────────
def measure_plays(
    plays: Plays, records: Sequence[Record], best: Scores, seed: int = 0
) -> PlayFigures:
    """Measure what plays show.

    Args:
        plays: the plays of a system's plans.
        records: the system's.
        best: the scores of the best worker; empty: there is none.
        seed: of the bootstraps.
    """
    beyond = grouped((trial.key, trial.follows - trial.chance) for trial in plays.transplants)
    sums = [sum(values) for values in beyond.values()]
    share = chance = 0.0
    if sums:
        share = sum(trial.follows for trial in plays.transplants) / len(sums)
        chance = sum(trial.chance for trial in plays.transplants) / len(sums)
    constant = cross_fitted(plays.constants, list(plays.own))
    return PlayFigures(
        questions=len(plays.own),
        played=plays.played,
        follows=_estimate(sums),
        share=share,
        chance=chance,
        remaining=difference(_credits(plays, records, share, chance), best, seed, pooled=True),
        shape=difference(plays.silent, plays.other_shape, seed, pooled=True),
        words=difference(plays.own, plays.other_words, seed, pooled=True),
        silence=difference(plays.own, plays.silent, seed, pooled=True),
        astray=difference(plays.other_words, plays.silent, seed, pooled=True),
        strangers=difference(plays.strangers, plays.own, seed, pooled=True),
        constant=difference(plays.own, constant, seed, pooled=True),
        constant_lead=difference(constant, best, seed, pooled=True),
        errors=_estimate(list(plays.errors.values())),
        again=None if plays.again is None else measure_again(plays.again, seed),
    )


def _estimate(values: Sequence[float]) -> Estimate | None:
    """Return the mean with its interval; None: there are fewer than two."""
    if len(values) < 2:
        return None
    return mean_estimate(values)


def _credits(
    plays: Plays, records: Sequence[Record], share: float, chance: float
) -> dict[Key, list[float]]:
    """Return the system's scores, in which what the plan alone told counts as much as chance.

    Of the plans that follow, as many do so by chance as bring another choice; these told nothing.
    """
    followed = {trial.key for trial in plays.transplants if trial.follows}
    told = max(0.0, share - chance) / share if share else 0.0
    credit = 1 - told * (1 - chance)
    credited: list[tuple[Key, float | None]] = []
    for record in records:
        score = None if record.correct is None else float(record.correct)
        if record.correct and record.key in followed:
            score = credit
        credited.append((record.key, score))
    return grouped(credited)
