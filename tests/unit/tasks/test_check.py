"""Whether graders accept what is right: the report, and what is not decided."""

from __future__ import annotations

from collections.abc import Sequence

from openconductor.errors import GradingError, SandboxError
from openconductor.tasks.check import Finding, check_task
from openconductor.tasks.gym import GymTask
from openconductor.tasks.items import Item, Loaded, Source
from openconductor.types import Grade, Problem


class Told:
    """A grader that does what the reply says, and counts how many it does at once."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def grade(self, problem: Problem, answer: str) -> Grade:
        import asyncio

        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        match answer:
            case "raise":
                raise GradingError("the reference has no value")
            case "sandbox":
                raise SandboxError("no sandbox works here")
        return Grade({"right": True, "wrong": False}.get(answer), answer, f"said {answer}")


class Prepared(GymTask):
    """A task of replies that are prepared."""

    def __init__(self, grader: Told) -> None:
        super().__init__()
        self.grader = grader  # type: ignore[misc]

    def read(self, split: str = "") -> Loaded:
        items = tuple(
            Item(Problem(f"p{place}", "", "", "demo"), canonical=reply) for place, reply in enumerate(REPLIES)
        )
        return Loaded(items, Source("drawn", split or "test", problems=len(items)))


REPLIES: Sequence[str | None] = ()


async def report(monkeypatch, *replies: str | None, grader: Told | None = None, concurrency: int = 8):
    monkeypatch.setitem(globals(), "REPLIES", replies)
    return await check_task(Prepared(grader or Told()), concurrency=concurrency)


async def test_replies_are_told_apart_by_what_became_of_them(monkeypatch) -> None:
    found = await report(monkeypatch, "right", "wrong", None, "undecided", "raise", "right", "sandbox")
    assert found.accepted == 2
    assert found.refused == (Finding("p1", "wrong", "said wrong"),)
    assert [(one.id, one.note) for one in found.undecided] == [
        ("p3", "said undecided"),
        ("p4", "undecided: the reference has no value"),
        ("p6", "undecided: no sandbox works here"),
    ]
    assert found.unanswered == 1
    assert not found.ok


async def test_what_is_undecided_is_no_failure_unless_all_is(monkeypatch) -> None:
    assert (await report(monkeypatch, "right", "raise")).ok
    assert not (await report(monkeypatch, "raise", "sandbox")).ok
    assert not (await report(monkeypatch, "right", "wrong")).ok
    assert (await report(monkeypatch, None, None)).ok


async def test_progress_is_told_after_each() -> None:
    told: list[tuple[int, int]] = []
    task = GymTask(limit=5, split="train")
    found = await check_task(task, on_progress=lambda done, total: told.append((done, total)))
    assert told == [(done, 5) for done in range(1, 6)]
    assert found.source.split == "train"


async def test_the_gym_accepts_all_of_its_own_answers() -> None:
    found = await check_task(GymTask(limit=60))
    assert (found.accepted, found.refused, found.undecided, found.unanswered, found.ok) == (60, (), (), 0, True)
