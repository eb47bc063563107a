"""``openconductor grade`` as a process: in a pipe, interrupted, without a reader, endless input."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SECONDS = 200


def start(*options: str, stdin: Any = subprocess.PIPE, bufsize: int = -1) -> Any:
    command = [sys.executable, "-m", "openconductor", "grade", "--grader", "choice", *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=pipe, bufsize=bufsize)


def right(number: int) -> bytes:
    row = {"id": number, "reference": "B", "answer": "Answer: B"}
    return json.dumps(row).encode() + b"\n"


def read_line(process: Any) -> dict[str, object]:
    """Return the next line of its stdout, within a bounded time."""
    data = b""
    while not data.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], SECONDS)
        piece = os.read(process.stdout.fileno(), 1) if ready else b""
        assert piece, "the stream ended in the middle of a line, or said nothing for a minute"
        data += piece
    return json.loads(data)


def test_a_file_goes_in_and_as_many_verdicts_come_out(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    rows = b"".join(map(right, range(500)))
    path.write_bytes(b"\xef\xbb\xbf" + rows.replace(b"\n", b"\r\n"))
    with path.open("rb") as file:
        process = start("--json", stdin=file)
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (0, b"")
    assert [json.loads(line)["id"] for line in out.splitlines()] == list(range(500))


def test_a_verdict_comes_before_the_next_line_is_written_and_a_bad_line_ends_it_with_2() -> None:
    process = start()
    for number in range(3):
        process.stdin.write(right(number))
        process.stdin.flush()
        assert read_line(process) == {"id": number, "correct": True, "extracted": "B", "note": ""}
    out, err = process.communicate(right(3) + b"{\n" + right(4), timeout=SECONDS)
    assert process.returncode == 2
    assert [json.loads(line)["id"] for line in out.splitlines()] == [3]
    assert b"stdin, line 5: not JSON" in err and b"Traceback" not in err


def test_a_reader_that_has_seen_enough_ends_it_quietly() -> None:
    process = start(bufsize=0)
    process.stdin.write(right(0))
    read_line(process)
    process.stdout.close()
    with pytest.raises(BrokenPipeError), process.stdin:
        process.stdin.writelines(right(number) for number in range(200_000))
    with process.stderr:
        assert (process.wait(timeout=SECONDS), process.stderr.read()) == (0, b"")


@pytest.mark.parametrize("waiting", [True, False], ids=["for input", "in the middle"])
def test_an_interrupt_ends_it_with_130_and_whole_lines(waiting: bool) -> None:
    process = start()
    process.stdin.write(b"".join(right(number) for number in range(1 if waiting else 300)))
    process.stdin.flush()
    first = read_line(process)
    process.send_signal(signal.SIGINT)
    with process.stdin, process.stdout, process.stderr:
        out, err = process.stdout.read(), process.stderr.read()
        assert process.wait(timeout=SECONDS) == 130
    assert first["id"] == 0 and b"Traceback" not in err
    assert all(json.loads(line)["correct"] for line in out.splitlines())
