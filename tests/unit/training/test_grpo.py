"""Arguments of TRL, and the rows that a model is shown."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from tests.unit.training.conftest import MakeSetup
from transformers import TrainingArguments
from trl import GRPOConfig
from trl.scripts import vllm_serve
from trl.trainer import utils

from openconductor.calls.cards import read_card
from openconductor.errors import ConfigError, WorkflowError, WorkflowReason
from openconductor.graders.freeform import FreeFormAnswer
from openconductor.gym.sampling import phrases, write_index
from openconductor.reward import Scored
from openconductor.training import grpo
from openconductor.training.checks import VLLM_FLAGS
from openconductor.training.completions import _Explorer, draw_pool
from openconductor.training.curves import Curve
from openconductor.training.grpo import grpo_arguments, make_rows, score_only_completions
from openconductor.training.models import build_model, build_tokenizer
from openconductor.training.scoring import Rewards
from openconductor.training.setup import Learner, Setup
from openconductor.training.supervised import reading_row, supervised_arguments
from openconductor.training.train_config import ModelConfig, load_train_config
from openconductor.types import Episode, Problem, Usage

pytestmark = pytest.mark.train

RECIPE = Path(__file__).parents[3] / "recipes" / "gym.toml"
CARDS = {"template": "compact", "cards": True}


def problems(count: int) -> list[Problem]:
    return [Problem(str(index), f"What is {index}?", "1", "gym") for index in range(count)]


# ── arguments ─────────────────────────────────────────────────────────────────────────────────────
SMALL = ["rollout.questions=4", "rollout.completions=4"]  # less than the recipe's micro batch


@pytest.mark.parametrize(
    ("overrides", "processes", "micro", "steps"),
    [
        ([], 1, 256, 1),
        (["optim.micro_batch=64"], 1, 64, 4),
        (["optim.micro_batch=64"], 2, 64, 2),
        (SMALL, 1, 16, 1),
        (SMALL, 2, 8, 1),
    ],
)
def test_an_update_sees_the_whole_batch_whatever_the_number_of_processes(
    overrides: list[str], processes: int, micro: int, steps: int, tmp_path: Path
) -> None:
    config = load_train_config(RECIPE, overrides)
    given = grpo_arguments(config, tmp_path, processes=processes)
    assert (given.per_device_train_batch_size, given.gradient_accumulation_steps) == (micro, steps)
    assert micro * steps * processes == given.generation_batch_size == config.rollout.batch


def test_a_process_keeps_to_one_gpu_though_it_sees_four(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_train_config(RECIPE, [])
    monkeypatch.setattr(TrainingArguments, "n_gpu", 4)
    assert grpo_arguments(config, tmp_path)._n_gpu == 1
    arguments = supervised_arguments(
        config, config.cold_start, tmp_path, schedule="constant", warmup=0, steps=1
    )
    assert arguments._n_gpu == 1
    monkeypatch.setattr(TrainingArguments, "n_gpu", 0)
    assert grpo_arguments(config, tmp_path)._n_gpu == 0, "on a CPU"


@pytest.mark.parametrize(
    "overrides", [["optim.micro_batch=100"], ["rollout.rounds=2", "rollout.questions=2"]]
)
def test_a_batch_that_cannot_be_shared_out_is_refused(overrides: list[str], tmp_path: Path) -> None:
    message = r"rollout\.questions x rollout\.completions: got .* over 3 processes"
    with pytest.raises(ConfigError, match=message):
        grpo_arguments(load_train_config(RECIPE, overrides), tmp_path, processes=3)


def test_the_engine_that_samples_reaches_trl(tmp_path: Path) -> None:
    url = "http://10.0.0.5:8000"
    server = ["rollout.engine=vllm_server", f'rollout.vllm_url="{url}"', 'trackers=["tensorboard"]']
    given = grpo_arguments(load_train_config(RECIPE, server), tmp_path)
    assert given.use_vllm
    assert (given.vllm_mode, given.vllm_server_base_url) == ("server", url)
    assert given.report_to == ["tensorboard"]
    inside = ["rollout.engine=vllm", "rollout.vllm_memory=0.4"]
    given = grpo_arguments(load_train_config(RECIPE, inside), tmp_path, context=900)
    assert (given.vllm_mode, given.vllm_gpu_memory_utilization) == ("colocate", 0.4)
    assert given.vllm_max_model_length == 900


def test_the_server_that_a_dry_run_names_has_the_flags_that_trl_starts_one_with() -> None:
    command = vllm_serve.build_command(vllm_serve.ScriptArguments(model="m"))
    flags = shlex.split(VLLM_FLAGS)
    assert command[-len(flags) :] == flags


@pytest.mark.parametrize(("rounds", "context"), [(1, 39), (2, 256)])
def test_vllm_makes_room_for_the_rows_and_not_for_the_whole_context_of_the_model(
    rounds: int,
    context: int,
    tmp_path: Path,
    make_setup: MakeSetup,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setup = make_setup(
        rollout={"rounds": rounds, "engine": "vllm", "max_tokens": 20},
        prompt={"template": "compact"},
    )
    tokenizer = build_tokenizer(phrases())
    model = build_model(ModelConfig(base="", positions=256), tokenizer, seed=0)
    monkeypatch.setattr(grpo, "ConductorTrainer", lambda *_, args, **__: given.append(args))
    given: list[GRPOConfig] = []
    rewards = Rewards(setup, problems(4), Curve(tmp_path / "curves.jsonl"))
    with pytest.raises(AttributeError, match="train"):  # no trainer was made
        grpo.run_grpo(Learner(model, tokenizer, tmp_path), rewards)
    assert given[0].vllm_max_model_length == context


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────
def test_a_reference_of_any_type_is_learnt_from_because_no_row_holds_it(
    make_setup: MakeSetup,
) -> None:
    references = (FreeFormAnswer("2"), object())
    given = [Problem("1", "What is 1 + 1?", reference, "rlpr") for reference in references]
    rows = Dataset.from_list(make_rows(given, make_setup()))
    assert [(row["problem"], row["round"]) for row in rows] == [(0, 0), (1, 0)]


def test_in_recursion_each_question_has_two_rows(make_setup: MakeSetup) -> None:
    rows = make_rows(problems(2), make_setup(rollout={"rounds": 2}))
    assert [(row["problem"], row["round"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("invalid", [0.0, 1.0], ids=["as graded", "flipped"])
def test_a_valid_first_round_is_credited_with_the_second_round_behind_it(invalid: float) -> None:
    error = WorkflowError(WorkflowReason.MISSING_LIST, "no plan")
    valid = Scored(None, Episode("What?", (), "2", None, Usage(), 0.0), None)
    scored = [valid] * 8
    scored[5] = replace(valid, episode=replace(valid.episode, error=error))
    rewards = [0.5, 0.0, 0.9, None, 1.0, invalid, 0.5, 0.8]
    rounds = [0, 0, 1, 1] * 2
    credited = [0.9, None, 0.9, None, 0.5, invalid, 0.5, 0.8]
    assert grpo.credit_episodes(scored, rewards, rounds, group=2) == credited


def cards_for(setup: Setup, question: str) -> tuple[Mapping[int, str], str]:
    """Return the cards of the workers that are drawn for a question, and as they are shown."""
    cards = draw_pool(setup.config, setup.pool, question).cards
    lines = [f"Model {ordinal}: {card}\n" for ordinal, card in cards.items()]
    return cards, "".join(lines)


def test_a_question_offers_a_drawn_subset_of_the_workers_whose_ordinals_stay(
    make_setup: MakeSetup,
) -> None:
    setup = make_setup(rollout={"offered": [2, 3]})
    rows = make_rows(problems(50), setup)
    assert rows == make_rows(problems(50), setup), "a resumed run offers the same"
    shown: list[list[str]] = []
    for row in rows:
        text = row["prompt"][0]["content"]
        shown.append(re.findall(r"^Model (\d+)$", text, re.MULTILINE))
    assert {len(ordinals) for ordinals in shown} == {2, 3}
    assert set().union(*shown) == set("01234567")


def test_renumbered_workers_keep_their_cards_under_an_order_of_each_question(
    make_setup: MakeSetup,
) -> None:
    setup = make_setup(pool="gym:3", prompt=CARDS, rollout={"renumbered": True})
    rows = make_rows(problems(50), setup)
    assert rows == make_rows(problems(50), setup), "a resumed run numbers them alike"
    orders: set[tuple[str, ...]] = set()
    for row in rows:
        shown = re.findall(r"^Model (\d+): (.+)$", row["prompt"][0]["content"], re.MULTILINE)
        assert [ordinal for ordinal, _ in shown] == list("01234567")
        cards = tuple(card for _, card in shown)
        assert sorted(cards) == sorted(setup.pool.cards.values())
        orders.add(cards)
    assert len(orders) == 50


def test_drawn_workers_are_others_for_each_question_and_shown_with_their_cards(
    make_setup: MakeSetup,
) -> None:
    setup = make_setup(pool="gym:drawn", prompt=CARDS)
    rows = make_rows(problems(8), setup)
    assert rows == make_rows(problems(8), setup), "a resumed run draws the same"
    shown = [row["prompt"][0]["content"].split("Question: ")[0] for row in rows]
    assert len(set(shown)) == 8
    for index, text in enumerate(shown):
        assert text == cards_for(setup, str(index))[1]


def test_an_exercise_in_reading_asks_nothing_and_says_who_is_listed(make_setup: MakeSetup) -> None:
    setup = make_setup(pool="gym:drawn", prompt=CARDS)
    tokenizer = build_tokenizer(phrases(cards=True))
    prompt, target = reading_row(tokenizer, setup, "1")
    cards, shown = cards_for(setup, "1")
    assert tokenizer.decode(prompt) == f"{shown}Question: ?\n"
    assert tokenizer.decode(target, skip_special_tokens=True) == write_index(cards)
    entries = sum(len(read_card(card)) for card in cards.values())
    assert len(target) == 2 * entries + 1, "a category and a worker are a token each"


# ── the LM head ───────────────────────────────────────────────────────────────────────────────────
def head_of(compact: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[torch.Tensor]]:
    """Return how many positions the LM head was applied to, and the gradients of GRPO's loss."""
    monkeypatch.setattr(utils, "_use_triton", lambda device: False)
    if compact:
        score_only_completions()
    positions: list[int] = []
    kernel = utils._ChunkedLogProbFunction

    class Spy:
        @staticmethod
        def apply(hidden: torch.Tensor, *rest: object) -> object:
            positions.append(len(hidden))
            return kernel.apply(hidden, *rest)

    monkeypatch.setattr(utils, "_ChunkedLogProbFunction", Spy)
    model = build_model(ModelConfig(base=""), build_tokenizer(phrases()), seed=0)
    utils.add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, model.config.vocab_size, (4, 60), generator=generator)
    mask = torch.ones_like(ids)
    labels = ids.clone()
    labels[:, :40] = -100  # the prompts
    for row, length in enumerate((20, 7, 1, 12)):
        mask[row, 40 + length :] = 0
        labels[row, 40 + length :] = -100
    outputs = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    weights = torch.randn(outputs.log_probs.shape, generator=generator)
    ((outputs.log_probs + 0.1 * outputs.entropy) * weights).sum().backward()
    monkeypatch.undo()
    return positions[0], [weight.grad for weight in model.parameters()]


def test_the_head_on_completions_alone_has_the_gradients_of_the_head_on_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everything, expected = head_of(False, monkeypatch)
    completions, gradients = head_of(True, monkeypatch)
    assert (everything, completions) == (4 * 59, 20 + 7 + 1 + 12)
    for gradient, other in zip(gradients, expected, strict=True):
        assert torch.allclose(gradient, other, rtol=1e-6, atol=1e-6)


def test_another_version_of_trl_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    untouched = object()
    monkeypatch.setattr(utils, "_use_triton", untouched)
    monkeypatch.setattr(grpo, "version", lambda _: "1.17.0")
    score_only_completions()
    assert utils._use_triton is untouched


# ── exploring ─────────────────────────────────────────────────────────────────────────────────────
# ── exploring ─────────────────────────────────────────────────────────────────────────────────────
def test_a_number_that_comes_first_is_explored_in_some_rows_and_slips_are_not() -> None:
    likely, words = [0.9, 0.0699, 0.00005, 0.03005], [0.3, 0.1, 0.0, 0.6]
    scores = torch.tensor([likely, likely, words]).log()
    numbers = torch.tensor([True, True, True, False])
    rows = torch.tensor([[True], [False], [True]])
    explorer = _Explorer(rows, 7, numbers, temperature=2.0)
    explored, other_row, no_number = explorer(torch.zeros(3, 7), scores).softmax(-1).tolist()
    assert explored == pytest.approx([0.782, 0.218, 0.0, 0.0], abs=0.001)
    assert other_row == pytest.approx(likely, abs=0.001)
    assert no_number == pytest.approx(words, abs=0.001)
    assert explorer(torch.zeros(3, 8), scores).equal(scores), "a later token"
