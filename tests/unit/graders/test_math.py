"""The math grader over scripted workers; plain numbers and units."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from openconductor.config import load_registered
from openconductor.errors import ConfigError, GradingError
from openconductor.graders import GRADERS
from openconductor.graders.formulas import math_workers
from openconductor.graders.formulas.math_text import normalise
from openconductor.graders.formulas.math_workers import MathWorkers, Verdict
from openconductor.graders.math import LONGEST, MathGrader
from openconductor.graders.numerals import equal_numerals, read_numeral
from openconductor.graders.units import read_unit
from openconductor.types import Grade, Problem


class ScriptedWorkers(MathWorkers):
    """Workers that give one verdict, and record the pairs that they get."""

    def __init__(self, verdict: Verdict, *, gold_read: bool = True) -> None:
        self.verdict: Verdict = verdict
        self.gold_read = gold_read
        self.pairs: list[tuple[str, list[str], float | None]] = []

    async def judge(
        self, gold: str, answers: Sequence[str], tolerance: float | None
    ) -> tuple[Verdict, bool]:
        self.pairs.append((gold, list(answers), tolerance))
        return self.verdict, self.gold_read


async def graded(
    workers: MathWorkers | None, reference: object, answer: str, tolerance: float | None = None
) -> Grade:
    return await MathGrader(tolerance, workers=workers).grade(
        Problem("p", "", reference, "t"), answer
    )


VERDICTS = """
equal         True  True   formula
different     True  False  formula
error         True  None   undecided
unread answer True  False  unreadable
unread gold   True  None   undecided
cpu           True  False  timeout
memory        True  False  out of memory
crash         True  False  crash
error         False None   undecided
cpu           False None   undecided
memory        False None   undecided
crash         False None   undecided
"""


@pytest.mark.parametrize("line", VERDICTS.strip().splitlines())
async def test_a_bomb_is_the_answers_fault_and_an_unread_reference_nobodys(line: str) -> None:
    verdict, gold_read, correct, note = re.split(r" +(True|False) +(\w+) +", line)
    workers = ScriptedWorkers(verdict, gold_read=gold_read == "True")  # type: ignore[arg-type]
    grade = await graded(workers, "x+1", r"\boxed{1+x}")
    assert (str(grade.correct), grade.extracted) == (correct, "1+x")
    assert grade.note.startswith(note)


async def test_an_answer_to_a_plain_number_that_cannot_be_read_is_wrong() -> None:
    for reference in ("7", r"28\%", r"0.1\overline{6}", r"5\text{ apples}"):
        assert (
            await graded(ScriptedWorkers("unread gold"), reference, r"\boxed{@@}")
        ).correct is False


async def test_a_starved_worker_is_the_machines_fault() -> None:
    with pytest.raises(GradingError, match="problem p: math workers: got no CPU time"):
        await graded(ScriptedWorkers("starved"), "x+1", r"\boxed{1+x}")


@pytest.mark.parametrize(
    ("reference", "answer", "correct", "note"),
    [
        ("73", "073", True, "number"),
        (r"\frac{1}{2}", "0.5", True, "number"),
        (r"\text{even}", "odd", False, "other words"),
        ("x", "x", True, "same text"),
        ("x", "y" * (LONGEST + 1), False, "unreadable: longer than 4000 characters"),
        (r"2\pi\text{ cm}^2", r"2\pi\text{ cm}^3", False, "another kind of unit"),
    ],
)
async def test_these_need_no_worker(reference: str, answer: str, correct: bool, note: str) -> None:
    workers = ScriptedWorkers("equal")
    grade = await graded(workers, reference, rf"\boxed{{{answer}}}")
    assert (grade.correct, grade.note, workers.pairs) == (correct, note, [])


@pytest.mark.parametrize(
    ("reference", "answer", "pair"),
    [
        (
            r"$\dfrac{\pi}{2}\text{ cm}$",
            r"\boxed{pi/2}, \boxed{1.57}",
            (r"\frac{\pi}{2}", [r"\pi /2", "1.57"]),
        ),
        (
            r"2\pi\text{ m}",
            r"\boxed{200\pi\text{ cm}}",
            (r"2\pi", [r"(200\pi) \cdot \frac{1}{100}"]),
        ),
        (r"0.\overline{3}", r"\boxed{1-2/3}", (r"\frac{1}{3}", ["1-2/3"])),
    ],
)
async def test_workers_get_both_sides_in_one_form_and_in_one_unit(reference, answer, pair) -> None:
    workers = ScriptedWorkers("equal")
    await graded(workers, reference, answer, 0.01)
    assert workers.pairs == [(*pair, 0.01)]


@pytest.mark.parametrize("reference", [None, 5, "", "  ", ["5"], r"so \boxed{}", r"so \boxed{5"])
async def test_a_reference_without_a_value_is_the_graders_failure(reference: object) -> None:
    with pytest.raises(
        GradingError, match=r"problem p: got (the reference|a reference without a value)"
    ):
        await graded(None, reference, r"\boxed{5}")


MARKS = tuple("\\{}()[]$,;:.-+*/^_%=<>&10x \n°²½٣")
WORDS = (
    "pi",
    "sqrt",
    "\\frac",
    "\\text",
    "\\left",
    "and",
    "cm",
    "answer is ",
    "Answer: ",
    "<think>",
    "</think>",
)
REPLIES = st.lists(
    st.sampled_from((*MARKS, *WORDS, "\\boxed{")) | st.text(max_size=3), max_size=20
).map("".join)


@given(REPLIES, st.sampled_from(["5", "x+1", r"\text{a b}", "3 cm"]))
def test_whatever_is_written_gets_a_verdict(reply: str, reference: str) -> None:
    for answer in (reply, rf"\boxed{{{reply}}}"):
        assert asyncio.run(graded(ScriptedWorkers("different"), reference, answer)).correct in {
            True,
            False,
        }


def test_a_tolerance_out_of_its_range_is_refused() -> None:
    for tolerance in (-0.1, 1.0, float("nan")):
        with pytest.raises(ConfigError, match="tolerance"):
            MathGrader(tolerance)


async def test_without_sympy_the_grader_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(math_workers, "find_spec", lambda name: None)
    monkeypatch.setattr("openconductor.graders.math.shared_workers", MathWorkers)
    assert (await graded(None, "5", r"\boxed{5}")).correct is True  # an integer needs none of it
    with pytest.raises(ConfigError, match=r'pip install "openconductor\[grade\]"'):
        await graded(None, "x+1", r"\boxed{1+x}")


def test_the_graders_are_registered() -> None:
    assert all(callable(load_registered(GRADERS, name, what="grader")) for name in GRADERS)


def value(text: str) -> Fraction | None:
    numeral = read_numeral(normalise(text))
    return None if numeral is None else numeral.value


NUMBERS = r"""
7 = 7|+7|007|7.0|7%
-7 = -7|− 7
1234567 = 1,234,567
1234 = 1{,}234|1 234|So 1234
11111 = 11,\! 111
1/2 = .5|1/2|0.5
5 = 5.|$5|5 apples
-5 = \$-5
3/4 = 3/4|\dfrac34|\frac 34
-3/4 = -\frac{3}{4}|\frac{-3}{4}
270/7 = \frac{270}7
5/2 = 2\frac{1}{2}|2 1/2
-5/2 = -2\frac12
1/3 = 0.\overline{3}
1/6 = 0.1\overline{6}
1500 = 1.5\times10^{3}
3/2000 = 1.5 × 10^-3
1/500 = 2e-3
"""
NO_NUMBERS = (
    r"5t|5 minus 3|5 or 6|1/0|\frac{1}{0}|1,2,3|3,5|-3,0|0,111|1.2.3|2\frac{5}{2}|10^{1001}"
)
NO_NUMBERS += f"|1e99999999|x||{'9' * 401}"


@pytest.mark.parametrize("line", NUMBERS.strip().splitlines())
def test_a_number_is_read_as_it_is_written(line: str) -> None:
    number, _, texts = line.partition(" = ")
    for text in texts.split("|"):
        assert value(text) == Fraction(number), text


@pytest.mark.parametrize("text", NO_NUMBERS.split("|"))
def test_anything_else_is_no_number(text: str) -> None:
    assert value(text) is None


@given(st.integers(), st.integers(1, 10**9))
def test_a_fraction_equals_itself_and_nothing_else(top: int, under: int) -> None:
    texts = f"\\frac{{{top}}}{{{under}}}", f"{top}/{under}", f"{top + 1}/{under}"
    gold, same, other = filter(None, map(read_numeral, texts))
    assert equal_numerals(gold, same) and not equal_numerals(gold, other)


@given(st.integers(-(10**15), 10**15))
def test_a_decimal_is_exact(millionths: int) -> None:
    whole, decimals = divmod(abs(millionths), 10**6)
    sign = "-" if millionths < 0 else ""
    assert value(f"{sign}{whole}.{decimals:06}") == Fraction(millionths, 10**6)


# A reference, and an answer to it that may use a decimal comma.
EQUAL = r"""
5 \text{ m}|500 \text{ cm}
60 \text{ mph}|60 \text{ miles per hour}
90 km/h|25 \text{ m/s}
90 \text{ km/h}|90 \frac{\text{km}}{\text{h}}
864 \text{ cm}^2|864 \text{ square centimeters}
864 \text{ cm}^2|864
2 hours|120 minutes
2 hours|2 apples
3.5|3,5
0.111|0,111
1234|1,234
"""
DIFFERENT = r"""
5 \text{ m}|5 \text{ cm}
90 \text{ km/h}|90 \text{ h/km}
864 \text{ inches}^2|864 \text{ inches}
864 \text{ cm}^2|864 \text{ cm}^3
"""


@pytest.mark.parametrize("pair", [*EQUAL.split("\n")[1:-1], *DIFFERENT.split("\n")[1:-1]])
def test_units_are_converted_and_a_comma_may_be_a_decimal_point_in_an_answer(pair: str) -> None:
    gold, _, answer = pair.partition("|")
    wanted, got = read_numeral(normalise(gold)), read_numeral(normalise(answer), comma=True)
    assert equal_numerals(wanted, got) is (pair in EQUAL.split("\n"))


def test_a_comma_before_zeros_alone_is_no_decimal_point() -> None:
    assert read_numeral("3,0", comma=True) is None


NAMES = r"""
cm|centimeters
\text{ cm}^2|square centimetres
km/h|kilometers per hour
mph|miles/hour
^\circ|degrees
m/s^2|\text{ m/s}^2
m/s^2|\mathrm{m s^{-2}}
kg m/s|kg\cdot m/s
sq ft|feet^2
m|\text{ m}
"""


@pytest.mark.parametrize("names", NAMES.strip().splitlines())
def test_one_unit_has_several_names(names: str) -> None:
    short, _, other = names.partition("|")
    assert read_unit(short, letters=True) == read_unit(other, letters=True) is not None


def test_what_is_not_in_the_list_is_no_unit_nor_is_a_single_letter_that_may_be_a_variable() -> None:
    unknown = ("", "apples", "x", "cm apples", "/s", "m/s/s", "t")
    assert [text for text in unknown if read_unit(text, letters=True)] == []
    assert [letter for letter in "msgA" if read_unit(letter)] == []


def test_sizes_are_exact() -> None:
    unit = read_unit("km/h", letters=True)
    assert (unit.size, unit.dimension) == (Fraction(5, 18), (("metre", 1), ("second", -1)))
