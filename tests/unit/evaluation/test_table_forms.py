"""A table as files: the numbers as they are printed, what is unknown, and names that would break a form."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from rows_of import ONE, planned, records, results_of

from openconductor.evaluation.table import Table, make_table
from openconductor.evaluation.table_forms import (
    briefly,
    chance,
    comma_separated,
    comparisons,
    details,
    dollars,
    latex,
    markdown,
    table_files,
)
from openconductor.types import Usage

ODD = "a|b & c_d 100% [x] {y} #1 $2 ~^ <i> \\ *s* _e_ &amp; é"


def small(system: str = "worker:ann") -> Table:
    found = [
        *records(["+", "-", "?", "f"], system="conductor", rounds=planned(ONE)),
        *records(["+", "+", "-", "+"], system="worker:ann", usage=Usage(unpriced_calls=1)),
    ]
    table = make_table(results_of(found, ["conductor", "worker:ann"], expected={"t": 5}))
    rows = tuple(replace(row, system=system) if row.system == "worker:ann" else row for row in table.rows)
    gaps = tuple(replace(gap, system=system) for gap in table.gaps)
    return replace(table, rows=rows, gaps=gaps)


MARKDOWN = """\
# by hand

Unconstrained, k = 1, t (n = 4). Standard errors and intervals are clustered by problem. 2 answers are missing: \
the evaluation was stopped.

## Accuracy

| system | t, % |
| --- | --- |
| conductor | 33.3 ± 33.3 |
| worker:ann | 75.0 ± 25.0 |
"""


def test_markdown_begins_with_the_grid_of_accuracies_in_percent() -> None:
    assert markdown(small()).startswith(MARKDOWN)


def test_details_say_a_dash_for_what_is_not_known_and_never_0() -> None:
    head, rows = details(small())
    conductor, worker = (dict(zip(head, cells, strict=True)) for cells in rows)
    assert (conductor["dollars"], conductor["right a dollar"], conductor["valid"]) == ("0.0100", "33.3", "100.0")
    assert (conductor["unparsed"], conductor["failed"], conductor["pass@k"]) == ("1", "1", "–")
    assert (worker["dollars"], worker["right a dollar"], worker["valid"], worker["steps"]) == ("–", "–", "–", "–")
    assert worker["95 %"] == "30.1 to 95.4"  # Wilson's of 3 in 4


def test_the_terminals_table_adds_up_what_gave_no_answer() -> None:
    head, rows = briefly(small())
    assert [dict(zip(head, cells, strict=True))["no answer"] for cells in rows] == ["1", "0"]
    assert [dict(zip(head, cells, strict=True))["masked"] for cells in rows] == ["1", "0"]


def test_differences_are_in_points_with_their_sign() -> None:
    head, (cells,) = comparisons(small())
    shown = dict(zip(head, cells, strict=True))
    # Decided by both: p0 to p2; better on p1 alone.
    assert (shown["difference, points"], shown["better"], shown["worse"], shown["problems"]) == ("+33.3", "1", "0", "3")
    assert shown["95 %"] == "-96.4 to +100.0", "three problems leave everything open"


def test_csv_has_every_column_of_every_row_and_leaves_the_unknown_empty() -> None:
    rows = list(csv.DictReader(io.StringIO(comma_separated(small(ODD)))))
    assert [row["system"] for row in rows] == ["conductor", ODD]
    assert (rows[0]["accuracy"], rows[0]["n"], rows[0]["dollars_per_question"]) == (str(1 / 3), "4", "0.01")
    assert (rows[1]["dollars_per_question"], rows[1]["validity"], rows[1]["pass_at_k"]) == ("", "", "")
    assert 0.30 < float(rows[1]["ci95_low"]) < 0.31 < 0.95 < float(rows[1]["ci95_high"])


def test_json_has_null_for_the_unknown_and_the_same_numbers() -> None:
    table = small(ODD)
    values = json.loads(table_files(table)["table.json"])
    assert values == json.loads(json.dumps(table.to_json()))
    assert values["rows"][1]["system"] == ODD
    assert values["rows"][1]["dollars_per_question"] is None


def test_a_name_breaks_neither_markdowns_columns_nor_its_text() -> None:
    lines = markdown(small(ODD)).splitlines()
    (line,) = [line for line in lines if line.startswith("| a") and "75.0" in line and line.count("±") == 1]
    assert line == (r"| a\|b & c_d 100% \[x\] {y} #1 $2 \~^ \<i> \\ \*s\* \_e\_ \&amp; é | 75.0 ± 25.0 |")


def test_a_name_breaks_no_row_of_latex() -> None:
    (line,) = [line for line in latex(small(ODD)).splitlines() if line.startswith("a") and "75.0" in line][:1]
    assert line == (
        r"a\textbar{}b \& c\_d 100\% {[}x] \{y\} \#1 \$2 \textasciitilde{}\textasciicircum{} $<$i$>$ "
        r"\textbackslash{} *s* \_e\_ \&amp; é & 75.0 $\pm$ 25.0 \\"
    )


def test_a_line_break_in_a_name_breaks_no_line() -> None:
    table = small("two\r\nlines\u2028more")
    assert "| two lines more | 75.0" in markdown(table)
    assert "two lines more & 75.0" in latex(table)


def test_latex_has_balanced_environments_and_as_many_cells_as_columns() -> None:
    text = latex(small())
    assert text.startswith("% Unconstrained, k = 1")
    assert text.count("\\begin{tabular}") == text.count("\\end{tabular}") == 3
    for block in text.split("\\begin{tabular}{")[1:]:
        columns = block[: block.index("}")]
        cells = [line for line in block.splitlines() if line.endswith("\\\\")]
        assert cells and all(line.replace("\\&", "").count("&") == len(columns) - 1 for line in cells)


def test_hindsight_is_said_to_be_a_bound() -> None:
    found = records(["+", "-"], system="worker:ann")
    assert "a bound, not a system" in markdown(make_table(results_of(found, ["worker:ann", "oracle_observed"])))
    assert "a bound" not in markdown(make_table(results_of(found, ["worker:ann"])))


def test_a_stopped_runs_size_is_that_of_its_longest_row() -> None:
    found = [*records(["+"], system="conductor"), *records(["+", "+"], system="worker:ann")]
    assert "t (n = 2)" in markdown(make_table(results_of(found, ["conductor", "worker:ann"])))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0"), (12.3, "12.3000"), (0.01, "0.0100"), (0.0123456, "0.0123"), (0.00123456, "0.001235")),
        *((4.91e-05, "0.000049"), (1e-06, "0.000001"), (9e-07, "<0.000001")),
    ],
)
def test_dollars_are_never_written_as_a_power_of_ten(value: float, text: str) -> None:
    assert dollars(value) == text


@pytest.mark.parametrize(("p", "text"), [(0.0, "<0.001"), (0.001, "0.001"), (0.0499, "0.050"), (1.0, "1.000")])
def test_p_values_have_three_decimals(p: float, text: str) -> None:
    assert chance(p) == text


def test_the_same_table_is_the_same_bytes() -> None:
    assert table_files(small()) == table_files(small())
    assert set(table_files(small())) == {"table.json", "table.md", "table.csv", "table.tex"}


def test_a_dollar_amount_is_exact_to_the_cent() -> None:
    usage = Usage(dollars=Decimal("0.1"))
    table = make_table(results_of(records(["+", "+", "+"], usage=usage), ["conductor"]))
    assert table.rows[0].dollars_per_question == 0.1, "three times 0.1 in floats is not 0.3"
