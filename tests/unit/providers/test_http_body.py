"""Bodies: decoded as they come, bounded, and never taken for whole where they are cut."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openconductor.errors import MalformedResponse
from openconductor.providers import http_body
from openconductor.providers.http_body import Decoder, Response
from openconductor.providers.http_connection import Connection
from openconductor.providers.http_request import Headers

TEXT = "Grüße, 世界. ".encode() * 50


def bare(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


CODINGS = {"gzip": gzip.compress, "x-gzip": gzip.compress, "deflate": zlib.compress, "deflate, bare": bare}


class Arrived:
    """Stands in for a connection whose body is there, in pieces."""

    status = 200

    def __init__(self, pieces: list[bytes], **headers: str) -> None:
        self.pieces = [piece for piece in pieces if piece]
        self.headers = Headers([(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()])
        self.ended = 0

    @property
    def at_end(self) -> bool:
        return not self.pieces

    async def piece(self) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""

    def end(self) -> None:
        self.ended += 1


def response(pieces: list[bytes], **headers: str) -> Response:
    return Response(cast("Connection", Arrived(pieces, **headers)))


def in_pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("coding", CODINGS)
async def test_a_packed_body_is_unpacked_however_it_is_cut(coding: str, size: int) -> None:
    packed = in_pieces(CODINGS[coding](TEXT), size)
    assert await response(packed, content_encoding=coding.partition(",")[0].upper()).whole() == TEXT
    got = response(packed, content_encoding=coding.partition(",")[0])
    assert b"".join([piece async for piece in pieces_of(got)]) == TEXT


async def pieces_of(got: Response):
    while piece := await got.piece():
        yield piece


@settings(deadline=None)
@given(st.binary(max_size=2000), st.sampled_from(sorted(CODINGS)), st.integers(1, 300))
def test_whatever_is_packed_comes_out_again(data: bytes, coding: str, size: int) -> None:
    packed = in_pieces(CODINGS[coding](data), size)
    assert asyncio.run(response(packed, content_encoding=coding.partition(",")[0]).whole()) == data


async def test_a_gzip_file_of_several_members_is_read_to_its_end() -> None:
    assert (
        await response([gzip.compress(b"one, ") + gzip.compress(b"two")], content_encoding="gzip").whole()
        == b"one, two"
    )


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_packed_body_that_is_cut_is_malformed(coding: str) -> None:
    packed = CODINGS[coding](TEXT)
    with pytest.raises(MalformedResponse, match="cut") as caught:
        await response([packed[:-3]], content_encoding=coding.partition(",")[0]).whole()
    assert caught.value.__context__ is None


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "sk-canary-7f3b1c"])
async def test_an_encoding_that_was_not_asked_for_is_malformed_and_not_quoted(coding: str) -> None:
    with pytest.raises(MalformedResponse, match="neither gzip nor deflate") as caught:
        await response([b"{}"], content_encoding=coding).whole()
    assert "canary" not in str(caught.value)


async def test_a_body_that_is_not_packed_as_it_says_is_malformed() -> None:
    for coding in ("gzip", "deflate"):
        with pytest.raises(MalformedResponse) as caught:
            await response([b"0123456789"], content_encoding=coding).whole()
        assert caught.value.status == 200
        assert caught.value.__context__ is None


@pytest.mark.parametrize("coding", ["", "identity", "Identity"])
async def test_a_body_that_is_packed_as_nothing_is_as_it_is(coding: str) -> None:
    assert await response([b"{", b"}"], content_encoding=coding).whole() == b"{}"


async def test_no_body_at_all_needs_no_encoding() -> None:
    assert await response([], content_encoding="gzip").whole() == b""


async def test_a_small_bomb_is_not_unpacked_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_body, "MAX_RESPONSE_BYTES", 10_000)
    for coding, pack in CODINGS.items():
        with pytest.raises(MalformedResponse, match="10000") as caught:
            await response([pack(bytes(10**7))], content_encoding=coding.partition(",")[0]).whole()
        assert not caught.value.retryable
    decoder = Decoder("gzip")
    assert len(decoder.decode(gzip.compress(bytes(10**7)), 100)) == 100


async def test_a_body_is_refused_for_its_announced_length_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_body, "MAX_RESPONSE_BYTES", 10)
    arrived = Arrived([b"x"], content_length="11")
    with pytest.raises(MalformedResponse, match="11 bytes"):
        await Response(cast("Connection", arrived)).whole()
    assert arrived.pieces == [b"x"]


def test_the_end_of_the_block_ends_the_exchange_once_whatever_happened() -> None:
    arrived = Arrived([b"x"])
    with pytest.raises(LookupError), Response(cast("Connection", arrived)):
        raise LookupError
    assert arrived.ended == 1


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Application/JSON; charset=utf-8", "application/json"),
        ("text/html", "text/html"),
        ("", "application/json"),
        (None, "application/json"),
    ],
)
def test_the_type_of_a_body_is_read_without_its_parameters(said: str | None, kind: str) -> None:
    assert response([], **({} if said is None else {"content_type": said})).content_type == kind
