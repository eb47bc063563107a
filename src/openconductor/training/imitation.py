"""Imitation of one's own successes, in rounds (rejection-sampling fine-tuning).

In: a model that writes valid workflows. Out: one that learnt from what was right. A round samples
workflows, plays and grades them, and takes supervised steps on the right ones; of a question
without a success it learns, less often, one of its valid workflows. A round ends with a whole
checkpoint, which a later call goes on from.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import torch
from accelerate import PartialState
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl.models.utils import unwrap_model_for_generation

from openconductor.errors import TrainingStopped
from openconductor.pool import WorkerPool
from openconductor.reward import Scored
from openconductor.training.checkpoint import WholeCheckpoints, last_checkpoint, with_adapters
from openconductor.training.curves import Curve, Record, kind_of, read_curve
from openconductor.training.examples import Setup, imitation_problems
from openconductor.training.grpo import Rewards, gathered, on_first
from openconductor.training.rollout import Sampled, complete, draw_pool, write_prompt
from openconductor.training.supervised import (
    WARMUP,
    Row,
    Rows,
    arguments,
    collated,
    reading_row,
    row_of,
    trained,
)
from openconductor.training.train_config import ImitateConfig, TrainConfig
from openconductor.types import Problem, Round, Workflow

_RISE = 0.02  # of a kind's mean accuracy from one window to the next; less is noise
_WINDOW = 8  # rounds
_SOLVED, _LOST = 0.05, 0.02  # accuracy of a kind that was solved, and of one that is lost
_LEAST = 0.25  # weight of a kind that is always right; one that is right half of the time, or less often, has 1


def imitate(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, setup: Setup, folder: Path
) -> Trainer:
    """Rounds of imitation, from the last whole one in the folder on; returns the trainer."""
    config, settings = setup.config, setup.config.imitate
    path, done = setup.folder / "curves.jsonl", last_checkpoint(folder)[1] // settings.steps
    curve = Curve.open(path, done=done) if PartialState().is_main_process else Curve(path)
    PartialState().wait_for_everyone()
    rounds = settled_after(read_curve(path)[:done], settings) + settings.sharpen
    drawn = (
        settings.rounds if done < rounds else rounds
    )  # with more data a finished run would begin a further round
    warmup = min(WARMUP, settings.rounds * settings.steps // 4)
    trainer = _Imitation(
        setup,
        tokenizer,
        curve,
        model=with_adapters(model, config.model),
        args=arguments(
            config,
            settings,
            folder,
            schedule="constant_with_warmup",
            warmup=warmup,
            steps=rounds * settings.steps,
            save=settings.steps,
        ),
        train_dataset=Rows(lambda index: index, drawn * settings.steps * settings.batch),
        data_collator=lambda indices: {"index": torch.tensor(indices)},
    )
    trainer.add_callback(_Settled(path, settings))
    return trained(trainer, folder)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A problem, the workers that it offers with the key that draws them, and what tells repeats of it apart."""

    problem: Problem
    pool: WorkerPool
    key: str
    sample: int

    def prompt(
        self, tokenizer: PreTrainedTokenizerBase, config: TrainConfig, previous: Round | None = None
    ) -> str:
        """What the model is shown."""
        return write_prompt(tokenizer, self.problem.question, config, self.pool, previous)


@dataclass(slots=True)
class _Kind:
    """What was written in a round for one kind of question; each text stands behind its prompt.

    Attributes:
        weight: how much the kind counts.
        solved: the share of its questions with a right workflow.
        right: the right workflows.
        others: valid workflows of the questions that were not solved.
    """

    weight: float
    solved: float
    right: list[tuple[str, str]]
    others: list[tuple[str, str]]

    def draw(self, rng: random.Random, anchor: float) -> tuple[str, str] | None:
        """A prompt and what to learn for it; None where the question that was drawn teaches nothing."""
        if rng.random() < self.solved:
            return rng.choice(self.right)
        return rng.choice(self.others) if self.others and rng.random() < anchor else None


class _Imitation(WholeCheckpoints):
    """Supervised steps on what the model wrote itself: at the beginning of each round it samples and plays anew.

    A batch is known by the places of its rows, and written when its step begins, by the model of
    that moment.
    """

    def __init__(
        self, setup: Setup, tokenizer: PreTrainedTokenizerBase, curve: Curve, **options: Any
    ) -> None:
        super().__init__(**options)
        self.setup, self.tokenizer, self.curve = setup, tokenizer, curve
        self.round = -1
        self.kinds: list[_Kind] = []

    def get_batch_samples(
        self, epoch_iterator: Any, num_batches: int, device: torch.device
    ) -> tuple[list[Any], Any]:
        """What transformers calls for the micro batches of a step, and for the number of tokens that they teach."""
        places, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        config, settings = self.setup.config, self.setup.config.imitate
        number = self.state.global_step // settings.steps
        if number != self.round:
            with unwrap_model_for_generation(self.model_wrapped, self.accelerator) as model:
                self.kinds = self._play(cast("PreTrainedModel", model), number)
            self.round = number
        weights = [kind.weight for kind in self.kinds]
        batches: list[dict[str, torch.Tensor]] = []
        for batch in places:
            rows: list[Row] = []
            for index in batch["index"].tolist():
                rng, drawn = random.Random(f"imitate/{config.seed}/{index}"), None
                if settings.reading and rng.random() < settings.reading:
                    rows.append(reading_row(self.tokenizer, self.setup, f"imitate/{index}"))
                    continue
                while drawn is None:
                    drawn = rng.choices(self.kinds, weights)[0].draw(rng, settings.anchor)
                rows.append(row_of(self.tokenizer, *drawn))
            batches.append(collated(rows, cast("int", self.tokenizer.pad_token_id)))
        return batches, cast("Any", self)._get_num_items_in_batch(batches, device)

    def _play(self, model: PreTrainedModel, number: int) -> list[_Kind]:
        """Sample and play a round: what can be learnt from, by kind.

        In recursion each answer is shown to the model once more, and what it then writes is of
        kinds of its own.

        Raises:
            TrainingStopped: nothing can.
        """
        setup, config, count = self.setup, self.setup.config, self.setup.config.imitate.completions
        records = read_curve(self.curve.path)[:number]
        explore = (
            1.0 if number >= settled_after(records, config.imitate) else config.imitate.explore
        )
        before = _weights(records[-1]) if records else {}
        problems = sorted(
            imitation_problems(config, setup.questions, number, before), key=kind_of
        )  # end alike: faster
        problems = [problem for problem in problems for _ in range(count)]
        keys = [f"{number}/{problem.id}" for problem in problems]
        asked = [
            _Asked(problem, draw_pool(config, setup.pool, key), key, place % count)
            for place, (problem, key) in enumerate(zip(problems, keys, strict=True))
        ]
        rewards = Rewards(setup, problems, self.curve)
        prompts = [one.prompt(self.tokenizer, config) for one in asked]
        sampled = self._sample(model, asked, prompts, number, explore)
        scored: list[Scored] = []  # by the first process, which alone plays

        def play() -> list[tuple[int, str]]:
            """Play the workflows; returns the places of those that answered, and the prompts that show the answers."""
            scored.extend(
                rewards.score(sampled, number, phase=", round 0" * (config.rollout.rounds > 1))
            )
            if config.rollout.rounds == 1:
                return []
            played = [
                (place, one.episode)
                for place, one in enumerate(scored)
                if one.episode.answer is not None
            ]
            return [
                (place, asked[place].prompt(self.tokenizer, config, one.rounds[-1]))
                for place, one in played
            ]

        shown = on_first(play)
        if shown:
            places, again = zip(*shown, strict=True)
            later = self._sample(
                model, [asked[place] for place in places], again, number, explore, seed=500
            )

            def play_again() -> None:
                before = [scored[place].episode.rounds[-1] for place in places]
                seconds = [
                    replace(one, previous=each) for one, each in zip(later, before, strict=True)
                ]
                scored.extend(rewards.score(seconds, number, phase=", round 1"))

            on_first(play_again)
            sampled, prompts = sampled + later, [*prompts, *again]
        kinds = [
            kind_of(one.problem, again=place >= len(asked)) for place, one in enumerate(sampled)
        ]

        def finish() -> list[tuple[float | None, Workflow | None]]:
            """The rewards, and what the texts are as workflows."""
            worth = rewards.finish(scored, kinds, number, group=count, phase="imitate")
            rounds = [one.episode.rounds for one in scored]
            return [
                (reward, one[-1].workflow if one else None)
                for reward, one in zip(worth, rounds, strict=True)
            ]

        found = on_first(finish)
        texts = [
            (prompt, one.completion.text) for prompt, one in zip(prompts, sampled, strict=True)
        ]
        learnt = _learnt(
            kinds, texts, found, _weights(read_curve(self.curve.path)[number]), config.imitate
        )
        if not learnt:
            none = "no workflow was right" + ", or no question contested" * config.imitate.contested
            raise TrainingStopped(
                f"imitation, round {number}: {none}, so nothing can be learnt from it"
            )
        return learnt

    def _sample(
        self,
        model: PreTrainedModel,
        asked: Sequence[_Asked],
        prompts: Sequence[str],
        number: int,
        explore: float,
        seed: int = 0,
    ) -> list[Sampled]:
        """A completion of each prompt; the processes share them out, and each gets all of them back."""
        config, state = self.setup.config, PartialState()
        share = -(-len(prompts) // state.num_processes)
        places = [
            min(place, len(prompts) - 1) for place in range(share * state.num_processes)
        ]  # all sample alike often
        mine = places[state.process_index * share : (state.process_index + 1) * share]
        said = complete(
            model,
            self.tokenizer,
            [prompts[place] for place in mine],
            config=config,
            temperature=config.rollout.temperature,
            explore=explore,
            explored=[asked[place].sample == 0 for place in mine],
            seed=(config.seed * 1_000 + seed + number) * state.num_processes + state.process_index,
        )
        return [
            Sampled(one.problem, completion, number * config.stride + one.sample, one.key)
            for one, completion in zip(asked, gathered(said)[: len(prompts)], strict=True)
        ]


def _learnt(
    kinds: Sequence[str],
    texts: Sequence[tuple[str, str]],
    found: Sequence[tuple[float | None, Workflow | None]],
    weights: Mapping[str, float],
    settings: ImitateConfig,
) -> list[_Kind]:
    """What a round teaches, by kind: its texts behind their prompts, with their rewards, and as workflows.

    Only workflows are learnt: the control ``flipped`` rewards invalid texts, too. Of unsolved
    questions none is learnt that accepts an answer: that answer is wrong.
    """
    played = [
        (kind, text, reward, workflow)
        for kind, text, (reward, workflow) in zip(kinds, texts, found, strict=True)
        if reward is not None
    ]
    learnt: list[_Kind] = []
    for kind, weight in weights.items():
        mine = [(text, reward, workflow) for one, text, reward, workflow in played if one == kind]
        if settings.contested:
            wrong = {prompt for (prompt, _), reward, _ in mine if reward != 1}
            mine = [one for one in mine if one[0][0] in wrong]
        right = [text for text, reward, workflow in mine if reward == 1 and workflow is not None]
        solved = {prompt for prompt, _ in right}
        others = [text for text, _, workflow in mine if workflow and text[0] not in solved]
        if right or (others and settings.anchor):
            asked = {prompt for (prompt, _), _, _ in mine}
            learnt.append(_Kind(weight, len(solved) / len(asked), right, others))
    return learnt


def _weights(record: Record) -> dict[str, float]:
    """How much each kind of question counts: fully until half of it is right, then less, as it teaches less."""
    shares = record["accuracy_by_kind"]
    return {
        kind: max(_LEAST, (4 * share * (1 - share)) ** 2) if share > 0.5 else 1.0
        for kind, share in shares.items()
    }


class _Settled(TrainerCallback):
    """Ends the rounds early where nothing gets better any more."""

    def __init__(self, path: Path, settings: ImitateConfig) -> None:
        self._path, self._settings = path, settings

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **options: Any
    ) -> None:
        """What transformers calls behind each step."""
        done, within = divmod(state.global_step, self._settings.steps)
        if (
            not within
            and done
            >= settled_after(read_curve(self._path)[:done], self._settings) + self._settings.sharpen
        ):
            control.should_training_stop = True


def settled_after(records: Sequence[Record], settings: ImitateConfig) -> int:
    """How many rounds explore, by the records of those before: until nothing gets better, or all but the last."""
    most = settings.rounds - settings.sharpen
    return next(
        (done for done in range(min(most, len(records) + 1)) if is_settled(records[:done])), most
    )


def is_settled(records: Sequence[Record]) -> bool:
    """Whether all kinds are solved at times, none got better from one window of rounds to the next, none is lost."""
    if len(records) < 2 * _WINDOW:
        return False
    before, latest = (
        _means(part) for part in (records[-2 * _WINDOW : -_WINDOW], records[-_WINDOW:])
    )
    still = (_SOLVED <= latest.get(kind, 0.0) < mean + _RISE for kind, mean in before.items())
    return all(still) and not lost_kinds(records)


def _means(records: Sequence[Record]) -> dict[str, float]:
    """The mean accuracy of each kind that every record has."""
    kinds = set[str].intersection(*(set(record["accuracy_by_kind"]) for record in records))
    return {
        kind: fmean(record["accuracy_by_kind"][kind] for record in records)
        for kind in sorted(kinds)
    }


def lost_kinds(records: Sequence[Record]) -> list[str]:
    """The kinds of question that were solved once and are not in the last record."""
    solved = {
        kind
        for record in records
        for kind, share in record["accuracy_by_kind"].items()
        if share >= _SOLVED
    }
    latest = records[-1]["accuracy_by_kind"] if records else {}
    return sorted(kind for kind in solved if latest.get(kind, _LOST) < _LOST)
