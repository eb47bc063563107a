"""The public names, and where each is defined. ``__init__.py`` imports one at its first use."""

from .baselines.pools import (
    Baseline as Baseline,
)
from .calls.worker import (
    Worker as Worker,
)
from .conductor import (
    Conductor as Conductor,
    prompted as prompted,
)
from .episode import (
    execute as execute,
)
from .errors import (
    AuthFailed as AuthFailed,
    BudgetExceeded as BudgetExceeded,
    CircuitOpen as CircuitOpen,
    ConfigError as ConfigError,
    ConnectionLost as ConnectionLost,
    ContextTooLong as ContextTooLong,
    EmptyResponse as EmptyResponse,
    GradingError as GradingError,
    JournalError as JournalError,
    MalformedResponse as MalformedResponse,
    OpenConductorError as OpenConductorError,
    RateLimited as RateLimited,
    Refused as Refused,
    Rejected as Rejected,
    SandboxError as SandboxError,
    ServerFailed as ServerFailed,
    TaskError as TaskError,
    TrainingStopped as TrainingStopped,
    TruncatedResponse as TruncatedResponse,
    Unreachable as Unreachable,
    WorkerError as WorkerError,
    WorkerTimeout as WorkerTimeout,
    WorkflowError as WorkflowError,
    WorkflowReason as WorkflowReason,
    WrongContentType as WrongContentType,
)
from .evaluation import (
    evaluate as evaluate,
)
from .events import (
    Answered as Answered,
    Asked as Asked,
    CallEnded as CallEnded,
    Chosen as Chosen,
    Event as Event,
    Planned as Planned,
    RoundEnded as RoundEnded,
    StepEnded as StepEnded,
    StepStarted as StepStarted,
    StepText as StepText,
)
from .parser import (
    parse_workflow as parse_workflow,
    validate_workflow as validate_workflow,
)
from .pool import (
    WorkerPool as WorkerPool,
)
from .prompt import (
    PromptOptions as PromptOptions,
    render_prompt as render_prompt,
    render_workflow as render_workflow,
)
from .protocols import (
    CallContext as CallContext,
    Grader as Grader,
    Orchestrator as Orchestrator,
    Provider as Provider,
    Task as Task,
)
from .reward import (
    RewardFunction as RewardFunction,
    Scored as Scored,
    episode_reward as episode_reward,
    group_advantages as group_advantages,
)
from .sandboxes import (
    RunResult as RunResult,
    run_untrusted as run_untrusted,
)
from .store import (
    Journal as Journal,
)
from .store.episode_json import (
    episode_json as episode_json,
)
from .tasks.data.dataset import (
    Dataset as Dataset,
    Shape as Shape,
)
from .tasks.data.items import (
    Benchmark as Benchmark,
    Item as Item,
)
from .tasks.data.rows import (
    Row as Row,
)
from .training import (
    train as train,
)
from .types import (
    Budget as Budget,
    Call as Call,
    Completion as Completion,
    Episode as Episode,
    Grade as Grade,
    Message as Message,
    Price as Price,
    Problem as Problem,
    Question as Question,
    Round as Round,
    Sampling as Sampling,
    Step as Step,
    StepResult as StepResult,
    Transcript as Transcript,
    Usage as Usage,
    Workflow as Workflow,
)

__version__: str
