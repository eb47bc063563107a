"""Math workers and formulas that are bombs: what they cost, whom they hurt, and what is left of them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from openconductor.errors import GradingError
from openconductor.graders import math_workers
from openconductor.graders.math import MathGrader
from openconductor.graders.math_workers import MathWorkers
from openconductor.types import Grade, Problem

pytest.importorskip("math_verify")

BOMBS = {
    "tower": "9^{9^{9^9}}",
    "factorial": "10000000!",
    "power": "2^{10^9}",
    "binomial": r"\binom{10^9}{5\cdot10^8}",
    "sum": r"\sum_{k=1}^{100000000} k^k",
    "product": r"\prod_{k=1}^{100000}(x+k)",
    "expansion": "((((1+x)^{99})^{99})^{99})",
    "tiny": "0.5^{10^{9}}",
    "sine": r"\sin(10^{10^{8}})",
}
NESTED = "(x+" * 900 + "1" + ")" * 900  # takes its time to be read
needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


@pytest.fixture
def workers() -> Iterator[MathWorkers]:
    pool = MathWorkers(2)
    yield pool
    pool.close()


def problem(reference: str) -> Problem:
    return Problem("p", "", reference, "t")


async def timed(grader: MathGrader, reference: str, answer: str) -> tuple[Grade, float]:
    start = time.monotonic()
    grade = await grader.grade(problem(reference), rf"\boxed{{{answer}}}")
    return grade, time.monotonic() - start


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not yet reaped does not."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except (ProcessLookupError, FileNotFoundError):
        return False


def await_end(pids: list[int], seconds: float) -> list[int]:
    """The processes that still run after so many seconds at most."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
async def test_a_bomb_ends_in_three_seconds_and_the_next_verdict_comes_in_one(workers: MathWorkers, bomb: str) -> None:
    grader = MathGrader(workers=workers)
    assert (await timed(grader, "x+1", "1+x"))[0].correct is True
    measured: list[tuple[float, float]] = []
    for _ in range(3):  # on a machine that is busy for a moment, a second try
        grade, seconds = await timed(grader, r"\sqrt{5}", bomb)
        assert grade.correct is False
        assert grade.note.startswith("timeout")
        after, seconds_after = await timed(grader, "x+1", "1+x")
        assert after.correct is True
        measured.append((seconds, seconds_after))
        if seconds <= 3 and seconds_after <= 1:
            return
    raise AssertionError(f"seconds of the bomb, and of the verdict after it: {measured}")


async def test_bombs_do_not_touch_the_verdicts_beside_them(workers: MathWorkers) -> None:
    grader = MathGrader(workers=workers)
    bombs = [grader.grade(problem(r"\sqrt{5}"), rf"\boxed{{{bomb}}}") for bomb in list(BOMBS.values())[:4]]
    others = [grader.grade(problem(f"x+{n}"), rf"\boxed{{{n + n % 2}+x}}") for n in range(1, 61)]
    grades = await asyncio.gather(*bombs, *others)
    assert [grade.correct for grade in grades[:4]] == [False] * 4
    assert [grade.correct for grade in grades[4:]] == [n % 2 == 0 for n in range(1, 61)]


def test_sixty_four_threads_with_loops_of_their_own_ask_at_once() -> None:
    grader = MathGrader()  # the pool of the process
    verdicts: dict[int, tuple[bool | None, bool | None]] = {}
    handler = signal.getsignal(signal.SIGALRM)

    async def ask(n: int) -> None:
        right = grader.grade(problem(f"x+{n}"), rf"\boxed{{{n}+x}}")
        wrong = grader.grade(problem(f"x+{n}"), rf"\boxed{{{n}-x}}")
        verdicts[n] = ((await right).correct, (await wrong).correct)

    threads = [threading.Thread(target=lambda n=n: asyncio.run(ask(n))) for n in range(1, 65)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == dict.fromkeys(range(1, 65), (True, False))
    assert signal.getsignal(signal.SIGALRM) is handler


async def test_a_reference_that_is_a_bomb_leaves_the_answer_undecided(workers: MathWorkers) -> None:
    grade, _ = await timed(MathGrader(workers=workers), NESTED, "y")
    assert grade.correct is None
    assert grade.note.startswith("undecided: timeout")


async def test_an_answer_that_wants_all_memory_is_wrong_and_the_next_verdict_comes() -> None:
    pool = MathWorkers(1, memory=600 << 20)
    try:
        grader = MathGrader(workers=pool)
        assert (await timed(grader, "7", "2^{10^{11}}"))[0].correct is False
        assert (await timed(grader, "x+1", "1+x"))[0].correct is True
    finally:
        pool.close()


async def test_a_worker_that_is_killed_is_replaced_and_the_pair_tried_again(workers: MathWorkers) -> None:
    grader = MathGrader(workers=workers)
    for _ in range(3):
        assert (await timed(grader, "x+1", "1+x"))[0].correct is True
        for process in list(workers._idle):
            process.process.send_signal(signal.SIGKILL)
            process.process.wait()


@pytest.mark.parametrize("program", ["", "raise SystemExit(3)", "print('hello', flush=True)"])
async def test_workers_that_do_not_start_are_a_grading_error(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "broken.py"
    script.write_text(program)
    monkeypatch.setattr(math_workers, "_PROGRAM", script)
    pool = MathWorkers(1)
    try:
        with pytest.raises(GradingError, match=r"problem p: math worker: broken\.py did not start"):
            await MathGrader(workers=pool).grade(problem("x+1"), r"\boxed{1+x}")
    finally:
        pool.close()


async def test_an_interpreter_that_is_not_there_is_a_grading_error(
    workers: MathWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(GradingError, match="expected to start /nowhere/python"):
        await MathGrader(workers=workers).grade(problem("x+1"), r"\boxed{1+x}")


async def test_closing_ends_the_processes_and_who_waits_gets_a_grading_error(workers: MathWorkers) -> None:
    grader = MathGrader(workers=workers)
    await timed(grader, "x+1", "1+x")
    waiting = [asyncio.create_task(timed(grader, r"\sqrt{5}", BOMBS["tower"])) for _ in range(4)]
    await asyncio.sleep(0.2)
    pids = [process.process.pid for process in list(workers._all)]
    await asyncio.to_thread(workers.close)
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert pids
    assert await_end(pids, 5) == []
    assert all(isinstance(error, GradingError | asyncio.CancelledError) for error in ended)
    with pytest.raises(GradingError, match="expected an open pool"):
        await timed(grader, "x+1", "1+x")


@needs_proc
def test_workers_see_no_key_of_the_environment(workers: MathWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_API_KEY", "sk-canary")
    asyncio.run(timed(MathGrader(workers=workers), "x+1", "1+x"))
    assert workers._all
    for process in list(workers._all):
        assert b"canary" not in Path(f"/proc/{process.process.pid}/environ").read_bytes().lower()


def run_script(body: str) -> subprocess.Popen[str]:
    """A fresh interpreter that runs a program with ``grade(reference, answer)`` and ``pids()`` at hand."""
    head = """
        import asyncio, os, sys
        from openconductor.graders.math import MathGrader
        from openconductor.graders.math_workers import shared_workers
        from openconductor.types import Problem

        def grade(reference, answer):
            return asyncio.run(MathGrader().grade(Problem("p", "", reference, "t"), "\\\\boxed{%s}" % answer)).correct

        def pids():
            return [process.process.pid for process in list(shared_workers()._all)]
    """
    program = textwrap.dedent(head) + textwrap.dedent(body)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@needs_proc
def test_nothing_is_left_when_the_interpreter_ends() -> None:
    script = run_script("print(grade('x+1', '1+x'), *pids())")
    output, complaints = script.communicate(timeout=120)
    verdict, *pids = output.split()
    assert (verdict, complaints) == ("True", "")
    assert len(pids) >= 2
    assert await_end([int(pid) for pid in pids], 5) == []


@needs_proc
def test_nothing_is_left_when_the_interpreter_is_killed_while_a_bomb_burns() -> None:
    body = """
        grade('x+1', '1+x')
        import threading
        threading.Thread(target=grade, args=('\\\\sqrt{5}', '9^{9^{9^9}}')).start()
        import time; time.sleep(0.3)
        print(*pids(), flush=True)
        time.sleep(60)
    """
    script = run_script(body)
    assert script.stdout is not None
    pids = [int(pid) for pid in script.stdout.readline().split()]
    script.kill()
    script.communicate(timeout=30)
    assert len(pids) >= 2
    assert await_end(pids, 30) == []


@needs_proc
def test_a_forked_child_has_workers_of_its_own() -> None:
    body = """
        before = grade('x+1', '1+x'), set(pids())
        child = os.fork()
        if not child:
            right = grade('x+2', '2+x') is True and grade('x+2', '3+x') is False
            os._exit(0 if right and not before[1] & set(pids()) else 1)
        _, status = os.waitpid(child, 0)
        print(before[0], grade('x+3', '3+x'), os.waitstatus_to_exitcode(status))
    """
    output, complaints = run_script(body).communicate(timeout=120)
    assert (output.split(), complaints) == (["True", "True", "0"], "")
