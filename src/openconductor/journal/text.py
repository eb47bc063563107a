"""How values become text in the journal: canonical JSON, and the keys that name a call.

In: values of ``types``, and whatever a sampling's body or a message's parts hold. Out: one text a value, the same in
every process; digests of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import cast

from openconductor.types import Message, Price, Sampling

_DECIMAL = "$decimal"
_DIGEST_BYTES = 16  # 2**64 calls until a collision is likely
_CHUNK = 2047  # bytes; hashlib lets go of the interpreter from 2048 on, and the journal's thread waits to get it back

CallPath = Sequence[Sequence[int | None]]
"""The (round, step) of each call above one, outermost first."""


def _plain(value: object) -> object:
    """What JSON does not know, in JSON's types; what is none of ours by its representation."""
    if isinstance(value, Decimal):
        return {_DECIMAL: str(value)}
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    if isinstance(value, set | frozenset):
        return sorted(cast("set[object]", value), key=repr)
    return repr(value)


_UNICODE = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=_plain).encode
_ASCII = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_plain).encode


def dumps(value: object) -> str:
    """Canonical JSON: keys sorted, no spaces, exact decimals; a value that is none of JSON's is its representation."""
    try:
        text = _UNICODE(value)
    except (TypeError, ValueError, RecursionError):  # keys that do not sort; a body that holds itself
        return _ASCII(repr(value))
    return text if _storable(text) else _ASCII(value)


def loads(text: str) -> object:
    """The value of a text that ``dumps`` made; its tuples come back as lists."""
    return json.loads(text, object_hook=_restored)


def storable(text: str) -> str:
    """The text as UTF-8 can hold it: a lone surrogate is written as an escape."""
    return text if _storable(text) else text.encode("utf-8", "backslashreplace").decode()


def digest(text: str) -> str:
    """The BLAKE2b digest of a text, 32 hexadecimal digits."""
    raw = text.encode("utf-8", "surrogatepass")
    hashed = hashlib.blake2b(raw[:_CHUNK], digest_size=_DIGEST_BYTES)
    for start in range(_CHUNK, len(raw), _CHUNK):
        hashed.update(raw[start : start + _CHUNK])
    return hashed.hexdigest()


def request_hash(messages: Sequence[Message], sampling: Sampling, text_digest: Callable[[str], str] = digest) -> str:
    """The digest of what was asked; ``text_digest`` is a ``digest`` that may remember those of the turns' texts."""
    turns = [
        (message.role, text_digest(message.content), digest(dumps(message.parts)) if message.parts else "")
        for message in messages
    ]
    return digest(f"{turns!a}{sampling_text(sampling)}")


def key_of(
    request: str,
    worker: str,
    identity: str,
    *,
    sample: int,
    round: int,  # noqa: A002 - the field's name
    step: int | None,
    path: CallPath,
) -> str:
    """The key of a call: what was asked (by its hash), of whom, and where in which sample it stands."""
    return digest(ascii((request, worker, identity, sample, round, step, tuple(map(tuple, path)))))


def sampling_text(sampling: Sampling) -> str:
    """How to sample, as canonical JSON; what is not set is left out."""
    if not sampling.body:
        return _plain_sampling_text(sampling.temperature, sampling.max_tokens, sampling.seed)
    return dumps({**_set(sampling.temperature, sampling.max_tokens, sampling.seed), "body": sampling.body})


@lru_cache(4096)
def access_text(access: Sequence[object]) -> str:
    """A step's access list as JSON."""
    return dumps(access)


@lru_cache(4096)
def price_text(price: Price) -> str:
    """A price as JSON; decimals are strings."""
    value = {"input": str(price.input), "output": str(price.output)}
    return dumps(value if price.cached is None else {**value, "cached": str(price.cached)})


@lru_cache(4096, typed=True)  # 1 is not 1.0 in JSON
def _plain_sampling_text(temperature: float | None, max_tokens: int | None, seed: int | None) -> str:
    return dumps(_set(temperature, max_tokens, seed))


def _set(temperature: float | None, max_tokens: int | None, seed: int | None) -> dict[str, object]:
    settings = {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}
    return {name: value for name, value in settings.items() if value is not None}


def packed(text: str) -> str | bytes:
    """The text as SQLite can hold it, nothing lost: one with a lone surrogate as bytes."""
    return text if _storable(text) else text.encode("utf-8", "surrogatepass")


def unpacked(value: str | bytes) -> str:
    """The text that ``packed`` packed."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def _storable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _restored(value: dict[str, object]) -> object:
    if len(value) == 1 and isinstance(value.get(_DECIMAL), str):
        return Decimal(cast(str, value[_DECIMAL]))
    return value
