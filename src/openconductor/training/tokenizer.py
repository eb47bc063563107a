"""The tiny Conductor's own tokenizer: one token a phrase of the gym and of the wire, single characters for all else.

In: the gym's vocabulary. Out: a fast tokenizer that loses nothing on printable ASCII (what it knows no phrase for, it
spells), so that a subtask is copied as it stands. Load it with ``PreTrainedTokenizerFast``: ``AutoTokenizer`` rebuilds
the pre-tokenizer of a Qwen2 checkpoint and with it other ids.
"""

from __future__ import annotations

import string
from typing import cast

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from openconductor.gym.questions import JOINERS, LARGEST, OPENERS, SMUDGED
from openconductor.gym.sampling import REMARK
from openconductor.gym.world import COMPARE, OPERATIONS, WORDINGS

PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"
CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
_WIRE = (
    *("model_id = [", "\nmodel_id = [", "]\nsubtasks = [", "]\naccess_list = ["),
    *(f"Model {ordinal}\n" for ordinal in range(16)),
    *(f": {ordinal}" for ordinal in range(10)),
    *('"', '", "', "; ", ", ", "\n", "]", "[]", '"all"', "Question: ", ".\n"),
    *(f"[{index}]" for index in range(4)),
    *("Before:\n", "Answer: "),
)


def end_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """The id of the token that ends a completion."""
    return cast("int", tokenizer.eos_token_id)


def pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """The id of the token that fills rows up."""
    return cast("int", tokenizer.pad_token_id)


def write_prompt(tokenizer: PreTrainedTokenizerBase, chat: list[dict[str, str]]) -> str:
    """A chat as the text that the model completes."""
    return cast("str", tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the tokenizer; it is the same on every machine."""
    characters = sorted(set(string.printable))
    vocabulary = {token: index for index, token in enumerate((PAD, END, UNKNOWN, *characters))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    numbers = [f" {number}" for number in range(LARGEST + 1)]
    phrases = [operation.phrase(wording) for operation in OPERATIONS.values() for wording in WORDINGS]
    texts = [*_WIRE, *OPENERS, *JOINERS, f" {SMUDGED}", REMARK, *phrases, *COMPARE, *numbers]
    backend.add_tokens([AddedToken(text, normalized=False) for text in dict.fromkeys(texts) if len(text) > 1])
    backend.add_special_tokens([AddedToken(token, special=True) for token in (PAD, END, UNKNOWN)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=PAD, eos_token=END, unk_token=UNKNOWN, padding_side="left"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
