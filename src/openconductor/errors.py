"""The tree of errors, and the fate of each.

    OpenConductorError
    ├─ ConfigError(ValueError)             stop         wrong recipe, flag, pool file, missing key or extra
    ├─ WorkflowError(ValueError)           data         the text is not a workflow: reward 0
    ├─ WorkerError(RuntimeError)           retry, data  a worker (or the Conductor's model) failed
    │  ├─ RateLimited                      retry        429, quota
    │  ├─ WorkerTimeout(TimeoutError)      retry        the total deadline or a read's passed
    │  ├─ Unreachable(ConnectionError)     retry        no connection, or it closed before a response began
    │  ├─ ServerFailed                     retry        5xx, overload
    │  ├─ TruncatedResponse                retry        the response ended before its end was said
    │  │  └─ ConnectionLost(ConnectionError)  retry     it broke off in the middle
    │  ├─ MalformedResponse                retry        success, and no chat completion
    │  │  └─ WrongContentType              retry        success, and not even the right kind of body
    │  ├─ EmptyResponse                    retry        status 200 and nothing in it
    │  ├─ Rejected                         data         another 4xx: the same call fails again
    │  ├─ CircuitOpen                      data         not sent: the worker has failed too often just now
    │  ├─ ContextTooLong                   data         graded: the plan caused it (reward 0.5)
    │  ├─ Refused                          data         graded: the plan caused it (reward 0.5)
    │  └─ AuthFailed                       stop         the key is missing or wrong
    ├─ GradingError(RuntimeError)          data         undecided: masked, shown apart in tables
    │  └─ SandboxError
    ├─ TaskError(RuntimeError)             stop         data absent, or its hash changed
    ├─ BudgetExceeded(RuntimeError)        stop         resumable
    ├─ TrainingStopped(RuntimeError)       stop         too little can be learnt as things are; resumable
    └─ JournalError(RuntimeError)          stop         disk full, I/O error: typed, nothing acknowledged is lost

In: nothing. Out: exceptions named after the boundary that was crossed. *stop* errors are raised out
of ``ask`` and carry ``.episode`` (what had happened until then); *data* errors end the episode,
which holds them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from openconductor.types import Episode, Usage


class OpenConductorError(Exception):
    """Base of every error of this package; ``.episode`` is set where an episode was under way."""

    episode: Episode | None = None


class ConfigError(OpenConductorError, ValueError):
    """A recipe, flag, pool file, checkpoint or environment is wrong; says where, what was got, what was expected."""


class WorkflowReason(StrEnum):
    """Why a text is not a workflow."""

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
    """A worker's call failed; ``.worker`` names it, ``.status`` is the HTTP status if there was one.

    ``.retryable`` says whether the same call may succeed when it is made again. ``.usage`` is what
    the failed call is known to have used; None is not known, unless ``unbilled`` (or a status from
    400 on) says that nothing was done. ``.retry_after`` is in seconds, where the server named it.
    ``.sent`` says whether the request had gone out to a server that has not answered: it may have
    worked on it.
    """

    outcome: ClassVar[str] = "failed"
    """The name of this kind of failure in the journal."""
    retryable: bool = True
    status: int | None = None
    unbilled: bool = False

    def __init_subclass__(cls, **traits: str | int | bool) -> None:
        """Set what a kind of failure is: its ``outcome``, ``retryable``, ``status`` and ``unbilled``."""
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
        return f"worker {self.worker!r}: {self.message}" if self.worker else self.message


class RateLimited(WorkerError, outcome="rate_limited", unbilled=True, status=429):
    """Too many requests or a spent quota; ``.retry_after`` is in seconds where the provider named it."""


class WorkerTimeout(WorkerError, TimeoutError, outcome="timeout"):
    """The call's total deadline, or one read's, passed."""


class Unreachable(WorkerError, ConnectionError, outcome="unreachable", unbilled=True):
    """No connection, or one that was closed before a response began; only where nothing was ``sent`` is it unbilled."""


class ServerFailed(WorkerError, outcome="server_failed", unbilled=True, status=500):
    """The server failed or is overloaded (5xx); ``.retry_after`` is in seconds where it named it."""


class TruncatedResponse(WorkerError, outcome="truncated"):
    """The response ended before its end was said (no finish reason, a cut body)."""


class ConnectionLost(TruncatedResponse, ConnectionError, outcome="connection_lost"):
    """The connection broke off in the middle of a response."""


class MalformedResponse(WorkerError, outcome="malformed"):
    """The provider said success and sent what is no chat completion."""


class WrongContentType(MalformedResponse, outcome="wrong_content_type"):
    """The provider said success and sent a body of another kind (HTML of a proxy)."""


class EmptyResponse(WorkerError, outcome="empty"):
    """The provider said success and sent nothing."""


class Rejected(WorkerError, outcome="rejected", retryable=False, unbilled=True):
    """The request was rejected (4xx); the same one will be again."""


class CircuitOpen(WorkerError, outcome="circuit_open", retryable=False, unbilled=True):
    """The call was not sent, because the worker has failed too often just now; ``.retry_after`` is in seconds."""


class ContextTooLong(WorkerError, outcome="context_too_long", retryable=False):
    """The worker cannot read that much; the plan caused it, so it is graded as a wrong answer."""


class Refused(WorkerError, outcome="refused", retryable=False):
    """The worker declined to answer; the plan caused it, so it is graded as a wrong answer."""


class AuthFailed(WorkerError, outcome="auth_failed", retryable=False, unbilled=True):
    """The key is missing, wrong or not allowed; nothing that follows can succeed, so the run stops."""


class GradingError(OpenConductorError, RuntimeError):
    """A grader could not decide; the reward is masked."""


class SandboxError(GradingError):
    """The sandbox could not be set up or failed by itself; never a verdict on the program."""


class TaskError(OpenConductorError, RuntimeError):
    """A task's data are absent or are not what they were."""


class BudgetExceeded(OpenConductorError, RuntimeError):
    """The budget of a question or of a run is spent; ``.limit`` says which: calls, tokens, dollars, seconds."""

    def __init__(self, message: str, *, limit: str, meter: object = None) -> None:
        super().__init__(message)
        self.limit = limit
        self.meter = meter


class TrainingStopped(OpenConductorError, RuntimeError):
    """A training stopped because too little could be learnt: no valid workflows, or too many masked rewards."""


class JournalError(OpenConductorError, RuntimeError):
    """The journal could not be written or read; nothing acknowledged is lost."""


def caused_by_plan(error: OpenConductorError) -> bool:
    """Whether a failure is the plan's own doing, so that it counts as a wrong answer instead of being masked.

    A budget of seconds is not among them: a slow provider would turn into a reward.
    """
    if isinstance(error, BudgetExceeded):
        return error.limit != "seconds"
    if isinstance(error, EmptyResponse):
        return not error.retryable  # the token limit was spent before any text came
    return isinstance(error, ContextTooLong | Refused)


def stops(error: OpenConductorError) -> bool:
    """Whether an error's fate is *stop*: nothing that follows can succeed either, so it is raised."""
    return not isinstance(error, WorkflowError | WorkerError | GradingError) or isinstance(
        error, AuthFailed
    )
