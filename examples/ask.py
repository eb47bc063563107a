"""Ask a Conductor that leads two workers, watch the steps, and read the bill.

    python examples/ask.py

The workers and the planner are plain functions, so no key is needed. A pool of
models comes from a file: `oc.WorkerPool.from_toml("pool.toml")`.
"""

import openconductor as oc
from openconductor.ledger import draw_up


def add(messages: list[oc.Message]) -> str:
    """Add the numbers of the question."""
    question = messages[0].content
    numbers = [int(word) for word in question.split() if word.isdigit()]
    return str(sum(numbers))


def check(messages: list[oc.Message]) -> str:
    """Check the sum that an earlier step has found."""
    earlier_answer = messages[-2].content
    return f"{earlier_answer} (checked)"


def plan(messages: list[oc.Message]) -> str:
    """Write a workflow of two steps; the second one sees the first."""
    return """Add first, then check.
model_id = [0, 1]
subtasks = ["Add the numbers.", "Check the sum."]
access_list = [[], "all"]"""


def show(event: oc.Event) -> None:
    """Print each step as it ends."""
    if isinstance(event, oc.StepEnded) and event.result.completion is not None:
        step = event.result.step
        print(f"worker {step.worker}: {step.subtask} -> {event.result.completion.text}")


def main() -> None:
    pool = oc.WorkerPool([oc.Worker(add, name="adder"), oc.Worker(check, name="checker")])
    conductor = oc.Conductor(plan, pool=pool)

    episode = conductor.ask_sync(
        "What is 17 plus 25 plus 8 ?",
        budget=oc.Budget(calls=5, seconds=30),
        on_event=show,
    )
    if episode.error is not None:
        raise SystemExit(f"no answer: {episode.error}")
    print("answer:", episode.answer)
    print(f"{draw_up(episode).total.unpriced_calls} calls, none with a known price")


if __name__ == "__main__":
    main()
