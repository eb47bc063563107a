"""Which Conductor writes the workflows, and how often it is loaded."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from openconductor.errors import ConfigError
from openconductor.evaluation import planner
from openconductor.evaluation.config import make_eval_config
from openconductor.evaluation.planner import Planners, find_planner
from openconductor.evaluation.specs import Spec, read_spec
from openconductor.gym.workers import gym_pool
from openconductor.pool import Worker, WorkerPool
from openconductor.protocols import CallContext, OnText
from openconductor.types import Completion, Message, Sampling


class Closing:
    """A provider that knows whether it was closed."""

    identity = "closing"

    def __init__(self) -> None:
        self.closed = 0

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, call: CallContext, on_text: OnText | None = None
    ) -> Completion:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.closed += 1


def planners(workers: WorkerPool | None = None, **values: object) -> Planners:
    return Planners(make_eval_config(values, where="test"), workers or gym_pool())


def test_a_worker_of_the_pool_can_plan() -> None:
    pool = gym_pool()
    assert find_planner("worker:jack", pool) is pool[pool.ordinal_of("jack")]
    with pytest.raises(ConfigError, match="nearest is 'jack'"):
        find_planner("worker:jac", pool)


def test_a_planner_is_named_as_it_stands_unless_it_needs_a_url() -> None:
    assert find_planner("openai:gpt-5", gym_pool()) == "openai:gpt-5"
    made = find_planner("vllm:conductor", gym_pool(), base_url="http://127.0.0.1:9/v1")
    assert "conductor" in str(getattr(made, "identity", ""))


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (None, "expected --conductor provider:model"),
        ("worker:jack", "from the pool file"),
        ("checkpoints/step-100", "expected 'provider:model'"),
    ],
)
def test_a_url_without_a_provider_is_refused(named: str | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        find_planner(named, gym_pool(), base_url="http://127.0.0.1:9/v1")


def test_the_bundled_conductor_plans_for_the_gym_alone() -> None:
    with pytest.raises(ConfigError, match="knows only the gym"):
        planners(pool="pool.toml").of(read_spec("conductor"))


def test_a_planner_is_loaded_once_for_all_its_ablations(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def find(named: str | None, pool: WorkerPool, **options: object) -> Closing:
        loaded.append(str(named))
        return Closing()

    monkeypatch.setattr(planner, "find_planner", find)
    some = planners()
    first, second, other = (
        some.of(read_spec(text)) for text in ("conductor", "conductor?rounds=2", "planner:openai:gpt-5?subtasks=false")
    )
    assert first is second
    assert other is not first
    assert loaded == ["None", "openai:gpt-5"]
    described = some.described([read_spec("conductor?rounds=2"), read_spec("planner:openai:gpt-5"), Spec("random")])
    assert described == {"conductor": "closing", "openai:gpt-5": "closing"}


async def test_closing_closes_every_planner_and_worker_once(monkeypatch: pytest.MonkeyPatch) -> None:
    provider, prompted = Closing(), Closing()
    pool = WorkerPool([Worker(provider, name="w")])

    def find(named: str | None, pool: WorkerPool, **options: object) -> Closing:
        return prompted

    monkeypatch.setattr(planner, "find_planner", find)
    some = planners(pool)
    some.of(read_spec("planner:openai:gpt-5"))
    await some.aclose()
    assert (provider.closed, prompted.closed) == (1, 1)
