"""Math workers and formulas that are bombs: their cost, their neighbours, the processes left."""

from __future__ import annotations

import asyncio
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from openconductor.errors import GradingError
from openconductor.graders.formulas import math_workers
from openconductor.graders.formulas.math_workers import MathProcess, MathWorkers, Verdict
from openconductor.graders.math import MathGrader
from openconductor.types import Grade, Problem

pytest.importorskip("sympy")

BOMBS = [
    "9^{9^{9^9}}",
    "10000000!",
    "2^{10^9}",
    r"\binom{10^9}{5\cdot10^8}",
    r"\sum_{k=1}^{100000000} k^k",
]
BOMBS += [
    r"\prod_{k=1}^{100000}(x+k)",
    "((((1+x)^{99})^{99})^{99})",
    "0.5^{10^{9}}",
    r"\sin(10^{10^{8}})",
]
needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


@pytest.fixture(scope="module")
def workers() -> Iterator[MathWorkers]:
    with closing(MathWorkers(2)) as pool:
        yield pool


@pytest.fixture
def cold_workers() -> Iterator[MathWorkers]:
    with closing(MathWorkers(2)) as pool:
        yield pool


@pytest.fixture
def busy_machine() -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


async def grade(workers: MathWorkers | None, reference: str, answer: str) -> Grade:
    return await MathGrader(workers=workers).grade(
        Problem("p", "", reference, "t"), rf"\boxed{{{answer}}}"
    )


def await_end(pids: list[int], seconds: float) -> list[int]:
    """Return the processes that still run after so many seconds at most."""
    deadline = time.monotonic() + seconds

    def alive(pid: int) -> bool:
        with suppress(ProcessLookupError, FileNotFoundError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {
                "Z",
                "X",
            }
        return False

    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def children_cpu() -> float:
    """Return the CPU time of all processes that were started here and have ended, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize(
    "bomb", [BOMBS[0], *(pytest.param(bomb, marks=pytest.mark.slow) for bomb in BOMBS[1:])]
)
async def test_a_bomb_costs_two_seconds_of_cpu_time_and_the_next_verdict_waits_for_no_start(
    workers, bomb
) -> None:
    assert (await grade(workers, "x+1", "1+x")).correct is True
    before, started = children_cpu(), {process.pid for process in workers._all}
    burnt = await grade(workers, r"\sqrt{5}", bomb)
    assert (burnt.correct, burnt.note[:7]) == (False, "timeout")
    # Two workers ended: what each took to start, half a second for the first try, and one and a
    # half for the second.
    assert children_cpu() - before < 2 * 3 + 2.2
    stand_by = {process.pid for process in workers._idle}
    assert len(stand_by) == 1
    assert not stand_by & started
    assert (await grade(workers, "x+1", "1+x")).correct is True
    assert stand_by < {process.pid for process in workers._idle}


async def test_bombs_do_not_touch_the_verdicts_beside_them(workers: MathWorkers) -> None:
    bombs = [grade(workers, r"\sqrt{5}", bomb) for bomb in BOMBS[:2]]
    others = [grade(workers, f"x+{n}", f"{n + n % 2}+x") for n in range(1, 61)]
    grades = await asyncio.gather(*bombs, *others)
    assert [one.correct for one in grades] == [False] * 2 + [n % 2 == 0 for n in range(1, 61)]


def test_sixty_four_threads_with_loops_of_their_own_ask_at_once() -> None:
    handler = signal.getsignal(signal.SIGALRM)

    def ask(n: int) -> tuple[bool | None, bool | None]:  # the pool of the process
        right, wrong = grade(None, f"x+{n}", f"{n}+x"), grade(None, f"x+{n}", f"{n}-x")
        return asyncio.run(right).correct, asyncio.run(wrong).correct

    with ThreadPoolExecutor(64) as threads:
        assert list(threads.map(ask, range(1, 65))) == [(True, False)] * 64
    assert signal.getsignal(signal.SIGALRM) is handler


@pytest.mark.parametrize(
    "count", [pytest.param(40, id="quick"), pytest.param(500, id="all", marks=pytest.mark.slow)]
)
@pytest.mark.usefixtures("busy_machine")
async def test_right_answers_keep_their_verdicts_where_eight_busy_loops_hold_the_cores(
    count, cold_workers
) -> None:
    pairs = [
        (rf"\frac{{x+{n}}}{{{n}}}+\sqrt{{{n}}}", rf"\frac{{x}}{{{n}}}+\sqrt{{{n}}}+1")
        for n in range(2, count + 2)
    ]
    grades = await asyncio.gather(*(grade(cold_workers, *pair) for pair in pairs))
    assert [(one.correct, one.note) for one in grades] == [(True, "formula")] * count


async def test_a_reference_that_is_a_bomb_leaves_the_answer_undecided(workers: MathWorkers) -> None:
    undecided = await grade(workers, rf"x+{BOMBS[0]}", "y")
    assert undecided.correct is None
    assert undecided.note.startswith("undecided: timeout")


async def test_an_answer_that_wants_all_memory_is_wrong_and_the_next_verdict_comes() -> None:
    with closing(MathWorkers(1, memory=600 << 20)) as pool:
        assert (await grade(pool, "7", "2^{10^{11}}")).correct is False
        assert (await grade(pool, "x+1", "1+x")).correct is True


async def test_a_worker_that_is_killed_idle_or_while_it_starts_is_replaced_and_the_pair_tried_again(
    cold_workers: MathWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, killed = MathProcess.judge, list[int]()

    def judge_killed_once(self: MathProcess, pair: Mapping[str, object]) -> tuple[Verdict, bool]:
        if not killed:
            self.kill()  # before it is ready
            killed.append(self.pid)
        return judge(self, pair)

    monkeypatch.setattr(MathProcess, "judge", judge_killed_once)
    assert (await grade(cold_workers, "x+1", "1+x")).correct is True
    assert killed
    for process in list(cold_workers._idle):
        process.kill()
        process.wait()
    assert (await grade(cold_workers, "x+1", "1+x")).correct is True


async def test_workers_that_do_not_start_are_a_grading_error(
    tmp_path, monkeypatch, cold_workers
) -> None:
    script = tmp_path / "broken.py"
    monkeypatch.setattr(math_workers, "_PROGRAM", script)
    for program in ("raise SystemExit(3)", "print('hello', flush=True)"):
        script.write_text(program)
        with pytest.raises(GradingError, match=r"problem p: math worker: broken\.py did not start"):
            await grade(cold_workers, "x+1", "1+x")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(GradingError, match="cannot start /nowhere/python"):
        await grade(cold_workers, "x+1", "1+x")


async def test_closing_ends_the_processes_and_who_waits_gets_a_grading_error(
    cold_workers: MathWorkers,
) -> None:
    await grade(cold_workers, "x+1", "1+x")
    waiting = [asyncio.create_task(grade(cold_workers, r"\sqrt{5}", BOMBS[0])) for _ in range(4)]
    await asyncio.sleep(0.2)
    pids = [process.pid for process in list(cold_workers._all)]
    await asyncio.to_thread(cold_workers.close)
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert pids
    assert await_end(pids, 30) == []
    assert all(isinstance(error, GradingError | asyncio.CancelledError) for error in ended)
    with pytest.raises(GradingError, match="expected an open pool"):
        await grade(cold_workers, "x+1", "1+x")


@needs_proc
def test_workers_see_no_key_of_the_environment(
    workers: MathWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_API_KEY", "sk-canary")
    asyncio.run(grade(workers, "x+1", "1+x"))
    assert workers._all
    for process in list(workers._all):
        assert b"canary" not in Path(f"/proc/{process.pid}/environ").read_bytes().lower()


HEAD = """
import asyncio, os, sys, threading, time
from openconductor.graders.math import MathGrader
from openconductor.graders.formulas.math_workers import shared_workers
from openconductor.types import Problem

def grade(reference, answer):
    problem = Problem("p", "", reference, "t")
    return asyncio.run(MathGrader().grade(problem, "\\\\boxed{%s}" % answer)).correct

def pids():
    return [process.pid for process in list(shared_workers()._all)]

before = grade('x+1', '1+x'), set(pids())
"""


def run_script(body: str) -> subprocess.Popen[str]:
    """Start an interpreter that runs a program with ``grade(reference, answer)`` and ``pids()``."""
    command = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        HEAD + textwrap.dedent(body),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@needs_proc
def test_nothing_is_left_when_the_interpreter_ends_and_a_forked_child_has_workers_of_its_own() -> (
    None
):
    body = """
        child = os.fork()
        if not child:
            right = grade('x+2', '2+x') is True and grade('x+2', '3+x') is False
            os._exit(0 if right and not before[1] & set(pids()) else 1)
        _, status = os.waitpid(child, 0)
        print(before[0], grade('x+3', '3+x'), os.waitstatus_to_exitcode(status), *pids())
    """
    output, complaints = run_script(body).communicate(timeout=120)
    *verdicts, first, second = output.split()
    assert (verdicts, complaints) == (["True", "True", "0"], "")
    assert await_end([int(first), int(second)], 30) == []


@needs_proc
def test_nothing_is_left_when_the_interpreter_is_killed_while_a_bomb_burns() -> None:
    body = """
        threading.Thread(target=grade, args=('\\\\sqrt{5}', '9^{9^{9^9}}')).start()
        time.sleep(0.3)
        print(*pids(), flush=True)
        time.sleep(60)
    """
    script = run_script(body)
    pids = [int(pid) for pid in script.stdout.readline().split()]
    script.kill()
    script.communicate(timeout=200)
    assert len(pids) >= 2
    assert await_end(pids, 30) == []
