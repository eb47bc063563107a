"""Recipes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from openconductor.errors import ConfigError
from openconductor.tasks import load_task
from openconductor.training.train_config import (
    TrainConfig,
    differences,
    draw_seeds,
    dump_train_config,
    load_train_config,
)

RECIPES = Path(__file__).parents[3] / "recipes"
OTHERS = {"systems", "port"}  # what evaluations tell, and servers
TRAININGS = [
    path
    for path in sorted(RECIPES.glob("*.toml"))
    if not OTHERS & {*tomllib.loads(path.read_text("utf-8"))}
]


@pytest.mark.parametrize("recipe", TRAININGS, ids=lambda path: path.stem)
def test_every_training_recipe_loads_strictly_and_survives_dumping(
    recipe: Path, tmp_path: Path
) -> None:
    config = load_train_config(recipe)
    again = tmp_path / "again.toml"
    again.write_text(dump_train_config(config), encoding="utf-8")
    assert load_train_config(again) == config


def test_the_defaults_are_the_paper() -> None:
    config = TrainConfig()
    assert config.rollout.iterations == 200
    assert (config.rollout.questions, config.rollout.completions) == (4, 64)
    assert (config.rollout.temperature, config.rollout.max_tokens, config.rollout.max_steps) == (
        1.0,
        1024,
        5,
    )
    assert (config.optim.learning_rate, config.optim.schedule, config.optim.warmup) == (
        1e-6,
        "cosine",
        0.03,
    )
    assert (config.optim.epsilon, config.optim.scale, config.imitate.rounds) == (0.2, "group", 0)
    assert config.prompt.template == "full"
    assert (config.data.task, config.pool) == ("paper_mix", "pool.toml")
    load_task(config.data.task).check_split(config.data.split)
    assert len(config.held_out_paths) == 4
    for name in config.held_out_paths:
        load_task(name).check_split(config.held_out.split)


WRONG = r"""
rollout.completions=1                    → rollout\.completions
imitate.anchor=2                         → imitate\.anchor
imitate.rounds=0 rollout.iterations=0    → rollout\.iterations: got 0, expected more without
imitate.micro_batch=48                   → imitate\.micro_batch: got 48, expected a divisor of 64
seed=one                                 → seed
name=""                                  → name: got '', expected a name
name="runs/first"                        → name: got 'runs/first', expected a name .* without /
seed=4294967296                          → seed
rollout.rounds=2 rollout.questions=3     → rollout\.questions: got 3, expected an even number
rollout.rounds=2 imitate.questions=3     → imitate\.questions: got 3, expected an even number
cold_start.reading=5 → cold_start\.reading: got 5, expected fewer .* prompt.cards
imitate.reading=0.1 → imitate\.reading: got 0.1, expected 0 without prompt.cards
cold_start.quote_cards=true → cold_start\.quote_cards: got True, expected false without prompt
rollout.renumbered=true → rollout\.renumbered: got True, expected false without prompt\.cards
rollout.offered=[4,2]                    → rollout\.offered: got .*expected the fewest first
rollout.credit="episode"                 → rollout\.credit: got .*expected round with .*rounds = 1
model.lora_rank=4                        → model\.lora_rank: got 4, expected 0 for a fresh model
cold_start.micro_batch=48                → cold_start\.micro_batch: got 48, expected a divisor of 64
model.heads=7                            → heads.*divisor of hidden
optim.learning_rate=nan                  → learning_rate
rollout.max_tokens=4096                  → max_tokens.*positions
data.mix=[1.0,1.0]                       → data\.mix: .*a weight for each of \['single'
data.mix=[0.0,0.0,0.0,0.0]               → data\.mix: .*a weight for each
data.mix=[1.0,1.0,1.0,-1.0]              → data\.mix
cold_start.steps=0 → cold_start\.steps: got 0, expected more without model\.base
task=gsm8k                               → unknown key 'task'; the nearest known key is 'data\.task'
rollout.completion=8                     → rollout\.completion.*completions
"""


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_settings_that_cannot_be_or_cannot_work_together_are_refused(line: str) -> None:
    overrides, message = line.split("→")
    with pytest.raises(ConfigError, match=message.strip()):
        load_train_config(RECIPES / "gym.toml", overrides.split())


@pytest.mark.parametrize("tables", ['systems = ["conductor"]\n', '[[task]]\nname = "gym"\n'])
def test_a_recipe_of_an_evaluation_is_called_one(tables: str, tmp_path: Path) -> None:
    recipe = tmp_path / "proof.toml"
    recipe.write_text(tables, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"is a recipe of `openconductor eval`") as caught:
        load_train_config(recipe)
    assert "nearest" not in str(caught.value)


def test_two_recipes_differ_where_a_value_does() -> None:
    there = load_train_config(RECIPES / "gym.toml")
    here = load_train_config(RECIPES / "gym.toml", ["seed=2", "imitate.anchor=0.2"])
    assert differences(there, here) == "seed: 1 there, 2 here, imitate.anchor: 0.1 there, 0.2 here"
    assert differences(there, there) == ""


def test_drawn_seeds_follow_from_what_a_recipe_sets_and_from_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('pool = "gym"\ndata = { task = "gym" }\n', "utf-8")

    def draw(*changes: str) -> tuple[int, ...]:
        return draw_seeds(load_train_config(path, changes), 10)

    assert len(set(draw())) == 10
    assert draw("seed=9", "rollout.max_steps=5") == draw(), "5 is the default"
    assert draw("rollout.max_steps=4") != draw()


def test_the_gyms_cold_start_reads_the_cards_of_its_own_workers_alone() -> None:
    with pytest.raises(
        ConfigError, match=r"prompt\.cards: got True, expected false for gym over other workers"
    ):
        load_train_config(RECIPES / "gym.toml", ["prompt.cards=true", 'pool="pool.toml"'])
