"""The public names, and where each is defined; ``__init__.py`` imports one when it is first asked for."""

from .baselines.pools import (
    Baseline as Baseline,
)
from .conductor import (
    Conductor as Conductor,
)
from .episode import (
    execute as execute,
)
from .errors import (
    AuthFailed as AuthFailed,
)
from .errors import (
    BudgetExceeded as BudgetExceeded,
)
from .errors import (
    CircuitOpen as CircuitOpen,
)
from .errors import (
    ConfigError as ConfigError,
)
from .errors import (
    ConnectionLost as ConnectionLost,
)
from .errors import (
    ContextTooLong as ContextTooLong,
)
from .errors import (
    EmptyResponse as EmptyResponse,
)
from .errors import (
    GradingError as GradingError,
)
from .errors import (
    JournalError as JournalError,
)
from .errors import (
    MalformedResponse as MalformedResponse,
)
from .errors import (
    OpenConductorError as OpenConductorError,
)
from .errors import (
    RateLimited as RateLimited,
)
from .errors import (
    Refused as Refused,
)
from .errors import (
    Rejected as Rejected,
)
from .errors import (
    SandboxError as SandboxError,
)
from .errors import (
    ServerFailed as ServerFailed,
)
from .errors import (
    TaskError as TaskError,
)
from .errors import (
    TrainingStopped as TrainingStopped,
)
from .errors import (
    TruncatedResponse as TruncatedResponse,
)
from .errors import (
    Unreachable as Unreachable,
)
from .errors import (
    WorkerError as WorkerError,
)
from .errors import (
    WorkerTimeout as WorkerTimeout,
)
from .errors import (
    WorkflowError as WorkflowError,
)
from .errors import (
    WorkflowReason as WorkflowReason,
)
from .errors import (
    WrongContentType as WrongContentType,
)
from .evaluation import (
    evaluate as evaluate,
)
from .events import (
    Answered as Answered,
)
from .events import (
    Asked as Asked,
)
from .events import (
    CallEnded as CallEnded,
)
from .events import (
    Event as Event,
)
from .events import (
    Planned as Planned,
)
from .events import (
    RoundEnded as RoundEnded,
)
from .events import (
    StepEnded as StepEnded,
)
from .events import (
    StepStarted as StepStarted,
)
from .events import (
    StepText as StepText,
)
from .journal import (
    Journal as Journal,
)
from .parser import (
    parse_workflow as parse_workflow,
)
from .parser import (
    validate_workflow as validate_workflow,
)
from .pool import (
    WorkerPool as WorkerPool,
)
from .prompt import (
    PromptOptions as PromptOptions,
)
from .prompt import (
    render_prompt as render_prompt,
)
from .prompt import (
    render_workflow as render_workflow,
)
from .protocols import (
    CallContext as CallContext,
)
from .protocols import (
    Grader as Grader,
)
from .protocols import (
    Orchestrator as Orchestrator,
)
from .protocols import (
    Provider as Provider,
)
from .protocols import (
    Task as Task,
)
from .reward import (
    RewardFunction as RewardFunction,
)
from .reward import (
    Scored as Scored,
)
from .reward import (
    episode_reward as episode_reward,
)
from .reward import (
    group_advantages as group_advantages,
)
from .sandboxes import (
    RunResult as RunResult,
)
from .sandboxes import (
    run_untrusted as run_untrusted,
)
from .tasks.dataset import (
    Dataset as Dataset,
)
from .tasks.dataset import (
    Shape as Shape,
)
from .tasks.items import (
    Benchmark as Benchmark,
)
from .tasks.items import (
    Item as Item,
)
from .tasks.rows import (
    Row as Row,
)
from .training import (
    train as train,
)
from .types import (
    Budget as Budget,
)
from .types import (
    Call as Call,
)
from .types import (
    Completion as Completion,
)
from .types import (
    Episode as Episode,
)
from .types import (
    Grade as Grade,
)
from .types import (
    Message as Message,
)
from .types import (
    Price as Price,
)
from .types import (
    Problem as Problem,
)
from .types import (
    Question as Question,
)
from .types import (
    Round as Round,
)
from .types import (
    Sampling as Sampling,
)
from .types import (
    Step as Step,
)
from .types import (
    StepResult as StepResult,
)
from .types import (
    Transcript as Transcript,
)
from .types import (
    Usage as Usage,
)
from .types import (
    Workflow as Workflow,
)
from .worker import (
    Worker as Worker,
)

__version__: str
