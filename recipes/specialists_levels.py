"""Play all plans of one and two steps: ``python recipes/specialists_levels.py POOL FOLDER``.

POOL is what ``recipes/specialists.py`` wrote, FOLDER gets a journal and ``levels.json``. Workers
answer greedily, so a plan played once is known. A run that was killed goes on from its journal, and
one with more ``--questions`` plays only the new ones. Each rival is chosen on the questions that it
is measured on, so its figure is an upper bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from asyncio import gather
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import fmean

import torch

import openconductor as oc
from openconductor.baselines.single import SingleWorker
from openconductor.errors import caused_by_plan
from openconductor.prompt import SOLVE_SUBTASK
from openconductor.store import Store, open_store
from openconductor.tasks.specialists import COUNTS, SkillQuestion, draw_question, write_instruction
from openconductor.types import Access, Episode, Transcript

AT_ONCE = 40  # questions that are played together: one alone leaves a GPU idle

Workers = tuple[int, ...]
"""The workers of a plan, a step each."""


@dataclass(slots=True)
class Played:
    """The answers to a question.

    Attributes:
        question: the question.
        alone: by worker, asked the question and nothing else.
        plans: by the workers of a plan, a step for each skill, in the question's words.
        blank: of two skills, by the workers of the best plan, with subtasks that say nothing.
        unseen: of two skills, by the workers of the best plan, whose second step does not see the
            first.
    """

    question: SkillQuestion
    alone: dict[int, str] = field(default_factory=dict[int, str])
    plans: dict[Workers, str] = field(default_factory=dict[Workers, str])
    blank: str = ""
    unseen: str = ""

    def is_right(self, answer: str) -> bool:
        """Return True if the answer is the question's."""
        return answer.split() == self.question.answers[-1].split()


def read_answer(result: Episode | Transcript) -> str:
    """Return the answer; "": the plan itself caused a failure.

    Raises:
        OpenConductorError: infrastructure failed, which says nothing about a plan.
    """
    if result.error is not None and not caused_by_plan(result.error):
        raise result.error
    return result.answer or ""


# ── playing ───────────────────────────────────────────────────────────────────────────────────────
class Player:
    """Lets workers carry out plans, once each."""

    def __init__(self, pool: oc.WorkerPool, journal: Store) -> None:
        self._journal = journal
        self.pool = pool.replaying(journal)

    async def play(
        self, question: SkillQuestion, workers: Workers, *, blank: bool = False, sees: bool = True
    ) -> str:
        """Return the answer of a plan with a step for each worker."""
        steps: list[oc.Step] = []
        for index, worker in enumerate(workers):
            subtask = write_instruction(question.wordings[index])
            if blank:
                subtask = SOLVE_SUBTASK
            access: Access = (index - 1,) if index and sees else ()
            steps.append(oc.Step(worker, subtask, access))
        workflow = oc.Workflow(tuple(steps))
        transcript = await oc.execute(workflow, self.pool, question.text, on_event=self._journal)
        return read_answer(transcript)

    async def ask_alone(self, question: SkillQuestion, worker: int) -> str:
        """Return the answer of a worker that is sent the question and nothing else."""
        baseline = SingleWorker(self.pool, worker)
        episode = await baseline.ask(question.text, on_event=self._journal)
        return read_answer(episode)

    async def play_all(self, question: SkillQuestion) -> Played:
        """Play each worker alone, and each plan; plans of equal beginnings are played once."""
        workers = self.pool.ordinals
        alone = gather(*(self.ask_alone(question, worker) for worker in workers))
        single_steps = gather(*(self.play(question, (worker,)) for worker in workers))
        answers_alone, answers = await gather(alone, single_steps)
        played = Played(question, dict(zip(workers, answers_alone, strict=True)))
        first_answers = dict(zip(workers, answers, strict=True))
        if len(question.skills) == 1:
            played.plans = {(worker,): answer for worker, answer in first_answers.items()}
            return played
        representatives = {answer: worker for worker, answer in first_answers.items()}
        plans = list(product(representatives.values(), workers))
        ends = await gather(*(self.play(question, plan) for plan in plans))
        answer_of = dict(zip(plans, ends, strict=True))
        for worker, last in product(workers, workers):
            representative = representatives[first_answers[worker]]
            played.plans[worker, last] = answer_of[representative, last]
        return played


# ── levels ────────────────────────────────────────────────────────────────────────────────────────
def share(right: Iterable[bool]) -> float:
    """Return the share of True."""
    return fmean(map(float, right))


def group(rows: Sequence[Played]) -> list[list[Played]]:
    """Return the questions that ask for the same skills, together."""
    groups: defaultdict[tuple[str, ...], list[Played]] = defaultdict(list)
    for row in rows:
        groups[row.question.skills].append(row)
    return list(groups.values())


def best_worker(rows: Sequence[Played]) -> float:
    """Return the accuracy of the best worker alone."""
    workers = rows[0].alone
    return max(share(row.is_right(row.alone[worker]) for row in rows) for worker in workers)


def best_plan(rows: Sequence[Played]) -> Workers:
    """Return the plan that is right most often over questions of the same skills."""
    plans = rows[0].plans
    return max(plans, key=lambda plan: share(row.is_right(row.plans[plan]) for row in rows))


def best_fixed(rows: Sequence[Played]) -> float:
    """Return the accuracy of the best two workers for all questions.

    The first is asked for the first skill, the second for the second, if there is one.
    """
    workers = rows[0].alone
    accuracies: list[float] = []
    for pair in product(workers, workers):
        right = [row.is_right(row.plans[pair[: len(row.question.skills)]]) for row in rows]
        accuracies.append(share(right))
    return max(accuracies)


def vote(rows: Sequence[Played], voters: int) -> float:
    """Return the accuracy of a vote of the workers that are best alone."""
    workers = sorted(
        rows[0].alone,
        key=lambda worker: share(row.is_right(row.alone[worker]) for row in rows),
        reverse=True,
    )[:voters]
    right: list[bool] = []
    for row in rows:
        counts = Counter(row.alone[worker] for worker in workers)
        right.append(row.is_right(counts.most_common(1)[0][0]))
    return share(right)


def in_groups(rows: Sequence[Played], level: Callable[[Sequence[Played]], float]) -> float:
    """Return the mean of a level that is chosen for each sequence of skills by itself."""
    groups = group(rows)
    return sum(len(part) * level(part) for part in groups) / len(rows)


def plan_accuracy(rows: Sequence[Played]) -> float:
    """Return the accuracy of the best plan for questions of the same skills."""
    plan = best_plan(rows)
    return share(row.is_right(row.plans[plan]) for row in rows)


def levels(rows: Sequence[Played]) -> dict[str, float]:
    """Return the exact levels over some questions."""
    table = {
        "random plan": fmean(share(map(row.is_right, row.plans.values())) for row in rows),
        "best worker": best_worker(rows),
        "vote of 3": vote(rows, 3),
        "vote of all": vote(rows, len(rows[0].alone)),
        "router by skills": in_groups(rows, best_worker),
        "best fixed workflow": best_fixed(rows),
        "oracle by skills": in_groups(rows, plan_accuracy),
        "any plan": share(any(map(row.is_right, row.plans.values())) for row in rows),
    }
    pairs = [row for row in rows if len(row.question.skills) > 1]
    if pairs:
        table["oracle's pairs"] = in_groups(pairs, plan_accuracy)
        table["oracle's pairs, subtasks blank"] = share(row.is_right(row.blank) for row in pairs)
        table["oracle's pairs, access none"] = share(row.is_right(row.unseen) for row in pairs)
    return table


def skills_of_workers(rows: Sequence[Played]) -> dict[str, dict[str, float]]:
    """Return the accuracy of each worker alone, by the skill of the question."""
    table: dict[str, dict[str, float]] = {}
    for part in group([row for row in rows if len(row.question.skills) == 1]):
        skill = part[0].question.skills[0]
        for worker in part[0].alone:
            right = share(row.is_right(row.alone[worker]) for row in part)
            table.setdefault(str(worker), {})[skill] = right
    return table


async def measure(pool: oc.WorkerPool, journal_path: Path, count: int) -> dict[str, object]:
    """Play all plans; return the levels."""
    with open_store(journal_path) as journal:
        player = Player(pool, journal)
        questions = [draw_question("test", index) for index in range(count)]
        rows: list[Played] = []
        for start in range(0, count, AT_ONCE):
            part = questions[start : start + AT_ONCE]
            rows += await gather(*map(player.play_all, part))
            print(f"{len(rows)} of {count} questions are played", flush=True)
        for part in group([row for row in rows if len(row.question.skills) > 1]):
            plan = best_plan(part)
            blank = gather(*(player.play(row.question, plan, blank=True) for row in part))
            unseen = gather(*(player.play(row.question, plan, sees=False) for row in part))
            blank_answers, unseen_answers = await gather(blank, unseen)
            for row, *answers in zip(part, blank_answers, unseen_answers, strict=True):
                row.blank, row.unseen = answers
    result: dict[str, object] = {"questions": count, "all": levels(rows)}
    for kind in dict.fromkeys(row.question.kind for row in rows):
        result[kind] = levels([row for row in rows if row.question.kind == kind])
    result["workers alone"] = skills_of_workers(rows)
    return result


def main() -> None:
    """Measure the levels of a pool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pool", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=int, default=COUNTS["test"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    pool = oc.WorkerPool.from_toml(options.pool)
    result = asyncio.run(measure(pool, options.folder / "journal.sqlite", options.questions))
    text = json.dumps(result, indent=2)
    (options.folder / "levels.json").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
