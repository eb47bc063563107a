"""The command line as a user meets it: exit codes, two streams, pure JSON, short errors.

Most commands run in this process through ``main``; those about pipes, signals and terminals run as
processes. The Conductor is a loopback server that plays a script, or the bundled one.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from anyio.from_thread import start_blocking_portal
from chat_server import Answer, ChatServer, chat_server, completion, hangs, says, write_pool

from openconductor import cli
from openconductor.calls import policies
from openconductor.errors import ConfigError
from openconductor.gym.bundled import bundled_folder
from openconductor.gym.workers import MISREAD
from openconductor.prompt import render_workflow
from openconductor.types import Step, Workflow

QUESTION = "Take 4 17 9, sort the list, then double every number."
ALONE = Workflow((Step(1, "Say it."),))
CONDUCTOR = ("--conductor", "vllm:planner", "--conductor-base-url")
CHAIN = Workflow((Step(3, "sort the list"), Step(1, "make each twice as big", (0,))))
ATTEMPTS = Workflow((Step(1, "double"), Step(6, "double"), Step(4, "compare the answers", "all")))


@contextmanager
def serving(*answers: Answer) -> Iterator[ChatServer]:
    """Run the scripted server in a thread, beside the command's own loop."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(chat_server(*answers)) as server,
    ):
        yield server


def plans(workflow: Workflow, thought: str = "Sort, then double.") -> Answer:
    return says(completion(render_workflow(workflow, thought)))


def scripted(server: ChatServer) -> tuple[str, ...]:
    return (*CONDUCTOR, server.url)


def process(*arguments: str, **options) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **options.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "openconductor", *arguments], env=environment, **options
    )


def bundled_is_there() -> bool:
    try:
        return find_spec("safetensors") is not None and bundled_folder().is_dir()
    except ConfigError:
        return False


needs_bundled = pytest.mark.skipif(
    not bundled_is_there(), reason="needs the bundled Conductor and the extra 'gym'"
)


# ── usage ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("arguments", "said"), [((), "question"), (("gym",), "question"), (("pool",), "check")]
)
def test_a_command_that_is_not_whole_shows_help_on_stderr_and_exits_with_2(
    run, arguments, said
) -> None:
    run(*arguments).assert_refused(said)


def commands_of(verb: str) -> dict[tuple[str, ...], Any]:
    """Return a verb's command and those below it, by their words."""
    command = typer.main.get_command(cli.build_app(verb)).commands[verb]
    inner = getattr(command, "commands", {})
    return {(verb,): command} | {(verb, name): inner[name] for name in inner}


COMMANDS: dict[tuple[str, ...], Any] = {(): typer.main.get_command(cli.build_app())}
for _verb in cli.VERBS:
    COMMANDS |= commands_of(_verb)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_help_of_every_verb_is_whole_at_80_columns(run, monkeypatch, path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = run(*path, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80
    assert not re.search(r"…|\w\.\.\.$", ran.out, re.MULTILINE), "something was cut"
    for parameter in COMMANDS[path].params:
        for option in parameter.opts:
            assert option[:2] != "--" or re.search(rf"{option}\b", ran.out), option
    if len(path) == 1:  # the list of all verbs says the same
        assert COMMANDS[path].help.startswith(cli.VERBS[path[0]])


WRONG = """
gym orakel                                                 → 'oracle'
demo --questons 3                                          → '--questions'
gym worker jak                                             → 'jack'
gym question --kind tripel                                 → 'triple'
gym question --split tests                                 → 'test'
ask QUESTION --conductor vllm:m --rounds 0                 → --rounds
ask QUESTION --conductor vllm:m --budget-calls -1          → --budget-calls
ask QUESTION --conductor-base-url http://127.0.0.1:1/v1    → --conductor
demo --questions 0                                         → --questions
demo --seed -1                                             → --seed
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_a_wrong_setting_is_one_message_that_names_the_nearest_and_exits_with_2(run, line) -> None:
    command, message = line.split("→")
    ran = run(*(QUESTION if word == "QUESTION" else word for word in command.split()))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ") and ran.err.count("error: ") == 1
    assert message.strip() in ran.err


# ── ask ───────────────────────────────────────────────────────────────────────────────────────────
def test_ask_prints_the_answer_alone_on_stdout_and_takes_the_question_from_stdin(run) -> None:
    with serving(plans(CHAIN), plans(CHAIN)) as server:
        ran = run("ask", QUESTION, *scripted(server), "--seed", "1")
        piped = run(
            "ask", "-", *scripted(server), "--seed", "1", "--json", stdin=QUESTION.encode() + b"\n"
        )
    assert (ran.code, ran.out, ran.err) == (0, "8 18 34\n", "")  # no terminal, no picture
    assert (piped.code, piped.json()["question"]) == (0, QUESTION)


def test_ask_goes_through_a_pool_file_and_each_fallback_is_one_line(run, tmp_path) -> None:
    refused = says({"error": {"message": "no such model"}}, status=400)
    with serving(plans(ALONE), refused, says(completion("forty-two"))) as server:
        pool = write_pool(tmp_path, server.url, "boss", "hand", "other")
        ran = run("ask", "What is 6 * 7?", "--pool", pool, "--conductor", "worker:boss")
    assert (ran.code, ran.out) == (0, "forty-two\n")
    assert [body["model"] for body in server.bodies] == ["boss", "hand", "other"]
    reason = f"rejected: hand at {server.url}: status 400: no such model"
    assert ran.err == f"step 0: hand failed ({reason}); other takes over\n"
    without_conductor = run("ask", "What is 6 * 7?", "--pool", pool)
    assert without_conductor.code == 2
    assert "--conductor provider:model" in without_conductor.err


def test_a_completion_that_is_no_workflow_fails_with_its_reason(run) -> None:
    with serving(says(completion("I would rather not."))) as server:
        ran = run("ask", QUESTION, *scripted(server), "--on-no-plan", "error", "--json")
    assert "the Conductor wrote no workflow: missing_list" in ran.err
    assert (ran.code, ran.json()["answer"]) == (1, None)
    assert ran.json()["error"]["reason"] == "missing_list"


def test_without_a_plan_ask_says_in_a_line_who_answers_alone_and_why(run, tmp_path) -> None:
    nonsense = says(completion("I would rather not."))
    with serving(
        nonsense, nonsense, says(completion("forty-two")), says(completion("6"))
    ) as server:
        pool = write_pool(tmp_path, server.url, "boss", "hand")
        default = Path(pool).read_text("utf-8")
        Path(pool).write_text(f'default_worker = "hand"\n{default}', "utf-8")
        options = ("--pool", pool, "--conductor", "worker:boss")
        mended = run("ask", "What is 6 * 7?", *options)
        direct = run("ask", "2 * 3?", *options, "--direct-below-tokens", "5")
    assert (mended.code, mended.out, direct.out) == (0, "forty-two\n", "6\n")
    assert [body["model"] for body in server.bodies] == ["boss", "boss", "hand", "hand"]
    assert mended.err.startswith("no plan: missing_list: ")
    assert mended.err.endswith("; hand answers alone\n") and mended.err.count("\n") == 1
    assert direct.err == "the question is short; hand answers alone\n"


def test_a_spent_budget_fails_and_the_json_still_holds_what_was_paid(run) -> None:
    with serving(plans(CHAIN)) as server:
        ran = run("ask", QUESTION, *scripted(server), "--budget-calls", "1", "--json")
    assert ran.code == 1
    assert "error: " in ran.err and "1 call used" in ran.err
    assert ran.json()["ledger"]["total"]["input_tokens"] == 12


def test_an_unreachable_conductor_fails_with_one_message(run, monkeypatch) -> None:
    monkeypatch.setattr(policies, "UNREACHABLE_S", 0.2)
    ran = run("ask", QUESTION, *CONDUCTOR, "http://127.0.0.1:9/v1", "--on-no-plan", "error")
    assert (ran.code, ran.out, ran.err.count("error:")) == (1, "", 1)


def test_a_question_that_the_gym_cannot_read_fails_and_names_another_pool(run) -> None:
    ran = run("ask", "Who wrote Hamlet?")
    assert (ran.code, ran.out) == (1, "")
    assert "sort the list" in ran.err and "--pool" in ran.err


def test_a_pool_file_beside_a_question_for_the_gym_is_pointed_at(
    run, monkeypatch, tmp_path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pool.toml").write_text("", "utf-8")
    unreadable = run("ask", "Who wrote Hamlet?")
    hint = "pool.toml is here: add --pool pool.toml --conductor worker:NAME to use it\n"
    assert unreadable.err.endswith("\n" + hint)
    with serving(plans(CHAIN)) as server:
        readable = run("ask", QUESTION, *scripted(server))
    assert readable.code == 0 and hint in readable.err


BAD_QUESTIONS = """
"  "              |                  | the question
"what\\u0000now"  |                  | the question
"what \\udc80"    |                  | the question
"-"               | 77 68 61 74 00   | a NUL
"-"               | ed a0 80         | not UTF-8
"-"               | ff fe            | byte 0 is not UTF-8
"-"               |                  | blank
"""


@pytest.mark.parametrize("line", BAD_QUESTIONS.strip().splitlines())
def test_a_question_that_cannot_be_sent_is_a_wrong_setting(run, line) -> None:
    question, stdin, message = map(str.strip, line.split("|"))
    run("ask", json.loads(question), stdin=bytes.fromhex(stdin)).assert_refused(message)


def test_a_question_that_is_too_long_is_a_wrong_setting(run) -> None:
    run("ask", "-", stdin=b"x" * 10_000_000).assert_refused("1000000")


# ── gym ───────────────────────────────────────────────────────────────────────────────────────────
def test_the_gym_shows_a_question_its_workers_and_the_best_workflow(run) -> None:
    first, again, other = (run("gym", "question", "--seed", seed).out for seed in ("3", "3", "4"))
    assert first == again != other
    assert "8 18 34" in run("gym", "question", QUESTION).out
    assert run("gym", "question", "What now?").code == 1
    workers = " ".join(run("gym", "worker").out.split())
    assert "the referee slips 6% of the time, the others 15%" in workers
    assert "what is wrong 70% of the time, the others guess" in workers
    oracle = run("gym", "oracle", QUESTION).out
    assert "access_list = [[], [0]]" in oracle and "right" in oracle
    smudged = " ".join(run("gym", "oracle", "--kind", "smudged").out.split())
    assert f"each reading of the list goes wrong {MISREAD:.0%} of the time" in smudged


@pytest.mark.parametrize("columns", [60, 80])
def test_the_gyms_tables_break_no_word_in_a_narrow_terminal(run, monkeypatch, columns) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = run("gym", "worker").out + run("gym", "questions", "--count", "4").out
    assert max(map(len, text.splitlines())) <= columns
    words = "order sums units writing likes else converter formal 0.97 smudged one-nine-four"
    assert set(text.split()) >= set(words.split())


# ── train ─────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.chdir(tmp_path)
    Path("recipe.toml").write_text('name = "tiny"\npool = "gym"\ndata = {task = "gym"}\n')
    return "recipe.toml"


WRONG_TRAININGS = """
optim.learning_rat=1   → learning_rate
seed=many              → seed
--resume               → --out
--study s --resume     → --study
--study s --seeds 1,1  → --seeds
--study s --seeds one  → --seeds
--study s --seeds=      → --seeds
--study s --seeds drawn:0   → such as 1,2,3, or drawn:10
--study s --seeds drawn:101 → at most drawn:100
--seeds=               → requires --study
--jobs=1               → requires --study
--controls             → requires --study
--no-controls          → requires --study
"""


@pytest.mark.parametrize("line", WRONG_TRAININGS.strip().splitlines())
def test_train_refuses_a_wrong_recipe_or_setting(run, recipe, line) -> None:
    arguments, message = line.split("→")
    run("train", recipe, *arguments.split()).assert_refused(message)
    assert [path.name for path in Path().iterdir()] == ["recipe.toml"]


@pytest.mark.parametrize("arguments", [(), ("--study", "s")])
def test_train_without_its_extra_names_the_command_that_installs_it(
    run, recipe, monkeypatch, arguments
) -> None:
    for loaded in [name for name in sys.modules if name.startswith("openconductor.training.")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    run("train", recipe, *arguments).assert_refused('pip install "openconductor[train]"')
    assert [path.name for path in Path().iterdir()] == ["recipe.toml"]


PHASE = json.loads(
    """{"accuracy": 0.5, "accuracy_given_valid": null, "validity": 0.98,
    "routing_entropy_bits": 2.5}"""
)
STUDIED = json.loads(
    """{"levels": {"random": 0.05, "best_worker": 0.2, "oracle": 0.8}, "rows": [
    {"seed": 3, "control": "none", "start": 0.1, "sampled": 0.6, "greedy": 0.7,
     "share_of_oracle": 0.875, "validity": 1.0},
    {"seed": 3, "control": "flipped", "start": 0.1, "sampled": 0.6, "greedy": 0.7,
     "share_of_oracle": 0.875, "validity": 1.0}],
    "learnt": 1, "seeds": 1, "median_share_of_oracle": 0.875, "worst_share_of_oracle": 0.875}"""
)


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Replace the training package by its calls."""
    asked: list[tuple[object, ...]] = []

    def train(config, folder, *, resume=False, on_progress=None, traces=None) -> dict[str, object]:
        assert traces is None
        asked.append((config.name, config.rollout.iterations, Path(folder), resume))
        on_progress("iteration 0")
        print("a library prints this")
        phases = dict.fromkeys(("start", "sampled", "greedy"), PHASE)
        return {"name": config.name, "seed": 0, "control": "none", **phases}

    def study(
        config, folder, *, seeds, controls=True, jobs=2, journal="", on_progress=None
    ) -> dict[str, object]:
        asked.append((config.name, Path(folder), seeds, controls, jobs))
        return STUDIED

    monkeypatch.setitem(sys.modules, "openconductor.training.run", SimpleNamespace(train=train))
    monkeypatch.setitem(sys.modules, "openconductor.training.study", SimpleNamespace(study=study))
    return asked


def test_train_passes_recipe_and_overrides_on_and_keeps_stdout_for_the_results(
    run, recipe, learning
) -> None:
    Path("here").mkdir()
    begun = Path(recipe).read_text("utf-8") + "rollout = {iterations = 7}\n"
    Path("here/config.toml").write_text(begun, "utf-8")
    ran = run("train", recipe, "rollout.iterations=7", "--out", "here", "--resume", "--json")
    assert (ran.code, learning) == (0, [("tiny", 7, Path("here"), True)])
    assert ran.json()["greedy"]["accuracy"] == 0.5
    assert "iteration 0" in ran.err and "a library prints this" in ran.err
    ran = run("train", recipe)
    assert re.fullmatch(r"runs/\d{4}-\d\d-\d\d-tiny", learning[1][2].as_posix())
    assert all(said in ran.out for said in ("learnt, greedy", "50.0%", " – ", "2.50 bits"))


def test_a_study_passes_its_seeds_on_and_says_how_many_learnt(run, recipe, learning) -> None:
    ran = run("train", recipe, "--study", "s", "--seeds", "3, 4", "--no-controls", "--jobs", "1")
    assert (ran.code, learning) == (0, [("tiny", Path("s"), (3, 4), False, 1)])
    for text in ("1 of 1 seeds learnt", "87.5%", "control: flipped rewards"):
        assert text in ran.out
    assert run("train", recipe, "--study", "s", "--json").json() == STUDIED


def test_a_study_says_which_seeds_it_drew_from_its_recipe(run, recipe, learning) -> None:
    ran = run("train", recipe, "--study", "s", "--seeds", "drawn:3")
    seeds = learning[0][2]
    assert len(set(seeds)) == 3
    assert f"seeds drawn from the recipe: {','.join(map(str, seeds))}\n" in ran.err


# ── the bundled Conductor ─────────────────────────────────────────────────────────────────────────
@needs_bundled
def test_the_demo_shows_a_picture_on_stderr_and_the_table_on_stdout(run) -> None:
    ran = run("demo", "--questions", "24")
    assert ran.code == 0
    for text in ("Conductor", "access_list", "Answer"):
        assert text in ran.err
    assert "95 % interval" in ran.out and "percentage points" in ran.out
    assert "access_list" not in ran.out
    assert "openconductor ask 'Take 4 17 9" in ran.err
    assert run("demo", "--questions", "24", "--quick").err == ""


# ── processes: imports, pipes, signals, terminals ─────────────────────────────────────────────────
def test_only_the_module_of_the_verb_that_is_asked_for_is_imported() -> None:
    program = "import sys; from openconductor.cli import main\n"
    program += "main([]); main(['doctr']); print(*sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    heavy = {"aiohttp", "numpy", "safetensors", "torch", "openconductor.conductor"}
    assert not (heavy | {f"openconductor.cli.{verb}" for verb in cli.VERBS}) & set(output.split())


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with process("gym", "questions", "--count", "3000", "--json", **pipes) as command:
        assert command.stdout is not None and command.stderr is not None
        command.stdout.readline()
        command.stdout.close()
        assert command.stderr.read() == b""
        assert command.wait(200) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_one_message() -> None:
    with Path("/dev/full").open("wb") as stdout:
        command = process("gym", "worker", "--json", stdout=stdout, stderr=subprocess.PIPE)
        _, err = command.communicate(timeout=200)
    assert command.returncode == 1
    assert err.startswith(b"error: ") and b"Traceback" not in err


@pytest.mark.parametrize("journal", [(), ("--journal", "kept.sqlite")], ids=["not kept", "kept"])
def test_an_interrupted_ask_says_what_was_spent_and_how_to_go_on_and_ends_with_130(
    tmp_path, journal
) -> None:
    with serving(hangs()) as server:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": tmp_path}
        command = process("ask", QUESTION, *scripted(server), *journal, **pipes)
        deadline = time.monotonic() + 200
        while not server.bodies and time.monotonic() < deadline:
            time.sleep(0.02)
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=200)
    assert (command.returncode, out) == (130, b"")
    spent, go_on = err.decode().splitlines()
    assert spent.startswith("interrupted after 1 call, price unknown")
    assert go_on.startswith("resume with: the same command")
    assert ("not paid for again" in spent, "--journal FILE" in go_on) == (
        bool(journal),
        not journal,
    )


def in_a_terminal(*arguments: str, env: dict[str, str]) -> tuple[int, str]:
    """Run a command with a terminal as stderr; return its exit code and what the terminal got."""
    parent, child = pty.openpty()
    environment = {"TERM": "xterm-256color", "COLUMNS": "100", **env}
    try:
        command = process(*arguments, stdout=subprocess.PIPE, stderr=child, env=environment)
        os.close(child)
        shown = b""
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline:
            if select.select([parent], [], [], 0.1)[0]:
                try:
                    shown += os.read(parent, 65536)
                except OSError:  # the other end was closed
                    break
            elif command.poll() is not None:
                break
        command.communicate(timeout=200)
        return command.returncode, shown.decode()
    finally:
        os.close(parent)


@pytest.mark.parametrize(("no_color", "colourful"), [("", True), ("1", False)])
def test_a_terminal_sees_the_tree_fill_in_and_its_cursor_come_back(no_color, colourful) -> None:
    with serving(plans(ATTEMPTS)) as server:
        code, shown = in_a_terminal("ask", QUESTION, *scripted(server), env={"NO_COLOR": no_color})
    assert code in (0, 1)  # its workers are fallible
    assert "writes a workflow" in shown and "compare the answers" in shown and "sees 0, 1" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    codes = re.findall(r"\x1b\[([0-9;]*)m", shown)
    assert any(re.search(r"\b(3[0-7]|4[0-7]|9[0-7]|38|48)\b", code) for code in codes) == colourful
