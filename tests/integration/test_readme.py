"""The commands of README that need models, over loopback workers."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chat_server import DONE, chunk, completion, streams
from test_cli import serving

from integration.test_serving_process import serve
from openconductor.prompt import render_workflow
from openconductor.tasks.data import dataset
from openconductor.tasks.data.items import DataFile, Source
from openconductor.types import Step, Workflow

README = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
EVALUATE = re.findall(
    r"^## Evaluate\n.*?^```console\n(.*?)^```$", README, re.MULTILINE | re.DOTALL
)[0]
CURLS = re.findall(r"^```\n(curl .*?)^```$", README, re.MULTILINE | re.DOTALL)
POOL = re.findall(r"^```toml\n(\[\[worker\]\].*?)^```$", README, re.MULTILINE | re.DOTALL)[0]
PLAN = render_workflow(Workflow((Step(1, "Count them."),)))


async def answer(request: web.Request) -> web.StreamResponse:
    """Answer as README's two models: the first plans if it is asked for a plan."""
    body = await request.json()
    is_planning = any("access_list" in message["content"] for message in body["messages"])
    text = PLAN if is_planning else "168"
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
                timeout=200,
                check=True,
            )
    lines = [line.removeprefix("data: ") for line in sent.stdout.splitlines() if line]
    events = [json.loads(line) for line in lines if line.startswith("{")]
    texts = [
        choice["delta"].get("content") for event in events for choice in event.get("choices", ())
    ]
    assert "".join(text or "" for text in texts) == "168", sent.stdout
    assert lines[-1] == "[DONE]"


def fetch_local(data: dataset.Dataset, split: str, **_: Any) -> tuple[dict[Path, DataFile], Source]:
    """Write six questions in place of a data set of the hub."""
    path = Path(f"{data.name}-{split}.jsonl")
    rows: list[str] = []
    for number in range(6):
        problem = f"{data.name}/{split}: What is {100 + number} + {68 - number}?"
        rows.append(json.dumps({"id": f"q{number}", "problem": problem, "answer": "168"}))
    path.write_text("\n".join(rows), "utf-8")
    return {path: DataFile(path.name)}, Source("in place of the hub", split)


def test_the_commands_to_evaluate_run_over_loopback_workers(
    run, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the last, the proof in the gym, of which only everything is checked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr(dataset, "fetch", fetch_local)
    with serving(*[answer] * 1000) as workers:
        pool = re.sub(r'base_url = "[^"]+"', f'base_url = "{workers.url}"', POOL)
        Path("pool.toml").write_text(pool, "utf-8")
        *commands, proof = EVALUATE.replace("\\\n", " ").splitlines()
        for command in commands:
            ran = run(*shlex.split(command.removeprefix("$ openconductor ")))
            assert ran.code == 0, ran.err
    assert ran.out.startswith("Deploy local, the best worker alone: right on 100 % of the quest")
    _, _, _, recipe, *_ = shlex.split(proof)
    assert run("eval", "--config", root / recipe, "--dry-run", "--offline").code == 0
