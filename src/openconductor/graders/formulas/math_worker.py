"""The program of a math worker: reads pairs of formulas and says whether they mean the same.

Only in these processes is sympy. The arguments are a connection's file descriptor and the bytes of
memory. Messages are JSON, ``{"gold", "answers", "tolerance", "cpu_s"}``. The replies are ``ready``
once, ``gold`` as soon as a pair's reference is read (so that the caller knows whose fault a timeout
is), and a verdict: ``equal``, ``different``, ``unread gold``, ``unread answer``, ``memory`` or
``error``.

Run by its path, as a process of its own, never imported by the package: a formula can be a bomb,
and nothing inside a process stops ``9^{9^{9^9}}``. The kernel does: SIGPROF ends the process when
the CPU time of a pair is spent. An error of sympy ends nothing: it is a verdict of its own, and the
answer stays undecided.

``formula_groups`` takes texts apart, ``formula_reader`` reads single formulas, ``formula_equality``
compares groups and ``formula_values`` single formulas.
"""

from __future__ import annotations

# sympy carries no types.
# pyright: basic, reportMissingTypeStubs=false
import json
import logging
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from multiprocessing.connection import Connection

from openconductor.graders.formulas.formula_equality import same
from openconductor.graders.formulas.formula_groups import read
from openconductor.graders.formulas.formula_values import stands_for

_WARM_UP = (
    r"\frac{1}{2}x+\sqrt{2}",
    r"(1,\pi]\cup\{3\}",
    r"x=\begin{pmatrix}1\\2\end{pmatrix}",
    "2<x<3",
    r"\sin 2x+e^{x}\ln 2",
    "x^2+2y=5",
)

read_gold = lru_cache(maxsize=1024)(read)


def judge(
    gold_text: str,
    answers: list[str],
    tolerance: float | None,
    report: Callable[[str], object] = str,
) -> str:
    """Return the verdict on an answer: the list of its items, or each of them, must be the gold."""
    gold = read_gold(gold_text)
    report("gold")
    if gold is None:
        return "unread gold"
    whole = read(", ".join(answers))
    if same(gold, whole, tolerance):
        return "equal"
    if len(answers) > 1:
        items = [read(answer) for answer in answers]
        if all(same(gold, item, tolerance) for item in items):
            return "equal"
    if whole is None:
        return "unread answer"
    cut_off = stands_for(gold, whole) or stands_for(whole, gold)
    return "equal" if cut_off else "different"


def main() -> None:
    """Answer messages until the other end closes."""
    pipe = Connection(int(sys.argv[1]))
    memory = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):  # not every system limits address space
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    # A number of 5,000 digits is no error, because the CPU time is limited.
    sys.set_int_max_str_digits(0)

    def report(word: str) -> None:
        pipe.send_bytes(word.encode())

    # The first formulas cost a hundred times what later ones do; no answer should pay for that.
    for text in _WARM_UP:
        judge(text, [text + "+1", text.replace("2", "3")], None)
    report("ready")
    with suppress(EOFError):
        while True:
            pair = json.loads(pipe.recv_bytes())
            signal.setitimer(signal.ITIMER_PROF, pair["cpu_s"])
            try:
                verdict = judge(pair["gold"], pair["answers"], pair["tolerance"], report)
            except MemoryError:
                verdict = "memory"
            except RecursionError:
                verdict = "unread answer"
            except Exception:  # noqa: BLE001 - sympy's errors have no base class
                verdict = "error"
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            report(verdict)


if __name__ == "__main__":
    main()
