"""The native providers without their wires: settings, keys, and turns in pydantic-ai's form."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="needs the extra 'providers': pip install 'openconductor[providers]'")

from pydantic_ai.messages import BinaryContent, DocumentUrl, ImageUrl, ModelRequest, ModelResponse, UploadedFile

from openconductor.errors import AuthFailed, ConfigError
from openconductor.pool import Worker
from openconductor.protocols import CallContext
from openconductor.providers import create, resolve, takes
from openconductor.providers.native_turns import conversation
from openconductor.providers.pydantic_ai import PydanticAIProvider
from openconductor.types import Message

PNG = "data:image/png;base64,AAAA"
INLINE = BinaryContent.from_data_uri(PNG)


def test_a_string_names_the_vendor_and_the_model() -> None:
    claude, gemini = resolve("anthropic:claude-sonnet-5", timeout_s=7), resolve("google:gemini-2.5-pro")
    assert isinstance(claude, PydanticAIProvider)
    assert isinstance(gemini, PydanticAIProvider)
    assert claude.identity == "anthropic claude-sonnet-5 https://api.anthropic.com"
    assert gemini.identity == "google gemini-2.5-pro https://generativelanguage.googleapis.com"
    assert claude.remote
    assert takes("anthropic", "read_timeout_s")


def test_a_key_is_looked_for_only_at_the_vendors_own_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    made: Any = create("google", "m")
    assert made.api_key_env == "GEMINI_API_KEY"
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    assert made.api_key_env == "GOOGLE_API_KEY"
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    assert made.api_key_env == "GEMINI_API_KEY"
    elsewhere: Any = create("google", "m", base_url="http://127.0.0.1:1")
    assert elsewhere.api_key_env is None
    named: Any = create("anthropic", "m", api_key_env="MINE")
    assert named.api_key_env == "MINE"


async def test_a_key_that_is_not_set_is_named_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    worker = Worker("anthropic:claude", name="c")
    with pytest.raises(AuthFailed, match="ANTHROPIC_API_KEY is not set"):
        await worker.complete((Message("user", "x"),), call=CallContext())


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        (" ", {}, "blank name"),
        ("m", {"base_url": "ftp://x"}, "base_url"),
        ("m", {"base_url": "http://user:secret@x"}, "not shown"),
        ("m", {"api_key_env": "sk-ant-secret"}, "not shown"),
        ("m", {"timeout_s": 0}, "timeout_s"),
        ("m", {"api_key": "k"}, "expected options among"),
    ],
)
def test_a_setting_that_is_wrong_is_a_config_error(model: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        create("anthropic", model, **options)
    assert "secret" not in str(caught.value)


def test_turns_keep_their_order_and_their_roles() -> None:
    turns = conversation(
        [Message("system", "s"), Message("user", "u"), Message("assistant", "a"), Message("user", "v")], "anthropic"
    )
    assert [type(turn) for turn in turns] == [ModelRequest, ModelRequest, ModelResponse, ModelRequest]
    assert [turn.parts[0].content for turn in turns] == ["s", "u", "a", "v"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "text", "text": "t"}, "t"),
        ({"type": "image_url", "image_url": {"url": PNG}}, INLINE),
        ({"type": "image_url", "image_url": "https://x/a.png"}, ImageUrl("https://x/a.png")),
        ({"type": "file", "file": {"file_data": PNG}}, INLINE),
        ({"type": "image", "source": {"type": "url", "url": "https://x/a.png"}}, ImageUrl("https://x/a.png")),
        ({"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}}, DocumentUrl("https://x/a.pdf")),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
            INLINE,
        ),
        (
            {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
            INLINE,
        ),
        ({"fileData": {"fileUri": "https://x/a.pdf"}}, DocumentUrl("https://x/a.pdf")),
    ],
    ids=str,
)
def test_a_part_may_have_the_shape_of_any_vendor(part: dict[str, Any], expected: object) -> None:
    (turn,) = conversation([Message("user", "", (part,))], "anthropic")
    (media,) = turn.parts[0].content  # type: ignore[union-attr]
    if isinstance(media, BinaryContent):
        media = BinaryContent.narrow_type(media)
    assert media == expected


def test_google_fetches_what_a_url_names_itself() -> None:
    part = {"type": "image_url", "image_url": {"url": "https://x/a.png"}}
    (turn,) = conversation([Message("user", "", (part,))], "google")
    (media,) = turn.parts[0].content  # type: ignore[union-attr]
    assert isinstance(media, UploadedFile)
    assert (media.file_id, media.media_type) == ("https://x/a.png", "image/png")


@pytest.mark.parametrize(
    "turn",
    [
        Message("user", "x", ({"type": "hologram"},)),
        Message("user", "x", ({"inlineData": {"mimeType": "image/png", "data": "?"}},)),
        Message("tool", "x"),
    ],
    ids=str,
)
def test_what_has_no_form_there_is_an_error(turn: Message) -> None:
    with pytest.raises((ValueError, LookupError)):
        conversation([turn], "anthropic")
