"""Whatever a user may call a provider becomes one, or a ConfigError that says what was expected."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from openconductor.errors import ConfigError
from openconductor.protocols import CallContext, Provider
from openconductor.providers import PROVIDERS, create, resolve
from openconductor.providers.openai_compatible import OpenAICompatibleProvider
from openconductor.types import Completion, Message, Sampling


class FromFolder(Provider):
    """Stands in for the provider that reads a checkpoint."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    async def complete(
        self, messages: object, sampling: object, *, call: object, on_text: object = None
    ) -> None:
        return None


def test_a_string_names_a_provider_and_a_model_that_may_hold_colons() -> None:
    provider = resolve("ollama:qwen3:8b", timeout_s=7)
    assert isinstance(provider, OpenAICompatibleProvider)
    assert provider.model == "qwen3:8b"
    assert provider.base_url == "http://localhost:11434/v1"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("opnai:gpt-5", "'openai'"),
        ("openai", "'openai:model'"),
        ("openai:", "openai:model"),
        (":m", "no such folder"),
        ("./absent/folder", "no such folder"),
        (Path("absent"), "no such folder"),
        ("", "no such folder"),
        (7, "function"),
        (None, "function"),
        (OpenAICompatibleProvider, "expected an object"),
    ],
    ids=str,
)
def test_what_is_none_of_these_is_a_config_error(wrong: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve(wrong)  # type: ignore[arg-type]


def test_a_checkpoint_folder_is_read_by_its_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PROVIDERS, "tiny", f"{__name__}:FromFolder")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[FromFolder.__module__])
    (tmp_path / "conductor.json").write_text('{"prompt": {}, "max_tokens": 9}')
    for name in (tmp_path, str(tmp_path), f"tiny:{tmp_path}"):
        provider = resolve(name)
        assert isinstance(provider, FromFolder)
        assert provider.folder == str(tmp_path)


def test_a_folder_without_a_checkpoint_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no conductor\.json.* only prompted is transformers:"):
        resolve(tmp_path)


def test_a_missing_extra_says_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conductor.json").write_text('{"prompt": {}, "max_tokens": 9}')
    (tmp_path / "needs_an_extra").mkdir()
    (tmp_path / "needs_an_extra" / "tiny.py").write_text("import a_runtime_that_is_absent\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(PROVIDERS, "tiny", "needs_an_extra.tiny:TinyProvider")
    with pytest.raises(ConfigError, match=r'pip install "openconductor\[gym\]"'):
        resolve(tmp_path)


def test_an_option_that_a_provider_does_not_take_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"expected one of base_url, .*; nearest: 'base_url'"):
        create("ollama", "m", base_ur="http://x/v1")


# ── objects with `complete` that are no Provider ──────────────────────────────────────────────────
class Foreign:
    identity = "foreign model 1"
    remote = True
    closed = False

    async def complete(self, messages, sampling, *, call, on_text=None) -> Completion:
        return Completion(f"answer to {messages[-1].content}")

    async def aclose(self) -> None:
        self.closed = True


async def test_an_object_with_complete_is_adapted_and_its_attributes_count() -> None:
    foreign = Foreign()
    provider = resolve(foreign)
    assert (provider.identity, provider.remote, provider.nests) == ("foreign model 1", True, False)
    said = await provider.complete([Message("user", "x")], Sampling(), call=CallContext())
    assert said.text == "answer to x"
    await provider.aclose()
    assert foreign.closed


def test_an_object_has_one_adapter_so_that_its_workers_share_limits() -> None:
    foreign = Foreign()
    provider = resolve(foreign)
    assert resolve(foreign) is provider
    assert resolve(Foreign()) is not provider
    assert resolve(provider) is provider
