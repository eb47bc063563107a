"""A world of questions, workers and planners whose truth is known, for the tests of the verdict.

A question has one right answer of a few, a kind, a topic and a difficulty of its own. ``World``
plays workflows: what a worker answers hangs on its skill, on the subtask, and on what it sees.
Everything is drawn by the seed, the question and the call, so that a call that is made again has
the same answer, as from a journal. Records, plays and verdicts are the project's own.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property

from openconductor.evaluation.counterfactual import Rounds, Seen
from openconductor.evaluation.records import Record, RoundRecord, Status
from openconductor.evaluation.sheets import KeptQuestion
from openconductor.evaluation.statistics import Key
from openconductor.prompt import SOLVE_SUBTASK
from openconductor.report import Judgement, judge, measure_orchestration
from openconductor.report.answers import merge_questions
from openconductor.report.orchestration import NO_SIBLINGS, Orchestration, Siblings
from openconductor.report.plays.again import AGAIN, Again, measure_again, plan_again
from openconductor.report.plays.transplants import Plays, play_plans, unread_workers
from openconductor.types import Problem, Round, Step, Usage, Workflow

KINDS = ("algebra", "history", "physics", "law")
TOPICS = ("red", "green", "blue", "grey", "white")
LETTERS = "ABCD"
NAMES = ("anna", "bert", "cora", "dora")
SKILLS = (0.65, 0.55, 0.50, 0.50)
OBEYS = 0.95  # how often a worker does what it is told
EXPERT = "Take your time, as an expert would, and solve it."


@dataclass(frozen=True)
class Item:
    """A question; ``hard`` moves everybody's chance to be right."""

    number: int
    task: str
    kind: str
    topic: str
    right: str
    hard: float

    @property
    def key(self) -> Key:
        return self.task, f"q{self.number:04}"

    @property
    def problem(self) -> Problem:
        text = f"Question {self.number} on {self.topic} {self.kind}, of {self.words} words?"
        return Problem(self.key[1], text, self.right, self.task, self.kind)

    @property
    def words(self) -> int:
        """A number that hangs on the question alone."""
        return 5 + (self.number * 7919) % 23


Skill = Callable[[int, Item], float]
"""The chance of a worker, by its ordinal, to be right on a question."""
Plan = Callable[["World", Item], Sequence[Workflow]]
"""The rounds that a planner writes for a question."""
Reading = Callable[["Call"], str | None]
"""The answer that a call's worker reads in its plan; None: none."""
Look = Callable[["World", Item, Item], Workflow]
"""The second round of a question, shown the answer to another question or to the same."""
Others = Callable[["World"], Sequence[Record]]
"""Makes the records of further systems."""
Wording = Callable[["Call"], float | None]
"""What the words of a call add to its worker's skill; None: the worker says nothing."""


@dataclass(frozen=True)
class Call:
    """A step that a worker does."""

    item: Item
    workflow: Workflow
    place: int
    seen: tuple[str | None, ...]

    @property
    def step(self) -> Step:
        return self.workflow.steps[self.place]

    @property
    def subtask(self) -> str:
        return self.step.subtask

    @property
    def last(self) -> bool:
        return self.place == len(self.workflow) - 1


def by_skills(*skills: float) -> Skill:
    return lambda worker, _item: skills[worker]


SKILLED = by_skills(*SKILLS)


def only_skill(_call: Call) -> float | None:
    return 0.0


def reads_nothing(_call: Call) -> str | None:
    return None


def no_others(_world: World) -> Sequence[Record]:
    return ()


@dataclass(frozen=True)
class Planner:
    """A planner, and the world that it plans in.

    Attributes:
        plan: what it writes.
        look: its second rounds; None: they are those of ``plan``, whatever it is shown.
        skill: of the workers, by ordinal.
        reads: what a worker reads in a plan.
        words: what the words of a step add.
        alone: the planner's own chance to be right when it is asked alone; None: it says nothing
            that can be read.
        workers: the names of the pool.
        choices: the answers that a question has.
        prices: a call of each worker, in dollars; one price: of all. Empty: unknown.
        spread: the most that a question's difficulty moves everybody's chance.
        fixed: the workers of the best fixed workflow: a vote, or one worker's own answers.
        vote: the number of answers in the best worker's vote, which is then among the rivals.
        others: makes the records of further systems.
    """

    plan: Plan
    skill: Skill = SKILLED
    reads: Reading = reads_nothing
    words: Wording = only_skill
    alone: float | None = None
    workers: tuple[str, ...] = NAMES
    choices: tuple[str, ...] = tuple(LETTERS)
    prices: tuple[str, ...] = ("0.01",)
    spread: float = 0.15
    fixed: tuple[int, ...] = (0, 1, 2)
    vote: int = 0
    others: Others = no_others
    look: Look | None = None


@dataclass(frozen=True)
class World:
    """The questions of a seed, and a planner's workers.

    Attributes:
        planner: the planner.
        seed: of every draw.
        sizes: the number of questions by task.
        siblings: those of its further systems that are of the same recipe.
        names: the number of names under which the questions are listed.
        asked: how often the planner was asked before, so that it draws anew.
    """

    planner: Planner
    seed: int
    sizes: Mapping[str, int] = field(default_factory=lambda: {"sums": 300})
    siblings: Siblings = NO_SIBLINGS
    names: int = 1
    asked: int = 0

    @cached_property
    def items(self) -> tuple[Item, ...]:
        items: list[Item] = []
        for task, size in self.sizes.items():
            for number in range(size):
                rng = self.rng("item", task, number)
                item = Item(
                    number=number,
                    task=task,
                    kind=KINDS[number % len(KINDS)],
                    topic=rng.choice(TOPICS),
                    right=rng.choice(self.planner.choices),
                    hard=rng.uniform(-self.planner.spread, self.planner.spread),
                )
                items.append(item)
        return tuple(items)

    @cached_property
    def by_key(self) -> dict[Key, Item]:
        return {item.key: item for item in self.items}

    def rng(self, *names: object) -> random.Random:
        return random.Random("/".join(map(str, (self.seed, *names))))

    def planning(self, *names: object) -> random.Random:
        """Return the planner's own draws, which are others each time that it is asked."""
        return self.rng("again", self.asked, *names) if self.asked else self.rng(*names)

    def guess(self, item: Item, chance: float, *names: object) -> str:
        """Draw an answer that is right with a chance; a wrong one is often the same."""
        rng = self.rng(*item.key, *names)
        if rng.random() < chance:
            return item.right
        wrong = [choice for choice in self.planner.choices if choice != item.right]
        common = self.rng(*item.key, "trap").choice(wrong)
        return common if rng.random() < 0.5 else rng.choice(wrong)

    # ── plays ─────────────────────────────────────────────────────────────────────────────────────
    def play(self, item: Item, workflow: Workflow, caller: str = "conductor") -> str | None:
        """Return the answer of a workflow; None: none can be read."""
        answers: list[str | None] = []
        for place in range(len(workflow)):
            seen = tuple(answers[earlier] for earlier in workflow.visible(place))
            answers.append(self.answer(Call(item, workflow, place, seen), caller))
        return answers[-1]

    def answer(self, call: Call, caller: str) -> str | None:
        """Return the answer of one worker."""
        item, subtask, worker = call.item, call.subtask, call.step.worker
        names = (caller, worker, call.place, subtask, call.seen)
        rng = self.rng("call", *item.key, *names)
        told = self.planner.reads(call)
        if told is not None and rng.random() < OBEYS:
            return told
        if subtask.startswith("Vote"):
            votes = Counter(filter(None, call.seen))
            return votes.most_common(1)[0][0] if votes else None
        if subtask.startswith("Is it ") and self.accepts(rng, item, subtask[6]):
            return subtask[6]
        added = self.planner.words(call)
        if added is None:
            return None
        chance = self.planner.skill(worker, item) + item.hard + added
        return self.guess(item, chance, *names)

    @staticmethod
    def accepts(rng: random.Random, item: Item, hypothesis: str) -> bool:
        """Return True if a worker takes a hypothesis for right."""
        return rng.random() < (0.97 if hypothesis == item.right else 0.06)

    def vote(self, item: Item, workers: Sequence[int], caller: str) -> str | None:
        """Return the answer that most of the workers give, of equals the first's."""
        if len(workers) == 1:
            plain = Workflow([Step(workers[0], SOLVE_SUBTASK)])
            return self.play(item, plain, f"worker:{self.planner.workers[workers[0]]}")
        attempts = [Step(worker, SOLVE_SUBTASK) for worker in workers]
        return self.play(item, Workflow([*attempts, Step(workers[0], "Vote.", "all")]), caller)

    # ── records ───────────────────────────────────────────────────────────────────────────────────
    def record(
        self,
        system: str,
        item: Item,
        answer: str | None,
        rounds: Rounds = (),
        *,
        planned: bool = False,
        workers: Sequence[int] = (),
    ) -> Record:
        """Make the record of an answer; ``workers`` are those that were asked."""
        voteless = [step for workflow in rounds for step in workflow if step.subtask != "Vote."]
        asked = workers or [step.worker for step in voteless]
        status: Status = "graded" if answer is not None else "unparsed"
        prices = self.planner.prices
        dollars = Decimal(0)
        if prices:
            dollars = sum((Decimal(prices[worker % len(prices)]) for worker in asked), Decimal(0))
        return Record(
            system=system,
            task=item.task,
            problem=item.key[1],
            sample=0,
            kind=item.kind,
            correct=answer == item.right,
            status=status,
            answer=answer,
            extracted=answer,
            note="",
            rounds=tuple(RoundRecord(workflow, planned) for workflow in rounds),
            calls=len(asked) + len(rounds) * planned,
            usage=Usage(
                100, dollars=dollars, unpriced_calls=0 if prices else len(asked), seconds=1.0
            ),
            seconds=1.0,
        )

    @cached_property
    def conductor(self) -> list[Record]:
        """The records of the planner's plans."""
        records: list[Record] = []
        for item in self.items:
            rounds = tuple(self.planner.plan(self, item))
            answer = self.play_rounds(item, rounds)
            records.append(self.record("conductor", item, answer, rounds, planned=True))
        return records

    def play_rounds(self, item: Item, rounds: Sequence[Workflow]) -> str | None:
        answer: str | None = None
        for workflow in rounds:
            if workflow.steps:
                answer = self.play(item, workflow)
        return answer

    def planned_by(self, planner: Planner, system: str) -> list[Record]:
        """Return the records of another planner in the same world."""
        other = replace(self, planner=planner)
        return [replace(record, system=system) for record in other.conductor]

    @cached_property
    def rivals(self) -> list[Record]:
        """The records of every worker alone, of the best fixed workflow, and of a vote."""
        records: list[Record] = []
        planner = self.planner
        for worker, name in enumerate(planner.workers):
            plain = Workflow([Step(worker, SOLVE_SUBTASK)])
            for item in self.items:
                answer = self.play(item, plain, caller=f"worker:{name}")
                records.append(self.record(f"worker:{name}", item, answer, (plain,)))
        for item in self.items:
            team = planner.fixed
            answer = self.vote(item, team, "best_fixed")
            records.append(self.record("best_fixed", item, answer, workers=team))
            if planner.vote:
                team = (0,) * planner.vote
                answer = self.vote(item, team, "consensus")
                name = f"consensus:{planner.workers[0]}?n={planner.vote}"
                records.append(self.record(name, item, answer, workers=team))
        return records

    def renamed(self, records: Sequence[Record], names: int) -> list[Record]:
        """Return the records as of several tasks, merged again as a report merges them."""
        listed = list(records)
        questions: dict[Key, KeptQuestion] = {}
        for number in range(names):
            for item in self.items:
                problem = item.problem
                task = item.task if not number else f"{item.task} {number}"
                blanks = " " * number
                questions[task, problem.id] = KeptQuestion(problem.question + blanks, item.right)
            if number:
                listed += [replace(one, task=f"{one.task} {number}") for one in records]
        return list(merge_questions(listed, questions))

    def planner_alone(self) -> list[Record]:
        """The records of the planner asked alone; at no skill it says nothing that can be read."""
        chance = self.planner.alone
        records: list[Record] = []
        for item in self.items:
            answer = None if chance is None else self.guess(item, chance, "planner alone")
            records.append(self.record("planner_alone", item, answer, workers=(0,)))
        return records

    @cached_property
    def others(self) -> list[Record]:
        """The records of further systems."""
        return list(self.planner.others(self))

    @cached_property
    def plays(self) -> Plays:
        """What becomes of the planner's plans elsewhere, and of those of its siblings."""
        planned = [record for record in self.others if record.system in self.siblings.systems]
        records = self.siblings.join([*self.conductor, *planned], "conductor")
        problems = {item.key: item.problem for item in self.items}
        workers = dict(enumerate(self.planner.workers))
        return asyncio.run(
            play_plans(
                records,
                problems,
                self.watch,
                workers,
                unread=unread_workers(self.rivals),
                seed=self.seed,
            )
        )

    @cached_property
    def again(self) -> Again:
        """What becomes of the planner's plans if it is asked again for 100 questions."""
        problems = {item.key: item.problem for item in self.items}
        records = self.conductor[:: max(1, len(self.conductor) // AGAIN)]
        return asyncio.run(plan_again(records, problems, self.replan, self.watch))

    async def replan(self, record: Record, shown: Record | None) -> Round:
        """Ask the planner again, for its second round if it is shown answers."""
        world, item = replace(self, asked=1), self.by_key[record.key]
        if shown is not None and self.planner.look is not None:
            return Round(None, self.planner.look(world, item, self.by_key[shown.key]))
        rounds = self.planner.plan(world, item)
        return Round(None, rounds[0] if shown is None else rounds[1])

    async def watch(self, problem: Problem, rounds: Rounds, _repeat: int) -> Seen:
        item = self.by_key[problem.task, problem.id]
        answer = self.play_rounds(item, rounds)
        return Seen(float(answer == item.right), (answer or "").casefold())

    def measure(self, *, replays: bool) -> Orchestration:
        """Measure the planner, the planner asked alone among the systems."""
        records = [*self.conductor, *self.rivals, *self.others, *self.planner_alone()]
        if self.names > 1:
            records = self.renamed(records, self.names)
        return measure_orchestration(
            records,
            workers=dict(enumerate(self.planner.workers)),
            plays=self.plays if replays else None,
            siblings=self.siblings,
            seed=self.seed,
        )

    @cached_property
    def played(self) -> Orchestration:
        """The figures with plays."""
        return self.measure(replays=True)

    @cached_property
    def unplayed(self) -> Orchestration:
        """The figures without plays."""
        if unread_workers(self.rivals):  # plays change these workers
            return self.measure(replays=False)
        return replace(self.played, plays=None)

    def judge(self, *, replays: bool = True, asked: bool = False, again: bool = False) -> Judgement:
        """Judge the planner, which is asked alone or not, and plans again or not."""
        figures = self.played if replays else self.unplayed
        if again and figures.plays is not None:
            repeated = measure_again(self.again, self.seed)
            figures = replace(figures, plays=replace(figures.plays, again=repeated))
        if not asked:
            figures = replace(figures, planner_alone=None, by_itself=None)
        return judge(figures)
