"""From a base to a served Conductor and back into a training, by the command."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.learning.bases import save_base, served
from tests.learning.runs import COLD_START

import openconductor as oc
from openconductor.cli import main
from openconductor.gym.bundled import bundled_folder
from openconductor.gym.questions import draw_questions
from openconductor.gym.workers import gym_pool
from openconductor.gym.world import COMPARE, OPERATIONS, WORDINGS
from openconductor.providers import create
from openconductor.reward import group_advantages
from openconductor.store import read_store
from openconductor.training.grpo import ConductorTrainer
from openconductor.training.models import servers_read_alike

pytestmark = [pytest.mark.train, pytest.mark.timeout(900)]

RECIPE = """
pool = "gym"
[data]
task = "gym"
[model]
base = "{base}"
[start]
prompts = 16
workflows = 4
validity = 0.0
[prompt]
template = "compact"
access = "index"
[rollout]
iterations = 1
questions = 2
completions = 4
max_tokens = 96
max_steps = {steps}
[optim]
micro_batch = 8
checkpointing = false
[held_out]
questions = 8
"""
COLD = [
    "cold_start.steps=200",
    "cold_start.batch=8",
    "cold_start.micro_batch=8",
    "cold_start.learning_rate=1e-2",
]
ACCEPTING = "model_id = []\nsubtasks = []\naccess_list = []"


def train(folder: Path, base: Path, *overrides: str, steps: int = 2) -> Path:
    """Train by the command; return the run's folder."""
    recipe = folder.with_suffix(".toml")
    recipe.write_text(RECIPE.format(base=base.as_posix(), steps=steps), "utf-8")
    assert main(["train", str(recipe), *overrides, "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module", params=["qwen2", "llama"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt the form, of a model that a hub could hold."""
    return learnt(request.param, tmp_path_factory.mktemp("export"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learnt("llama", tmp_path_factory.mktemp("rounds"))


def learnt(family: Any, folder: Path) -> Path:
    torch.set_num_threads(1)
    operations = [operation.phrase for operation in OPERATIONS.values()]
    phrases = [phrase(wording) for phrase in operations for wording in WORDINGS]
    base = save_base(folder / "base", family, servable=True, texts=(*phrases, *COMPARE))
    return train(folder / "run", base, *COLD)


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    folder = run.with_name("exported")
    assert main(["export", str(run), "--out", str(folder), "--dtype", "float32"]) == 0
    return folder


def questions(count: int) -> list[str]:
    return [question.text for question in draw_questions("test", count, seed=5)]


def plans(conductor: oc.Conductor, asked: list[str]) -> list[str]:
    """Return what the Conductor writes, right or wrong."""

    async def ask() -> list[oc.Episode]:
        return [await conductor.ask(question) for question in asked]

    return [episode.rounds[0].completion.text for episode in asyncio.run(ask())]


# ── a Conductor's life ────────────────────────────────────────────────────────────────────────────
@pytest.mark.slow
def test_a_trained_model_is_asked_as_it_was_trained(run: Path) -> None:
    conductor = oc.Conductor(run / "conductor", pool=gym_pool())
    assert (conductor.prompt.template, conductor.prompt.access) == ("compact", "index")
    assert (conductor.planner.sampling.max_tokens, conductor.max_steps) == (96, 2)
    episodes = [asyncio.run(conductor.ask(question)) for question in questions(4)]
    assert sum(episode.answer is not None for episode in episodes) >= 2, "it has learnt the form"


@pytest.mark.slow
def test_what_is_exported_plans_as_the_run_does(run: Path, exported: Path) -> None:
    card = (exported / "README.md").read_text("utf-8")
    assert "## Recipe" in card and "transformers serve" in card
    assert not (exported / "complete").exists()
    asked = questions(4)
    theirs = plans(oc.Conductor(exported, pool=gym_pool()), asked)
    assert theirs == plans(oc.Conductor(run / "conductor", pool=gym_pool()), asked)


@pytest.mark.slow
def test_what_is_exported_is_trained_further(exported: Path, tmp_path: Path) -> None:
    further = train(tmp_path / "further", exported)
    start = json.loads((further / "start.json").read_text("utf-8"))
    assert start["format"]["validity"] > 0.1, "it goes on from what it knew"
    assert main(["export", str(further), "--out", str(tmp_path / "again")]) == 0


@pytest.mark.slow
def test_the_served_model_plans_as_the_one_in_this_process(exported: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi", reason="`transformers serve` needs fastapi, uvicorn and openai")
    asked = questions(8)
    inside = oc.Conductor(exported, pool=gym_pool())
    greedy = oc.Sampling(temperature=0.0, max_tokens=inside.planner.sampling.max_tokens)
    with served(exported, tmp_path / "log") as url:
        model = create("openai_compatible", str(exported), base_url=url)
        outside = oc.Conductor(model, pool=gym_pool(), prompt=inside.prompt, sampling=greedy)
        theirs = plans(outside, asked)
    assert theirs == plans(inside, asked) and len(set(theirs)) > 1


# ── two rounds, and subsets of the pool ───────────────────────────────────────────────────────────
TWO_ROUNDS = [
    "rollout.rounds=2",
    "rollout.questions=4",
    "rollout.completions=8",
    "optim.learning_rate=1e-4",
]
Outcome = dict[str, Any]


@pytest.fixture(params=["the gym's own", pytest.param("a language model", marks=pytest.mark.slow)])
def start(request: pytest.FixtureRequest) -> Path:
    """A Conductor that knows the form."""
    if request.param == "the gym's own":
        return COLD_START  # its workflows are right at times
    return request.getfixturevalue("llama") / "conductor"


class Seen:
    """Records what a trainer was asked to complete, and what it made of the rewards."""

    def __init__(self, patch: pytest.MonkeyPatch, *, accept: bool = False) -> None:
        self.asked: list[str] = []
        self.rounds: list[int] = []
        self.advantages: list[float] = []
        tokenize = ConductorTrainer._tokenize_prompts
        generate = ConductorTrainer._generate_single_turn
        generate_and_score = ConductorTrainer._generate_and_score_completions

        def watch_prompts(trainer: Any, prompts: list[Any], *more: Any) -> Any:
            self.asked += [prompt[-1]["content"] for prompt in prompts]
            return tokenize(trainer, prompts, *more)

        def accept_answers(
            trainer: Any, ids: Any, images: Any, fields: Any, count: int, *more: Any
        ) -> Any:
            if count > 1:  # a first round
                return generate(trainer, ids, images, fields, count, *more)
            tokens = trainer.processing_class
            text = tokens.encode(ACCEPTING, add_special_tokens=False)
            return [[*text, tokens.eos_token_id] for _ in ids], None

        def watch_advantages(trainer: Any, inputs: list[dict[str, Any]]) -> Any:
            outputs = generate_and_score(trainer, inputs)
            self.rounds += [row["round"] for row in inputs]
            self.advantages += outputs["advantages"].tolist()
            return outputs

        patch.setattr(ConductorTrainer, "_tokenize_prompts", watch_prompts)
        patch.setattr(ConductorTrainer, "_generate_and_score_completions", watch_advantages)
        if accept:
            patch.setattr(ConductorTrainer, "_generate_single_turn", accept_answers)


def train_two_rounds(start: Path, folder: Path, *more: str) -> tuple[list[Outcome], list[Outcome]]:
    """Train one iteration; return what came of its first rounds, and of its second ones."""
    run = train(folder, start, *TWO_ROUNDS, *more, steps=5)
    with read_store(run / "journal.sqlite") as journal:
        outcomes = {record.key: dict(record.value) for record in journal.records()}
    first = [outcomes[f"iteration 0, round 0/{place}"] for place in range(16)]
    second = [outcomes[f"iteration 0, round 1/{place}"] for place in range(16)]
    return first, second


def test_both_rounds_are_in_the_journal_and_the_first_weighs_a_quarter(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(monkeypatch)
    first, second = train_two_rounds(start, tmp_path / "run")
    for before, after in zip(first, second, strict=True):
        assert (before["round"], after["round"]) == (0, 1)
        assert before["problem"] == after["problem"]
    assert not any("Before:\n" in prompt for prompt in seen.asked[:16])
    for before, prompt in zip(first, seen.asked[16:], strict=True):
        assert "Before:\n" in prompt
        assert f"Answer: {before['answer'] or 'none'}\n" in prompt
    expected: list[float] = []
    for group in (slice(0, 8), slice(8, 16)):
        of_first = group_advantages([outcome["reward"] for outcome in first[group]])
        expected += [0.25 * advantage for advantage in of_first]
        expected += group_advantages([outcome["reward"] for outcome in second[group]])
    assert seen.advantages == pytest.approx(expected, abs=1e-3) and any(expected)
    assert seen.rounds == ([0] * 8 + [1] * 8) * 2


def test_three_empty_lists_are_rewarded_as_the_answer_that_they_accept(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Seen(monkeypatch, accept=True)
    first, second = train_two_rounds(start, tmp_path / "run")
    assert any(before["answer"] is not None for before in first)
    for before, after in zip(first, second, strict=True):
        assert after["completion"] == ACCEPTING
        if before["answer"] is None:
            assert after["reward"] == 0.0
        else:
            assert (before["answer"], before["reward"]) == (after["answer"], after["reward"])


def test_a_prompt_lists_the_workers_on_offer_and_another_one_is_not_to_be_had(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(monkeypatch)
    first, second = train_two_rounds(start, tmp_path / "run", "rollout.offered=[2, 4]")
    sizes = {len(outcome["offered"]) for outcome in first + second}
    assert sizes <= {2, 3, 4}
    assert len({tuple(outcome["offered"]) for outcome in first + second}) > 1
    for outcome, prompt in zip(first + second, seen.asked, strict=True):
        offered = outcome["offered"]
        shown = re.findall(r"^Model (\d+)$", prompt, re.MULTILINE)
        assert [int(ordinal) for ordinal in shown] == offered
        assert outcome["reward"] is not None
        named = re.search(r"model_id = \[([\d, ]+)\]", outcome["completion"])
        if named and not set(json.loads(f"[{named[1]}]")) <= set(offered):
            assert outcome["reward"] == 0.0


# ── who may serve it ──────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("family", "servable", "served"),
    [("qwen2", True, True), ("qwen2", False, False), ("llama", False, True)],
)
def test_a_qwen2_with_a_foreign_tokenizer_is_known_to_be_split_otherwise_by_servers(
    family: Any, servable: bool, served: bool, tmp_path: Path
) -> None:
    assert servers_read_alike(save_base(tmp_path / family, family, servable=servable)) == served


def test_the_gyms_own_conductor_is_exported_with_a_word_on_servers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(tmp_path / "run", bundled_folder(), steps=5)
    assert main(["export", str(run), "--dtype", "bfloat16"]) == 2, "its runtime reads float32 alone"
    assert main(["export", str(run), "--adapter"]) == 2, "it learnt all weights"
    assert main(["export", str(run)]) == 0
    said = capsys.readouterr().err
    assert "cannot serve it" in said and "%|" not in said, "and no bars of the libraries"
    assert f"openconductor ask '…' --conductor {run / 'export'}" in said
    assert "It is not for\nvLLM" in (run / "export" / "README.md").read_text("utf-8")
    exported = oc.Conductor(run / "export", pool=gym_pool())
    assert exported.ask_sync(questions(1)[0]).error is None
    assert main(["export", str(run)]) == 2, "the folder is there"
