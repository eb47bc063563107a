"""OpenConductor: a small language model writes workflows over a pool of workers, and learns to.

In: the name of something public. Out: that thing, imported when it is first asked for (PEP 562), so that
``import openconductor`` costs next to nothing and brings in nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openconductor.conductor import Conductor
    from openconductor.errors import (
        AuthFailed,
        BudgetExceeded,
        CircuitOpen,
        ConfigError,
        ConnectionLost,
        ContextTooLong,
        EmptyResponse,
        GradingError,
        JournalError,
        MalformedResponse,
        OpenConductorError,
        RateLimited,
        Refused,
        Rejected,
        SandboxError,
        ServerFailed,
        TaskError,
        TruncatedResponse,
        Unreachable,
        WorkerError,
        WorkerTimeout,
        WorkflowError,
        WorkflowReason,
        WrongContentType,
    )
    from openconductor.evaluation import evaluate
    from openconductor.events import (
        Answered,
        Asked,
        CallEnded,
        Event,
        Planned,
        RoundEnded,
        StepEnded,
        StepStarted,
        StepText,
    )
    from openconductor.executor import execute
    from openconductor.journal import Journal
    from openconductor.parser import parse_workflow, validate_workflow
    from openconductor.pool import WorkerPool
    from openconductor.prompt import PromptOptions, render_prompt, render_workflow
    from openconductor.protocols import CallContext, Grader, Orchestrator, Provider, Task
    from openconductor.reward import RewardFunction, Scored, episode_reward, group_advantages
    from openconductor.sandboxes import RunResult, run_untrusted
    from openconductor.training import train
    from openconductor.types import (
        Budget,
        Call,
        Completion,
        Episode,
        Grade,
        Message,
        Price,
        Problem,
        Question,
        Round,
        Sampling,
        Step,
        StepResult,
        Transcript,
        Usage,
        Workflow,
    )
    from openconductor.worker import Worker

    __version__: str

__all__ = [
    "Answered",
    "Asked",
    "AuthFailed",
    "Budget",
    "BudgetExceeded",
    "Call",
    "CallContext",
    "CallEnded",
    "CircuitOpen",
    "Completion",
    "Conductor",
    "ConfigError",
    "ConnectionLost",
    "ContextTooLong",
    "EmptyResponse",
    "Episode",
    "Event",
    "Grade",
    "Grader",
    "GradingError",
    "Journal",
    "JournalError",
    "MalformedResponse",
    "Message",
    "OpenConductorError",
    "Orchestrator",
    "Planned",
    "Price",
    "Problem",
    "PromptOptions",
    "Provider",
    "Question",
    "RateLimited",
    "Refused",
    "Rejected",
    "RewardFunction",
    "Round",
    "RoundEnded",
    "RunResult",
    "Sampling",
    "SandboxError",
    "Scored",
    "ServerFailed",
    "Step",
    "StepEnded",
    "StepResult",
    "StepStarted",
    "StepText",
    "Task",
    "TaskError",
    "Transcript",
    "TruncatedResponse",
    "Unreachable",
    "Usage",
    "Worker",
    "WorkerError",
    "WorkerPool",
    "WorkerTimeout",
    "Workflow",
    "WorkflowError",
    "WorkflowReason",
    "WrongContentType",
    "__version__",
    "episode_reward",
    "evaluate",
    "execute",
    "group_advantages",
    "parse_workflow",
    "render_prompt",
    "render_workflow",
    "run_untrusted",
    "train",
    "validate_workflow",
]

_HOMES = {
    "conductor": ("Conductor",),
    "errors": (
        "AuthFailed",
        "BudgetExceeded",
        "CircuitOpen",
        "ConfigError",
        "ConnectionLost",
        "ContextTooLong",
        "EmptyResponse",
        "GradingError",
        "JournalError",
        "MalformedResponse",
        "OpenConductorError",
        "RateLimited",
        "Refused",
        "Rejected",
        "SandboxError",
        "ServerFailed",
        "TaskError",
        "TruncatedResponse",
        "Unreachable",
        "WorkerError",
        "WorkerTimeout",
        "WorkflowError",
        "WorkflowReason",
        "WrongContentType",
    ),
    "evaluation": ("evaluate",),
    "events": (
        "Answered",
        "Asked",
        "CallEnded",
        "Event",
        "Planned",
        "RoundEnded",
        "StepEnded",
        "StepStarted",
        "StepText",
    ),
    "executor": ("execute",),
    "journal": ("Journal",),
    "parser": ("parse_workflow", "validate_workflow"),
    "pool": ("WorkerPool",),
    "prompt": ("PromptOptions", "render_prompt", "render_workflow"),
    "protocols": ("CallContext", "Grader", "Orchestrator", "Provider", "Task"),
    "reward": ("RewardFunction", "Scored", "episode_reward", "group_advantages"),
    "sandboxes": ("RunResult", "run_untrusted"),
    "training": ("train",),
    "types": (
        "Budget",
        "Call",
        "Completion",
        "Episode",
        "Grade",
        "Message",
        "Price",
        "Problem",
        "Question",
        "Round",
        "Sampling",
        "Step",
        "StepResult",
        "Transcript",
        "Usage",
        "Workflow",
    ),
    "worker": ("Worker",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            value: object = version("openconductor")
        except PackageNotFoundError:  # a source tree that was never installed
            value = "0+unknown"
    elif name in _HOME_OF:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # the next access is a plain one
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
