"""Tables of recorded answers, from an evaluation and from MMLU-Pro's published outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from judged_workers import asked
from replay_rows import ROWS, write, write_pool

from openconductor.evaluation.recording import split_of
from openconductor.evaluation.records import Results
from openconductor.providers.replay_pool import read_table

ENTRY = {"question_id": 71, "category": "business", "answer": "F", "question": "Which?"}


WORKER = '[[worker]]\nname = "{0}"\nprovider = "judged_workers:Word"\nmodel = "{0}"\n'


def test_a_table_of_several_tasks_is_replayed_and_graded_as_each_of_them(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked.clear()
    options = ["--pool", "pool.toml", "--json", "--out"]
    tasks: list[str] = []
    for name, task, answer in (("words", "rlpr", "a quick animal"), ("sums", "gsm8k", "#### 4")):
        rows = [
            {"id": f"q{n}", "question": f"{name}: animal {n}?", "answer": answer} for n in range(9)
        ]
        Path(f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
        tasks += ["--task", f"{name}={task}", "--task-path", f"{name}={name}.jsonl"]
    Path("pool.toml").write_text(WORKER.format("ann") + WORKER.format("bob"), "utf-8")
    assert run("eval", "workers", *tasks, *options, "run").code == 0
    made = run("pool", "replay", "run", "--out", "both.csv.gz", "--json").json()
    assert (made["questions"], made["models"]) == (18, ["ann", "bob"])

    assert (
        run(
            "eval",
            "workers",
            "--task",
            "replay",
            "--task-path",
            "replay=both.csv.gz",
            *options,
            "again",
        ).code
        == 0
    )
    assert asked == {"ann": 18, "bob": 18}, "nobody is asked again"
    before: dict[tuple[str, str], bool | None] = {}
    for record in Results.load("run").records:
        before[record.system, f"{record.task}/{record.problem}"] = record.correct
    again = Results.load("again").records
    assert len(again) == 2 * made["test"]
    for record in again:
        assert record.correct == before[record.system, record.problem]
    assert {record.problem.partition("/")[0] for record in again} == {"words", "sums"}


def outputs(folder: Path, **files: object) -> Path:
    for name, entries in files.items():
        (folder / f"{name}.json").write_text(json.dumps(entries))
    return folder


MODELS = ["a", "b", "c"]


def test_a_table_of_an_evaluation_of_recorded_workers_is_the_one_that_they_replay(
    tmp_path, run
) -> None:
    """Leave out the aggregator, and the stranger to these questions, whose failures are masked."""
    table, folder, out = write(tmp_path), tmp_path / "run", tmp_path / "again.csv.gz"
    models = [f"{table}:{name}" for name in (*MODELS, "vote")]
    pool = write_pool(tmp_path, *models, "mmlu_pro:Yi-34B")
    task = ("--task", "replay", "--task-path", f"replay={table}", "--repeats", 2)
    assert run("eval", "workers", "--pool", pool, *task, "--out", folder).code == 0
    command = ("pool", "replay", folder, "--out", out, "--json")
    made = run(*command).json()
    questions = {row["id"]: f"[{row['id']}] {row['category']}" for row in ROWS[-2:]}
    splits = [split_of(question) for question in questions.values()]
    assert made == {
        "table": str(out),
        "questions": 2,
        "left_out": 0,
        **{split: splits.count(split) for split in ("test", "train", "validation")},
        "models": MODELS,
        "samples": 2,
    }
    for row in ROWS[-2:]:
        copy = read_table(out).rows[row["id"]]
        assert (copy["category"], copy["answer"]) == (row["category"], row["answer"])
        assert copy["question"] == questions[row["id"]]
        assert copy["split"] == split_of(copy["question"])
        assert sorted(copy["a"]) == sorted(row["a"]), "both samples"
        assert copy["a:output_tokens"] == row["a:output_tokens"]
        assert copy["c"] == f"{row['c']}|{row['c']}"
        assert copy["c:dollars"] == "1e-7|1e-7"
    assert run(*command).code == 2, "the table exists"


def test_a_table_of_mmlu_pros_outputs_uses_their_own_extraction(tmp_path, run) -> None:
    yi: list[dict[str, object]] = []
    for number, text in ((71, "So the answer is (F). " * 2), (72, "?"), (73, "?")):
        yi.append(ENTRY | {"question_id": number, "model_outputs": text})
    first = ENTRY | {"response": "F", "pred": "B"}
    second = first | {"question_id": 72, "pred": None}
    folder = outputs(tmp_path, **{"model_outputs_Yi-34B_5shots": yi}, other=[first, second])
    out = tmp_path / "made.csv.gz"
    made = run("pool", "replay", folder, "--out", out, "--json").json()
    assert (made["questions"], made["left_out"], made["models"]) == (2, 1, ["Yi-34B", "other"])
    rows = read_table(out).rows
    one, two = rows["mmlu_pro/71"], rows["mmlu_pro/72"]
    assert (one["Yi-34B"], one["other"]) == ("F", "B")
    assert (two["Yi-34B"], two["other"]) == ("", "")
    assert (one["category"], one["answer"]) == ("business", "F")
    assert one["Yi-34B:output_tokens"] == "11", "four characters a token"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([ENTRY], "a.json, entry 0: KeyError('model_outputs'); expected objects of question_id"),
        ([ENTRY | {"answer": "Z", "response": "?"}], "a.json, entry 0: ValueError"),
        ({"a": 1}, "a.json, entry 0: TypeError"),
        ([], "no question was answered by all models; expected the folder of an `eval`"),
    ],
)
def test_outputs_of_another_form_are_rejected(tmp_path, run, entries, message) -> None:
    ran = run("pool", "replay", outputs(tmp_path, a=entries), "--out", tmp_path / "made.csv.gz")
    assert ran.code == 2
    assert message in " ".join(ran.err.split())
