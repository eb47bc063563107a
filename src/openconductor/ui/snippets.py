"""An episode as a command and as a program that ask the same again."""

from __future__ import annotations

import json
import shlex

from openconductor.types import Episode, Message, Question, Workflow

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
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    body = {"model": model or "conductor", "messages": messages}
    header = ' -H "authorization: Bearer $KEY"' if key else ""
    document = shlex.quote(json.dumps(body))
    return f"curl {server}/v1/chat/completions{header} -d {document}"


def as_python(episode: Episode) -> str:
    """Return the program that executes the last workflow of an episode again.

    Without a workflow it asks the Conductor.
    """
    question: object = episode.question
    if not isinstance(episode.question, str):
        turns = [f"    oc.Message({turn.role!r}, {turn.content!r}),\n" for turn in episode.question]
        question = f"[\n{''.join(turns)}]"
    else:
        question = repr(question)
    lines = [
        "import asyncio",
        "",
        "import openconductor as oc",
        "",
        'pool = oc.WorkerPool.from_toml("pool.toml")',
        f"question = {question}",
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


def _last_workflow(episode: Episode) -> Workflow | None:
    for played in reversed(episode.rounds):
        if played.workflow is not None and played.workflow.steps:
            return played.workflow
    return None
