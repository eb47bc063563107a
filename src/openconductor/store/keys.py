"""Keys of calls: what is asked, of whom, and where in which sample of a question.

A changed key means that everything that was ever paid for is paid for again:
``tests/unit/store/test_keys.py`` pins two of them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

from openconductor.protocols import CallContext
from openconductor.store.serialisation import dumps
from openconductor.types import Message, Sampling

_CHUNK = 2047  # bytes; from 2048 on hashlib releases the GIL, and the writer waits to get it back


def call_key(
    worker: str, identity: str, messages: Sequence[Message], sampling: Sampling, call: CallContext
) -> str:
    """Return the key of a call: 32 hexadecimal digits.

    The attempt and the episode's id do not count, so that the same question asked again, by another
    process, makes the same calls. Sixty-four samples of one question make sixty-four different
    ones.

    Args:
        worker: the worker's name.
        identity: what stands behind that name.
        messages: the turns.
        sampling: how it is to sample, ``body`` included.
        call: its round, step and sample count.
    """
    place = (call.sample, call.round, call.step)
    return key_of(request_hash(messages, sampling), worker, identity, place)


def key_of(request: str, worker: str, identity: str, place: tuple[int, int, int | None]) -> str:
    """Return the key of a call by its request's hash; ``place`` is its sample, round and step."""
    return digest(ascii((request, worker, identity, *place, ())))


def request_hash(messages: Sequence[Message], sampling: Sampling) -> str:
    """Return the digest of a request. Settings that are left to the provider do not count."""
    turns = [
        (turn.role, digest(turn.content), digest(dumps(turn.parts)) if turn.parts else "")
        for turn in messages
    ]
    settings: dict[str, object] = {}
    for name in ("temperature", "max_tokens", "seed"):
        value: object = getattr(sampling, name)
        if value is not None:
            settings[name] = value
    if sampling.body:
        settings["body"] = sampling.body
    return digest(f"{turns!a}{dumps(settings)}")


def hash_text(text: str) -> str:
    """Return the BLAKE2b digest of a text, 32 hexadecimal digits."""
    raw = text.encode("utf-8", "surrogatepass")
    # 16 bytes: a collision becomes likely after 2**64 texts.
    hashed = hashlib.blake2b(raw[:_CHUNK], digest_size=16)
    for start in range(_CHUNK, len(raw), _CHUNK):
        hashed.update(raw[start : start + _CHUNK])
    return hashed.hexdigest()


digest = functools.lru_cache(4096)(hash_text)
"""``hash_text`` with a cache, because many calls see the same texts."""
