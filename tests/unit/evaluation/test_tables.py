"""Rows, averages and differences, against numbers worked out by hand; their forms; latencies."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from rows_of import ONE, TWO, planned, record, records, results_of

from openconductor.errors import ConfigError
from openconductor.evaluation.records import Record, RoundRecord, latency
from openconductor.evaluation.statistics import wilson_interval
from openconductor.evaluation.tables import (
    AVERAGE,
    Table,
    cut_answers,
    details,
    make_row,
    make_table,
    much_masked,
    table_files,
)
from openconductor.types import Usage

UNPRICED = Usage(input_tokens=10, output_tokens=5, unpriced_calls=1)


def table_of(
    found: Iterable[Record], systems: str = "conductor", tasks: str = "t", **options: Any
) -> Table:
    """The table of records, by the names of systems and tasks."""
    return make_table(results_of(found, systems.split(), tasks=tasks.split(), **options))


def row_of(marks: Sequence[str], repeats: int = 1) -> Any:
    """The row of one system on one task."""
    return make_row("conductor", "t", records(marks), repeats)


# ── one row ───────────────────────────────────────────────────────────────────────────────────────
def test_the_error_is_clustered_by_problem_and_single_answers_have_wilsons_interval() -> None:
    row = row_of(["+", "+", "+", "-"])
    assert row.n == 4
    assert row.k == 1
    assert row.accuracy == 0.75
    assert row.pass_at_k is None
    assert row.se == pytest.approx(0.25)  # sqrt(variance / n), variance = 3/4 * 1/4 * 4/3 = 1/4
    assert row.ci95 == pytest.approx(wilson_interval(3, 4))
    # Means 1, 1/2, 0, 1: their mean is 5/8; squares of deviations (9 + 1 + 25 + 9) / 64, over 3,
    # over 4.
    row = row_of(["++", "+-", "--", "++"], 2)
    assert row.accuracy == 0.625
    assert row.se == pytest.approx(math.sqrt(44 / 64 / 3 / 4))
    assert row.pass_at_k == 0.75  # at least one of two: 1, 1, 0, 1


def test_masked_repeats_are_left_out_counted_and_do_not_change_what_a_problem_weighs() -> None:
    # p0: 2 of 2 decided right; p1: 0 of 1; p2: nothing decided; p3: 1 of 3.
    row = row_of(["+f+", "u-u", "fff", "+--"], 3)
    assert row.accuracy == pytest.approx((1 + 0 + 1 / 3) / 3)
    assert (row.n, row.ungraded, row.failed, row.masked) == (4, 2, 4, 6)
    assert row.pass_at_k == 1.0, "only p3 has three decided answers, and one of them is right"


def test_what_counts_as_wrong_is_counted_by_its_reason() -> None:
    row = row_of(["+", "-", "?", "!", "r", "?"])
    assert row.accuracy == pytest.approx(1 / 6)
    assert (row.unparsed, row.invalid, row.refused, row.masked) == (2, 1, 1, 0)


WHOLE = RoundRecord(TWO, True, outcomes=("answered", "answered"))

CUT = RoundRecord(TWO, True, outcomes=("cut", "answered"))


def test_answers_that_were_cut_are_counted_and_more_than_a_few_percent_are_warned_of() -> None:
    few = records(["+"] * 3, rounds=(CUT,))
    few += [record("+", f"q{place}", rounds=(WHOLE,)) for place in range(97)]
    many = records(["+"] * 5, system="random", rounds=(CUT, WHOLE))
    assert make_row("conductor", "t", few, 1).cut == 3
    assert cut_answers(results_of(few, ["conductor"])) == []
    (warning,) = cut_answers(results_of([*few, *many], ["conductor", "random"]))
    assert warning.startswith(
        "warning: random on t: in 5 of 5 answers a worker was cut at its token limit (100 %)"
    )
    table = table_of(two_tasks(["+"], ["+"], rounds=(CUT,)), "conductor", "a b")
    assert [cells[-1] for cells in details(table)[1]] == ["1", "1", "2"]


def test_all_systems_with_many_masked_answers_are_warned_of_the_worst_first() -> None:
    marks = {"few": "f" + "+" * 39, "some": "ff+++", "most": "fff++"}
    rows = [make_row(system, "t", records(list(of)), 1) for system, of in marks.items()]
    assert much_masked(rows[:1]) == ""
    assert much_masked(rows).endswith(
        "are masked and in no average, so the figure may be off by as much: "
        "3 of 5 by most on t, 2 of 5 by some on t"
    )


def test_cost_is_of_a_question_asked_once_whatever_became_of_it() -> None:
    # Four records of one cent, 15 tokens and one call; two right of the three that were decided.
    row = row_of(["+", "+", "-", "f"])
    assert row.dollars_per_question == 0.01
    assert row.tokens_per_question == 15
    assert row.calls_per_question == 1
    assert row.right_per_dollar == pytest.approx(2 / 3 / 0.01)


@pytest.mark.parametrize(
    ("unpriced", "dollars", "alone"), [(1, None, None), (0, pytest.approx(0.02 / 3), 0.0)]
)
def test_an_unknown_price_is_unknown_and_what_was_free_cost_nothing(
    unpriced: int, dollars: object, alone: float | None
) -> None:
    costless = record("+", "p9", usage=replace(UNPRICED, unpriced_calls=unpriced))
    row = make_row("conductor", "t", [*records(["+", "+"]), costless], 1)
    assert row.dollars_per_question == dollars
    row = make_row("conductor", "t", [costless], 1)
    assert row.dollars_per_question == alone
    assert row.right_per_dollar is None


def test_validity_counts_texts_and_accuracy_given_valid_leaves_the_others_out() -> None:
    """No text came where the planner could not be reached or declined."""
    no_text = planned(None, reason="")
    answered = [
        record("+", "p0", rounds=planned(ONE)),
        record("-", "p1", rounds=planned(TWO)),
        record("!", "p2", rounds=planned(None)),
        record("f", "p3", rounds=no_text),
        record("r", "p4", rounds=no_text),
        record("f", "p5", rounds=planned(ONE)),
    ]
    row = make_row("conductor", "t", answered, 1)
    assert row.validity == pytest.approx(3 / 5)
    assert row.mended == 3 / 6, "`ask` would have mended these, the planner that is down too"
    assert row.accuracy_given_valid == 0.5
    assert row.mean_steps == pytest.approx(4 / 3)
    assert row.routing_entropy_bits == pytest.approx(0.811278), "three steps of four are ann's"


@pytest.mark.parametrize(("reason", "valid"), [("missing_list", False), ("", None)])
def test_an_answer_of_the_default_worker_is_a_text_that_was_invalid_or_none(
    reason: str, valid: bool | None
) -> None:
    alone = RoundRecord(ONE)
    mended = record("+", rounds=(*planned(None, reason=reason), alone))
    assert (mended.valid, mended.unplanned) == (valid, True)
    assert make_row("conductor", "t", [mended], 1).mended == 1.0
    assert make_row("ann", "t", [record("+", rounds=(alone,))], 1).mended is None


# ── averages ──────────────────────────────────────────────────────────────────────────────────────
def two_tasks(first: list[str], second: list[str], **changes: object) -> list[Record]:
    return [*records(first, task="a", **changes), *records(second, task="b", **changes)]


def test_each_task_weighs_the_same_in_the_average_however_many_problems_it_has() -> None:
    """The errors are those of 1/2 over two problems, and 3/4 over four."""
    answered = two_tasks(["+", "-"], ["+", "+", "+", "-"], calls=2)
    row = table_of(answered, "conductor", "a b").row("conductor", AVERAGE)
    assert (row.n, row.accuracy) == (6, 0.625)
    assert row.se == pytest.approx(math.sqrt(0.5**2 + 0.25**2) / 2)
    assert row.dollars_per_question == 0.01
    assert row.calls_per_question == 2
    assert row.right_per_dollar == pytest.approx(62.5)


def test_what_one_task_does_not_know_the_average_does_not_know() -> None:
    answered = records(["+", "-"], task="a") + records(["f", "u"], task="b", usage=UNPRICED)
    row = table_of(answered, "conductor", "a b").row("conductor", AVERAGE)
    assert row.accuracy is row.se is row.ci95 is None
    assert row.dollars_per_question is row.right_per_dollar is None
    assert row.masked == 2
    assert row.tokens_per_question == 15


def test_no_worker_is_the_best_one_for_answers_that_could_not_be_decided() -> None:
    """Ann is right on 2 of 3 questions; Bob on the only one of his that could be decided."""
    answered = records(["+", "+", "-"], system="worker:ann")
    answered += records(["+", "u", "f"], system="worker:bob")
    table = table_of(answered, "workers")
    assert table.row("worker:bob", "t").accuracy == 1.0
    assert table.best_worker == "worker:ann"
    assert table_of(records(["u"], system="worker:bob"), "workers").best_worker == ""


# ── differences ───────────────────────────────────────────────────────────────────────────────────


# ── differences ───────────────────────────────────────────────────────────────────────────────────
def test_systems_are_compared_on_the_problems_that_both_have_decided() -> None:
    ours = records(["+", "+", "f", "-"], system="worker:ann")
    table = table_of([*ours, *records(["-", "+", "+", "u"])], "conductor worker:ann")
    (gap,) = table.differences
    assert (gap.system, gap.task) == ("worker:ann", "t")
    assert (gap.problems, gap.better, gap.worse) == (2, 1, 0)
    assert gap.difference == 0.5


def test_differences_are_averaged_over_tasks_and_holm_is_over_all_of_the_table() -> None:
    ours = two_tasks(["-"] * 7, ["+"] * 7)
    theirs = two_tasks(["+"] * 7, ["+"] * 7, system="worker:ann")
    on_a, on_b, average = table_of([*ours, *theirs], "conductor worker:ann", "a b").differences
    assert average.task == AVERAGE
    assert average.difference == 0.5
    assert (average.problems, average.better) == (14, 7)
    # a: 1 less twice what 7 equal problems leave open; b: 0 less it once.
    rest = 1 - 0.025 ** (1 / 7)
    low = 0.5 - math.hypot(2 * rest, rest) / 2
    assert average.ci95 == pytest.approx((low, 0.5 + rest / 2))
    assert on_a.p == 1 / 64, "7 of 7 are better"
    assert (on_a.p_holm, on_b.p_holm) == (3 / 64, 1.0), "the smallest of three"
    assert (average.p < 0.05) == (low > 0)


def test_the_one_compared_with_may_be_named_and_must_be_there() -> None:
    answered = records(["+"] * 7, system="worker:ann") + records(["-"] * 7)
    table = table_of(answered, "conductor worker:ann", against="worker:ann")
    assert [(gap.system, gap.difference) for gap in table.differences] == [("conductor", -1.0)]
    message = "against: got 'worker:bob', expected one of conductor, worker:ann"
    with pytest.raises(ConfigError, match=message):
        table_of(answered, "conductor worker:ann", against="worker:bob")


def test_hindsight_has_a_row_is_said_to_be_a_bound_and_is_not_compared() -> None:
    answered = records(["+", "-"], system="worker:ann") + records(["-", "+"], system="worker:bob")
    table = table_of(answered, "oracle_observed workers")
    assert table.row("oracle_observed", "t").accuracy == 1.0
    assert table.against == "worker:ann"
    assert [gap.system for gap in table.differences] == ["worker:bob"]
    assert "a bound, not a system" in form("md", table)
    assert "a bound" not in form("md", table_of(answered, "workers"))
    with pytest.raises(ConfigError, match="expected a system that answers"):
        table_of(answered, "oracle_observed workers", against="oracle_observed")


# ── the whole ─────────────────────────────────────────────────────────────────────────────────────
def test_what_was_learnt_from_stands_beside_the_rows_and_what_is_missing_is_counted() -> None:
    usage = Usage(dollars=Decimal("0.25"))
    lessons = records(["+", "-"], task="learn:t", system="worker:ann", usage=usage)
    table = table_of([*records(["+"]), *lessons], expected={"t": 3})
    assert table.missing == 2
    assert table.learning == {"questions": 2, "records": 2, "calls": 2, "tokens": 0, "dollars": 0.5}
    assert [row.n for row in table.rows] == [1]


# ── as files ──────────────────────────────────────────────────────────────────────────────────────
ODD = "a|b & c_d 100% [x] {y} #1 $2 ~^ <i> \\ *s* _e_ &amp; é"


def small(name: str = "worker:ann") -> Table:
    """Make a table of the Conductor and of a worker, which is called ``name``."""
    answered = records(["+", "-", "?", "f"], rounds=planned(ONE))
    answered += records(["+", "+", "-", "+"], system="worker:ann", usage=UNPRICED)
    table = table_of(answered, "conductor worker:ann", expected={"t": 5})
    ours, worker = table.rows
    return replace(table, rows=(ours, replace(worker, system=name)))


CELLS = """
dollars        → 0.0100 → –
right a dollar → 33.3   → –
valid          → 100.0  → –
unparsed       → 1      → 0
failed         → 1      → 0
pass@k         → –      → –
steps          → 1.00   → –
95 %           →        → 30.1 to 95.4
"""  # the last is Wilson's of 3 in 4


def form(ending: str, table: Table) -> str:
    return table_files(table)[f"table.{ending}"]


MARKDOWN = """\
# by hand

Unconstrained, k = 1, t (n = 4). Standard errors and intervals are clustered by problem. \
2 answers are missing: \
the evaluation was stopped.

\\* More than 3 % of the answers are masked and in no average, so the figure may be off by as \
much: 1 of 4 by conductor on t.

## Accuracy

| system | t, % |
| --- | --- |
| conductor | \\* 33.3 ± 33.3 |
| worker:ann | 75.0 ± 25.0 |
"""


def test_markdown_begins_with_the_grid_of_accuracies_in_percent() -> None:
    assert form("md", small()).startswith(MARKDOWN)


@pytest.mark.parametrize("line", CELLS.strip().splitlines())
def test_details_say_a_dash_for_what_is_not_known_and_never_0(line: str) -> None:
    name, ours, theirs = [part.strip() for part in line.split("→")]
    head, (conductor, worker) = details(small())
    place = list(head).index(name)
    assert conductor[place] == ours or not ours
    assert worker[place] == theirs


def test_csv_has_every_column_of_every_row_and_leaves_the_unknown_empty() -> None:
    ours, worker = csv.DictReader(io.StringIO(form("csv", small(ODD))))
    known = {
        "system": "conductor",
        "accuracy": str(1 / 3),
        "n": "4",
        "dollars_per_question": "0.01",
    }
    assert known.items() <= ours.items()
    unknown = {"dollars_per_question": "", "validity": "", "pass_at_k": ""}
    assert ({"system": ODD} | unknown).items() <= worker.items()
    assert float(worker["ci95_low"]) == pytest.approx(0.301, abs=0.001)
    assert float(worker["ci95_high"]) == pytest.approx(0.954, abs=0.001)


ESCAPED = r"| a\|b & c_d 100% \[x\] {y} #1 $2 \~^ \<i> \\ \*s\* \_e\_ \&amp; é | 75.0 ± 25.0 |"


def test_a_name_breaks_neither_a_column_nor_a_line_of_markdown() -> None:
    assert ESCAPED in form("md", small(ODD)).splitlines()
    assert "| two lines more | 75.0" in form("md", small("two\r\nlines\u2028more"))


DOLLARS = """
0.0        → 0
12.3       → 12.3000
0.01       → 0.0100
0.0123456  → 0.0123
0.00123456 → 0.001235
4.91e-05   → 0.000049
1e-06      → 0.000001
9e-07      → <0.000001
"""


@pytest.mark.parametrize("line", DOLLARS.strip().splitlines())
def test_dollars_are_never_written_as_a_power_of_ten(line: str) -> None:
    value, _, text = line.split()
    head, (cells,) = details(table_of([record("+", usage=Usage(dollars=Decimal(value)))]))
    assert dict(zip(head, cells, strict=True))["dollars"] == text


def test_latencies_are_interpolated_and_unknown_where_nothing_was_asked() -> None:
    answered: list[Record] = []
    for place in range(21):
        usage = Usage(seconds=2.0 * place)
        answered.append(record("+", f"p{place}", seconds=float(place), usage=usage))
    row, other = latency(results_of(answered, ["conductor", "random"]))
    assert [*row.values()] == ["conductor", "t", 21, 10.0, pytest.approx(19.0), 10.0, 20.0]
    assert [*other.values()] == ["random", "t", 0, None, None, None, None]
    assert [*row][3:] == ["p50_seconds", "p95_seconds", "mean_seconds", "work_seconds"]
