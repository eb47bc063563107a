"""Does it learn, and does it fail to learn where there is nothing to learn from?

A few rounds of imitation and a short stretch of GRPO from the bundled run's cold start: enough to
see the direction. Whether the whole recipe is robust over seeds is `make learn`'s question; its
figures are in docs/log.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest
from tests.learning.runs import COLD_START, curve

from openconductor.training import run
from openconductor.training.run import train
from openconductor.training.train_config import TrainConfig, dump_train_config, load_train_config

pytestmark = [pytest.mark.train, pytest.mark.slow, pytest.mark.timeout(900)]

RECIPE = Path(__file__).parents[2] / "recipes" / "gym.toml"


SHORT = """
cold_start.steps=0
imitate.rounds=4
imitate.sharpen=0
imitate.questions=256
imitate.steps=30
data.mix=[1.0,0.0,0.0,0.0]
rollout.iterations=16
optim.schedule=constant
save_every=1000
held_out.questions=8
start.prompts=8
start.workflows=8
"""


def _short(control: str) -> TrainConfig:
    """Return a short stretch of the gym's recipe; only the curve is read."""
    overrides = [f'model.base="{COLD_START.as_posix()}"', f"reward.control={control}"]
    return load_train_config(RECIPE, [*SHORT.split(), *overrides])


def _singles(folder: Path) -> tuple[float, float, float]:
    """The accuracy on questions of one operation: first round, last round, end of GRPO."""
    records = curve(folder)
    accuracies = [record["accuracy_by_kind"]["single"] for record in records]
    assert [record["phase"] for record in records] == ["imitate"] * 4 + ["grpo"] * 16
    return accuracies[0], accuracies[3], fmean(accuracies[-8:])


WATCHED = """
import sys
from pathlib import Path
from openconductor.gym import questions
from openconductor.training import run
from openconductor.training.train_config import load_train_config

drawn, splits, inner = [], [], questions.draw_question
questions.draw_question = lambda split, *rest: (drawn.append(split), inner(split, *rest))[1]
run_phases = run._run_phases

def watched(setup, state, phases, **base):
    drawn.clear()
    folder = run_phases(setup, state, phases, **base)
    splits.extend(drawn)
    return folder

run._run_phases = watched
run.train(load_train_config(Path(sys.argv[1])), sys.argv[2])
assert set(splits) == {"train"}, set(splits)
assert not {"openconductor.gym.exact", "openconductor.gym.levels"} & set(sys.modules)
"""


def test_accuracy_rises_in_both_phases_on_true_rewards(tmp_path: Path) -> None:
    train(_short("none"), tmp_path / "run")
    first, imitated, learnt = _singles(tmp_path / "run")
    assert imitated > 1.25 * first, (first, imitated)
    assert learnt > 1.1 * imitated, (imitated, learnt)


@pytest.mark.parametrize("control", ["shuffled", "flipped"])
def test_accuracy_does_not_rise_on_broken_rewards(control: str, tmp_path: Path) -> None:
    train(_short(control), tmp_path / "run")
    first, imitated, learnt = _singles(tmp_path / "run")
    assert max(imitated, learnt) <= 1.3 * first, (first, imitated, learnt)


def test_a_training_reads_nothing_of_what_it_is_measured_by(tmp_path: Path) -> None:
    """A training sees no exact level, no worker's profile, and no test question before its end."""
    config, recipe = _short("none"), tmp_path / "recipe.toml"
    few = config.imitate.model_copy(update={"rounds": 1, "questions": 8, "steps": 1})
    once = config.rollout.model_copy(update={"iterations": 1})
    short = config.model_copy(update={"imitate": few, "rollout": once})
    recipe.write_text(dump_train_config(short), encoding="utf-8")
    command = [sys.executable, "-c", WATCHED, str(recipe), str(tmp_path / "run")]
    subprocess.run(command, check=True, timeout=300)
    secret = re.compile(r"PROFILES|Profile|gym\.exact|gym\.levels")
    for module in Path(run.__file__).parent.glob("*.py"):
        assert not secret.search(module.read_text("utf-8")), module.name
