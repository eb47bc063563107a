"""The name of a call: what is asked of whom, and where in which sample it stands. In: a call. Out: hexadecimal digits.

A changed key means that everything that was ever paid for is paid for again:
``tests/unit/store/test_keys.py`` pins two of them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

from openconductor.protocols import CallContext
from openconductor.store.serialisation import dumps, plain
from openconductor.types import Message, Sampling

_CHUNK = 2047  # bytes; hashlib lets go of the interpreter from 2048 on, and the journal's thread waits to get it back


def call_key(
    worker: str, identity: str, messages: Sequence[Message], sampling: Sampling, call: CallContext
) -> str:
    """Name a call: 32 hexadecimal digits.

    Neither the attempt nor the episode's id counts: the same question asked again, by another
    process, makes the same calls. Sixty-four samples of one question make sixty-four different
    ones.

    Args:
        worker: the worker's name.
        identity: what stands behind that name.
        messages: the turns.
        sampling: how it is to sample, ``body`` included.
        call: its round, step and sample count.
    """
    return key_of(
        request_hash(messages, sampling), worker, identity, (call.sample, call.round, call.step)
    )


def key_of(request: str, worker: str, identity: str, place: tuple[int, int, int | None]) -> str:
    """The key of a call of which the request's hash is known; ``place`` is its sample, round and step."""
    return digest(ascii((request, worker, identity, *place, ())))


def request_hash(messages: Sequence[Message], sampling: Sampling) -> str:
    """The digest of what was asked; of how to sample, what is left to the provider is left out."""
    turns = [
        (turn.role, digest(turn.content), digest(dumps(turn.parts)) if turn.parts else "")
        for turn in messages
    ]
    settings = {
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "seed": sampling.seed,
    }
    known: dict[str, object] = {
        name: value for name, value in settings.items() if value is not None
    }
    return digest(
        f"{turns!a}{dumps(known | {'body': plain(sampling.body)} if sampling.body else known)}"
    )


@functools.lru_cache(4096)  # many calls see the same texts
def digest(text: str) -> str:
    """The BLAKE2b digest of a text, 32 hexadecimal digits."""
    raw = text.encode("utf-8", "surrogatepass")
    hashed = hashlib.blake2b(
        raw[:_CHUNK], digest_size=16
    )  # 2**64 calls until a collision is likely
    for start in range(_CHUNK, len(raw), _CHUNK):
        hashed.update(raw[start : start + _CHUNK])
    return hashed.hexdigest()
