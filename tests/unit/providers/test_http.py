"""Addresses and request heads: what is quoted, what is refused, and that a password is never shown."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openconductor.errors import ConfigError
from openconductor.providers.http import HttpClient, Server, _Pool, _read_proxy


def head(url: str, *, fields: str = "", payload: bytes | None = b"", proxy: str | None = None) -> str:
    pool = _Pool()
    pool.proxy = None if proxy is None else _read_proxy(proxy)
    return HttpClient(url, None)._head(pool, "/x", fields, payload).decode()


@pytest.mark.parametrize(
    ("url", "server", "authority", "path"),
    [
        ("https://API.example:443/v1", Server("https", "api.example", 443), "api.example", "/v1"),
        ("http://api.example:443", Server("http", "api.example", 443), "api.example:443", ""),
        ("http://[::1]:8000/v1", Server("http", "::1", 8000), "[::1]:8000", "/v1"),
        ("http://bücher.example", Server("http", "xn--bcher-kva.example", 80), "xn--bcher-kva.example", ""),
        ("http://h/a%20b/größe:x", Server("http", "h", 80), "h", "/a%20b/gr%C3%B6%C3%9Fe:x"),
    ],
)
def test_a_url_is_a_server_and_a_path(url: str, server: Server, authority: str, path: str) -> None:
    client = HttpClient(url, None)
    assert (client._server, client._server.authority, client._path) == (server, authority, path)


@given(st.text(max_size=30))
def test_no_path_can_break_a_request_line(path: str) -> None:
    sent = head(f"http://h/{path.replace('#', '').replace('?', '')}")
    assert sent.count("\r\n") == 6
    assert sent.split("\r\n")[0].count(" ") == 2
    assert sent.isascii()


def test_a_host_that_can_be_no_name_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="looked up"):
        HttpClient(f"http://{'ü' * 80}.example/v1", None)


def test_a_head_has_what_every_request_has_and_what_the_call_adds() -> None:
    assert head("http://api.example:8000/v1", fields="A: b\r\n", payload=b"four").split("\r\n") == [
        "POST /v1/x HTTP/1.1",
        "Host: api.example:8000",
        "Accept: */*",
        "Accept-Encoding: gzip",
        "A: b",
        "Content-Length: 4",
        "",
        "",
    ]
    got = head("http://api.example/v1", payload=None)
    assert got.startswith("GET /v1/x HTTP/1.1\r\n")
    assert "Content-Length" not in got


def test_plain_http_is_asked_of_the_proxy_and_https_is_not_shown_to_it() -> None:
    proxy = "http://user:p%40@proxy.example:3128"
    plain = head("http://api.example/v1", proxy=proxy)
    assert plain.startswith("POST http://api.example/v1/x HTTP/1.1\r\nHost: api.example\r\n")
    assert f"Proxy-Authorization: Basic {b64encode(b'user:p@').decode()}\r\n" in plain
    secure = head("https://api.example/v1", proxy=proxy)
    assert secure.startswith("POST /v1/x HTTP/1.1\r\nHost: api.example\r\n")
    assert "Proxy-Authorization" not in secure


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("http://proxy.example:3128", Server("http", "proxy.example", 3128)),
        ("proxy.example:3128", Server("http", "proxy.example", 3128)),
        ("https://proxy.example", Server("https", "proxy.example", 443)),
    ],
)
def test_a_proxy_is_read_as_other_programs_read_it(url: str, server: Server) -> None:
    assert _read_proxy(url) == server


@pytest.mark.parametrize("url", ["socks5://u:{}@proxy:1080", "http://", "http://proxy:99999", "http://u:{}@proxy:port"])
def test_a_proxy_that_is_none_is_a_config_error_which_does_not_show_it(url: str) -> None:
    with pytest.raises(ConfigError, match="expected http") as caught:
        _read_proxy(url.format("hunter2"))
    assert "hunter2" not in str(caught.value)


def test_a_proxys_password_is_not_in_what_is_printed_of_it() -> None:
    proxy = _read_proxy("http://user:hunter2@proxy.example:3128")
    assert "hunter2" not in repr(proxy)
    assert b64encode(b"user:hunter2").decode() not in repr(proxy)
