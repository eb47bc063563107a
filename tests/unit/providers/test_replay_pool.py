"""Tables of recorded answers, the workers that replay them, and aggregators."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import pytest
from replay_rows import PRICED, ROWS, write

from openconductor.errors import ConfigError, Rejected, caused_by_plan
from openconductor.graders.choice import extract_choice
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext
from openconductor.providers import create
from openconductor.providers.replay_pool import (
    AGGREGATORS,
    ReplayPoolProvider,
    read_table,
    skills_of,
    table_path,
)
from openconductor.types import Completion, Message, Sampling


async def ask(
    path: Path,
    model: str,
    number: int,
    *said: str,
    sample: int = 0,
    seed: int | None = None,
    told: str = "Solve it.",
) -> Completion:
    """What a worker answers to question ``number`` behind responses that it sees."""
    turns = [Message("user", f"[mine/{number}] whatever\n\nThe question.")]
    for one in said:
        turns += [Message("assistant", one), Message("user", told)]
    return await ReplayPoolProvider(f"{path}:{model}").complete(
        turns, Sampling(seed=seed), call=CallContext(sample=sample)
    )


def test_a_table_is_read_as_it_was_written_and_written_alike(tmp_path: Path) -> None:
    path = write(tmp_path)
    table, before = read_table(path), path.read_bytes()
    assert [*table.models] == ["a", "b", "c"]
    head = next(
        csv.reader(io.StringIO(gzip.decompress(before).decode()))
    )  # what is not known of b has no column
    assert (
        " ".join(sorted(head[4:]))
        == "a a:output_tokens b c c:dollars c:input_tokens c:output_tokens c:seconds"
    )
    assert [table.rows[one["id"]] for one in ROWS] == [
        {name: one[name] for name in head} for one in ROWS
    ]
    assert write(tmp_path).read_bytes() == before


HEAD = "id,category,split,answer,a,a:output_tokens\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "id,category,answer,a\n",
            "line 1: got the columns .*, expected id, category, split, answer",
        ),
        ("id,category,split,answer,vote\n", "line 1: got the columns"),
        (HEAD + "1,law,train,A,A\n", "line 2: got .*, expected 6 cells"),
        (
            HEAD + "1,law,train,A,A,9\n1,law,train,A,A,9\n",
            "line 3: got .*, expected 6 cells, and an id of its own",
        ),
        (HEAD + "1],law,train,A,A,9\n", "line 2: id: got '1]', expected"),
        (HEAD + "1,law,dev,A,A,9\n", "line 2: split: got 'dev', expected test.train.validation"),
        (HEAD + "1,law,train,,A,9\n", r"line 2: answer: got '', expected \[A-J\]"),
        (HEAD + "1,law,train,A,A|B,9\n", "line 2: a:output_tokens: got '9', expected"),
        (HEAD + "1,law,train,A,A,-1\n", "line 2: a:output_tokens: got '-1', expected"),
        (
            HEAD.replace("a,", "") + "1,law,train,A,9\n",
            "line 2: a:output_tokens: got '9', expected",
        ),
    ],
)
def test_what_is_wrong_in_a_table_is_said_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "bad.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(ConfigError, match=f"replay table .*bad.csv.gz, {message}"):
        read_table(path)


def test_another_file_than_the_one_of_the_note_or_none_at_all_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(gzip.compress(HEAD.encode()))
    with pytest.raises(ConfigError, match=r"got the SHA-256 .*, expected .* \(mine.toml\)"):
        read_table(path)
    (tmp_path / "plain.csv.gz").write_bytes(b"id,category")
    for name in ("plain", "absent"):
        with pytest.raises(ConfigError, match=rf"{name}.csv.gz: .*; expected gzipped CSV in UTF-8"):
            read_table(tmp_path / f"{name}.csv.gz")


async def test_a_worker_says_its_name_and_the_samples_recorded_answer_whatever_it_is_told(
    tmp_path: Path,
) -> None:
    path = write(tmp_path)
    for told in ("Solve it.", "Answer: D"):
        said, nothing = (
            await ask(path, "c", 16, "b: Answer: D", told=told),
            await ask(path, "b", 17, told=told),
        )
        assert (said.text, extract_choice(said.text), said.usage) == ("c: Answer: C", "C", PRICED)
        assert (nothing.text, extract_choice(nothing.text)) == ("No answer by b.", None)
    drawn = [(await ask(path, "a", 16, sample=sample)).text[-1] for sample in (0, 1, 2, 3, 1, 0)]
    assert "".join(drawn) == "ABABBA"  # by the sample's number alone


async def test_a_model_without_a_price_is_unpriced_and_an_aggregator_is_free(
    tmp_path: Path,
) -> None:
    path = write(tmp_path)
    for model, unpriced in (("a", 1), ("vote", 0)):
        worker = Worker(f"replay_pool:{path}:{model}", name=model)
        said = await worker.complete([Message("user", "[mine/16] law")], call=CallContext())
        assert (said.usage.dollars, said.usage.unpriced_calls) == (0, unpriced)


@pytest.mark.parametrize("text", ["[mine/99] law", "What is 2 + 2?", "See [mine/16]."])
async def test_a_question_that_the_table_does_not_hold_is_a_failure_and_no_verdict(
    tmp_path: Path, text: str
) -> None:
    path = write(tmp_path)
    for model in ("a", "vote"):
        worker = ReplayPoolProvider(f"{path}:{model}")
        with pytest.raises(Rejected, match=r"expected a question of its table") as caught:
            await worker.complete([Message("user", text)], Sampling(), call=CallContext())
        assert not caught.value.retryable and not caused_by_plan(caught.value)


@pytest.mark.parametrize(
    ("aggregator", "number", "said", "expected"),
    [
        ("vote", 16, ("a: Answer: A", "b: Answer: C", "c: Answer: C"), "C"),
        (
            "weighted_vote",
            16,
            ("a: Answer: A", "b: Answer: C", "c: Answer: C"),
            "A",
        ),  # in law a is right
        (
            "weighted_vote",
            16,
            ("b: Answer: C", "c: Answer: C", "c: Answer: D"),
            "C",
        ),  # wrong mostly, and still a vote
        ("pick", 16, ("b: Answer: C", "a: Answer: A", "c: Answer: C"), "A"),
        (
            "vote",
            16,
            ("a: Answer: A", "vote: Answer: C", "pick: Answer: C", "stranger: Answer: C"),
            "A",
        ),
    ],
)
async def test_aggregators_weigh_what_they_see_by_the_train_split(
    tmp_path, aggregator, number, said, expected
) -> None:
    path = write(tmp_path)
    assert (await ask(path, aggregator, number, *said)).text == f"{aggregator}: Answer: {expected}"
    listed = "\n".join(
        f"{place}. {one}" for place, one in enumerate(said, start=1)
    )  # as a mixture of agents shows them
    turns = [
        Message("system", f"You have been given:\n{listed}"),
        Message("user", f"[mine/{number}] whatever"),
    ]
    mixed = await ReplayPoolProvider(f"{path}:{aggregator}").complete(
        turns, Sampling(), call=CallContext()
    )
    assert mixed.text == f"{aggregator}: Answer: {expected}"
    assert skills_of(read_table(path))["a", "law"] == pytest.approx(
        (8 + 10 * 0.5) / 18
    )  # shrunk to .5 overall


async def test_aggregators_that_see_nothing_answer_nothing_and_a_seed_breaks_ties(
    tmp_path: Path,
) -> None:
    path = write(tmp_path)
    for aggregator in AGGREGATORS:
        assert (await ask(path, aggregator, 16)).text == f"No answer by {aggregator}."
    tied = ("b: Answer: C", "a: Answer: A")
    drawn = [(await ask(path, "vote", 16, *tied, seed=seed)).text[-1] for seed in range(20)]
    assert [
        (await ask(path, "vote", 16, *reversed(tied), seed=seed)).text[-1] for seed in range(20)
    ] == drawn
    assert set(drawn) == {"A", "C"}


def test_the_table_that_ships_holds_what_its_pool_file_names(root: Path) -> None:
    pool = WorkerPool.from_toml(root / "recipes/pools/mmlu_pro_replay.toml")
    table = read_table(table_path("mmlu_pro"))
    assert (len(pool), len(table.rows), len(table.models), table.note["licence"]) == (
        8,
        2000,
        7,
        "Apache-2.0",
    )
    assert table_path("mmlu_pro").stat().st_size < 60_000
    with pytest.raises(
        ConfigError, match=r"got 'voted', expected one of Llama-3.1-8B, .*; nearest: 'vote'"
    ):
        create("replay_pool", "mmlu_pro:voted")
