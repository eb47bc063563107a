"""Tables of recorded answers from an evaluation, and from outputs of the form in which MMLU-Pro publishes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from replay_rows import ROWS, write, write_pool

from openconductor.evaluation.recording import split_of
from openconductor.providers.replay_pool import COLUMNS, read_table


def test_a_table_made_of_an_evaluation_of_recorded_workers_is_the_one_that_they_replay(
    tmp_path, run
) -> None:
    table, folder, out = write(tmp_path), tmp_path / "run", tmp_path / "again.csv.gz"
    pool = write_pool(
        tmp_path, *(f"{table}:{name}" for name in "abc"), f"{table}:vote", "mmlu_pro:Yi-34B"
    )
    asked = (
        "eval",
        "workers",
        "--pool",
        pool,
        "--task",
        "replay",
        "--task-path",
        f"replay={table}",
    )
    assert run(*asked, "--repeats", 2, "--out", folder).code == 0
    made = run("pool", "replay", folder, "--out", out, "--json").json()
    assert made == {
        "table": str(out),
        "questions": 2,
        "left_out": 0,
        "models": ["a", "b", "c"],
        "samples": 2,
    }
    # Not the aggregator; nor the stranger to these questions: its failures are masked, never
    # recorded as wrong.
    for row in ROWS[-2:]:
        copy = read_table(out).rows[row["id"]]
        assert [copy[one] for one in COLUMNS] == [
            *(row[one] for one in COLUMNS[:2]),
            split_of(row["id"]),
            row["answer"],
        ]
        assert sorted(copy["a"]) == sorted(row["a"])  # both samples
        assert copy["a:output_tokens"] == row["a:output_tokens"]
        assert copy["c"] == f"{row['c']}|{row['c']}"
        assert copy["c:dollars"] == "1e-7|1e-7"
    assert run("pool", "replay", folder, "--out", out).code == 2  # it is there already


ENTRY = {
    "question_id": 71,
    "category": "business",
    "answer": "F",
    "options": ["x"] * 10,
    "question": "Which?",
}


def outputs(folder: Path, **files: object) -> Path:
    for name, entries in files.items():
        (folder / f"{name}.json").write_text(json.dumps(entries))
    return folder


def test_a_table_is_made_of_mmlu_pros_outputs_by_their_own_extraction(tmp_path, run) -> None:
    texts = {71: "So the answer is (F). " * 2, 72: "?", 73: "?"}
    yi = [ENTRY | {"question_id": number, "model_outputs": text} for number, text in texts.items()]
    read = {71: "B", 72: None}
    other = [
        ENTRY | {"question_id": number, "response": "F", "pred": letter}
        for number, letter in read.items()
    ]
    folder = outputs(tmp_path, **{"model_outputs_Yi-34B_5shots": yi}, other=other)
    made = run("pool", "replay", folder, "--out", tmp_path / "made.csv.gz", "--json").json()
    assert made["questions"] == 2
    assert made["left_out"] == 1
    assert made["models"] == ["Yi-34B", "other"]
    rows = read_table(tmp_path / "made.csv.gz").rows
    first, second = rows["mmlu_pro/71"], rows["mmlu_pro/72"]
    assert [first["Yi-34B"], first["other"], second["Yi-34B"], second["other"]] == [
        "F",
        "B",
        "",
        "",
    ]
    assert first["Yi-34B:output_tokens"] == "11"
    assert first["category"] == "business"
    assert first["answer"] == "F"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([ENTRY], "a.json, entry 0: KeyError('model_outputs'); expected objects of question_id"),
        ([ENTRY | {"answer": "Z", "response": "?"}], "a.json, entry 0: ValueError"),
        ({"a": 1}, "a.json, entry 0: TypeError"),
        ([], "no question was answered by all models; expected the folder of an `eval`"),
    ],
)
def test_outputs_of_another_form_are_refused(tmp_path, run, entries, message) -> None:
    ran = run("pool", "replay", outputs(tmp_path, a=entries), "--out", tmp_path / "made.csv.gz")
    assert ran.code == 2
    assert message in " ".join(ran.err.split())
