"""Benchmarks, baselines, rewards and workers of others: the examples of the docs.

Named and registered, end to end.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest

from openconductor.baselines import make_baseline
from openconductor.errors import ConfigError, TaskError
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
LAW = """
{"ask": "Is 0 even?", "options": ["No", "Yes"], "right": "B"}
{"ask": "Is 1 even?", "options": ["No", "Yes"], "right": "A"}
{"ask": "Is 2 even?", "options": ["No", "Yes"], "right": "B"}
{"ask": "Is 3 even?", "options": ["No", "Yes"], "right": "A"}
"""
CITY = '{"ask": "What is the capital of France?", "answer": "Paris"}'
CHOICE = '{"question": "Even?", "choices": ["No", "Yes"], "answer": "A"}\n'
CHOICES = CHOICE.replace('"A"', '"B"') + CHOICE
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


@pytest.fixture
def place(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a current directory with the files that the docs show, and data.

    Nothing of it stays on the path.
    """
    pages = "".join(page.read_text("utf-8") for page in (root / "docs").glob("*.md"))
    files = {name: code for code, name in BLOCK.findall(pages)}
    assert set(files) == set(NAMED)
    files |= {"odd": ODD, "broken": "import a_thing_that_is_absent"}
    for name, code in files.items():
        (tmp_path / f"{name}.py").write_text(code, "utf-8")
    (tmp_path / "law.jsonl").write_text(LAW.lstrip())
    (tmp_path / "city.jsonl").write_text(CITY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    yield tmp_path
    for name in files:
        sys.modules.pop(name, None)


def install(place: Path, points: str = "") -> None:
    """Turn the files into an installed package.

    Which is named by its entry points and not found where one is.
    """
    info = place.parent / f"{place.name}-site" / "others-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    every = ""
    for name, target in NAMED.items():
        every += f"[openconductor.{WHAT[name]}]\n{name} = {name}:{target}\n"
        (place / f"{name}.py").rename(info.parent / f"{name}.py")
    (info / "entry_points.txt").write_text(points or every)
    sys.path.insert(0, str(info.parent))


POOL = """
[[worker]]
name = "yes"
provider = "PROVIDER"
model = "Answer: B"
[[worker]]
name = "no"
provider = "PROVIDER"
model = "It is Paris. Answer: A"
"""


def write_pool(folder: Path, provider: str) -> Path:
    path = folder / "pool.toml"
    path.write_text(POOL.replace("PROVIDER", provider), "utf-8")
    return path


@pytest.mark.parametrize("way", ["module:attribute", "entry point"])
def test_what_others_bring_is_evaluated_end_to_end(way: str, place: Path, run) -> None:
    installed = way == "entry point"
    if installed:
        install(place)
    names = [file if installed else f"{file}:{name}" for file, name in NAMED.items()]
    law, city, checked, desk, _ = names
    words = f"eval workers {checked}:no --pool {write_pool(place, desk)} --json --out run"
    for file, task in (("law", law), ("city", city)):
        words += f" --task {task} --task-path={task}={file}.jsonl"
    rows = run(*words.split()).json()["rows"]
    accuracies = {(row["system"], row["task"]): row["accuracy"] for row in rows}
    assert accuracies["worker:yes", law] == accuracies["worker:no", law] == 0.5
    assert accuracies["worker:yes", city] == 0.0
    assert accuracies[f"{checked}:no", city] == 1.0
    resumed = run("eval", "--out", "run", "--json").json()
    assert resumed["rows"] == rows
    checked_task = run("task", "check", law, "--path", "law.jsonl", "--json").json()
    assert checked_task["accepted"] == 4
    assert (f"{law} " in run("task", "list").out) is installed


def test_a_pool_is_measured_on_local_questions_under_a_name_of_ones_own(place: Path, run) -> None:
    pool = write_pool(place, "desk:always")
    laws = [CHOICES.splitlines()[0].replace("}", ', "subject": "laws"}')] * 20
    strings = [CHOICE.replace("}", ', "subject": "strings"}').strip()] * 10
    (place / "mine.jsonl").write_text("\n".join([*laws, *strings]))
    named = "--task mine=mmlu --task-path mine=mine.jsonl --out named"
    ran = run("pool", "calibrate", pool, "--json", *named.split())
    assert ran.code == 0, ran.err
    assert re.match(r"laws \d+%;", ran.json()["cards"]["yes"])
    assert "strings: 10 answers, 20 needed for a card" in ran.err
    assert "[calibration.yes.mine]" in pool.read_text()

    bare = [line.replace(', "subject": "laws"', "") for line in laws]
    (place / "bare.jsonl").write_text("\n".join(bare))
    (place / "few.jsonl").write_text(CHOICE)
    plain = "--task bare=mmlu --task-path bare.jsonl --out plain"
    assert run("pool", "calibrate", pool, *plain.split()).code == 0
    both = "--task bare=mmlu --task few=mmlu --task-path bare=bare.jsonl --task-path few=few.jsonl"
    ran = run("pool", "calibrate", pool, "--json", "--out", "both", *both.split())
    assert re.search(r"mine laws \d+%.*bare \d+%", ran.json()["cards"]["yes"])
    assert "few: 1 answer, 20 needed for a card" in ran.err
    assert "bare:" not in ran.err and "[calibration.yes.few]" not in pool.read_text()
    measured = run("pool", "headroom", pool, *named.replace("named", "room").split())
    assert measured.code == 0, measured.err


def test_two_local_files_of_one_shape_are_two_tasks_under_their_own_names(place: Path, run) -> None:
    pool = write_pool(place, "desk:always")
    law, tax = place / "choice.jsonl", place / "tax"
    tax.mkdir()
    law.write_text(CHOICES * 2)
    (tax / "test.jsonl").write_text(CHOICES.splitlines()[0])

    def evaluate(folder: str, **tasks: Path) -> None:
        words = f"eval worker:yes --pool {pool} --out {folder}"
        for name, path in tasks.items():
            words += f" --task {name}=mmlu --task-path {name}={path}"
        assert run(*words.split()).code == 0

    evaluate("one", **{"my-law": law, "tax": tax})
    evaluate("two", tax=tax)
    evaluate("three", tax=law)
    table = json.loads(Path("one/table.json").read_text("utf-8"))
    of_law, of_tax = table["rows"][:2]
    assert (of_law["task"], of_law["n"], of_law["accuracy"]) == ("my-law", 4, 0.5)
    assert (of_tax["task"], of_tax["n"], of_tax["accuracy"]) == ("tax", 1, 1.0)
    assert same_questions(Path("one"), Path("two")).tasks == ("tax",)
    with pytest.raises(ConfigError, match="task tax: got 4 other questions than the 1 of"):
        same_questions(Path("one"), Path("three"))


MAKERS = {
    "task": load_task,
    "task of x": lambda name: load_task(name, extra="x"),
    "data": lambda name: load_task(name).load(),
    "baseline": lambda name: make_baseline(name, gym_pool()),
    "provider": lambda name: create(name, "m"),
    "model": resolve,
}
WRONG = """
task → lwa:LAW → 'lwa' \\(also from /.*No module named 'lwa'; expected one of aime25, .*:
task → law:LAWS → task 'law:LAWS': no such attribute; nearest: 'LAW'
task → broken:X → importing 'broken' .*No module named 'a_thing_that_is_absent'
task → odd:NUMBER → got 7, expected a Dataset, or a callable
task → odd:short → abstract method '?_read'?; expected a Dataset
task → odd:needs → missing 1 required .*'extra'; expected
task of x → odd:needs → made 'x', expected
task → odd:MUTE → whose grader has `grade`
data → law:LAW → law: is published nowhere; expected a local file
baseline → concensus:jack → No module named 'concensus'; .*nearest: 'consensus'
baseline → odd:NUMBER → got 7, expected a class or function of a pool
baseline → odd:nothing → made None, expected an object with `ask`
baseline → odd:bare → Bare: has neither `workflow` nor `play`
provider → odd:NUMBER → got 7, expected a class or function
provider → odd:needs → no such folder; expected 'provider:model'
provider → odd:nothing → got None; expected an object with `complete`
model → opnai:gpt:5 → provider 'opnai:gpt'.*nearest: 'openai'
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_what_is_wrong_with_what_others_bring_is_said(line: str, place: Path) -> None:
    kind, name, message = line.split(" → ")
    with pytest.raises((ConfigError, TaskError), match=message):
        MAKERS[kind](name)


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
    sizes = "cold_start.steps=0 start.prompts=8 start.workflows=8 held_out.questions=8"
    sizes += " imitate.rounds=1 imitate.sharpen=0 imitate.questions=32 imitate.steps=2"
    sizes += " rollout.iterations=2 rollout.questions=8 data.mix=[1.0,0.0,0.0,0.0]"
    base = f'model.base="{(bundled_folder() / "cold_start").as_posix()}"'
    folder = Path("run")
    words = ("train", root / "recipes" / "gym.toml", base, *sizes.split(), "--out", folder)
    ran = run(*words, "reward.function=short:fewer_step")
    assert ran.code == 2
    assert "nearest: 'fewer_steps'" in ran.err
    assert not folder.exists()
    assert run(*words, "reward.function=short:fewer_steps").code == 0
    with JournalReader(folder / "journal.sqlite") as journal:
        kept = [record.value for record in journal.records()]
    lines = (folder / "curves.jsonl").read_text("utf-8").splitlines()
    for number, line in enumerate(lines):
        curve = json.loads(line)
        own = [record for record in kept if record["training"] == f"iteration {number}"]
        assert curve["accuracy"] == fmean(record["correct"] for record in own)
        mean = fmean(record["reward"] for record in own)
        assert curve["reward"] == pytest.approx(mean)
    worth = {(record["correct"], record["reward"]) for record in kept}
    possible = {(True, 1 / steps) for steps in range(1, 6)}
    assert worth >= {(False, 0.0), (True, 1.0), (True, 0.5)}
    assert worth <= {(False, 0.0), *possible}
