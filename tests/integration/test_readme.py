"""The commands of README that need models, over loopback workers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from aiohttp import web
from chat_server import DONE, chunk, completion, streams
from test_cli import serving

from integration.test_serving_process import serve
from openconductor.prompt import render_workflow
from openconductor.types import Step, Workflow

README = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
CURLS = re.findall(r"^```\n(curl .*?)^```$", README, re.MULTILINE | re.DOTALL)
POOL = re.findall(r"^```toml\n(\[\[worker\]\].*?)^```$", README, re.MULTILINE | re.DOTALL)[0]
PLAN = render_workflow(Workflow((Step(1, "Count them."),)))


async def answer(request: web.Request) -> web.StreamResponse:
    """Answer as README's two models: the first plans, the second answers."""
    body = await request.json()
    text = PLAN if body["model"] == "gpt-5" else "168"
    if body.get("stream"):
        return await streams([chunk(text, finish="stop"), DONE])(request)
    return web.json_response(completion(text))


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("command", CURLS, ids=range(len(CURLS)))
def test_a_request_of_the_readme_is_answered_by_its_pool(tmp_path, monkeypatch, command) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    pool = tmp_path / "pool.toml"
    with serving(*[answer] * 4) as workers:
        pool.write_text(re.sub(r'base_url = "[^"]+"', f'base_url = "{workers.url}"', POOL), "utf-8")
        with serve(tmp_path, pool=str(pool), conductor="worker:strong") as server:
            sent = subprocess.run(
                ["bash", "-c", command.replace("http://127.0.0.1:8080", server.url)],
                capture_output=True,
                text=True,
                timeout=30,
                check=True,
            )
    lines = [line.removeprefix("data: ") for line in sent.stdout.splitlines() if line]
    events = [json.loads(line) for line in lines if line.startswith("{")]
    texts = [
        choice["delta"].get("content") for event in events for choice in event.get("choices", ())
    ]
    assert "".join(text or "" for text in texts) == "168", sent.stdout
    assert lines[-1] == "[DONE]"
