"""Evaluate workers on a benchmark of your own: rows in a file, a shape, a grader.

    python examples/own_benchmark.py

On the command line, run beside this file, the same benchmark is
`--task own_benchmark:CAPITALS --task-path own_benchmark:CAPITALS=capitals.jsonl`.
"""

import asyncio
import json
import tempfile
from pathlib import Path

import openconductor as oc
from openconductor.baselines.single import SingleWorker
from openconductor.tasks import load_task


class NamesTheCity:
    """Grades an answer as right if it names the city."""

    async def grade(self, problem: oc.Problem, answer: str) -> oc.Grade:
        return oc.Grade(str(problem.reference).casefold() in answer.casefold())


def read_row(row: oc.Row) -> oc.Item:
    """Make a problem of a row: question, reference, and a reply that is graded as right."""
    return row.item(row.text("ask"), row.text("answer"), row.text("answer"))


CAPITALS = oc.Dataset(
    "capitals",
    shapes=(oc.Shape(("ask", "answer"), read_row),),
    grader=NamesTheCity,
)

ROWS = [
    {"ask": "Which city is the capital of France?", "answer": "Paris"},
    {"ask": "Which city is the capital of Japan?", "answer": "Tokyo"},
]


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "capitals.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in ROWS), "utf-8")
        task = load_task("own_benchmark:CAPITALS", path=path)
        problems = task.load("test")

    pool = oc.WorkerPool([oc.Worker(lambda messages: "It is Paris.", name="parisian")])
    worker_alone = SingleWorker(pool, "parisian")
    outcomes = await oc.evaluate(worker_alone, problems, task.grader)
    right = sum(outcome.correct is True for outcome in outcomes)
    print(f"{right} of {len(outcomes)} are right")


if __name__ == "__main__":
    asyncio.run(main())
