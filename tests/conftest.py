"""Fixtures and settings that all tests share."""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.places import DatabasePlace, FilePlace, Place
from tests.postgres_server import UNSAFE, PostgresServer, running

from openconductor import cli

# Before anything imports torch: on two busy cores, two threads were four times slower than one. And
# no test may reach for a model hub.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.pop("OPENAI_BASE_URL", None)  # no test may ask the developer's own server

# Where the tests were started in the background SIGINT is ignored, and the commands that they start
# would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hypothesis would fail an example that takes over 200 ms, as each may on a busy machine.
# Integration draws the same examples each time; a developer's machine looks for new ones.
settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("calm"), derandomize=True)
settings.load_profile("ci" if "CI" in os.environ else "calm")

ROOT = Path(__file__).resolve().parent.parent

# What several tests share lies beside them, and `--import-mode=importlib` makes no folder one to
# import from.
FOLDERS = (
    "",
    "examples",
    "integration",
    "unit/baselines",
    "unit/evaluation",
    "unit/store",
    "unit/report",
    "unit/tasks",
    "unit/ui",
)
sys.path[:0] = [str(ROOT / "tests" / folder) for folder in FOLDERS]


def pytest_collection_finish() -> None:
    """Spare the garbage collector the million objects that thousands of tests are themselves.

    Looking through them takes seconds each time, in which a server here answers nobody.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout's top folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of data sets beside the checkout, or skip the test if it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(
            "needs the data sets in ../shared/data, beside the checkout; they are not there"
        )
    return folder


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file in a folder, files in both folders of temporary files, and a process; all live on."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    with (
        tempfile.NamedTemporaryFile() as ours,
        tempfile.NamedTemporaryFile(dir="/tmp") as theirs,
        subprocess.Popen(sleep, start_new_session=True) as process,
    ):
        yield precious
        assert precious.read_text() == "kept"
        assert Path(ours.name).exists() and Path(theirs.name).exists()
        assert process.poll() is None
        process.kill()


class Ran:
    """What a command left behind."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> Any:
        return json.loads(self.out)

    def assert_refused(self, message: str, *, code: int = 2) -> None:
        """Check that nothing was printed and the error says this."""
        assert (self.code, self.out) == (code, "")
        assert message.strip() in " ".join(self.err.split())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """The command line in this process."""
    monkeypatch.delenv("COLUMNS", raising=False)  # it would count as a terminal's width

    def call(*arguments: object, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err + captured.out
        assert "\x1b" not in captured.out + captured.err
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL for this session, or skip the test where it is not installed."""
    with running(*UNSAFE) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Place]:
    """Make places of a store that are still empty; the test runs with files and with databases."""
    numbers = count()

    def make() -> Place:
        if request.param == "sqlite":
            folder = tmp_path / f"place-{next(numbers)}"
            folder.mkdir()
            return FilePlace(folder / "journal.sqlite")
        server: PostgresServer = request.getfixturevalue("postgres")
        return DatabasePlace(server.new_place())

    return make


@pytest.fixture
def database(postgres: PostgresServer) -> DatabasePlace:
    """A database that is still empty."""
    return DatabasePlace(postgres.new_place())


@pytest.fixture
def stores(database: DatabasePlace) -> Iterator[list[Any]]:
    """Two stores in one database, as two processes have them."""
    with database.open() as first, database.open() as second:
        yield [first, second]


@pytest.fixture
def place(new_place: Callable[[], Place]) -> Place:
    """A place of a store that is still empty; the test runs with a file and with a database."""
    return new_place()
