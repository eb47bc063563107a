"""The two streams: JSON that any reader takes, text that no terminal obeys."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from io import BytesIO, TextIOWrapper
from types import SimpleNamespace

import pytest
from rich.progress import Task, TaskID

import openconductor
from openconductor import measures
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
        (
            4,
            1000,
            1000,
            ["8: 2", "20: 5", "40: 10", "80: 20", "160: 40", "320: 80"]
            + [f"{second}: {second // 4:,}" for second in range(620, 4000, 300)]
            + ["4000: 1,000"],
        ),
        (
            60,
            20,
            1000,
            ["60: 1", "120: 2", "180: 3", "240: 4", "360: 6", "540: 9", "840: 14", "1140: 19"],
        ),
        (0, 100, 100, ["0: 100"]),
        (0, 0, 0, []),
    ],
    ids=["long", "slow: every five minutes", "quick: at its end", "nothing"],
)
def test_without_a_terminal_long_work_says_where_it_is_and_when_it_ends_in_a_few_lines(
    monkeypatch, seconds: int, calls: int, total: int, lines: list[str]
) -> None:
    now = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0],
        time=lambda: now[0],
        localtime=time.gmtime,
        strftime=time.strftime,
    )
    monkeypatch.setattr(console, "time", clock)
    monkeypatch.setattr(measures, "time", clock)
    printed: list[str] = []
    monkeypatch.setattr(console, "say", lambda line: printed.append(f"{now[0]:.0f}: {line}"))
    with console.progress_bar("asking") as advance:
        for done in range(1, calls + 1):
            now[0] += seconds
            advance(done, total)
    end = time.strftime("%H:%M:%S", time.gmtime(seconds * total))
    expected: list[str] = []
    for line in lines:
        moment, _, done = line.partition(": ")
        finish = "" if done == f"{total:,}" else f", done at about {end}"
        expected.append(f"{moment}: asking: {done} of {total:,}{finish}")
    if calls < total:
        expected.append(f"{now[0]:.0f}: asking: {calls} of {total:,}, done at about {end}")
    assert printed == expected


def test_work_that_takes_days_ends_on_a_date(monkeypatch) -> None:
    monkeypatch.setattr(measures.time, "time", lambda: 0.0)
    pace = measures.Pace()
    assert pace.finish(5, 10) == ", done at about " + time.strftime("%H:%M:%S", time.localtime(0))
    monkeypatch.setattr(measures.time, "time", lambda: 2 * 86_400.0)
    assert re.fullmatch(", done at about 19[67][0-9]-.*:.*", pace.finish(6, 10))
    assert pace.finish(10, 10) == ""


def test_quick_work_can_be_quiet_without_a_terminal_and_slow_work_says_its_end(
    monkeypatch, capsys
) -> None:
    with console.progress_bar("asking", quiet=True) as advance:
        advance(1, 1)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(console, "FIRST_WAIT", 0)
    with console.progress_bar("asking", quiet=True) as advance:
        advance(2, 2)
    assert capsys.readouterr().err == "asking: 2 of 2\n"


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
