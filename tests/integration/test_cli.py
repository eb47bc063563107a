"""The command line as a user meets it: exit codes, two streams kept apart, pure JSON, errors without tracebacks.

Most commands run in this process through ``main``; those about pipes, signals and terminals run as processes. Where a
Conductor is needed it is a loopback server that plays a script, or the bundled one where that is there.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

sys.path.insert(0, str(Path(__file__).parent))
from chat_server import Answer, ChatServer, chat_server, completion, hangs, says

from openconductor import cli
from openconductor.errors import ConfigError
from openconductor.gym.bundled import bundled_folder
from openconductor.gym.workers import MISREAD
from openconductor.policies import patient
from openconductor.prompt import render_workflow
from openconductor.types import Step, Workflow

QUESTION = "Take 4 17 9, sort the list, then double every number."
CHAIN = Workflow((Step(3, "sort the list"), Step(1, "make each twice as big", (0,))))
ATTEMPTS = Workflow((Step(1, "double"), Step(6, "double"), Step(4, "compare the answers", "all")))
ESCAPE = re.compile(r"\x1b")


class Ran:
    """What a command left behind."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> dict:
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    monkeypatch.delenv("COLUMNS", raising=False)  # it would count as a terminal's width

    def call(*arguments: str) -> Ran:
        capsys.readouterr()
        code = cli.main(arguments)
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err + captured.out
        assert not ESCAPE.search(captured.out + captured.err)
        return Ran(code, captured.out, captured.err)

    return call


@contextmanager
def serving(*answers: Answer) -> Iterator[ChatServer]:
    """The scripted server in a thread of its own, for a command runs a loop of its own."""
    started = threading.Event()
    servers: list[ChatServer] = []
    stop: list[Callable[[], object]] = []

    async def serve() -> None:
        done = asyncio.Event()
        stop.append(partial(asyncio.get_running_loop().call_soon_threadsafe, done.set))
        async with chat_server(*answers) as server:
            servers.append(server)
            started.set()
            await done.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(10)
        yield servers[0]
    finally:
        stop[0]()
        thread.join(10)


def plans(workflow: Workflow, thought: str = "Sort, then double.") -> Answer:
    return says(completion(render_workflow(workflow, thought)))


def scripted(server: ChatServer) -> tuple[str, ...]:
    return ("--conductor", "vllm:planner", "--conductor-base-url", server.url)


def process(*arguments: str, **options) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **options.pop("env", {})}
    return subprocess.Popen([sys.executable, "-m", "openconductor", *arguments], env=environment, **options)


def bundled_is_there() -> bool:
    if find_spec("openconductor.gym.bundled") is None or find_spec("safetensors") is None:
        return False
    try:
        return bundled_folder().is_dir()
    except ConfigError:
        return False


needs_bundled = pytest.mark.skipif(not bundled_is_there(), reason="needs the bundled Conductor and the extra 'gym'")


# ── usage ────────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("arguments", [(), ("gym",)])
def test_a_command_that_is_not_whole_shows_help_on_stderr_and_exits_with_2(run, arguments) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "question" in ran.err


def verbs(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from verbs(below, *path, name)


def command(verb: str) -> Any:
    return typer.main.get_command(cli.build_app(verb))


BELOW = [one for verb in cli.VERBS for one in verbs(command(verb).commands[verb], verb)]
VERBS = {(): command(""), **dict(BELOW)}


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_the_help_of_every_verb_is_whole_at_80_columns(run, monkeypatch, path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = run(*path, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80
    assert not re.search(r"…|\w\.\.\.$", ran.out, re.MULTILINE), "something was cut"
    options = [name for parameter in VERBS[path].params for name in parameter.opts if name.startswith("--")]
    assert all(re.search(rf"{name}\b", ran.out) for name in options)


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (("dmo",), "'demo'"),
        (("gym", "orakel"), "'oracle'"),
        (("demo", "--questons", "3"), "'--questions'"),
        (("ask", QUESTION, "--max-step", "3"), "'--max-steps'"),
        (("gym", "worker", "jak"), "'jack'"),
        (("gym", "question", "--kind", "tripel"), "'triple'"),
        (("gym", "question", "--split", "tests"), "'test'"),
        (("ask", QUESTION, "--conductor", "worker:countre"), "'counter'"),
        (("ask", QUESTION, "--conductor", "openia:x"), "'openai'"),
    ],
)
def test_an_unknown_setting_names_the_nearest_one(run, arguments, nearest) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert nearest in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("ask",),
        ("ask", QUESTION, "--max-steps", "many"),
        ("ask", QUESTION, "--conductor", "vllm:m", "--rounds", "0"),
        ("ask", QUESTION, "--conductor", "vllm:m", "--budget-dollars", "a few"),
        ("ask", QUESTION, "--conductor", "vllm:m", "--budget-calls", "-1"),
        ("ask", QUESTION, "--conductor", "no/such/folder"),
        ("ask", QUESTION, "--conductor-base-url", "http://127.0.0.1:1/v1"),
        ("ask", QUESTION, "--conductor", "worker:jack", "--conductor-key-env", "X"),
        ("ask", "2+2?", "--pool", "no-such-pool.toml", "--conductor", "vllm:m"),
        ("demo", "--questions", "0"),
        ("demo", "--seed", "-1"),
        ("gym", "question", "--seed", "-1"),
        ("train", "no-such-recipe.toml"),
    ],
)
def test_a_wrong_setting_is_one_message_and_exits_with_2(run, arguments) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")


# ── ask ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_ask_prints_the_answer_alone_on_stdout(run) -> None:
    with serving(plans(CHAIN)) as server:
        ran = run("ask", QUESTION, *scripted(server), "--seed", "1")
    assert ran.code == 0
    assert ran.out == "8 18 34\n"
    assert ran.err == ""  # no terminal, no picture


def test_ask_as_json_is_the_episode_with_steps_and_a_ledger_that_adds_up(run) -> None:
    with serving(plans(CHAIN)) as server:
        ran = run("ask", QUESTION, *scripted(server), "--seed", "1", "--json")
    assert (ran.code, ran.err) == (0, "")
    episode = ran.json()
    assert (episode["question"], episode["answer"], episode["error"]) == (QUESTION, "8 18 34", None)
    [only] = episode["rounds"]
    assert "Sort, then double." in only["conductor"]["text"]
    first, second = only["steps"]
    assert (first["worker"], first["worker_name"], first["subtask"], first["access"]) == (
        3,
        "lister",
        "sort the list",
        [],
    )
    assert (first["outcome"], first["response"]) == ("answered", "4 9 17")
    assert second["access"] == [0]
    assert [turn["role"] for turn in second["messages"]] == ["user", "assistant", "user"]
    ledger = episode["ledger"]
    for key in ("input_tokens", "output_tokens", "unpriced_calls"):
        assert sum(entry[key] for entry in ledger["entries"]) == ledger["total"][key]
    assert sum(Decimal(entry["dollars"]) for entry in ledger["entries"]) == Decimal(ledger["total"]["dollars"]) > 0
    assert [entry["who"] for entry in ledger["entries"]] == ["conductor", "lister", "counter"]


def test_ask_goes_through_a_pool_file_and_a_worker_of_it_as_the_conductor(run, tmp_path) -> None:
    plan = Workflow((Step(1, "Say it."),))
    with serving(plans(plan), says(completion("forty-two"))) as server:
        pool = tmp_path / "pool.toml"
        workers = (
            f'[[worker]]\nname = "{name}"\nmodel = "{name}"\nbase_url = "{server.url}"\n' for name in ("boss", "hand")
        )
        pool.write_text("\n".join(workers))
        ran = run("ask", "What is 6 * 7?", "--pool", str(pool), "--conductor", "worker:boss")
    assert (ran.code, ran.out) == (0, "forty-two\n")
    assert [body["model"] for body in server.bodies] == ["boss", "hand"]


def test_ask_with_a_pool_and_no_conductor_says_which_to_name(run, tmp_path) -> None:
    pool = tmp_path / "pool.toml"
    pool.write_text('[[worker]]\nname = "a"\nmodel = "a"\nbase_url = "http://127.0.0.1:1/v1"\n')
    ran = run("ask", "What is 6 * 7?", "--pool", str(pool))
    assert ran.code == 2
    assert "--conductor provider:model" in ran.err


def test_a_completion_that_is_no_workflow_fails_with_its_reason(run) -> None:
    with serving(says(completion("I would rather not.")), says(completion("No."))) as server:
        plain = run("ask", QUESTION, *scripted(server))
        ran = run("ask", QUESTION, *scripted(server), "--json")
    assert (plain.code, plain.out) == (1, "")
    assert "the Conductor wrote no workflow: missing_list" in plain.err
    assert ran.code == 1
    assert ran.json()["answer"] is None
    assert ran.json()["error"]["reason"] == "missing_list"


def test_a_spent_budget_fails_and_the_json_still_holds_what_was_paid(run) -> None:
    with serving(plans(CHAIN)) as server:
        ran = run("ask", QUESTION, *scripted(server), "--budget-calls", "1", "--json")
    assert ran.code == 1
    assert "error: " in ran.err and "1 call used" in ran.err
    assert ran.json()["ledger"]["total"]["input_tokens"] == 12


def test_an_unreachable_conductor_fails_with_one_message(run) -> None:
    with patient(0.2):
        ran = run("ask", QUESTION, "--conductor", "vllm:m", "--conductor-base-url", "http://127.0.0.1:9/v1")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("error:") == 1


def test_a_question_that_the_gym_cannot_read_is_refused_with_an_example(run) -> None:
    ran = run("ask", "Who wrote Hamlet?")
    assert (ran.code, ran.out) == (1, "")
    assert "sort the list" in ran.err and "--pool" in ran.err


@pytest.mark.parametrize("question", ["", "  ", "what\0now", "what \udc80 now"])
def test_a_question_that_cannot_be_sent_is_a_wrong_setting(run, question) -> None:
    ran = run("ask", question)
    assert (ran.code, ran.out) == (2, "")
    assert "the question" in ran.err


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"x" * 10_000_000, "1000000"),
        (b"what\0now", "a NUL"),
        (b"\xed\xa0\x80", "not UTF-8"),
        (b"\xff\xfe", "byte 0 is not UTF-8"),
        (b"", "blank"),
    ],
)
def test_a_question_on_stdin_that_cannot_be_sent_is_a_wrong_setting(run, monkeypatch, data, said) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(data)))
    ran = run("ask", "-")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_a_question_can_come_from_stdin(run, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(QUESTION.encode() + b"\n")))
    with serving(plans(CHAIN)) as server:
        ran = run("ask", "-", *scripted(server), "--seed", "1", "--json")
    assert ran.code == 0
    assert ran.json()["question"] == QUESTION


# ── gym ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_gym_question_shows_the_same_question_for_the_same_seed(run) -> None:
    first, again, other = (run("gym", "question", "--json", "--seed", seed).json() for seed in ("3", "3", "4"))
    assert first == again != other
    assert (
        first["kind"] == {1: "single", 2: "pair", 3: "triple"}.get(len(first["operations"]))
        or first["kind"] == "smudged"
    )


def test_gym_question_reads_a_text(run) -> None:
    ran = run("gym", "question", QUESTION, "--json")
    assert ran.json()["answer"] == "8 18 34"
    assert "8 18 34" in run("gym", "question", QUESTION).out
    assert run("gym", "question", "What now?").code == 1


def test_gym_questions_lists_as_many_as_asked_for(run) -> None:
    listed = run("gym", "questions", "--count", "5", "--kind", "pair", "--split", "train", "--json").json()
    assert [one["kind"] for one in listed] == ["pair"] * 5
    assert run("gym", "questions", "--count", "2").out.count("\n") > 3


def test_gym_worker_shows_one_or_all(run) -> None:
    assert len(run("gym", "worker", "--json").json()) == 8
    one = run("gym", "worker", "counter", "--json").json()
    assert (one["ordinal"], one["price"]) == (1, {"input": "1", "output": "4"})
    shown = " ".join(run("gym", "worker").out.split())
    assert "converter" in shown
    assert "the referee slips 6% of the time, the others 15%" in shown
    assert "it knows what is right and what is wrong 70% of the time, the others guess" in shown


@pytest.mark.parametrize("columns", [60, 80])
def test_the_gyms_tables_break_no_word_in_a_narrow_terminal(run, monkeypatch, columns) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    workers, questions = run("gym", "worker").out, run("gym", "questions", "--count", "4").out
    assert max(map(len, (workers + questions).splitlines())) <= columns
    heads = "order sums units writing likes else converter formal 0.97"
    assert set(workers.split()) >= set(heads.split())
    assert set(questions.split()) >= {"smudged", "one-nine-four", "reverse"}


def test_a_smudged_question_says_how_often_a_reading_goes_wrong(run) -> None:
    for verb in ("question", "oracle"):
        assert f"each reading of the list goes wrong {MISREAD:.0%} of the time" in " ".join(
            run("gym", verb, "--kind", "smudged").out.split()
        )


def test_gym_oracle_shows_a_workflow_and_what_it_is_worth(run) -> None:
    oracle = run("gym", "oracle", "--kind", "triple", "--json").json()
    assert oracle["topology"] == "chain"
    assert 0.5 < oracle["expected_accuracy"] < 1
    text = run("gym", "oracle", QUESTION).out
    assert "access_list = [[], [0]]" in text and "right" in text


# ── doctor ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_doctor_reports_and_never_shows_a_key(run, monkeypatch) -> None:
    monkeypatch.setattr("openconductor.cli.doctor.find_spec", lambda name: None)  # importing torch takes seconds
    monkeypatch.setenv("SOME_SERVICE_API_KEY", "hush-hush")
    ran = run("doctor", "--json")
    report = ran.json()
    assert ran.code == 0
    assert report["ok"] is report["core"]["works"] is True
    assert "SOME_SERVICE_API_KEY" in report["keys"]
    people = run("doctor")
    assert people.code == 0
    assert "SOME_SERVICE_API_KEY" in people.out
    assert "hush-hush" not in people.out + people.err + ran.out + ran.err


# ── train ────────────────────────────────────────────────────────────────────────────────────────────────────────────
RECIPE = 'name = "tiny"\n'


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("optim.learning_rat=1",), "learning_rate"),
        (("seed=many",), "seed"),
        (("--resume",), "--out"),
        (("--study", "s", "--resume"), "--study"),
        (("--study", "s", "--seeds", "1,1"), "--seeds"),
        (("--study", "s", "--seeds", "one"), "--seeds"),
    ],
)
def test_train_refuses_a_wrong_recipe_or_setting(run, tmp_path, monkeypatch, arguments, said) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.toml").write_text(RECIPE)
    ran = run("train", "recipe.toml", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.toml"]


@pytest.mark.parametrize(("arguments", "module"), [((), "run"), (("--study", "s"), "study")])
def test_train_without_its_extra_names_the_command_that_installs_it(
    run, tmp_path, monkeypatch, arguments, module
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.toml").write_text(RECIPE)
    for loaded in [name for name in sys.modules if name.startswith("openconductor.training.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    ran = run("train", "recipe.toml", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert 'pip install "openconductor[train]"' in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.toml"]


PHASE = {"accuracy": 0.5, "accuracy_given_valid": 0.51, "validity": 0.98, "routing_entropy_bits": 2.5}
LEVELS = {"random": 0.05, "best_worker": 0.2, "oracle": 0.8}
ROW = {
    "seed": 3,
    "control": "none",
    "start": 0.1,
    "sampled": 0.6,
    "greedy": 0.7,
    "share_of_oracle": 0.875,
    "validity": 1.0,
}
STUDIED = {
    "levels": LEVELS,
    "rows": [ROW, {**ROW, "control": "flipped"}],
    "learnt": 1,
    "seeds": 1,
    "median_share_of_oracle": 0.875,
    "worst_share_of_oracle": 0.875,
}


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[object, ...]]:
    """The learning floor as the command line sees it, without its hours; holds what it was asked for."""
    asked: list[tuple[object, ...]] = []

    def train(config, folder, *, resume=False, on_progress=None) -> dict[str, object]:
        asked.append((config.name, config.rollout.iterations, Path(folder), resume))
        on_progress("iteration 0")
        print("a library prints this")
        return {"name": config.name, "seed": 0, "control": "none", "start": PHASE, "sampled": PHASE, "greedy": PHASE}

    def study(config, folder, *, seeds, controls=True, jobs=2, on_progress=None) -> dict[str, object]:
        asked.append((config.name, Path(folder), seeds, controls, jobs))
        return STUDIED

    monkeypatch.setitem(sys.modules, "openconductor.training.run", SimpleNamespace(train=train))
    monkeypatch.setitem(sys.modules, "openconductor.training.study", SimpleNamespace(study=study))
    monkeypatch.chdir(tmp_path)
    Path("recipe.toml").write_text(RECIPE)
    return asked


def test_train_passes_recipe_and_overrides_on_and_keeps_stdout_for_the_results(run, learning) -> None:
    ran = run("train", "recipe.toml", "rollout.iterations=7", "--out", "here", "--resume", "--json")
    assert ran.code == 0
    assert learning == [("tiny", 7, Path("here"), True)]
    assert ran.json()["greedy"]["accuracy"] == 0.5
    assert "iteration 0" in ran.err and "a library prints this" in ran.err


def test_train_names_its_folder_after_day_and_recipe(run, learning) -> None:
    ran = run("train", "recipe.toml")
    assert ran.code == 0
    assert re.fullmatch(r"runs/\d{4}-\d\d-\d\d-tiny", learning[0][2].as_posix())
    assert "learnt, greedy" in ran.out and "50.0%" in ran.out and "2.50 bits" in ran.out


def test_a_study_passes_its_seeds_on_and_says_how_many_learnt(run, learning) -> None:
    ran = run("train", "recipe.toml", "--study", "s", "--seeds", "3, 4", "--no-controls", "--jobs", "1")
    assert ran.code == 0
    assert learning == [("tiny", Path("s"), (3, 4), False, 1)]
    assert "1 of 1 seeds learnt" in ran.out and "87.5%" in ran.out and "control: flipped rewards" in ran.out
    assert run("train", "recipe.toml", "--study", "s", "--json").json() == STUDIED


# ── the demo ─────────────────────────────────────────────────────────────────────────────────────────────────────────
KEYS = {
    "questions", "seed", "accuracy", "ci95", "workers", "validity", "accuracy_given_valid", "routing_entropy_bits",
    "worker_share", "topology_share", "mean_steps", "mean_steps_by_kind", "usage", "seconds",
}  # fmt: skip


@needs_bundled
def test_demo_as_json_is_one_object_with_the_agreed_keys(run) -> None:
    ran = run("demo", "--json", "--questions", "24", "--seed", "5")
    assert (ran.code, ran.err) == (0, "")
    values = ran.json()
    assert set(values) >= KEYS
    assert (values["questions"], values["seed"]) == (24, 5)
    for key in ("accuracy", "ci95"):
        assert set(values[key]) == {"conductor", "random", "best_worker", "best_fixed", "oracle"}


@needs_bundled
def test_the_demo_shows_a_picture_on_stderr_and_the_table_on_stdout(run) -> None:
    ran = run("demo", "--questions", "24")
    assert ran.code == 0
    assert "Conductor" in ran.err and "access_list" in ran.err and "Answer" in ran.err
    assert "95 % interval" in ran.out and "percentage points" in ran.out
    assert "access_list" not in ran.out
    quick = run("demo", "--questions", "24", "--quick")
    assert (quick.code, quick.err) == (0, "")


@needs_bundled
def test_ask_goes_to_the_bundled_conductor_by_default(run) -> None:
    ran = run("ask", QUESTION, "--json")
    assert ran.code in (0, 1)  # its workers are fallible
    assert ran.json()["rounds"][0]["valid"]


# ── processes: imports, pipes, signals, terminals ────────────────────────────────────────────────────────────────────
def test_only_the_module_of_the_verb_that_is_asked_for_is_imported() -> None:
    program = "import sys; from openconductor.cli import main; main([]); main(['doctr']); print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    heavy = {"aiohttp", "numpy", "safetensors", "torch", "openconductor.conductor"}
    assert not (heavy | {f"openconductor.cli.{verb}" for verb in cli.VERBS}) & set(output.split())


def test_the_list_of_verbs_says_what_their_own_help_says() -> None:
    for verb, about in cli.VERBS.items():
        assert command(verb).commands[verb].help.startswith(about)


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with process("gym", "questions", "--count", "3000", "--json", **pipes) as command:
        assert command.stdout is not None and command.stderr is not None
        command.stdout.readline()
        command.stdout.close()
        assert command.stderr.read() == b""
        assert command.wait(60) == 0


def test_a_full_disk_behind_stdout_is_one_message() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full")
    with full.open("wb") as stdout:
        command = process("gym", "worker", "--json", stdout=stdout, stderr=subprocess.PIPE)
        _, err = command.communicate(timeout=60)
    assert command.returncode == 1
    assert err.startswith(b"error: ") and b"Traceback" not in err


def test_an_interrupt_ends_quietly_with_130() -> None:
    with serving(hangs()) as server:
        command = process("ask", QUESTION, *scripted(server), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while not server.bodies and time.monotonic() < deadline:
            time.sleep(0.02)
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=60)
    assert (command.returncode, out, err) == (130, b"", b"")


def in_a_terminal(*arguments: str, env: dict[str, str]) -> tuple[int, str]:
    """Run a command whose stderr is a terminal; returns the exit code and what that terminal was sent."""
    parent, child = pty.openpty()
    try:
        command = process(
            *arguments, stdout=subprocess.PIPE, stderr=child, env={"TERM": "xterm-256color", "COLUMNS": "100", **env}
        )
        os.close(child)
        shown = b""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if select.select([parent], [], [], 0.1)[0]:
                try:
                    shown += os.read(parent, 65536)
                except OSError:  # the other end was closed
                    break
            elif command.poll() is not None:
                break
        command.communicate(timeout=60)
        return command.returncode, shown.decode()
    finally:
        os.close(parent)


def test_a_terminal_sees_the_tree_fill_in_and_its_cursor_come_back() -> None:
    with serving(plans(ATTEMPTS)) as server:
        code, shown = in_a_terminal("ask", QUESTION, *scripted(server), env={"NO_COLOR": ""})
    assert code in (0, 1)
    assert "writes a workflow" in shown and "compare the answers" in shown and "sees 0, 1" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    assert re.search(r"\x1b\[[0-9;]*3[0-7]m", shown)


def test_no_color_is_respected_on_a_terminal() -> None:
    with serving(plans(CHAIN)) as server:
        code, shown = in_a_terminal("ask", QUESTION, *scripted(server), "--seed", "1", env={"NO_COLOR": "1"})
    assert code == 0
    assert "sort the list" in shown
    colours = re.findall(r"\x1b\[([0-9;]*)m", shown)
    assert not [code for code in colours if re.search(r"\b(3[0-7]|4[0-7]|9[0-7]|38|48)\b", code)]
