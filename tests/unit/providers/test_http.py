"""Addresses and request heads: quoting, rejected addresses, and passwords that are never shown."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given, strategies as st

from openconductor.errors import ConfigError
from openconductor.providers.wire.http import HttpClient

BASIC = f"Proxy-Authorization: Basic {b64encode(b'user:p@').decode()}"


def head(url: str, fields: str = "") -> list[str]:
    return HttpClient(url, None).head("/x", fields, 4).decode().split("\r\n")


@pytest.mark.parametrize(
    ("url", "line", "host"),
    [
        ("https://API.example:443/v1", "POST /v1/x HTTP/1.1", "Host: api.example"),
        ("http://api.example:443", "POST /x HTTP/1.1", "Host: api.example:443"),
        ("http://[::1]:8000/v1", "POST /v1/x HTTP/1.1", "Host: [::1]:8000"),
        ("http://bücher.example", "POST /x HTTP/1.1", "Host: xn--bcher-kva.example"),
        ("http://h/a%20b/größe:x", "POST /a%20b/gr%C3%B6%C3%9Fe:x/x HTTP/1.1", "Host: h"),
    ],
)
def test_a_head_names_the_host_and_the_path_and_what_the_call_adds(
    url: str, line: str, host: str
) -> None:
    rest = ["Accept: */*", "Accept-Encoding: identity", "A: b", "Content-Length: 4", "", ""]
    assert head(url, "A: b\r\n") == [line, host, *rest]


@given(st.text(max_size=30))
def test_no_path_can_break_a_request_line(path: str) -> None:
    line, *fields = head(f"http://h/{path.replace('#', '').replace('?', '')}")
    assert len(fields) == 6
    assert line.count(" ") == 2
    assert line.isascii()


def test_a_host_that_can_be_no_name_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="looked up"):
        HttpClient(f"http://{'ü' * 80}.example/v1", None)


@pytest.mark.parametrize(
    "proxy", ["http://user:p%40@proxy.example:3128", "user:p%40@proxy.example", ""]
)
def test_plain_http_is_asked_of_the_proxy_and_https_is_not_shown_to_it(proxy, monkeypatch) -> None:
    for scheme in ("http", "https"):
        monkeypatch.setenv(f"{scheme}_proxy", proxy)
    line, host, *fields = head("http://api.example/v1")
    assert line == f"POST {'http://api.example' if proxy else ''}/v1/x HTTP/1.1"
    assert host == "Host: api.example"
    assert (BASIC in fields) == bool(proxy)
    assert head("https://api.example/v1")[0] == "POST /v1/x HTTP/1.1"
    assert BASIC not in head("https://api.example/v1")


@pytest.mark.parametrize(
    "url", ["socks5://u:{}@proxy:1080", "http://", "http://proxy:99999", "http://u:{}@proxy:port"]
)
def test_a_proxy_that_is_none_is_a_config_error_which_does_not_show_it(url, monkeypatch) -> None:
    monkeypatch.setenv("http_proxy", url.format("hunter2"))
    with pytest.raises(ConfigError, match="expected http") as caught:
        HttpClient("http://api.example", None)
    assert "hunter2" not in str(caught.value)
