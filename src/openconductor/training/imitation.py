"""Imitation of the model's own successes, in rounds (rejection-sampling fine-tuning).

A round samples workflows, plays and grades them, and takes supervised steps on the right ones. Of a
question without a success it learns, less often, one of its valid workflows. A round ends with a
whole checkpoint, from which a later call goes on.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, cast

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
from openconductor.store.storage import write_whole
from openconductor.training.checkpoint import WholeCheckpoints, last_checkpoint, storing
from openconductor.training.completions import complete, draw_pool, write_prompt
from openconductor.training.curves import Curve, Record, kind_of, read_curve
from openconductor.training.models import with_adapters
from openconductor.training.scoring import Rewards, Sampled, gathered, graded_reward, on_first
from openconductor.training.setup import Learner, Phase, Setup, imitation_problems
from openconductor.training.supervised import (
    Row,
    Rows,
    collate,
    make_row,
    reading_row,
    resume_training,
    supervised_arguments,
    warmup_steps,
)
from openconductor.training.train_config import ImitateConfig
from openconductor.types import Problem, Round, Workflow, text_of

_RISE = 0.02  # of a kind's mean accuracy from one window to the next; less is noise
_WINDOW = 8  # rounds
_SOLVED, _LOST = 0.05, 0.02  # accuracy of a kind that was solved, and of one that is lost
_LEAST = 0.25  # weight of a kind that is always right; up to half right the weight is 1


def imitate(setup: Setup, learner: Learner) -> Trainer:
    """Train in rounds, from the last whole one on; return the trainer."""
    config = setup.config
    settings = setup.config.imitate
    path = setup.curve_path
    state = PartialState()
    _, steps_done = last_checkpoint(learner.checkpoints)
    done = steps_done // settings.steps
    curve = Curve.open(path, done=done) if state.is_main_process else Curve(path)
    state.wait_for_everyone()
    rounds = settled_after(read_curve(path)[:done], settings) + settings.sharpen
    # With more data a finished run would begin a further round.
    rounds_of_data = settings.rounds if done < rounds else rounds
    trainer = _Imitation(
        setup,
        learner.tokenizer,
        curve,
        model=with_adapters(learner.model, config.model, seed=config.seed),
        args=supervised_arguments(
            config,
            settings,
            learner.checkpoints,
            schedule="constant_with_warmup",
            warmup=warmup_steps(settings.rounds * settings.steps),
            steps=rounds * settings.steps,
            save_every=settings.steps,
        ),
        train_dataset=Rows(lambda index: index, rounds_of_data * settings.steps * settings.batch),
        data_collator=lambda indices: {"index": torch.tensor(indices)},
    )
    trainer.add_callback(_StopWhenSettled(path, settings))
    resume_training(trainer, learner.checkpoints)
    return trainer


IMITATION = Phase(
    "imitation",
    imitate,
    lambda config: config.imitate.rounds > 0,
    folder="imitated",
    checkpoints="imitate_checkpoints",
)


# ── what a round teaches ──────────────────────────────────────────────────────────────────────────
class _Outcome(NamedTuple):
    """The reward of a completion, and what it is worth to learn it if it is right."""

    reward: float | None
    worth: float
    workflow: Workflow | None


class _Written(NamedTuple):
    """A completion, with its question, its prompt and what came of it."""

    kind: str
    question: str
    prompt: str
    text: str
    reward: float | None
    worth: float
    workflow: Workflow | None


@dataclass(slots=True)
class _Lessons:
    """The workflows of a round that can be learnt for one kind of question.

    Attributes:
        weight: how much the kind counts.
        solved: the share of its prompts with a right workflow; of one of them at least, if
            earlier rounds had any.
        right: the right workflows, those of earlier rounds among them.
        others: valid workflows of the questions that were not solved.
        priced: whether right workflows are drawn in proportion to their worth.
    """

    weight: float
    solved: float
    right: list[_Written]
    others: list[_Written]
    priced: bool = False
    _worth: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self._worth = list(accumulate(text.worth for text in self.right))

    def draw(self, rng: random.Random, anchor: float) -> _Written | None:
        """Return a workflow to learn; None: the question that was drawn teaches nothing."""
        if rng.random() < self.solved:
            if self.priced:
                return rng.choices(self.right, cum_weights=self._worth)[0]
            return rng.choice(self.right)
        if self.others and rng.random() < anchor:
            return rng.choice(self.others)
        return None


def is_right(written: _Written) -> bool:
    """Return True if it is a workflow whose answer was right."""
    return written.reward == 1 and written.workflow is not None


def choose_lessons(
    written: Sequence[_Written],
    weights: Mapping[str, float],
    settings: ImitateConfig,
    *,
    earlier: Sequence[_Written] = (),
    priced: bool = False,
) -> list[_Lessons]:
    """Return what can be learnt of a round, by kind of question; [] if nothing can.

    Only workflows are learnt: the control ``flipped`` rewards invalid texts, too. Of unsolved
    questions no workflow is learnt that accepts an answer, because that answer is wrong. The right
    workflows of ``earlier`` rounds are learnt as well.
    """
    lessons: list[_Lessons] = []
    decided = [text for text in written if text.reward is not None]
    for kind, weight in weights.items():
        mine = [text for text in decided if text.kind == kind]
        if settings.contested:
            contested = {text.question for text in mine if text.reward != 1}
            mine = [text for text in mine if text.question in contested]
        right = [text for text in mine if is_right(text) and text.worth > 0]
        solved = {text.prompt for text in right}
        others = [text for text in mine if text.workflow and text.prompt not in solved]
        right += [text for text in earlier if text.kind == kind]
        if right or (others and settings.anchor):
            questions = {text.prompt for text in mine}
            # Where none is solved, what is remembered counts as one solved question.
            count = max(len(solved), 1) if right else 0
            share = count / max(len(questions), 1)
            lessons.append(_Lessons(weight, share, right, others, priced))
    return lessons


def _kind_weights(record: Record) -> dict[str, float]:
    """Return how much each kind counts: fully until half of it is right, then less."""
    weights: dict[str, float] = {}
    for kind, share in record["accuracy_by_kind"].items():
        variance = share * (1 - share)
        weights[kind] = 1.0 if share <= 0.5 else max(_LEAST, (4 * variance) ** 2)
    return weights


# ── what is remembered ────────────────────────────────────────────────────────────────────────────
def remember(path: Path, number: int, right: Sequence[_Written], rounds: int) -> list[_Written]:
    """Add the right workflows of a round to a file, and return those of some rounds before it.

    Args:
        path: the file; it may hold later rounds, which an interrupted run played.
        number: of the round.
        right: its right workflows.
        rounds: how many rounds before it count.
    """
    records = [record for record in _read_remembered(path) if record["round"] < number]
    earlier: list[_Written] = []
    for record in records:
        if record["round"] >= number - rounds:
            texts = [record[key] for key in ("kind", "question", "prompt", "text")]
            earlier.append(_Written(*texts, reward=1.0, worth=record["worth"], workflow=None))
    for text in right:
        records.append(
            {
                "round": number,
                "kind": text.kind,
                "question": text.question,
                "prompt": text.prompt,
                "text": text.text,
                "worth": text.worth,
            }
        )
    lines = [json.dumps(record) + "\n" for record in records]
    with storing(path):
        write_whole(path, "".join(lines))
    return earlier


def _read_remembered(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# ── a round ───────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class _Attempt:
    """A problem to plan for.

    Attributes:
        problem: the problem.
        pool: the workers on offer.
        key: draws the workers.
        sample: tells repeats of the problem apart.
    """

    problem: Problem
    pool: WorkerPool
    key: str
    sample: int

    def prompt(
        self, tokenizer: PreTrainedTokenizerBase, setup: Setup, previous: Round | None = None
    ) -> str:
        """Return the text that the model completes; ``previous`` is the round before."""
        question = setup.questions.planned(self.problem)
        return write_prompt(tokenizer, question, setup.config, self.pool, previous)


class _Referee:
    """Plays and scores the texts of a round. Its methods run in the first process only."""

    def __init__(
        self,
        rewards: Rewards,
        tokenizer: PreTrainedTokenizerBase,
        attempts: Sequence[_Attempt],
        number: int,
    ) -> None:
        self._rewards, self._tokenizer = rewards, tokenizer
        self._attempts, self._number = attempts, number
        self._config = rewards.setup.config
        self._scored: list[Scored] = []
        self._second: dict[int, int] = {}  # the place of each attempt's second round

    def play(self, sampled: Sequence[Sampled]) -> dict[int, str]:
        """Play the texts; return the prompts of second rounds, by the place of the attempt."""
        if self._config.rollout.rounds == 1:
            self._scored = self._rewards.score(sampled, self._number)
            return {}
        self._scored = self._rewards.score(sampled, self._number, round_number=0)
        prompts: dict[int, str] = {}
        for place, attempt in enumerate(self._attempts):
            episode = self._scored[place].episode
            if episode.answer is not None:
                previous = episode.rounds[-1]
                prompts[place] = attempt.prompt(self._tokenizer, self._rewards.setup, previous)
        return prompts

    def play_again(self, sampled: Sequence[Sampled], places: Sequence[int]) -> None:
        """Play the texts of second rounds; ``places`` are those of the first ones."""
        seconds: list[Sampled] = []
        self._second = {place: len(self._scored) + index for index, place in enumerate(places)}
        for place, second in zip(places, sampled, strict=True):
            previous = self._scored[place].episode.rounds[-1]
            seconds.append(replace(second, previous=previous))
        self._scored += self._rewards.score(seconds, self._number, round_number=1)

    def finish(self, kinds: Sequence[str], keys: Sequence[str]) -> list[_Outcome]:
        """Record the round; return the outcome of each completion.

        Args:
            kinds: the kind of each completion's question.
            keys: draw the workers of each completion's question.
        """
        group = self._config.imitate.completions
        rewards = self._rewards.finish(
            self._scored, kinds, keys, self._number, group=group, phase="imitate"
        )
        credited = list(range(len(rewards)))  # by completion, the one that its reward is taken from
        if self._config.rollout.credit == "episode":
            credited = [self._second.get(place, place) for place in credited]
        worth = [1.0] * len(rewards)
        if self._config.reward.priced:
            worth = self._price([self._scored[place] for place in credited], kinds)
        outcomes: list[_Outcome] = []
        for place, result in enumerate(self._scored):
            rounds = result.episode.rounds
            workflow = rounds[-1].workflow if rounds else None
            outcomes.append(_Outcome(rewards[credited[place]], worth[place], workflow))
        return outcomes

    def _price(self, ends: Sequence[Scored], kinds: Sequence[str]) -> list[float]:
        """Return what is left of the reward of each completion, beside others of its question."""
        groups: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for place, (kind, end) in enumerate(zip(kinds, ends, strict=True)):
            groups[kind, text_of(end.episode.question)].append(place)
        worth = [0.0] * len(ends)
        for places in groups.values():
            group = [replace(ends[place], reward=graded_reward(ends[place])) for place in places]
            for place, reward in zip(places, self._rewards.price(group), strict=True):
                worth[place] = reward or 0.0
        return worth


class _Imitation(WholeCheckpoints):
    """Takes supervised steps on what the model wrote itself; each round samples and plays anew.

    A batch is known by the indices of its rows. The rows are written when a step begins, by the
    model of that moment.
    """

    def __init__(
        self, setup: Setup, tokenizer: PreTrainedTokenizerBase, curve: Curve, **options: Any
    ) -> None:
        super().__init__(**options)
        self.setup = setup
        self.tokenizer = tokenizer
        self.curve = curve
        self.rewards = Rewards(setup, [], curve)
        self.round = -1
        self.lessons: list[_Lessons] = []

    def get_batch_samples(
        self, epoch_iterator: Any, num_batches: int, device: torch.device
    ) -> tuple[list[Any], Any]:
        """Return the micro batches of a step, and the number of tokens that they teach."""
        places, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        number = self.state.global_step // self.setup.config.imitate.steps
        if number != self.round:
            with unwrap_model_for_generation(
                cast("Any", self.model_wrapped), self.accelerator
            ) as model:
                self.lessons = self._play_round(cast("PreTrainedModel", model), number)
            self.round = number
        pad = cast("int", self.tokenizer.pad_token_id)
        batches: list[dict[str, torch.Tensor]] = []
        for batch in places:
            rows = [self._draw_row(index) for index in batch["index"].tolist()]
            batches.append(collate(rows, pad))
        return batches, cast("Any", self)._get_num_items_in_batch(batches, device)

    def _draw_row(self, index: int) -> Row:
        config = self.setup.config
        settings = self.setup.config.imitate
        rng = random.Random(f"imitate/{config.seed}/{index}")
        if settings.reading and rng.random() < settings.reading:
            return reading_row(self.tokenizer, self.setup, f"imitate/{index}")
        weights = [lessons.weight for lessons in self.lessons]
        while True:
            (lessons,) = rng.choices(self.lessons, weights)
            written = lessons.draw(rng, settings.anchor)
            if written is not None:
                return make_row(self.tokenizer, written.prompt, written.text)

    def _play_round(self, model: PreTrainedModel, number: int) -> list[_Lessons]:
        """Sample and play a round; return what can be learnt from it, by kind.

        In recursion each answer is shown to the model once more; what it then writes is of kinds of
        its own.

        Raises:
            TrainingStopped: nothing can be learnt.
        """
        settings = self.setup.config.imitate
        records = read_curve(self.curve.path)[:number]
        exploring = number < settled_after(records, settings)
        sample = partial(self._sample, model, number, settings.explore if exploring else 1.0)
        weights = _kind_weights(records[-1]) if records else {}
        attempts = self._attempts(number, weights)
        referee = _Referee(self.rewards, self.tokenizer, attempts, number)

        prompts = [attempt.prompt(self.tokenizer, self.setup) for attempt in attempts]
        sampled = sample(attempts, prompts)
        kinds = [kind_of(attempt.problem) for attempt in attempts]
        second = on_first(lambda: referee.play(sampled))
        if second:
            places = list(second)
            again = [attempts[place] for place in places]
            later = sample(again, list(second.values()), seed=500)
            on_first(lambda: referee.play_again(later, places))
            sampled += later
            prompts += second.values()
            kinds += [kind_of(attempt.problem, again=True) for attempt in again]

        keys = [rollout.key for rollout in sampled]
        outcomes = on_first(lambda: referee.finish(kinds, keys))
        written: list[_Written] = []
        for place, rollout in enumerate(sampled):
            outcome = outcomes[place]
            written.append(
                _Written(
                    kind=kinds[place],
                    question=rollout.problem.question,
                    prompt=prompts[place],
                    text=rollout.completion.text,
                    reward=outcome.reward,
                    worth=outcome.worth,
                    workflow=outcome.workflow,
                )
            )
        weights = _kind_weights(read_curve(self.curve.path)[number])
        earlier: list[_Written] = []
        if settings.remember:
            memory = self.setup.folder / "imitate_right.jsonl"
            right = [text for text in written if is_right(text)]
            earlier = on_first(lambda: remember(memory, number, right, settings.remember))
        priced = self.setup.config.reward.priced
        lessons = choose_lessons(written, weights, settings, earlier=earlier, priced=priced)
        if not lessons:
            reason = "no workflow was right"
            if settings.contested:
                reason += ", or no question contested"
            raise TrainingStopped(
                f"imitation, round {number}: {reason}, so nothing can be learnt from it"
            )
        return lessons

    def _attempts(self, number: int, weights: Mapping[str, float]) -> list[_Attempt]:
        """Return the attempts of a round: each problem several times, sorted by kind."""
        config, setup = self.setup.config, self.setup
        problems = imitation_problems(config, setup.questions, number, weights)
        attempts: list[_Attempt] = []
        for problem in sorted(problems, key=kind_of):  # alike ones end alike, which is faster
            key = f"{number}/{problem.id}"
            pool = draw_pool(config, setup.pool, key)
            for sample in range(config.imitate.completions):
                attempts.append(_Attempt(problem, pool, key, sample))
        return attempts

    def _sample(
        self,
        model: PreTrainedModel,
        number: int,
        explore: float,
        attempts: Sequence[_Attempt],
        prompts: Sequence[str],
        seed: int = 0,
    ) -> list[Sampled]:
        """Complete each prompt; the processes share them out, and each gets all completions."""
        config, state = self.setup.config, PartialState()
        share = -(-len(prompts) // state.num_processes)
        first = state.process_index * share
        # All processes sample equally often, the last one perhaps the last prompt again.
        places = [min(place, len(prompts) - 1) for place in range(first, first + share)]
        completions = complete(
            model,
            self.tokenizer,
            [prompts[place] for place in places],
            config=config,
            temperature=config.rollout.temperature,
            explore=explore,
            explored=[attempts[place].sample == 0 for place in places],
            seed=(config.seed * 1_000 + seed + number) * state.num_processes + state.process_index,
        )
        everything = gathered(completions)[: len(prompts)]
        sampled: list[Sampled] = []
        for attempt, completion in zip(attempts, everything, strict=True):
            repeat = number * config.stride + attempt.sample
            sampled.append(Sampled(attempt.problem, completion, repeat, attempt.key))
        return sampled


# ── when rounds end ───────────────────────────────────────────────────────────────────────────────
class _StopWhenSettled(TrainerCallback):
    """Ends the rounds early where nothing gets better any more."""

    def __init__(self, path: Path, settings: ImitateConfig) -> None:
        self._path, self._settings = path, settings

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **options: Any
    ) -> None:
        """Stop behind the last step of the last round."""
        del args, options
        done, within = divmod(state.global_step, self._settings.steps)
        if within:
            return
        rounds = settled_after(read_curve(self._path)[:done], self._settings)
        if done >= rounds + self._settings.sharpen:
            control.should_training_stop = True


def settled_after(records: Sequence[Record], settings: ImitateConfig) -> int:
    """Return how many rounds explore: until nothing gets better, or all but the last ones."""
    most = settings.rounds - settings.sharpen
    for done in range(min(most, len(records) + 1)):
        if is_settled(records[:done]):
            return done
    return most


def is_settled(records: Sequence[Record]) -> bool:
    """Return True if all kinds are solved at times, none gets better, and none is lost."""
    if len(records) < 2 * _WINDOW:
        return False
    before = _mean_accuracies(records[-2 * _WINDOW : -_WINDOW])
    latest = _mean_accuracies(records[-_WINDOW:])
    for kind, mean in before.items():
        accuracy = latest.get(kind, 0.0)
        if accuracy < _SOLVED or accuracy >= mean + _RISE:
            return False
    return not lost_kinds(records)


def _mean_accuracies(records: Sequence[Record]) -> dict[str, float]:
    """Return the mean accuracy of each kind that every record has."""
    accuracies = [record["accuracy_by_kind"] for record in records]
    kinds = set[str].intersection(*(set(by_kind) for by_kind in accuracies))
    return {kind: fmean(by_kind[kind] for by_kind in accuracies) for kind in sorted(kinds)}


def lost_kinds(records: Sequence[Record]) -> list[str]:
    """Return the kinds of question that were solved once and are not in the last record."""
    solved: set[str] = set()
    for record in records:
        for kind, accuracy in record["accuracy_by_kind"].items():
            if accuracy >= _SOLVED:
                solved.add(kind)
    latest = records[-1]["accuracy_by_kind"] if records else {}
    return sorted(kind for kind in solved if latest.get(kind, _LOST) < _LOST)
