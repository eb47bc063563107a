"""The two streams: JSON that any reader takes, text that no terminal obeys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from types import SimpleNamespace

import pytest
from rich.progress import Task, TaskID

import openconductor
from openconductor.cli import console
from openconductor.errors import ConfigError


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_json_is_json_in_every_encoding_and_a_line_of_it_is_one(monkeypatch, encoding) -> None:
    raw = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(raw, encoding=encoding))
    given = {"answer": "naïve\n\u2028 – \ud800 \x1b"}
    console.show_json(given, indent=None)
    sys.stdout.flush()
    assert json.loads(raw.getvalue().decode(encoding)) == given
    assert raw.getvalue().count(b"\n") == 1
    with pytest.raises(ValueError, match="JSON"):
        console.show_json(float("nan"))


def test_an_error_is_one_message_on_stderr_without_control_characters(capsys) -> None:
    console.show_error(
        ConfigError("pool.toml: [bold]no[/bold] such\x1b file " + "x" * 200), hint="see there"
    )
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: pool.toml: [bold]no[/bold] such\ufffd file xxx")
    assert captured.err.count("\n") == 2
    assert console.printable("a\x1b[2Jb\x07\x9bc\n\td") == "a\ufffd[2Jb\ufffd\ufffdc\n\td"


@pytest.mark.parametrize(
    ("seconds", "calls", "total", "lines"),
    [
        (1, 1000, 1000, [f"asking: {done:,} of 1,000" for done in range(100, 1001, 100)]),
        (60, 20, 1000, [f"asking: {done} of 1,000" for done in (5, 10, 15, 20)]),
        (0, 100, 100, ["asking: 100 of 100"]),
        (0, 0, 0, []),
    ],
    ids=["long", "slow: every five minutes", "quick: at its end", "nothing"],
)
def test_without_a_terminal_long_work_says_where_it_is_in_a_few_lines(
    monkeypatch, capsys, seconds: int, calls: int, total: int, lines: list[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with console.progress_bar("asking") as advance:
        for done in range(1, calls + 1):
            now[0] += seconds
            advance(done, total)
    assert capsys.readouterr().err.splitlines() == lines


def test_work_that_is_quiet_without_a_terminal_says_nothing(capsys) -> None:
    with console.progress_bar("asking") as advance:
        advance(1, 1, "$1")
    assert capsys.readouterr().err == "asking: 1 of 1, $1\n"
    with console.progress_bar("asking", piped=False) as advance:
        advance(1, 1)
    assert capsys.readouterr().err == ""


def test_progress_names_the_worker_that_most_calls_wait_for(monkeypatch, capsys) -> None:
    waiting = {"quick": 1, "slow": 12}
    monkeypatch.setattr("openconductor.calls.worker.waiting_calls", lambda: waiting)
    with console.progress_bar("asking") as advance:
        advance(1, 1, "$1")
    assert capsys.readouterr().err == "asking: 1 of 1, $1, waiting for slow: 12 calls\n"
    shown = console._BottleneckColumn().render(Task(TaskID(0), "", 1, 0, lambda: 0.0))
    assert shown.plain == "waiting for slow: 12 calls"


def test_what_libraries_print_goes_to_stderr_and_results_to_stdout() -> None:
    program = (
        "import os, subprocess, sys\n"
        "from openconductor.cli.console import only_results_on_stdout\n"
        "with only_results_on_stdout():\n"
        "    print('python')\n"
        "    os.write(1, b'library\\n')\n"
        "    subprocess.run([sys.executable, '-c', 'print(\"child\")'])\n"
        "print('result')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    )
    assert ran.stdout == "result\n"
    assert set(ran.stderr.split()) == {"python", "library", "child"}


# ── the program itself ────────────────────────────────────────────────────────────────────────────
def test_the_next_command_begins_as_this_one_did(monkeypatch, tmp_path) -> None:
    program = tmp_path / "openconductor"
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    assert console.own_path() == str(program)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert console.own_path() == "openconductor"
    monkeypatch.setattr(sys, "argv", ["/x/__main__.py"])
    assert console.own_path() == "openconductor"


def test_an_error_that_nothing_expected_asks_for_a_report_with_the_version() -> None:
    code = (
        "import sys\nfrom openconductor import cli\n"
        "cli._run = lambda arguments: 1 / 0\nsys.argv[1:] = ['ask']\ncli.main()"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    trace, _, report = ran.stderr.partition("This is a bug of ")
    assert "ZeroDivisionError" in trace
    assert report.startswith(f"openconductor {openconductor.__version__} (Python 3.")
