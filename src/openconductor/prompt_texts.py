"""The texts of the worked examples, written for this project: questions with plans over slots instead of workers.

In: nothing. Out: the sets of examples. Every example has a plan for each step limit, the longest first, so that what is
shown is always valid; the last is one step long. Examples from tasks that are not trained on teach the form without a
strategy to copy, and train better (method, section 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ExampleSet = Literal["none", "in_distribution", "mixed", "out_of_distribution"]


@dataclass(frozen=True, slots=True)
class Task:
    """One step of a plan: the slot that does it, its instruction, and the earlier steps that it sees."""

    slot: int
    subtask: str
    sees: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to work on a question; ``plain`` is the thought that fits where all steps get the same instruction."""

    thought: str
    plain: str
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """A question and the plans for it, the longest first."""

    question: str
    plans: tuple[Plan, ...]


_ONE_IS_ENOUGH = "One worker, on its own, is enough here."
_SECOND_LOOK = "One attempt, then a second worker that sees it and answers for good."

# --- out of distribution: tasks that are not trained on ---------------------------------------------------------------

_MEDICINE = Example(
    "A 24-year-old woman has felt tired for several months and has heavy menstrual periods. Haemoglobin is 9.1 g/dL, "
    "mean corpuscular volume 71 fL, ferritin 6 ng/mL. Which further finding is most likely?\n"
    "A. Low total iron-binding capacity\n"
    "B. High total iron-binding capacity\n"
    "C. High reticulocyte count\n"
    "D. Narrow red cell distribution width",
    (
        Plan(
            "This turns on one piece of knowledge: the values form a well-known pattern, and the options differ in how "
            "they fit it. The likely slip is to be drawn to an option before the condition is named, so the "
            "instruction fixes that order. A second opinion would cost more than it adds: one step.",
            _ONE_IS_ENOUGH,
            (
                Task(
                    0,
                    "First name the condition that the laboratory values point to, and why. Then go through the "
                    "options one by one and say whether each fits that condition. End with the letter of the best "
                    "option on a line of its own.",
                ),
            ),
        ),
    ),
)

_DEEP_MATH = Example(
    "Find all real numbers d with 0 < d < 1 such that every continuous function f on [0, 1] with f(0) = f(1) has a "
    "point x with f(x + d) = f(x).",
    (
        Plan(
            '"Find all" has two halves: showing that some values always work, and showing that every other value can '
            "fail. They need opposite habits of mind, and a worker that does both tends to stop at the first nice "
            "family. So two workers take one half each without seeing the other, and a third fits them together.",
            "Two independent attempts, so that one slip does not spread, and a third worker that compares them.",
            (
                Task(
                    0,
                    "Work on one half only: for which d must such a point x always exist? Prove it, and state exactly "
                    "which values of d your proof covers.",
                ),
                Task(
                    1,
                    "Work on one half only: for which d can you build a continuous f with f(0) = f(1) such that "
                    "f(x + d) = f(x) has no solution? Give f explicitly, verify it, and state exactly which values of "
                    "d your construction covers.",
                ),
                Task(
                    2,
                    "You see a proof that some d work and a construction that rules some out. Check both line by "
                    "line, decide every d that is claimed by both or by neither, and state the complete set of d as "
                    "the final answer.",
                    (0, 1),
                ),
            ),
        ),
        Plan(
            '"Find all" needs a proof for the values that work and a counterexample for those that do not; the second '
            "half is the one that is forgotten. With two steps, one worker answers and the other attacks the answer.",
            _SECOND_LOOK,
            (
                Task(
                    0,
                    "Determine the set of d. Prove that each d in it works, and give an explicit counterexample for "
                    "the d outside it.",
                ),
                Task(
                    1,
                    "Try to break the answer that you see: look for a d in the set whose proof has a gap, and for a d "
                    "outside it whose counterexample is not continuous or does not satisfy f(0) = f(1). Then state "
                    "the correct set of d as the final answer.",
                    (0,),
                ),
            ),
        ),
        Plan(
            '"Find all" needs a proof for the values that work and a counterexample for those that do not. One step '
            "must ask for both.",
            _ONE_IS_ENOUGH,
            (
                Task(
                    0,
                    "Guess the set of d from small cases, prove that each d in it works, then give an explicit "
                    "counterexample for every d outside it. Only then state the set as the final answer.",
                ),
            ),
        ),
    ),
)

_COUNTDOWN = Example(
    "Use each of the numbers 4, 7, 9, 25 and 50 at most once, together with +, -, * and /, to make 473. Write a single "
    "expression.",
    (
        Plan(
            "Finding an expression takes search; checking one takes a minute. Such questions are lost by a slip in the "
            "sum or a number used twice, and whoever made the slip seldom sees it. So a second worker recomputes "
            "everything and may repair it.",
            _SECOND_LOOK,
            (
                Task(
                    0,
                    "Search in an orderly way: factor the target and its neighbours, and see which factors the "
                    "numbers can make. Give one expression and evaluate it step by step.",
                ),
                Task(
                    1,
                    "Recompute the expression that you see, one operation at a time, and tick off each number that "
                    "it uses. If the value is not 473 or a number is used twice, find an expression that works. "
                    "Reply with the final expression only.",
                    (0,),
                ),
            ),
        ),
        Plan(
            "A slip in the sum or a number used twice is what loses such questions, so the step must end with a check.",
            _ONE_IS_ENOUGH,
            (
                Task(
                    0,
                    "Factor the target and its neighbours, and see which factors the numbers can make. Before you "
                    "reply, evaluate your expression step by step and tick off each number. End with the expression "
                    "on a line of its own.",
                ),
            ),
        ),
    ),
)

_SCHEDULE = Example(
    "Six talks P, Q, R, S, T and U are given one after another. Q comes directly after S. P is neither first nor last. "
    "T comes before P. R and U are not next to each other. How many orders are possible?",
    (
        Plan(
            "The count is small enough to list, but each condition is easily misread, and a list easily misses cases. "
            "A chain fits: one worker makes the rules precise, the next lists by them, a third audits the list, and "
            "the last, with the rules settled, only has to weigh list and audit.",
            "A chain: each worker goes over what came before, and the last one answers.",
            (
                Task(
                    0,
                    "Do not solve the puzzle. Restate every condition as a rule about positions 1 to 6, and propose a "
                    "way to split it into cases that overlap nowhere and leave nothing out.",
                ),
                Task(1, "Follow the cases that you see. List every valid order of each, and give the total.", (0,)),
                Task(
                    2,
                    "Audit the list that you see against the rules: test each order, look for repeats, and look for "
                    "cases that were skipped. Report each error exactly, or say that there is none.",
                    (0, 1),
                ),
                Task(
                    0,
                    "Correct the list by those points of the audit that hold, count again, and give the number of "
                    "orders as the final answer.",
                    (1, 2),
                ),
            ),
        ),
        Plan(
            "The count is small enough to list, but a list easily misses cases. One worker lists, another counts in a "
            "different way and settles any difference.",
            _SECOND_LOOK,
            (
                Task(0, "List all valid orders, case by case on the position of the block SQ, and give the total."),
                Task(
                    1,
                    "Count the orders in another way than the one that you see: all orders that satisfy the first "
                    "three conditions, less those in which R and U are neighbours. If the totals differ, find the "
                    "error. Give the number of orders as the final answer.",
                    (0,),
                ),
            ),
        ),
        Plan(
            "The count is small enough to list; what matters is that the cases are split cleanly.",
            _ONE_IS_ENOUGH,
            (
                Task(
                    0,
                    "Treat SQ as one block and split into cases by its position. List the valid orders of each case, "
                    "test each against all four conditions, and give the number of orders as the final answer.",
                ),
            ),
        ),
    ),
)

# --- in distribution: tasks of the kinds that are trained on ----------------------------------------------------------

_MATH = Example(
    "How many ordered pairs (a, b) of positive integers satisfy 1/a + 1/b = 1/12?",
    (
        Plan(
            "There are two quite different ways to count here. If both give one number it is almost surely right, so "
            "two workers count independently, and a third compares and, if need be, finds the pair that was missed.",
            "Two independent attempts, so that one slip does not spread, and a third worker that compares them.",
            (
                Task(0, "Rearrange the equation into a product of two factors, and count by divisors."),
                Task(1, "Bound a from below and above when a <= b, list all such pairs, and count the ordered ones."),
                Task(
                    2,
                    "Compare the two counts that you see. If they differ, find the pairs that one of them missed or "
                    "counted twice. Give the final count as \\boxed{...}.",
                    (0, 1),
                ),
            ),
        ),
        Plan(
            "Order and the case a = b are where such counts go wrong; a second worker recounts in another way.",
            _SECOND_LOOK,
            (
                Task(0, "Rearrange the equation into a product of two factors, and count the ordered pairs."),
                Task(
                    1,
                    "Check the count that you see by listing the pairs with a <= b, and mind a = b. Give the final "
                    "count as \\boxed{...}.",
                    (0,),
                ),
            ),
        ),
        Plan(
            "A standard factoring solves it; order and the case a = b are where it goes wrong.",
            _ONE_IS_ENOUGH,
            (
                Task(
                    0,
                    "Rearrange the equation into a product of two factors and count the ordered pairs; mind a = b. "
                    "Give the final count as \\boxed{...}.",
                ),
            ),
        ),
    ),
)

_MMLU = Example(
    "A government sets a legal maximum price for a good above the price at which its market clears. What follows?\n"
    "A. A lasting shortage\n"
    "B. A lasting surplus\n"
    "C. No change in price or quantity\n"
    "D. A fall in supply",
    (
        Plan(
            "A short question of knowledge with one trap, the word above. One careful worker is enough, if it is told "
            "to settle the trap first.",
            _ONE_IS_ENOUGH,
            (
                Task(
                    0,
                    "Say first whether the maximum price binds, given where it lies. Conclude from that alone, and "
                    "end with the letter of the right option.",
                ),
            ),
        ),
    ),
)

_SCIENCE = Example(
    "A 2.0 kg block slides from rest down a frictionless ramp of height 1.5 m, crosses 3.0 m of rough floor (kinetic "
    "friction coefficient 0.20), and runs into a spring with k = 800 N/m on smooth floor. How far is the spring "
    "compressed at most? Take g = 9.8 m/s^2.",
    (
        Plan(
            "The physics is an energy balance and the rest is arithmetic, and mistakes in one hide in the other. So "
            "one worker sets up the balance in symbols only, and another, who sees it, puts the numbers in.",
            _SECOND_LOOK,
            (
                Task(
                    0,
                    "Set up the energy balance from the top of the ramp to the greatest compression, in symbols "
                    "only. Say for each term why it is there, and solve for the compression. Put in no numbers.",
                ),
                Task(
                    1,
                    "Check that the balance that you see has every term with the right sign and unit. Then put in "
                    "the numbers one term at a time, and give the compression in metres as the final answer.",
                    (0,),
                ),
            ),
        ),
        Plan(
            "An energy balance, then arithmetic; one worker can do both if it keeps them apart.",
            _ONE_IS_ENOUGH,
            (
                Task(
                    0,
                    "Write the energy balance in symbols and solve it for the compression before you put in any "
                    "number. Then compute term by term, and give the compression in metres as the final answer.",
                ),
            ),
        ),
    ),
)

_CODE = Example(
    "Write a Python program that reads n, k and then n integers from standard input, and prints the length of the "
    "longest contiguous block whose sum is divisible by k (0 if there is none). 1 <= n <= 200000, 1 <= k <= 10^9, and "
    "the integers may be negative.",
    (
        Plan(
            "Two things decide: an algorithm that is fast enough, and corner cases such as negative sums or no block "
            "at all. They can be worked out side by side. A third worker then writes the program with both in view, "
            "and a fourth runs it by hand against the corner cases before it is handed in.",
            "Two independent attempts, a third worker that merges them, and a last one that goes over everything.",
            (
                Task(
                    0,
                    "Describe an algorithm that is fast enough for the limits, argue that it is correct, and give its "
                    "running time. Write no code.",
                ),
                Task(
                    1,
                    "Write no code. Make a list of six small inputs on which a careless program would fail, each with "
                    "its correct output and the mistake that it uncovers.",
                ),
                Task(
                    2,
                    "Write the whole program by the algorithm that you see, reading all input at once. Trace it on the "
                    "small inputs that you see.",
                    (0, 1),
                ),
                Task(
                    1,
                    "Go through the program that you see on each small input, line by line, and correct what fails. "
                    "Reply with the complete final program in one ```python block.",
                    (1, 2),
                ),
            ),
        ),
        Plan(
            "The program is short, but negative sums and an empty result are easily got wrong. One worker writes it, "
            "another tests it by hand and hands in the corrected version.",
            _SECOND_LOOK,
            (
                Task(0, "Choose an algorithm that is fast enough for the limits, and write the whole program."),
                Task(
                    1,
                    "Trace the program that you see on small inputs, among them negative numbers, k = 1 and a case "
                    "with no block. Correct it, and reply with the complete final program in one ```python block.",
                    (0,),
                ),
            ),
        ),
        Plan(
            "The program is short; what can go wrong is speed, negative sums and an empty result.",
            _ONE_IS_ENOUGH,
            (
                Task(
                    0,
                    "Write a program that runs in linear time. Before you reply, trace it on negative numbers and on a "
                    "case with no block. Reply with the complete program in one ```python block.",
                ),
            ),
        ),
    ),
)

SETS: dict[ExampleSet, tuple[Example, ...]] = {
    "none": (),
    "out_of_distribution": (_MEDICINE, _DEEP_MATH, _COUNTDOWN, _SCHEDULE),
    "in_distribution": (_MMLU, _MATH, _SCIENCE, _CODE),
    "mixed": (_MMLU, _DEEP_MATH, _COUNTDOWN, _CODE),
}
