"""Processes on a Ray cluster that join one evaluation and are killed write the tables of one; those
that join a study make its runs.

The cluster is a node of two CPUs on this machine. Skipped where Ray is not installed: it is in no
set-up, because it takes 202 MB.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
from sums import AT_ONCE, SIDE_BY_SIDE, TABLES, Server, in_peace
from test_evaluation_joined import paid
from tests.places import DatabasePlace
from tests.postgres_server import PostgresServer

from openconductor import cli

KILLS = 3
SEED = 20_261_128
no_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason='needs Ray: pip install "openconductor[ray]"'
)
pytestmark = [no_ray, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of our own, of two CPUs."""
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        command = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start"]
        command += ["--head", "--block", f"--port={port}", "--num-cpus=2", "--num-gpus=0"]
        command += ["--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={folder}"]
        command += [f"--plasma-directory={folder}", "--object-store-memory=80000000"]
        with Path(folder, "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + 120
        while "will now block" not in Path(folder, "log").read_text("utf-8"):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.2)
        yield address
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with closing(Server(SEED)) as server:
        yield server


def test_actors_that_are_killed_write_the_tables_of_one_process_and_pay_nothing_twice(
    cluster: str, server: Server, postgres: PostgresServer, tmp_path: Path
) -> None:
    peace = in_peace(server, tmp_path, shared=False)
    place = DatabasePlace(postgres.new_place())
    more = ["--journal", place.name, "--ray", cluster, "ray.joiners=2"]
    command = [sys.executable, "-m", "openconductor", *peace.command(tmp_path / "ray", *more)]
    before = len(server.asked)
    draws = random.Random(SEED)
    with Path(tmp_path, "log").open("wb") as log:
        each_line = {**os.environ, "RAY_DEDUP_LOGS": "0"}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=each_line)
    killed: set[int] = set()
    for _ in range(KILLS):
        server.wait_for(draws.randint(1, peace.requests.total() // (2 * KILLS)))
        actor = draws.choice(sorted(actors(tmp_path / "log") - killed))
        os.kill(actor, signal.SIGKILL)
        killed.add(actor)
    assert process.wait(400) == 0, (tmp_path / "log").read_text("utf-8")
    assert len(actors(tmp_path / "log")) == 2 + KILLS
    assert paid(place) == peace.requests
    wasted = Counter(server.asked[before:]) - peace.requests
    print(f"{KILLS} actors killed; {wasted.total()} calls in flight were made again")
    assert wasted.total() <= KILLS * AT_ONCE * SIDE_BY_SIDE
    for name in TABLES:
        assert (tmp_path / "ray" / name).read_bytes() == peace.tables[name], name


def actors(log: Path) -> set[int]:
    """Return the process ids of the actors that have begun to join."""
    return set(map(int, re.findall(r"pid=(\d+)\S* run folder", log.read_text("utf-8"))))


def test_a_cluster_without_room_or_without_the_recipe_is_an_error_that_says_so(
    cluster: str, postgres: PostgresServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('systems = ["worker:maven"]\n[[task]]\nname = "gym"\nlimit = 2\n', "utf-8")
    url = postgres.new_place()
    command = ["eval", "--config", str(recipe), "--journal", url, "--out", str(tmp_path / "run")]
    refused = {
        "ray.gpus=1": "ray.gpus: got 1, expected at most 0",
        "task.0.limit=0": "error: task option limit: got 0",
    }
    for change, message in refused.items():
        code = cli.main([*command, "--ray", cluster, change])
        assert code != 0
        assert message in capfd.readouterr().err
    assert cli.main([*command, "--ray", "127.0.0.1:1"]) == 2
    assert "eval --ray 127.0.0.1:1: " in capfd.readouterr().err


# ── a study ───────────────────────────────────────────────────────────────────────────────────────
TINY = """
name = "tiny"
pool = "gym"
data = { task = "gym" }
model = { base = "", hidden = 32, intermediate = 64, layers = 1, heads = 2 }
cold_start = { steps = 2, batch = 8 }
prompt = { template = "compact", access = "index" }
rollout = { iterations = 1, questions = 4, completions = 4, max_tokens = 24 }
optim = { micro_batch = 16, bf16 = false }
start = { validity = 0.0, prompts = 4, workflows = 4 }
held_out = { questions = 4 }
"""


def test_a_study_on_a_cluster_returns_the_summary_of_one_process(
    cluster: str,
    postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("trl", reason="needs the extra 'train': pip install 'openconductor[train]'")
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(TINY, "utf-8")
    command = ["train", "tiny.toml", "--seeds", "1,2", "--no-controls", "--json"]
    place = DatabasePlace(postgres.new_place())
    shared = [*command, "--study", "shared", "--journal", place.name, "--ray", cluster]
    refused = cli.main([*shared, "--jobs", "3"])
    assert refused == 2
    assert "--jobs: got 3, expected at most 2: the cluster has no more" in capfd.readouterr().err
    assert cli.main([*shared, "--jobs", "2"]) == 0
    output = capfd.readouterr()
    assert "starting processes on the Ray cluster" in output.err
    summary = json.loads(output.out)
    runs = ["seed-1", "seed-2"]
    kept = place.rows("SELECT key FROM outcomes WHERE key LIKE 'run/%' ORDER BY key")
    assert kept == [(f"run/{run}",) for run in runs]
    assert all(Path("shared", run, "results.json").is_file() for run in runs)
    assert re.search(r"pid=\d+\S* seed-1: started", output.err)
    assert cli.main([*command, "--study", "alone"]) == 0
    alone = json.loads(capfd.readouterr().out)
    for result in (summary, alone):
        result.pop("seconds")
        for row in result["rows"]:
            row.pop("seconds")
    assert summary == alone
