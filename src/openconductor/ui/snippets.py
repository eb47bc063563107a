"""An episode as a command and as a program that ask the same again."""

from __future__ import annotations

import json
import shlex

from openconductor.providers.wire.chat import plain, request_body
from openconductor.types import Episode, Message, Question, Sampling, Workflow

SERVER = "http://127.0.0.1:8080"
"""The address of ``openconductor serve``, unless another is known."""


def as_curl(question: Question, *, model: str | None, server: str = SERVER, key: bool) -> str:
    """Return the command that asks a server a question.

    Args:
        question: the question.
        model: the model that was asked; None: the Conductor.
        server: the server's address.
        key: True if it wants a key, which is taken from the environment.
    """
    turns = (Message("user", question),) if isinstance(question, str) else question
    body = request_body(model or "conductor", turns, Sampling(), stream=False)
    header = ' -H "authorization: Bearer $KEY"' if key else ""
    document = shlex.quote(json.dumps(body))
    return f"curl {server}/v1/chat/completions{header} -d {document}"


def as_python(episode: Episode) -> str:
    """Return the program that executes the last workflow of an episode again.

    Without a workflow it asks the Conductor.
    """
    lines = [
        "import asyncio",
        "",
        "import openconductor as oc",
        "",
        'pool = oc.WorkerPool.from_toml("pool.toml")',
        f"question = {_as_code(episode.question)}",
    ]
    workflow = _last_workflow(episode)
    if workflow is None:
        lines.append('conductor = oc.Conductor("worker:NAME", pool=pool)')
        lines.append("print(conductor.ask_sync(question).answer)")
        return "\n".join(lines)
    lines.append("workflow = oc.Workflow([")
    for step in workflow:
        lines.append(f"    oc.Step({step.worker!r}, {step.subtask!r}, {step.access!r}),")
    lines.append("])")
    lines.append("print(asyncio.run(oc.execute(workflow, pool, question)).answer)")
    return "\n".join(lines)


def _as_code(question: Question) -> str:
    """Return the expression of a question, with its images and calls of tools."""
    if isinstance(question, str):
        return repr(question)
    lines = ["["]
    for turn in question:
        values = f"{turn.role!r}, {turn.content!r}"
        if turn.parts:
            values += f", {tuple(map(plain, turn.parts))!r}"
        lines.append(f"    oc.Message({values}),")
    return "\n".join([*lines, "]"])


def _last_workflow(episode: Episode) -> Workflow | None:
    for played in reversed(episode.rounds):
        if played.workflow is not None and played.workflow.steps:
            return played.workflow
    return None
