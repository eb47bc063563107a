"""Benchmarks, baselines, rewards and workers of others: the examples of the docs, named and registered, end to end."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from openconductor.baselines import make_baseline
from openconductor.errors import ConfigError, TaskError
from openconductor.evaluation.eval_config import make_eval_config
from openconductor.evaluation.grid import _Plan
from openconductor.gym.bundled import bundled_folder
from openconductor.gym.workers import gym_pool
from openconductor.providers import create, resolve
from openconductor.report.report import same_questions
from openconductor.store import JournalReader
from openconductor.tasks import load_task

BLOCK = re.compile(r'```python\n("""(\w+)\.py: .*?)^```', re.DOTALL | re.MULTILINE)
WHAT = {
    "law": "tasks",
    "city": "tasks",
    "checked": "baselines",
    "desk": "providers",
    "short": "rewards",
}
NAMED = {
    "law": "LAW",
    "city": "CITY",
    "checked": "Checked",
    "desk": "always",
    "short": "fewer_steps",
}
LAW = [
    {"ask": f"Is {n} even?", "options": ["No", "Yes"], "right": "AB"[n % 2 == 0]} for n in range(4)
]
CHOICE = [
    {"question": row["ask"], "choices": row["options"], "answer": row["right"]} for row in LAW
]
UNREAD = {"systems": ["workers"], "task": [{"name": "law:LAW", "path": "law.jsonl"}]}
ODD = """
from openconductor import Baseline, Benchmark, Dataset
class Bare(Baseline): pass
class Short(Benchmark): pass
class Mute: pass
MUTE = Dataset("mute", shapes=(), grader=Mute)
NUMBER = 7
def short(*, limit=None, seed=None): return Short("short", "", ["test"], Mute())
def needs(extra): return extra
def nothing(pool): return None
def bare(pool): return Bare(pool, "bare")
"""


def write_rows(path: Path, rows: list[dict[str, object]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture
def place(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory with the files that the docs show, and data; nothing of it stays on the path."""
    pages = "".join(page.read_text("utf-8") for page in (root / "docs").glob("*.md"))
    files = {name: code for code, name in BLOCK.findall(pages)}
    assert set(files) == set(NAMED)
    assert (
        max(len([line for line in code.splitlines()[1:] if line]) for code in files.values()) <= 12
    )
    for name, code in {**files, "odd": ODD, "broken": "import a_thing_that_is_absent"}.items():
        (tmp_path / f"{name}.py").write_text(code, "utf-8")
    write_rows(tmp_path / "law.jsonl", LAW)
    write_rows(
        tmp_path / "city.jsonl", [{"ask": "What is the capital of France?", "answer": "Paris"}]
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    yield tmp_path
    for name in (*files, "odd", "broken"):
        sys.modules.pop(name, None)


def install(place: Path, points: str = "") -> None:
    """Make of the files an installed package, which is named by its entry points and not found where one is."""
    info = place.parent / f"{place.name}-site" / "others-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    every = (
        f"[openconductor.{WHAT[name]}]\n{name} = {name}:{target}\n"
        for name, target in NAMED.items()
    )
    (info / "entry_points.txt").write_text(points or "".join(every))
    for name in NAMED:
        (place / f"{name}.py").rename(info.parent / f"{name}.py")
    sys.path.insert(0, str(info.parent))


def write_pool(folder: Path, provider: str) -> Path:
    says = {"yes": "Answer: B", "no": "It is Paris. Answer: A"}
    table = '[[worker]]\nname = "{}"\nprovider = "{}"\nmodel = "{}"\n'
    path = folder / "pool.toml"
    path.write_text(
        "".join(table.format(name, provider, text) for name, text in says.items()), "utf-8"
    )
    return path


@pytest.mark.parametrize("way", ["module:attribute", "entry point"])
def test_what_others_bring_is_evaluated_end_to_end(way: str, place: Path, run) -> None:
    law, city, checked, desk, _ = (
        NAMED if way == "entry point" else (f"{file}:{name}" for file, name in NAMED.items())
    )
    if way == "entry point":
        install(place)
    paths = [f"--task-path={name}={place}/{name.split(':')[0]}.jsonl" for name in (law, city)]
    told = (
        "--task",
        law,
        "--task",
        city,
        *paths,
        "--pool",
        write_pool(place, desk),
        "--json",
        "--out",
        place / "run",
    )
    ran = run("eval", "workers", f"{checked}:no", *told)
    rows = {(row["system"], row["task"]): row["accuracy"] for row in ran.json()["rows"]}
    systems = ("worker:yes", "worker:no", f"{checked}:no")
    assert [rows[one, task] for task in (law, city) for one in systems] == [
        0.5,
        0.5,
        0.5,
        0.0,
        1.0,
        1.0,
    ]
    assert run("eval", "--out", place / "run", "--json").json()["rows"] == ran.json()["rows"], (
        "the run is resumed"
    )
    assert (
        run("task", "check", law, "--path", place / "law.jsonl", "--json").json()["accepted"] == 4
    )
    assert (f"{law} " in run("task", "list").out) is (way == "entry point")


def test_two_local_files_of_one_shape_are_two_rows_under_their_own_names(place: Path, run) -> None:
    pool, law, tax = (
        write_pool(place, "desk:always"),
        write_rows(place / "choice.jsonl", CHOICE),
        place / "tax",
    )
    write_rows(tax / "test.jsonl", CHOICE[:1])
    write_rows(
        tax / "train.jsonl", [{**row, "question": f"{row['question']} Really?"} for row in CHOICE]
    )
    table = '[[task]]\nname = "{}"\ntask = "mmlu"\npath = "{}"\n'
    tables = f'{table.format("my-law", law)}{table.format("tax", tax)}[learn]\ntask = "tax"\n'
    (place / "recipe.toml").write_text(
        f'systems = ["workers", "best_fixed"]\npool = "{pool}"\n{tables}', "utf-8"
    )
    found = run("eval", "--config", "recipe.toml", "--out", place / "one", "--json").json()
    rows = {(row["system"], row["task"]): (row["n"], row["accuracy"]) for row in found["rows"]}
    assert (rows["worker:yes", "my-law"], rows["worker:yes", "tax"]) == ((4, 0.5), (1, 1.0))
    inputs = json.loads((place / "one" / "environment.json").read_text("utf-8"))["inputs"]
    assert set(inputs["tasks"]) == {"my-law", "tax"} and "train.jsonl" in json.dumps(
        inputs["learn"]["source"]
    )
    for name, path in {"two": tax, "three": law}.items():
        told = (
            "--pool",
            pool,
            "--task",
            "tax=mmlu",
            "--task-path",
            f"tax={path}",
            "--out",
            place / name,
        )
        assert run("eval", "worker:yes", *told).code == 0
    assert same_questions(place / "one", place / "two").tasks == ("tax",)
    with pytest.raises(ConfigError, match="task tax: got 4 other questions than the 1 of"):
        same_questions(place / "one", place / "three")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: load_task("lwa:LAW"), r"'lwa' \(also from /.*No module named 'lwa'; expected one of aime25, .*:attr"),
        (lambda: load_task("law:LAWS"), "task 'law:LAWS': no such attribute; nearest: 'LAW'"),
        (lambda: load_task("broken:X"), "importing 'broken' .*No module named 'a_thing_that_is_absent'"),
        (lambda: load_task("odd:NUMBER"), "got 7, expected a Dataset, or what makes a Benchmark"),
        (lambda: load_task("odd:short"), "abstract method '?_read'?; expected a Dataset"),
        (lambda: load_task("odd:needs"), "missing 1 required .*'extra'; expected"),
        (lambda: load_task("odd:needs", extra="x"), "made 'x', expected"),
        (lambda: load_task("odd:MUTE"), "whose grader has `grade`"),
        (lambda: load_task("law:LAW").load(), "law: is published nowhere; expected a local file"),
        (lambda: make_baseline("concensus:jack", gym_pool()), "No module named 'concensus'; .*nearest: 'consensus'"),
        (lambda: make_baseline("odd:NUMBER", gym_pool()), "got 7, expected a class or function of a pool"),
        (lambda: make_baseline("odd:nothing", gym_pool()), "made None, expected an object with `ask`"),
        (lambda: make_baseline("odd:bare", gym_pool()), "Bare: has neither `workflow` nor `play`"),
        (lambda: create("odd:NUMBER", "m"), "got 7, expected what makes a provider of a model"),
        (lambda: create("odd:needs", "m"), "no such folder; expected 'provider:model'"),
        (lambda: create("odd:nothing", "m"), "got None; expected an object with `complete`"),
        (lambda: _Plan(make_eval_config(UNREAD, where="")), "can read only the gym's questions; expected"),
        (lambda: resolve("opnai:gpt:5"), "provider 'opnai:gpt'.*nearest: 'openai'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_what_others_bring_is_said(make, said: str, place: Path) -> None:
    with pytest.raises((ConfigError, TaskError), match=said):
        make()


def test_a_name_of_this_project_goes_first_and_the_current_directory_last(place: Path) -> None:
    (place / "json.py").write_text("LAW = 7")
    with pytest.raises(ConfigError, match="'json:LAW': no such attribute"):
        load_task("json:LAW")
    install(place, "[openconductor.tasks]\nmmlu = law:LAW\n")
    assert load_task("mmlu").dataset.id == "cais/mmlu"


@pytest.mark.train
def test_a_reward_of_ones_own_trains_and_what_is_right_stays_the_graders(
    place: Path, root: Path, run
) -> None:
    pytest.importorskip("trl", reason="needs the extra 'train': pip install 'openconductor[train]'")
    sizes = ("cold_start.steps=0", "start.prompts=8", "start.workflows=8", "held_out.questions=8")
    sizes += ("imitate.rounds=1", "imitate.sharpen=0", "imitate.questions=32", "imitate.steps=2")
    sizes += ("rollout.iterations=2", "rollout.questions=8", "data.mix=[1.0, 0.0, 0.0, 0.0]")
    base = f'model.base="{(bundled_folder() / "cold_start").as_posix()}"'
    told = ("train", root / "recipes" / "gym.toml", base, *sizes, "--out", place / "run")
    ran = run(*told, "reward.function=short:fewer_step")
    assert (ran.code, (place / "run").exists()) == (
        2,
        False,
    ) and "nearest: 'fewer_steps'" in ran.err
    assert run(*told, "reward.function=short:fewer_steps").code == 0
    curve = [
        json.loads(line)
        for line in (place / "run" / "curves.jsonl").read_text("utf-8").splitlines()
    ]
    with JournalReader(place / "run" / "journal.sqlite") as journal:
        kept = [record.value for record in journal.records()]
    for number, record in enumerate(curve):
        mine = [one for one in kept if one["training"] == f"iteration {number}"]
        assert record["accuracy"] == sum(one["correct"] for one in mine) / len(mine)
        assert record["reward"] == pytest.approx(sum(one["reward"] for one in mine) / len(mine))
    worth = {(one["correct"], one["reward"]) for one in kept} - {
        (True, 1 / steps) for steps in (3, 4, 5)
    }
    assert worth == {(False, 0.0), (True, 1.0), (True, 0.5)}
