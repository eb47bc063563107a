"""Which questions a training sees, and which it is measured on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from openconductor.errors import ConfigError
from openconductor.training import examples
from openconductor.training.config import TrainConfig
from openconductor.types import Problem


class Small:
    """A benchmark with five problems to train on and three to test with."""

    name = "small"

    def load(self, split: str) -> Iterator[Problem]:
        for number in range({"train": 5, "test": 3}.get(split, 0)):
            yield Problem(str(number), f"{split} {number}", number, task="small")


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    monkeypatch.setattr(examples, "load_task", lambda name: Small())
    values = {"data": {"task": "small"}, "rollout": {"iterations": 3, "questions": 4}, "optim": {"micro_batch": 4}}
    return TrainConfig.model_validate(values)


def test_a_benchmark_is_walked_through_again_for_training(config: TrainConfig) -> None:
    seen = Counter(example.problem.question for example in examples.training_examples(config))
    assert seen.total() == 12
    assert set(seen.values()) == {2, 3}
    assert len(seen) == 5


@pytest.mark.parametrize(("count", "given"), [(2, 2), (3, 3), (400, 3)])
def test_no_held_out_question_counts_twice(config: TrainConfig, count: int, given: int) -> None:
    held_out = [example.problem.question for example in examples.held_out_examples(config, "test", count, seed=0)]
    assert len(held_out) == len(set(held_out)) == given


def test_a_split_without_problems_is_refused(config: TrainConfig) -> None:
    with pytest.raises(ConfigError, match="no problems in its split 'validation'"):
        examples.held_out_examples(config, "validation", 3, seed=0)
