"""The tree of errors, and the fate of each.

    OpenConductorError
    ├─ ConfigError(ValueError)             stop         wrong recipe, flag or pool file
    ├─ WorkflowError(ValueError)           data         the text is not a workflow: reward 0
    ├─ WorkerError(RuntimeError)           retry, data  a worker (or the Conductor's model) failed
    │  ├─ RateLimited                      retry        429, quota
    │  ├─ WorkerTimeout(TimeoutError)      retry        the total deadline or a read's passed
    │  ├─ Unreachable(ConnectionError)     retry        no connection, or closed before a response
    │  ├─ ServerFailed                     retry        5xx, overload
    │  ├─ TruncatedResponse                retry        the response ended without a finish reason
    │  │  └─ ConnectionLost(ConnectionError)  retry     it broke off in the middle
    │  ├─ MalformedResponse                retry        success, but not a chat completion
    │  │  └─ WrongContentType              retry        success, but another kind of body
    │  ├─ EmptyResponse                    retry        status 200 and nothing in it
    │  ├─ Rejected                         data         another 4xx: the same call fails again
    │  ├─ CircuitOpen                      data         not sent: the worker failed too often
    │  ├─ ContextTooLong                   data         graded: the plan caused it (reward 0.5)
    │  ├─ Refused                          data         graded: the plan caused it (reward 0.5)
    │  └─ AuthFailed                       stop         the key is missing or wrong
    ├─ GradingError(RuntimeError)          data         undecided: masked, shown apart in tables
    │  └─ SandboxError
    ├─ TaskError(RuntimeError)             stop         data absent, or its hash changed
    ├─ BudgetExceeded(RuntimeError)        stop         resumable
    ├─ TrainingStopped(RuntimeError)       stop         too little can be learnt; resumable
    └─ JournalError(RuntimeError)          stop         disk full, I/O error

*stop* errors are raised out of ``ask`` and carry ``.episode`` (what had happened until then);
*data* errors end the episode, which holds them.
"""

from __future__ import annotations

import textwrap
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from openconductor.types import Episode, Usage


class OpenConductorError(Exception):
    """Base of every error of this package; ``.episode`` is set if an episode was under way."""

    episode: Episode | None = None


class ConfigError(OpenConductorError, ValueError):
    """A recipe, flag, pool file, checkpoint or environment is wrong."""


class WorkflowReason(StrEnum):
    """The rules that a text may break as a workflow."""

    MISSING_LIST = "missing_list"
    NOT_A_LITERAL = "not_a_literal"
    UNEQUAL_LENGTHS = "unequal_lengths"
    TOO_MANY_STEPS = "too_many_steps"
    NO_STEPS = "no_steps"
    UNKNOWN_WORKER = "unknown_worker"
    BAD_SUBTASK = "bad_subtask"
    BAD_ACCESS = "bad_access"
    FORWARD_ACCESS = "forward_access"
    TOO_LONG = "too_long"
    TRUNCATED = "truncated"


class WorkflowError(OpenConductorError, ValueError):
    """The Conductor's text is not a workflow; ``.reason`` says which rule it broke."""

    def __init__(self, reason: WorkflowReason, message: str) -> None:
        super().__init__(reason, message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.message}"


class WorkerError(OpenConductorError, RuntimeError):
    """A worker's call failed.

    Attributes:
        message: what failed.
        worker: the worker's name; "": unknown.
        status: the HTTP status; None: there was none.
        retryable: True if the same call may succeed when it is made again.
        usage: the tokens and dollars of the failed call; None: unknown, unless ``unbilled`` or a
            status from 400 on says that nothing was done.
        retry_after: the wait that the server named, in seconds.
        sent: True if the request went to a server that has not answered, and may have worked.
    """

    outcome: ClassVar[str] = "failed"
    """The name of this kind of failure in the journal."""
    retryable: bool = True
    status: int | None = None
    unbilled: bool = False

    def __init_subclass__(cls, **traits: str | int | bool) -> None:
        """Set ``outcome``, ``retryable``, ``status`` and ``unbilled`` of a kind of error."""
        super().__init_subclass__()
        for name, value in traits.items():
            setattr(cls, name, value)

    def __init__(
        self,
        message: str,
        *,
        worker: str = "",
        status: int | None = None,
        retryable: bool | None = None,
        usage: Usage | None = None,
        retry_after: float | None = None,
        sent: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.worker = worker
        self.retry_after = retry_after
        self.usage = usage
        self.sent = sent
        self.status = type(self).status if status is None else status
        self.retryable = type(self).retryable if retryable is None else retryable
        self.unbilled = type(self).unbilled and not sent

    def __str__(self) -> str:
        if not self.worker:
            return self.message
        return f"worker {self.worker!r}: {self.message}"


class RateLimited(WorkerError, outcome="rate_limited", unbilled=True, status=429):
    """Too many requests, or a spent quota."""


class WorkerTimeout(WorkerError, TimeoutError, outcome="timeout"):
    """The call's total deadline, or one read's, passed."""


class Unreachable(WorkerError, ConnectionError, outcome="unreachable", unbilled=True):
    """No connection, or one closed before a response; unbilled unless it was ``sent``."""


class ServerFailed(WorkerError, outcome="server_failed", unbilled=True, status=500):
    """The server failed or is overloaded (5xx)."""


class TruncatedResponse(WorkerError, outcome="truncated"):
    """The response ended early (no finish reason, a cut body)."""


class ConnectionLost(TruncatedResponse, ConnectionError, outcome="connection_lost"):
    """The connection broke off in the middle of a response."""


class MalformedResponse(WorkerError, outcome="malformed"):
    """The status is success, and the body is not a chat completion."""


class WrongContentType(MalformedResponse, outcome="wrong_content_type"):
    """The status is success, and the body is of another kind (HTML of a proxy)."""


class EmptyResponse(WorkerError, outcome="empty"):
    """The status is success, and the answer is empty."""


class Rejected(WorkerError, outcome="rejected", retryable=False, unbilled=True):
    """The server rejected the request (4xx), and would reject it again."""


class CircuitOpen(WorkerError, outcome="circuit_open", retryable=False, unbilled=True):
    """The call was not sent, because the worker has failed too often just now."""


class ContextTooLong(WorkerError, outcome="context_too_long", retryable=False):
    """The worker cannot read that much; the plan caused it, so it is graded as a wrong answer."""


class Refused(WorkerError, outcome="refused", retryable=False):
    """The worker declined to answer; the plan caused it, so it is graded as a wrong answer."""


class AuthFailed(WorkerError, outcome="auth_failed", retryable=False, unbilled=True):
    """The key is missing, wrong or not allowed: no later call of this worker can succeed.

    The run stops, or with ``fallback`` another worker is asked.
    """


class GradingError(OpenConductorError, RuntimeError):
    """A grader could not decide; the reward is masked."""


class SandboxError(GradingError):
    """The sandbox could not be set up, or failed by itself; never a verdict on the program."""


class TaskError(OpenConductorError, RuntimeError):
    """A task's data are absent or have changed."""


class BudgetExceeded(OpenConductorError, RuntimeError):
    """A budget is spent; ``.limit`` is calls, tokens, dollars or seconds, ``.meter`` its owner."""

    def __init__(self, message: str, *, limit: str, meter: object = None) -> None:
        super().__init__(message)
        self.limit = limit
        self.meter = meter


class TrainingStopped(OpenConductorError, RuntimeError):
    """A training stopped: it had no valid workflows, or too many masked rewards."""


class JournalError(OpenConductorError, RuntimeError):
    """The journal could not be written or read; nothing acknowledged is lost."""


def caused_by_plan(error: OpenConductorError) -> bool:
    """Return True if the plan caused a failure, so that it counts as a wrong answer.

    The end of a budget of seconds is masked, because a slow provider must not change a reward.
    """
    if isinstance(error, BudgetExceeded):
        return error.limit != "seconds"
    if isinstance(error, EmptyResponse):
        return not error.retryable  # the token limit was spent before any text came
    return isinstance(error, ContextTooLong | Refused)


def stops(error: OpenConductorError) -> bool:
    """Return True if an error's fate is *stop*: it is raised, because no later call can succeed."""
    if isinstance(error, AuthFailed):
        return True
    return not isinstance(error, WorkflowError | WorkerError | GradingError)


def one_line(error: BaseException) -> str:
    """Return the class and the message of an error of somebody else's code, in one line.

    >>> one_line(OSError("no file;  see above"))
    'OSError: no file; see above'
    """
    return textwrap.shorten(f"{type(error).__name__}: {error}", 300, placeholder="…")
