"""What a server's failures mean, and that no key is in what is said of them."""

from __future__ import annotations

import html
import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest
from hypothesis import given, strategies as st

from openconductor.errors import Rejected, ServerFailed, WorkerError
from openconductor.providers.wire import failures
from openconductor.providers.wire.failures import (
    error_object,
    excerpt,
    failure,
    key_of,
)

KEY = 'sk-canary+/8f3b1c"&<\\7Zq'


@pytest.fixture(autouse=True)
def read_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key has been read, and it alone."""
    monkeypatch.setattr(failures, "_keys", set[str]())
    monkeypatch.setenv("MINE", KEY)
    assert key_of("MINE") == KEY


@pytest.mark.parametrize(
    "echo",
    [
        KEY,
        KEY.upper(),
        f"Bearer {KEY}",
        quote(KEY),
        quote(KEY, safe=""),
        html.escape(KEY),
        json.dumps({"authorization": KEY}),
        repr({"authorization": KEY}),
        repr(KEY.encode()),
        KEY.encode().hex(),
        *(b64encode(f"{'x' * n}{KEY}{'y' * n}".encode()).decode() for n in range(4)),
        urlsafe_b64encode(f"Bearer {KEY}".encode()).decode(),
        f"{KEY}{KEY}",
    ],
)
def test_a_key_is_hidden_in_every_form_in_which_it_is_echoed(echo: str) -> None:
    for words in (f"got {echo}, sorry", f"İ {echo}", f"{'x' * 290}{echo}", f"{'x ' * 100}{echo}"):
        said = excerpt(words)
        assert len(said) <= 300
        for start in range(len(KEY) - 5):
            assert KEY[start : start + 6].lower() not in said.lower()
        if "authorization" not in echo:
            assert not any(echo[start : start + 12] in said for start in range(len(echo) - 12))
    assert "[key]" in excerpt(echo)


def test_a_piece_of_a_key_is_hidden_too() -> None:
    assert excerpt(f"wrong key {KEY[:14]}…") == "wrong key [key]…"
    assert excerpt(f"wrong key …{KEY[-14:]}") == "wrong key …[key]"
    assert excerpt("wrong key sk-cana…") == "wrong key sk-cana…"


def test_only_a_key_of_six_characters_or_more_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    unreachable = "gaierror: [Errno -2] Name or service not known; got abcde"
    for placeholder in ("x", "e", "abcde"):
        monkeypatch.setenv("MINE", placeholder)
        assert key_of("MINE") == placeholder
        assert excerpt(unreachable) == unreachable
    assert key_of(None) == ""
    assert excerpt("got abcdef") == "got abcdef"
    monkeypatch.setenv("MINE", "abcdef")
    key_of("MINE")
    assert excerpt("got abcdef") == "got [key]"


def test_a_key_in_a_body_of_any_size_is_hidden_before_the_words_are_cut() -> None:
    for padding in (280, 4090, 60_000):
        said = excerpt("x" * padding + KEY)
        assert KEY[:6] not in said
        assert len(said) <= 300
    assert KEY[:6] not in str(failure(500, f"<p>{KEY}".encode()))


def test_the_keys_of_others_are_hidden_where_they_are_known_or_look_like_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_OTHER_API_KEY", "open sesame/42")
    said = "not open sesame/42 (open%20sesame%2F42) but sk-proj-0123456789abcdef "
    said += "or Bearer 0123456789abcdef"
    assert excerpt(said) == "not [key] ([key]) but [key] or [key]"
    assert excerpt("the bearer token expired; task-force-one-2; sk-short-1") == (
        "the bearer token expired; task-force-one-2; sk-short-1"
    )


def test_words_that_steer_a_terminal_do_not() -> None:
    assert excerpt("a\x1b[31mred\x00\r\n\ud800 b\u202e") == "a [31mred b"


@given(raw=st.binary(max_size=60), status=st.integers(min_value=100, max_value=999))
def test_any_body_of_a_failure_is_a_typed_error(raw: bytes, status: int) -> None:
    error = failure(status, raw)
    assert type(error) is not WorkerError
    assert error.status == status


def test_what_may_heal_is_told_from_what_cannot() -> None:
    for status in (101, 307, 405):
        assert type(failure(status, b"")) is Rejected
        assert not failure(status, b"").retryable
    for status in (408, 409, 425, 500, 501, 505, 524, 529):
        error = failure(status, b"", {"retry-after": "2"})
        assert (type(error), error.retryable, error.retry_after) == (
            ServerFailed,
            status not in (501, 505),
            2.0,
        )


def test_an_error_object_under_success_is_the_servers_failure_unless_it_blames_the_request() -> (
    None
):
    assert (
        type(error_object({"error": {"message": "oops", "type": "server_error"}})) is ServerFailed
    )
    assert type(error_object({"error": "oops"})) is ServerFailed
    blamed = error_object({"error": {"message": "no", "type": "invalid_request_error"}})
    assert type(blamed) is Rejected
    assert not blamed.retryable
