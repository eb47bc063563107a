"""Chat templates, prepared."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers", reason="needs the extra 'local'")

from tests.learning.bases import CHAT, THINKING, WITHOUT_SYSTEM

from openconductor.errors import ConfigError
from openconductor.providers.chat_template import NO_OPTIONS, TemplateOptions, prepare_template
from openconductor.training.models import build_tokenizer

pytestmark = pytest.mark.train

IGNORED = (
    "{% for message in messages if message['role'] != 'system' %}{{ message['content'] }}"
    "{% endfor %}"
)
SYSTEM = {"role": "system", "content": "Plan."}
CHATS = [
    [{"role": "user", "content": "Hello?"}],
    [SYSTEM, {"role": "user", "content": "Hello?"}],
    [SYSTEM, *({"role": role, "content": "Go on."} for role in ("user", "assistant", "user"))],
]


def written(
    template: str, chat: list[dict[str, str]], options: TemplateOptions = NO_OPTIONS
) -> str:
    tokenizer = build_tokenizer([])
    tokenizer.chat_template = template
    prepare_template(tokenizer, "a model", options)
    return tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)


@pytest.mark.parametrize("chat", CHATS, ids=["no system", "system", "longer"])
@pytest.mark.parametrize("template", [WITHOUT_SYSTEM, IGNORED], ids=["refused", "left out"])
def test_a_system_turn_that_a_template_does_not_show_begins_the_first_user_turn(
    template: str, chat: list[dict[str, str]]
) -> None:
    folded = chat
    if chat[0] == SYSTEM:
        first = {"role": "user", "content": f"Plan.\n\n{chat[1]['content']}"}
        folded = [first, *chat[2:]]
    assert written(template, chat) == written(template, folded) != ""
    assert ("Plan." in written(template, chat)) == (chat[0] == SYSTEM)


def test_a_template_with_a_system_turn_stays_as_it_is() -> None:
    tokenizer = build_tokenizer([])
    tokenizer.chat_template = CHAT
    prepare_template(tokenizer, "a model", {})
    assert tokenizer.chat_template == CHAT


def test_an_option_is_set_for_good_and_can_be_set_anew() -> None:
    tokenizer = build_tokenizer([])
    tokenizer.chat_template = THINKING
    thinkless = written(THINKING, CHATS[0], {"enable_thinking": False})
    assert thinkless.endswith("<think>\n\n</think>\n\n")
    for value in (False, True, False):
        prepare_template(tokenizer, "a model", {"enable_thinking": value})
        text = tokenizer.apply_chat_template(
            CHATS[0], tokenize=False, add_generation_prompt=True, enable_thinking=not value
        )
        assert text == (written(THINKING, CHATS[0]) if value else thinkless)


@pytest.mark.parametrize("template", [CHAT, {"tools": CHAT}], ids=["one", "several by name"])
def test_an_option_that_no_template_reads_is_an_error(template: object) -> None:
    with pytest.raises(ConfigError, match=r"got 'enable_thinking', which the chat template of a"):
        written(template, CHATS[0], {"enable_thinking": False})  # type: ignore[arg-type]
