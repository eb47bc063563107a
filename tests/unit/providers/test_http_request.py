"""URLs as request lines, servers and proxies: what is quoted, what is refused, and that a password is never shown."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openconductor.errors import ConfigError
from openconductor.providers.http_request import (
    Headers,
    Origin,
    Proxy,
    connect_head,
    read_proxy,
    read_target,
    request_head,
)


@pytest.mark.parametrize(
    ("url", "origin", "authority", "path"),
    [
        ("http://api.example/v1/chat", Origin("http", "api.example", 80), "api.example", "/v1/chat"),
        ("https://API.example:443/v1", Origin("https", "api.example", 443), "api.example", "/v1"),
        ("http://api.example:443", Origin("http", "api.example", 443), "api.example:443", "/"),
        ("http://[::1]:8000/v1", Origin("http", "::1", 8000), "[::1]:8000", "/v1"),
        ("http://bücher.example/", Origin("http", "xn--bcher-kva.example", 80), "xn--bcher-kva.example", "/"),
        ("http://h/a%20b/größe:generate", Origin("http", "h", 80), "h", "/a%20b/gr%C3%B6%C3%9Fe:generate"),
        ("http://h/m?alt=sse&x=a b", Origin("http", "h", 80), "h", "/m?alt=sse&x=a%20b"),
    ],
)
def test_a_url_is_a_server_and_a_path(url: str, origin: Origin, authority: str, path: str) -> None:
    target = read_target(url)
    assert target.origin == origin
    assert target.origin.authority == authority
    assert target.path == path


@given(st.text(max_size=30))
def test_no_path_can_break_a_request_line(path: str) -> None:
    head = request_head(read_target(f"http://h/{path.replace('#', '')}"), "", 0)
    line = head.split(b"\r\n")[0]
    assert head.count(b"\r\n") == 6
    assert line.count(b" ") == 2
    assert line.isascii()


def test_a_host_that_can_be_no_name_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="looked up"):
        read_target(f"http://{'ü' * 80}.example/v1")


def test_the_head_of_a_post_has_what_every_request_has_and_what_the_call_adds() -> None:
    head = request_head(read_target("http://api.example:8000/v1/x"), "Authorization: Bearer k\r\n", 12)
    assert head.decode().split("\r\n") == [
        "POST /v1/x HTTP/1.1",
        "Host: api.example:8000",
        "Accept: */*",
        "Accept-Encoding: gzip, deflate",
        "Authorization: Bearer k",
        "Content-Length: 12",
        "",
        "",
    ]


def test_a_get_has_no_body() -> None:
    head = request_head(read_target("http://api.example/v1/models"), "", None).decode()
    assert head.startswith("GET /v1/models HTTP/1.1\r\n")
    assert "Content-Length" not in head
    assert head.endswith("\r\n\r\n")


def test_plain_http_is_asked_of_the_proxy_and_https_is_not_shown_to_it() -> None:
    proxy = read_proxy("http://user:p@proxy.example:3128".replace("p@", "p%40@"))
    plain = request_head(read_target("http://api.example/v1"), "A: b\r\n", 0, proxy=proxy).decode()
    assert plain.startswith("POST http://api.example/v1 HTTP/1.1\r\nHost: api.example\r\n")
    assert f"Proxy-Authorization: Basic {b64encode(b'user:p@').decode()}\r\n" in plain
    secure = request_head(read_target("https://api.example/v1"), "A: b\r\n", 0, proxy=proxy).decode()
    assert secure.startswith("POST /v1 HTTP/1.1\r\nHost: api.example\r\n")
    assert "Proxy-Authorization" not in secure
    tunnel = connect_head(Origin("https", "::1", 443), proxy).decode()
    assert tunnel.startswith("CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\nProxy-Authorization: Basic ")
    assert tunnel.endswith("\r\n\r\n")


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://proxy.example:3128", Origin("http", "proxy.example", 3128)),
        ("proxy.example:3128", Origin("http", "proxy.example", 3128)),
        ("https://proxy.example", Origin("https", "proxy.example", 443)),
    ],
)
def test_a_proxy_is_read_as_other_programs_read_it(url: str, origin: Origin) -> None:
    assert read_proxy(url) == Proxy(origin)


@pytest.mark.parametrize("url", ["socks5://u:{}@proxy:1080", "http://", "http://proxy:99999", "http://u:{}@proxy:port"])
def test_a_proxy_that_is_none_is_a_config_error_which_does_not_show_it(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_proxy(url.format("hunter2"))
    assert "hunter2" not in str(caught.value)
    assert "expected http(s)://" in str(caught.value)


def test_a_proxys_password_is_not_in_what_is_printed_of_it() -> None:
    proxy = read_proxy("http://user:hunter2@proxy.example:3128")
    assert "hunter2" not in repr(proxy)
    assert b64encode(b"user:hunter2").decode() not in repr(proxy)


def test_headers_are_found_whatever_their_case_and_the_first_of_two_counts() -> None:
    headers = Headers([(b"Retry-After", b" 3 "), (b"RETRY-AFTER", b"9"), (b"X-Name", b"\xe9")])
    assert (headers["retry-after"], headers.get("Retry-After"), headers["x-name"]) == ("3", "3", "é")
    assert headers.get("absent") is None
    assert (headers.find(b"retry-after"), headers.find(b"absent")) == ("3", "")
    assert sorted(headers) == ["retry-after", "x-name"]
