"""Tables of recorded answers, the workers that replay them, and those that make one answer of several."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from replay_rows import PRICED, ROWS, write

from openconductor.errors import ConfigError, Rejected, caused_by_plan
from openconductor.graders.choice import extract_choice
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext
from openconductor.providers import create
from openconductor.providers.replay_pool import AGGREGATORS, ReplayPoolProvider, read_table, skills_of, table_path
from openconductor.types import Completion, Message, Price, Sampling


async def ask(
    path: Path, model: str, number: int, *said: str, sample: int = 0, seed: int | None = None, told: str = "Solve it."
) -> Completion:
    """What a worker answers to question ``number`` behind responses that it sees."""
    turns = [Message("user", f"[mine/{number}] whatever\n\nThe question.")]
    for one in said:
        turns += [Message("assistant", one), Message("user", told)]
    worker = ReplayPoolProvider(f"{path}:{model}")
    return await worker.complete(turns, Sampling(seed=seed), call=CallContext(sample=sample))


def test_a_table_is_read_as_it_was_written_and_written_alike(tmp_path: Path) -> None:
    path = write(tmp_path)
    table, before = read_table(path), path.read_bytes()
    assert [*table.models] == ["a", "b", "c"]
    head = next(csv.reader(io.StringIO(gzip.decompress(before).decode())))  # what is not known of b has no column
    assert " ".join(sorted(head[4:])) == "a a:output_tokens b c c:dollars c:input_tokens c:output_tokens c:seconds"
    assert [table.rows[one["id"]] for one in ROWS] == [{name: one[name] for name in head} for one in ROWS]
    assert write(tmp_path).read_bytes() == before


HEAD = "id,category,split,answer,a,a:output_tokens\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,category,answer,a\n", "line 1: got the columns .*, expected id, category, split, answer"),
        ("id,category,split,answer\n", "line 1: got the columns .*, and models, each once"),
        ("id,category,split,answer,a,a\n", "line 1: got the columns"),
        ("id,category,split,answer,vote\n", "line 1: got the columns"),
        (HEAD + "1,law,train,A,A\n", "line 2: got .*, expected 6 cells, and an id of its own"),
        (HEAD + "1,law,train,A,A,9\n1,law,train,A,A,9\n", "line 3: got .*, expected 6 cells, and an id of its own"),
        (HEAD + "1],law,train,A,A,9\n", "line 2: id: got '1]', expected"),
        (HEAD + "1,law,dev,A,A,9\n", "line 2: split: got 'dev', expected test|train|validation"),
        (HEAD + "1,law,train,,A,9\n", r"line 2: answer: got '', expected \[A-J\]"),
        (HEAD + "1,law,train,A,AB,9\n", "line 2: a: got 'AB', expected"),
        (HEAD + "1,law,train,A,A|B,9\n", "line 2: a:output_tokens: got '9', expected"),
        (HEAD + "1,law,train,A,A,-1\n", "line 2: a:output_tokens: got '-1', expected"),
        (HEAD.replace("a,", "") + "1,law,train,A,9\n", "line 2: a:output_tokens: got '9', expected"),
    ],
)
def test_what_is_wrong_in_a_table_is_said_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.csv.gz"
    path.write_bytes(gzip.compress(text.encode()))
    with pytest.raises(ConfigError, match=f"replay table .*bad.csv.gz, {message}"):
        read_table(path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.unlink(), "No such file.*; expected gzipped CSV"),
        (lambda path: path.write_bytes(b"id,category"), "Not a gzipped file.*; expected gzipped CSV"),
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), "expected gzipped CSV|got the SHA-256"),
        (lambda path: path.write_bytes(gzip.compress(HEAD.encode())), r"got the SHA-256 .*, expected .* \(mine.toml\)"),
    ],
    ids=["absent", "plain", "cut", "changed"],
)
def test_another_file_than_the_one_of_the_note_is_refused(
    tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    path = write(tmp_path)
    spoil(path)
    if "SHA" not in message:
        (tmp_path / "mine.toml").unlink()
    with pytest.raises(ConfigError, match=message):
        read_table(path)


async def test_a_worker_says_its_name_and_its_recorded_answer_whatever_it_is_told(tmp_path: Path) -> None:
    path = write(tmp_path)
    for told in ("Solve it.", "Answer: D"):
        said = await ask(path, "c", 16, "b: Answer: D", told=told)
        assert (said.text, extract_choice(said.text)) == ("c: Answer: C", "C")
    assert said.usage == PRICED
    nothing = await ask(path, "b", 17)
    assert (nothing.text, extract_choice(nothing.text)) == ("No answer by b.", None)


async def test_the_sample_number_alone_draws_the_recorded_sample(tmp_path: Path) -> None:
    path = write(tmp_path)
    drawn = [(await ask(path, "a", 16, sample=sample)).text[-1] for sample in (0, 1, 2, 3, 1, 0)]
    assert "".join(drawn) == "ABABBA"


async def test_tokens_are_billed_at_the_workers_price_and_aggregators_are_free(tmp_path: Path) -> None:
    path = write(tmp_path)
    price = Price(Decimal(1), Decimal(2))
    turns, call = [Message("user", "[mine/16] law")], CallContext()
    paid = await Worker(f"replay_pool:{path}:a", name="a", price=price).complete(turns, call=call)
    unknown = await Worker(f"replay_pool:{path}:a", name="a").complete(turns, call=call)
    free = await Worker(f"replay_pool:{path}:vote", name="vote").complete(turns, call=call)
    assert (paid.usage.dollars, paid.usage.unpriced_calls) == (Decimal(52) / 1_000_000, 0)
    assert (unknown.usage.unpriced_calls, free.usage.unpriced_calls, free.usage.dollars) == (1, 0, 0)


@pytest.mark.parametrize("text", ["[mine/99] law", "What is 2 + 2?", "See [mine/16]."])
async def test_a_question_that_the_table_does_not_hold_is_a_failure_and_no_verdict(tmp_path: Path, text: str) -> None:
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
        ("weighted_vote", 16, ("a: Answer: A", "b: Answer: C", "c: Answer: C"), "A"),  # in law a is right
        ("weighted_vote", 17, ("a: Answer: A", "b: Answer: C", "c: Answer: C"), "C"),
        ("weighted_vote", 16, ("b: Answer: C", "c: Answer: C", "c: Answer: D"), "C"),  # wrong mostly, and still a vote
        ("pick", 16, ("b: Answer: C", "a: Answer: A", "c: Answer: C"), "A"),
        ("pick", 17, ("b: Answer: C", "a: Answer: A"), "C"),
        ("pick", 16, ("b: Answer: C", "No answer by a."), "C"),
        ("vote", 16, ("a: Answer: A", "vote: Answer: C", "pick: Answer: C", "stranger: Answer: C"), "A"),
    ],
)
async def test_aggregators_weigh_what_they_see_by_the_train_split(
    tmp_path: Path, aggregator: str, number: int, said: tuple[str, ...], expected: str
) -> None:
    assert (await ask(write(tmp_path), aggregator, number, *said)).text == f"{aggregator}: Answer: {expected}"


def test_skills_are_of_the_train_split_alone_and_shrunk(tmp_path: Path) -> None:
    skills = skills_of(read_table(write(tmp_path)))
    assert skills["a", "law"] == pytest.approx((8 + 10 * 0.5) / 18)
    assert skills["b", "law"] == pytest.approx((0 + 10 * 0.5) / 18)


async def test_aggregators_that_see_nothing_answer_nothing_and_a_seed_breaks_ties(tmp_path: Path) -> None:
    path = write(tmp_path)
    for aggregator in AGGREGATORS:
        assert (await ask(path, aggregator, 16)).text == f"No answer by {aggregator}."
    tied = ("b: Answer: C", "a: Answer: A")
    drawn = [(await ask(path, "vote", 16, *tied, seed=seed)).text[-1] for seed in range(20)]
    again = [(await ask(path, "vote", 16, *reversed(tied), seed=seed)).text[-1] for seed in range(20)]
    assert drawn == again
    assert set(drawn) == {"A", "C"}


def test_a_model_that_is_not_in_the_table_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"got 'voted', expected one of a, b, c, vote, .*; nearest: 'vote'"):
        create("replay_pool", f"{write(tmp_path)}:voted")


def test_the_table_that_ships_holds_what_its_pool_file_names(root: Path) -> None:
    pool = WorkerPool.from_toml(root / "recipes/pools/mmlu_pro_replay.toml")
    table = read_table(table_path("mmlu_pro"))
    assert len(pool) == 8 and len(table.rows) == 2000 and len(table.models) == 7
    assert table.note["licence"] == "Apache-2.0"
    assert table_path("mmlu_pro").stat().st_size < 60_000
