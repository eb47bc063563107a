"""What a training pays its workers for is written down, and a resumed training does not pay for it again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from openconductor.errors import AuthFailed, BudgetExceeded
from openconductor.gym.bundled import bundled_folder
from openconductor.store import Journal
from openconductor.training import run
from openconductor.training.train_config import TrainConfig, dump_train_config

pytestmark = [pytest.mark.train, pytest.mark.timeout(300)]


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
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        answer = self.server.answers(asked)
        with self.server.lock:
            self.server.left -= 1
            refused = self.server.left < 0
            self.server.answered += not refused
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": answer},
            "finish_reason": "stop",
        }
        said = {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 1}}
        body = json.dumps({"error": {"message": "wrong key"}} if refused else said).encode()
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


@pytest.fixture
def over_http(server: Server, tmp_path: Path) -> TrainConfig:
    """A short training of the bundled Conductor over a pool file; it writes valid workflows from the start."""
    url = f"http://127.0.0.1:{server.server_port}/v1"
    workers = "".join(
        f'[[worker]]\nname = "w{i}"\nmodel = "m{i}"\nbase_url = "{url}"\nprice = {{input = 1, output = 2}}\n'
        for i in range(8)
    )
    (tmp_path / "pool.toml").write_text(workers, encoding="utf-8")
    return TrainConfig.model_validate(
        {
            "pool": str(tmp_path / "pool.toml"),
            "save_every": 1,
            "data": {"task": "gym"},
            "start": {"prompts": 6, "workflows": 6, "validity": 0.0},
            "model": {"base": str(bundled_folder())},
            "prompt": {"template": "compact", "access": "index"},
            "rollout": {"iterations": 3, "questions": 2, "completions": 4, "max_tokens": 72},
            "optim": {"learning_rate": 1e-4, "micro_batch": 8, "bf16": False},
            "held_out": {"questions": 6},
        }
    )


@pytest.mark.slow
def test_a_resumed_training_pays_for_no_call_that_its_journal_holds(
    over_http: TrainConfig, server: Server, tmp_path: Path
) -> None:
    whole = run.train(over_http, tmp_path / "whole")
    paid = server.answered
    with Journal.reading(tmp_path / "whole" / "journal.sqlite") as journal:
        assert journal.totals().spent.usage.input_tokens == 5 * paid

    server.answered, server.left = 0, paid // 2
    with pytest.raises(AuthFailed):
        run.train(over_http, tmp_path / "cut")
    with Journal.reading(tmp_path / "cut" / "journal.sqlite") as journal:
        kept = (
            journal.totals().spent.usage.input_tokens // 5
        )  # what was in flight at the refusal is not among them
    assert 0 < kept <= server.answered
    server.shutdown()
    server.server_close()
    # Another one at the same address: requests that were cancelled are counted late, and by the one
    # before.
    with serving(server.server_port) as again:
        resumed = run.train(over_http, tmp_path / "cut", resume=True)
        assert again.answered == paid - kept
    assert resumed["greedy"] == whole["greedy"]
    with Journal.reading(tmp_path / "cut" / "journal.sqlite") as journal:
        assert journal.totals().spent.usage.input_tokens == 5 * paid


@pytest.mark.slow
@pytest.mark.parametrize(
    "share", [0.1, 0.7]
)  # at the start's measurement, and in the midst of an iteration
def test_a_training_killed_among_its_paid_calls_pays_for_the_rest_alone_and_ends_in_the_same_weights(
    share: float, over_http: TrainConfig, server: Server, tmp_path: Path
) -> None:
    hot = over_http.rollout.model_copy(
        update={"iterations": 4, "temperature": 1.5}
    )  # so that some plans are invalid
    config = over_http.model_copy(update={"save_every": 2, "rollout": hot})
    server.answers = lambda body: str(zlib.crc32(body) % 50)
    whole = run.train(config, tmp_path / "whole")
    paid, server.answered = server.answered, 0
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(dump_train_config(config), encoding="utf-8")
    killed = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "openconductor",
            "train",
            str(recipe),
            "--out",
            str(tmp_path / "cut"),
        ],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )

    def kill(body: bytes) -> str:
        if server.answered >= share * paid:
            killed.send_signal(signal.SIGKILL)
        return str(zlib.crc32(body) % 50)

    server.answers = kill
    assert killed.wait(300) == -signal.SIGKILL
    with Journal.reading(tmp_path / "cut" / "journal.sqlite") as journal:
        kept = journal.totals().spent.usage.input_tokens // 5
    assert (share - 0.4) * paid < kept < paid
    server.shutdown()
    server.server_close()
    with serving(server.server_port) as again:
        again.answers = lambda body: str(zlib.crc32(body) % 50)
        resumed = run.train(config, tmp_path / "cut", resume=True)
        assert again.answered == paid - kept
    curves = [
        (tmp_path / name / "curves.jsonl").read_text("utf-8").splitlines()
        for name in ("whole", "cut")
    ]
    timeless = [[{**json.loads(line), "seconds": 0} for line in curve] for curve in curves]
    assert timeless[0] == timeless[1]
    assert any(record["groups_without_spread"] < 1 for record in timeless[0]), (
        "there was something to learn"
    )
    assert (resumed["sampled"], resumed["greedy"]) == (whole["sampled"], whole["greedy"])
    weights = [
        (tmp_path / name / "conductor" / "model.safetensors").read_bytes()
        for name in ("whole", "cut")
    ]
    assert weights[0] == weights[1] != (bundled_folder() / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_training_whose_budget_is_spent_goes_on_with_a_larger_one(
    over_http: TrainConfig, server: Server, tmp_path: Path
) -> None:
    def allowing(calls: int | None) -> TrainConfig:
        return over_http.model_copy(
            update={"budget": over_http.budget.model_copy(update={"calls": calls})}
        )

    whole = run.train(over_http, tmp_path / "whole")
    paid, server.answered = server.answered, 0
    with pytest.raises(BudgetExceeded, match="the run's budget is spent: 9 calls used, 9 allowed"):
        run.train(allowing(9), tmp_path / "cut")
    assert server.answered <= 9
    with pytest.raises(BudgetExceeded):
        run.train(allowing(9), tmp_path / "cut", resume=True)
    assert server.answered <= 9, "what was paid is replayed, and no more is asked"
    resumed = run.train(allowing(2 * paid), tmp_path / "cut", resume=True)
    assert (resumed["sampled"], resumed["greedy"]) == (whole["sampled"], whole["greedy"])
    assert server.answered <= paid + 9, "what was under way at the end is asked again"


def test_a_benchmark_in_local_files_is_learnt_from_and_another_part_of_it_measured(
    over_http: TrainConfig, tmp_path: Path
) -> None:
    for split, numbers in (("train", range(6)), ("test", range(6, 10))):
        rows = [{"question": f"What is {n} times 7?", "answer": f"#### {7 * n}"} for n in numbers]
        (tmp_path / f"{split}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows), "utf-8"
        )
    data = over_http.data.model_copy(update={"task": "gsm8k", "path": str(tmp_path)})
    results = run.train(over_http.model_copy(update={"data": data}), tmp_path / "run")
    for measured in (results["sampled"], results["greedy"]):
        assert measured["rollouts"] == 4, "all that are held out, each once"
        assert set(measured["accuracy_by_kind"]) == {"gsm8k"}
    curve = [
        json.loads(line)
        for line in (tmp_path / "run" / "curves.jsonl").read_text("utf-8").splitlines()
    ]
    assert [(record["rollouts"], set(record["accuracy_by_kind"])) for record in curve] == [
        (8, {"gsm8k"})
    ] * 3
