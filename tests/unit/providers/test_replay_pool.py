"""Tables of recorded answers, the workers that replay them, and aggregators."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import pytest
from replay_rows import PRICED, ROWS, write

from openconductor.errors import ConfigError, Rejected, caused_by_plan
from openconductor.graders.choice import LETTERS, extract_choice
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext
from openconductor.providers import create
from openconductor.providers.replay_pool import (
    AGGREGATORS,
    Recorded,
    ReplayPoolProvider,
    cells_of,
    escape,
    read_table,
    skills_of,
    table_path,
    write_table,
)
from openconductor.types import Completion, Message, Sampling, Usage


async def ask(
    path: Path, model: str, number: int, *said: str, sample: int = 0, seed: int | None = None
) -> Completion:
    """Ask a worker question ``number`` behind responses that it sees; return its answer."""
    turns = [Message("user", f"[mine/{number}] whatever\n\nThe question.")]
    for answer in said:
        turns += [Message("assistant", answer), Message("user", "Solve it.")]
    provider = ReplayPoolProvider(f"{path}:{model}")
    return await provider.complete(turns, Sampling(seed=seed), call=CallContext(sample=sample))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table of three workers."""
    return write(tmp_path)


def test_a_table_is_read_as_it_was_written_and_written_alike(tmp_path: Path, path: Path) -> None:
    before = path.read_bytes()
    head = next(csv.reader(io.StringIO(gzip.decompress(before).decode())))
    costs = "a:output_tokens c:dollars c:input_tokens c:output_tokens c:seconds"
    assert {*head[4:]} == {"a", "b", "c", *costs.split()}  # what is not known of b has no column
    table = read_table(path)
    assert [*table.models] == ["a", "b", "c"]
    for row in ROWS:
        assert table.rows[row["id"]] == {name: row[name] for name in head}
    assert write(tmp_path).read_bytes() == before


HEAD = "id,category,split,answer,a,a:output_tokens"


COLUMNS = "id,category,split,answer"
FAULTS = [
    (
        "id,category,answer,a",
        "",
        f"line 1: got the columns .*, expected {COLUMNS.replace(',', ', ')}",
    ),
    (f"{COLUMNS},vote", "", "line 1: got the columns"),
    (HEAD, "1,law,train,A,A", "line 2: got .*, expected 6 cells"),
    (HEAD, "1,law,train,A,A,9\n1,law,train,A,A,9", "line 3: .* 6 cells, and an id of its own"),
    (HEAD, "1],law,train,A,A,9", "line 2: id: got '1]', expected"),
    (HEAD, "1,law,dev,A,A,9", "line 2: split: got 'dev', expected test.train.validation"),
    (HEAD, "1,law,train,,A,9", r"line 2: answer: got '', expected \[A-J\]"),
    (HEAD, "1,law,train,A,A|B,9", "line 2: a:output_tokens: got '9', expected"),
    (HEAD, "1,law,train,A,A,-1", "line 2: a:output_tokens: got '-1', expected"),
    (f"{COLUMNS},a:output_tokens", "1,law,train,A,9", "line 2: a:output_tokens: got '9', expected"),
]


@pytest.mark.parametrize(("head", "rows", "message"), FAULTS)
def test_what_is_wrong_in_a_table_is_said_with_its_line(
    tmp_path: Path, head: str, rows: str, message: str
) -> None:
    bad = tmp_path / "bad.csv.gz"
    bad.write_bytes(gzip.compress(f"{head}\n{rows}\n".encode()))
    with pytest.raises(ConfigError, match=f"replay table .*bad.csv.gz, {message}"):
        read_table(bad)


def test_another_file_than_the_one_of_the_note_is_refused(path: Path) -> None:
    path.write_bytes(gzip.compress(f"{HEAD}\n".encode()))
    with pytest.raises(ConfigError, match=r"got the SHA-256 .*, expected .* \(mine.toml\)"):
        read_table(path)


@pytest.mark.parametrize("name", ["plain", "absent"])
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "plain.csv.gz").write_bytes(b"id,category")
    with pytest.raises(ConfigError, match=rf"{name}.csv.gz: .*; expected gzipped CSV in UTF-8"):
        read_table(tmp_path / f"{name}.csv.gz")


async def test_a_worker_says_its_name_and_the_recorded_answer(path: Path) -> None:
    said = await ask(path, "c", 16, "b: Answer: D")
    assert (said.text, extract_choice(said.text), said.usage) == ("c: Answer: C", "C", PRICED)
    nothing = await ask(path, "b", 17)
    assert (nothing.text, extract_choice(nothing.text)) == ("No answer by b.", None)


async def test_the_samples_number_alone_draws_the_answer(path: Path) -> None:
    drawn = [(await ask(path, "a", 16, sample=sample)).text[-1] for sample in (0, 1, 2, 3, 1, 0)]
    assert "".join(drawn) == "ABABBA"


@pytest.mark.parametrize(("model", "unpriced"), [("a", 1), ("vote", 0)])
async def test_a_model_without_a_price_is_unpriced_and_an_aggregator_is_free(
    path: Path, model: str, unpriced: int
) -> None:
    worker = Worker(f"replay_pool:{path}:{model}", name=model)
    said = await worker.complete([Message("user", "[mine/16] law")], call=CallContext())
    assert (said.usage.dollars, said.usage.unpriced_calls) == (0, unpriced)


@pytest.mark.parametrize("model", ["a", "vote"])
@pytest.mark.parametrize("text", ["[mine/99] law", "What is 2 + 2?", "See [mine/16]."])
async def test_a_question_that_the_table_does_not_hold_is_a_failure_and_no_verdict(
    path: Path, model: str, text: str
) -> None:
    worker = ReplayPoolProvider(f"{path}:{model}")
    with pytest.raises(Rejected, match=r"expected a question of its table") as caught:
        await worker.complete([Message("user", text)], Sampling(), call=CallContext())
    assert not caught.value.retryable
    assert not caused_by_plan(caught.value)


VOTES = [
    ("vote", "a=A b=C c=C", "C (2 of 3)"),
    ("weighted_vote", "a=A b=C c=C", "A (1 of 3)"),  # in law a is right
    ("weighted_vote", "b=C c=C c=C", "C (2 of 2)"),  # wrong mostly, and still a vote
    ("pick", "b=C a=A c=C", "A (1 of 3)"),
    ("vote", "a=A vote=C pick=C stranger=C", "A (1 of 1)"),
]


@pytest.mark.parametrize(("aggregator", "votes", "expected"), VOTES)
async def test_aggregators_weigh_what_they_see_by_the_train_split(
    path: Path, aggregator: str, votes: str, expected: str
) -> None:
    said = [vote.replace("=", ": Answer: ") for vote in votes.split()]
    seen = sorted({line for line in said if line[0] in "abc"})
    answer = "\n".join([*seen, f"{aggregator}: Answer: {expected}"])
    assert (await ask(path, aggregator, 16, *said)).text == answer
    listed = "\n".join(f"{number}. {text}" for number, text in enumerate(said, start=1))
    turns = [  # as a mixture of agents shows them
        Message("system", f"You have been given:\n{listed}"),
        Message("user", "[mine/16] whatever"),
    ]
    provider = ReplayPoolProvider(f"{path}:{aggregator}")
    mixed = await provider.complete(turns, Sampling(), call=CallContext())
    assert mixed.text == answer


TEXTS = ["1 | 2 is 50 %", "%7C\r\nnext\0", ""]


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """A table with texts: one question of three paragraphs, three samples of one worker."""
    samples = [Recorded(text[:1], text, Usage(output_tokens=3)) for text in TEXTS]
    head = {"id": "a]", "category": "law", "split": "test", "answer": escape("1 | 2")}
    row = head | {"question": escape("What\n\nis [a]\n\n50 %?")} | cells_of("a", samples)
    write_table(tmp_path / "told.csv.gz", [row], origin={"task": "mmlu", "path": "mine.jsonl"})
    return tmp_path / "told.csv.gz"


async def test_any_text_is_recorded_and_found_by_its_question_whatever_the_subtask(
    told: Path,
) -> None:
    table = read_table(told)
    assert table.origin == {"task": "mmlu", "path": "mine.jsonl"}
    provider = ReplayPoolProvider(f"{told}:a")
    for sample, text in enumerate([*TEXTS[:2], "No answer by a.", TEXTS[0]]):
        turns = [Message("user", "What\n\nis [a]\n\n50 %?\n\nSolve it.\n\nCheck it.")]
        said = await provider.complete(turns, Sampling(), call=CallContext(sample=sample))
        assert (said.text, said.usage.output_tokens) == (text, 3)
    for other in ("What", "What\n\nis [a]\n\n50 %?!", "", "[a] law"):
        assert table.find(other) is None


def test_no_aggregator_counts_answers_that_are_no_letters(told: Path) -> None:
    with pytest.raises(ConfigError, match=r"'vote' counts letters, .*; expected one of a$"):
        create("replay_pool", f"{told}:vote")


def test_a_skill_is_shrunk_to_the_mean_of_all_subjects(path: Path) -> None:
    assert skills_of(read_table(path))["a", "law"] == pytest.approx((8 + 10 * 0.5) / 18)


@pytest.mark.parametrize("aggregator", AGGREGATORS)
async def test_aggregators_that_see_nothing_answer_nothing(path: Path, aggregator: str) -> None:
    assert (await ask(path, aggregator, 16)).text == f"No answer by {aggregator}."


async def test_a_seed_breaks_ties_whatever_their_order(path: Path) -> None:
    drawn: set[str] = set()
    for seed in range(20):
        text = (await ask(path, "vote", 16, "b: Answer: C", "a: Answer: A", seed=seed)).text
        other = await ask(path, "vote", 16, "a: Answer: A", "b: Answer: C", seed=seed)
        assert other.text == text
        drawn.add(text.splitlines()[-1])
    assert drawn == {"vote: Answer: A (1 of 2)", "vote: Answer: C (1 of 2)"}


async def test_an_aggregator_counts_the_answers_that_another_one_had_counted(path: Path) -> None:
    before = (await ask(path, "vote", 16, "a: Answer: A", "b: Answer: C")).text
    text = (await ask(path, "vote", 16, before, "c: Answer: C", "b: Answer: C")).text
    assert text.splitlines()[-1] == "vote: Answer: C (2 of 3)"
    assert extract_choice(text) == "C"


@pytest.mark.parametrize("letter", LETTERS)
async def test_what_an_aggregator_says_is_graded_by_its_own_letter(path: Path, letter: str) -> None:
    other = "B" if letter == "A" else "A"
    said = [f"a: Answer: {letter}", f"b: Answer: {letter}", f"c: Answer: {other}"]
    text = (await ask(path, "vote", 16, *said)).text
    assert extract_choice(text) == letter


def test_the_table_that_ships_holds_what_its_pool_file_names(root: Path) -> None:
    pool = WorkerPool.from_toml(root / "recipes/pools/mmlu_pro_replay.toml")
    table = read_table(table_path("mmlu_pro"))
    assert len(pool) == 8
    assert (len(table.rows), len(table.models)) == (2000, 7)
    assert table.note["licence"] == "Apache-2.0"
    assert table_path("mmlu_pro").stat().st_size < 60_000
    message = r"got 'voted', expected one of Llama-3.1-8B, .*; nearest: 'vote'"
    with pytest.raises(ConfigError, match=message):
        create("replay_pool", "mmlu_pro:voted")
