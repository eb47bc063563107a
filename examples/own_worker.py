"""Write a provider of your own: with retries, a price, and answers that are never paid for twice.

    python examples/own_worker.py

`openconductor.Provider` lists what a provider may say of itself, with the defaults.
"""

import tempfile
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import openconductor as oc


class Echo(oc.Provider):
    """Stands for a model behind a network: its first call fails, the next one answers."""

    remote = True  # so it gets retries and a circuit breaker
    identity = "echo-1"  # what is behind the worker's name: a part of the key of a recorded call

    def __init__(self) -> None:
        self.calls = 0

    async def complete(
        self,
        messages: Sequence[oc.Message],
        sampling: oc.Sampling,
        *,
        call: oc.CallContext,
        on_text: Callable[[str], None] | None = None,
    ) -> oc.Completion:
        self.calls += 1
        if self.calls == 1:
            raise oc.Unreachable("the first call is lost")
        text = messages[-1].content.upper()
        return oc.Completion(text, usage=oc.Usage(input_tokens=len(messages), output_tokens=1))


def plan(messages: list[oc.Message]) -> str:
    return "model_id = [0]\nsubtasks = ['Say it again.']\naccess_list = [[]]"


def main() -> None:
    echo = Echo()
    price = oc.Price(input=Decimal(1), output=Decimal(2))  # US dollars a million tokens
    worker = oc.Worker(echo, name="echo", price=price)
    with (
        tempfile.TemporaryDirectory() as folder,
        oc.Journal(Path(folder) / "calls.sqlite") as journal,
    ):
        pool = oc.WorkerPool([worker]).replaying(journal)
        planner = oc.Worker(plan, name="planner").replaying(journal)
        conductor = oc.Conductor(planner, pool=pool)
        first = conductor.ask_sync("Good morning.", on_event=journal)
        calls = echo.calls
        again = conductor.ask_sync("Good morning.", on_event=journal)
    print(first.answer)
    print(f"{calls} attempts, {first.usage.dollars} dollars")
    assert again.answer == first.answer
    assert echo.calls == calls
    print("asked twice, called once")


if __name__ == "__main__":
    main()
