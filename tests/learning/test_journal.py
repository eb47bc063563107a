"""A training journals what its workers are paid for, and a resumed one does not pay again."""

from __future__ import annotations

import json
import signal
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.learning.runs import curve, measured, recipe, start, weights

from openconductor.errors import AuthFailed, BudgetExceeded
from openconductor.gym.bundled import bundled_folder
from openconductor.store import read_store
from openconductor.training import run
from openconductor.training.train_config import TrainConfig, dump_train_config

pytestmark = [pytest.mark.train, pytest.mark.timeout(300)]

READ = 5  # tokens of each call


class Server(ThreadingHTTPServer):
    """Answers every request with 42, until ``left`` have been answered; then the key is wrong."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int = 0) -> None:
        self.left = 10**9
        self.answered = 0
        self.answers: Callable[[bytes], str] = lambda _: "42"
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        request = self.rfile.read(int(self.headers["Content-Length"]))
        answer = self.server.answers(request)
        with self.server.lock:
            self.server.left -= 1
            refused = self.server.left < 0
            self.server.answered += not refused
        message = {"role": "assistant", "content": answer}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": READ, "completion_tokens": 1}
        reply: dict[str, object] = {"choices": [choice], "usage": usage}
        if refused:
            reply = {"error": {"message": "wrong key"}}
        body = json.dumps(reply).encode()
        self.send_response(401 if refused else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(port: int = 0) -> Iterator[Server]:
    server = Server(port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


WORKER = """
[[worker]]
name = "w{0}"
model = "m{0}"
base_url = "http://127.0.0.1:{1}/v1"
price = {{ input = 1, output = 2 }}
"""
RECIPE = """
pool = "{pool}"
save_every = 1
start = {{ prompts = 6, workflows = 6, validity = 0.0 }}
prompt = {{ template = "compact", access = "index" }}
rollout = {{ iterations = 3, questions = 2, completions = 4, max_tokens = 72 }}
optim = {{ learning_rate = 1e-4, micro_batch = 8, bf16 = false }}
held_out = {{ questions = 6 }}
"""


@pytest.fixture
def over_http(server: Server, tmp_path: Path) -> TrainConfig:
    """A short training of the bundled Conductor, whose workflows are valid, over a pool file."""
    pool = tmp_path / "pool.toml"
    workers = [WORKER.format(index, server.server_port) for index in range(8)]
    pool.write_text("".join(workers), "utf-8")
    return recipe(RECIPE.format(pool=pool.as_posix()), base=bundled_folder())


def paid_calls(folder: Path) -> int:
    with read_store(folder / "journal.sqlite") as journal:
        return journal.totals().spent.usage.input_tokens // READ


def resume_at_new_server(config: TrainConfig, folder: Path, server: Server) -> int:
    """Resume a run with another server at the same address; return the calls that it answered.

    Cancelled requests are counted late, and by the server before.
    """
    server.shutdown()
    server.server_close()
    with serving(server.server_port) as again:
        again.answers = server.answers
        run.train(config, folder, resume=True)
        return again.answered


@pytest.mark.slow
def test_a_resumed_training_pays_for_no_call_that_its_journal_holds(
    over_http: TrainConfig, server: Server, tmp_path: Path
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run.train(over_http, whole)
    paid = server.answered
    assert paid_calls(whole) == paid
    server.answered, server.left = 0, paid // 2
    with pytest.raises(AuthFailed):
        run.train(over_http, cut)
    kept = paid_calls(cut)  # without what was in flight at the refusal
    assert 0 < kept <= server.answered
    assert resume_at_new_server(over_http, cut, server) == paid - kept
    assert measured(cut) == measured(whole)
    assert paid_calls(cut) == paid


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.7], ids=["at the start", "in an iteration"])
def test_a_training_killed_among_its_paid_calls_pays_for_the_rest_and_ends_in_the_same_weights(
    share: float, over_http: TrainConfig, server: Server, tmp_path: Path
) -> None:
    def answer(body: bytes) -> str:
        return str(zlib.crc32(body) % 50)

    def kill(body: bytes) -> str:
        if server.answered >= share * paid:
            training.send_signal(signal.SIGKILL)
        return answer(body)

    # Hot, so that some plans are invalid.
    hot = over_http.rollout.model_copy(update={"iterations": 4, "temperature": 1.5})
    config = over_http.model_copy(update={"save_every": 2, "rollout": hot})
    whole, cut, recipe_file = tmp_path / "whole", tmp_path / "cut", tmp_path / "recipe.toml"
    recipe_file.write_text(dump_train_config(config), "utf-8")
    server.answers = answer
    run.train(config, whole)
    paid, server.answered = server.answered, 0
    training = start(recipe_file, cut)
    server.answers = kill
    training.communicate(timeout=300)
    assert training.returncode == -signal.SIGKILL
    kept = paid_calls(cut)
    assert (share - 0.4) * paid < kept < paid
    server.answers = answer
    assert resume_at_new_server(config, cut, server) == paid - kept
    records = curve(whole)
    assert curve(cut) == records
    learning = [record for record in records if record["groups_without_spread"] < 1]
    assert learning, "there was something to learn"
    assert measured(cut) == measured(whole)
    learnt = weights(whole / "conductor")
    assert weights(cut / "conductor") == learnt != weights(bundled_folder())


@pytest.mark.slow
def test_a_training_whose_budget_is_spent_goes_on_with_a_larger_one(
    over_http: TrainConfig, server: Server, tmp_path: Path
) -> None:
    def allowing(calls: int) -> TrainConfig:
        budget = over_http.budget.model_copy(update={"calls": calls})
        return over_http.model_copy(update={"budget": budget})

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run.train(over_http, whole)
    paid, server.answered = server.answered, 0
    with pytest.raises(BudgetExceeded, match="the run's budget is spent: 9 calls used, 9 allowed"):
        run.train(allowing(9), cut)
    with pytest.raises(BudgetExceeded):
        run.train(allowing(9), cut, resume=True)
    assert server.answered <= 9, "what was paid is replayed, and no more is asked"
    run.train(allowing(2 * paid), cut, resume=True)
    assert measured(cut) == measured(whole)
    assert server.answered <= paid + 9, "what was under way at the end is asked again"


def test_a_benchmark_in_local_files_is_learnt_from_and_another_part_of_it_measured(
    over_http: TrainConfig, tmp_path: Path
) -> None:
    for split, numbers in (("train", range(6)), ("test", range(6, 10))):
        rows = [{"question": f"What is {n} times 7?", "answer": f"#### {7 * n}"} for n in numbers]
        lines = [json.dumps(row) + "\n" for row in rows]
        (tmp_path / f"{split}.jsonl").write_text("".join(lines), "utf-8")
    data = over_http.data.model_copy(update={"task": "gsm8k", "path": str(tmp_path)})
    results = run.train(over_http.model_copy(update={"data": data}), tmp_path / "run")
    for name in ("sampled", "greedy"):
        assert results[name]["rollouts"] == 4, "all that are held out, each once"
        assert set(results[name]["accuracy_by_kind"]) == {"gsm8k"}
    records = curve(tmp_path / "run")
    assert [record["rollouts"] for record in records] == [8, 8, 8]
    assert all(set(record["accuracy_by_kind"]) == {"gsm8k"} for record in records)
