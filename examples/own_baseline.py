"""Compare a way of your own to use the workers with one worker alone.

    python examples/own_baseline.py

In a recipe the same baseline is the system `own_baseline:Checked:checker`.
"""

import asyncio

import openconductor as oc
from openconductor.baselines.single import SingleWorker
from openconductor.graders.exact import ExactGrader


class Checked(oc.Baseline):
    """The first worker answers, and another one checks its answer."""

    def __init__(self, pool: oc.WorkerPool, worker: str) -> None:
        super().__init__(pool, "checked")
        first = pool.ordinals[0]
        checker = pool.ordinal_of(worker)
        self._steps = (
            oc.Step(first, "Answer."),
            oc.Step(checker, "Check the answer.", "all"),
        )

    def workflow(self, question: oc.Question, *, sample: int = 0) -> oc.Workflow:
        return oc.Workflow(self._steps)


def careless(messages: list[oc.Message]) -> str:
    return "41"


def careful(messages: list[oc.Message]) -> str:
    return "42"


async def main() -> None:
    pool = oc.WorkerPool([oc.Worker(careless, name="solver"), oc.Worker(careful, name="checker")])
    problems = [oc.Problem("1", "What is 6 * 7?", "42", "mine")]
    systems = {"solver alone": SingleWorker(pool, "solver"), "checked": Checked(pool, "checker")}
    for name, system in systems.items():
        outcomes = await oc.evaluate(system, problems, ExactGrader())
        right = sum(outcome.correct is True for outcome in outcomes)
        print(f"{name}: {right} of {len(outcomes)}")


if __name__ == "__main__":
    asyncio.run(main())
