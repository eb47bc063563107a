"""Chat templates of language models: options that stay set, and templates without a system turn.

A prepared template is saved with the tokenizer, so whoever loads the folder (this package, vLLM,
``transformers serve``) writes the same prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from jinja2 import TemplateError

from openconductor.errors import ConfigError

TemplateOptions = Mapping[str, bool | int | float | str]
"""The options of a chat template by name, as ``{"enable_thinking": False}``."""
NO_OPTIONS: TemplateOptions = MappingProxyType({})

# Put before a template: the first user turn begins with the text of the system turn.
_FOLD = (
    "{% if messages[1:] and messages[0]['role'] == 'system' and messages[1]['role'] == 'user' %}"
    "{% set messages = [{'role': 'user', 'content': "
    "messages[0]['content'] + '\\n\\n' + messages[1]['content']}] + messages[2:] %}{% endif %}"
)
_PROBE = "The text of a system turn."


def prepare_template(tokenizer: Any, model: str, options: TemplateOptions) -> None:
    """Set options of a tokenizer's chat template, and fold system turns that it would not show.

    Raises:
        ConfigError: the template does not read an option.
    """
    template: object = tokenizer.chat_template
    if not isinstance(template, str):
        template = ""  # several, by name, stay as they are
    prepared = template
    for name, value in options.items():
        if not re.search(rf"\b{name}\b", prepared):
            raise ConfigError(
                f"model.chat_template_kwargs: got {name!r}, which the chat template of {model} "
                "does not read; expected one of its options"
            )
        # A Conductor that is trained further has it set already.
        earlier = re.compile(rf"\{{% set {name} = [^%]* %\}}")
        prepared = f"{{% set {name} = {json.dumps(value)} %}}" + earlier.sub("", prepared, count=1)
    if prepared and not _shows_system(tokenizer, prepared):
        prepared = _FOLD + prepared
    if prepared != template:
        tokenizer.chat_template = prepared


def _shows_system(tokenizer: Any, template: str) -> bool:
    """Return True if a template writes a system turn; some raise, and some leave it out."""
    turns = [{"role": "system", "content": _PROBE}, {"role": "user", "content": "?"}]
    try:
        text = tokenizer.apply_chat_template(turns, chat_template=template, tokenize=False)
    except (TemplateError, ValueError, TypeError):
        return False
    return _PROBE in text
