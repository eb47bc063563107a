"""The names of all attributes that spans carry, and of the servers and models in them.

``gen_ai.*``, ``server.*`` and ``error.type`` are OpenTelemetry's conventions. Those of GenAI are in
development: a name that they change is changed here alone. Of ``gen_ai.usage.*`` only their names
are used, because backends add up all that they find there. ``openconductor.*`` is ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

OPERATION = "gen_ai.operation.name"
WORKFLOW_NAME = "gen_ai.workflow.name"
AGENT_NAME = "gen_ai.agent.name"
TOOL_NAME = "gen_ai.tool.name"
PROVIDER_NAME = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"

INPUT_MESSAGES = "gen_ai.input.messages"  # these two hold texts, which are sent on request only
OUTPUT_MESSAGES = "gen_ai.output.messages"

EPISODE = "openconductor.episode"
KEY = "openconductor.key"
ROUND = "openconductor.round"
STEP = "openconductor.step"
ACCESS = "openconductor.access"
VALID = "openconductor.valid"
ATTEMPT = "openconductor.attempt"
REPLAYED = "openconductor.replayed"
COST = "openconductor.cost"

INVOKE_WORKFLOW = "invoke_workflow"
INVOKE_AGENT = "invoke_agent"
PLAN = "plan"
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"

Names = dict[str, str | int]

# The conventions' names of vendors whose servers or providers are called otherwise here.
_VENDORS = {
    "api.openai.com": "openai",
    "openrouter.ai": "openrouter",
    "api.mistral.ai": "mistral_ai",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "google": "gcp.gemini",
}
_SERVER = re.compile(r"https?://([^\s/:]+)(?::(\d+))?")


@lru_cache(maxsize=4096)
def name_worker(worker: str, identity: str, *, nested: bool) -> Names:
    """Return the attributes that all calls of a worker have in common.

    Args:
        worker: its name.
        identity: its provider's: kind, model or tool, and address. "": unknown.
        nested: True if it is an orchestrator.
    """
    if nested:
        return {OPERATION: INVOKE_WORKFLOW, WORKFLOW_NAME: worker}
    provider, _, rest = identity.partition(" ")
    model = rest.partition(" ")[0] or worker
    if provider == "mcp":
        return {OPERATION: EXECUTE_TOOL, TOOL_NAME: model}
    if model.startswith("/"):  # the folder of a model: the path stays on this machine
        model = model.rpartition("/")[2]
    names: Names = {OPERATION: CHAT, REQUEST_MODEL: model}
    server = _SERVER.search(rest)
    if server is not None:
        host, port = server.groups()
        names[SERVER_ADDRESS] = host
        if port:
            names[SERVER_PORT] = int(port)
        provider = _VENDORS.get(host, provider)
    names[PROVIDER_NAME] = _VENDORS.get(provider, provider or "function")
    return names


def name_span(attributes: Mapping[str, object]) -> str:
    """Return the name of a span: its operation, and what is invoked."""
    operation = attributes[OPERATION]
    for name in (WORKFLOW_NAME, AGENT_NAME, TOOL_NAME, REQUEST_MODEL):
        if name in attributes:
            return f"{operation} {attributes[name]}"
    return f"{operation}"
