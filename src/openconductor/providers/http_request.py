"""What HTTP/1.1 writes at the head of messages. In: URLs, header lines. Out: servers, proxies, heads, headers."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

from openconductor.errors import ConfigError
from openconductor.providers.chat_failures import excerpt

PORTS = {"http": 80, "https": 443}

_PLAIN = "/%:@!$&'()*+,;=~"  # what may stand in a path beside letters, digits and "_.-"


@dataclass(frozen=True, slots=True)
class Origin:
    """A server: whose connections can stand in for each other.

    Attributes:
        scheme: ``http`` or ``https``.
        host: a name in ASCII, or an address.
        port: its port.
        authority: both as a ``Host`` header says them.
    """

    scheme: str
    host: str
    port: int
    authority: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        host = f"[{self.host}]" if ":" in self.host else self.host
        authority = host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"
        object.__setattr__(self, "authority", authority)


@dataclass(frozen=True, slots=True)
class Target:
    """What a request asks for: a path, with its query, at a server."""

    origin: Origin
    path: str


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy; ``fields`` are the header lines that it wants, which hold its password."""

    origin: Origin
    fields: str = field(default="", repr=False)


@lru_cache(maxsize=1024)
def read_target(url: str) -> Target:
    """Take an http(s) URL apart; what no request line can hold is quoted, and what is quoted stays as it is.

    Raises:
        ConfigError: its host can be no name.

    >>> read_target("https://api.example/v1/größe?x=a b").path
    '/v1/gr%C3%B6%C3%9Fe?x=a%20b'
    """
    parts = urlsplit(url)
    path = quote(parts.path or "/", safe=_PLAIN)
    if parts.query:
        path += "?" + quote(parts.query, safe=_PLAIN + "?")
    return Target(_origin(parts.scheme, parts.hostname or "", parts.port), path)


def read_proxy(url: str) -> Proxy:
    """Take a proxy's URL apart; ``http://`` is assumed where it names no scheme.

    Raises:
        ConfigError: it is none, or that of another kind of proxy (SOCKS); it is not shown, for it may hold a password.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in PORTS or not parts.hostname or port == -1:
        raise ConfigError("the environment's proxy (not shown): expected http(s)://[user:password@]host[:port]")
    fields = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        fields = f"Proxy-Authorization: Basic {b64encode(pair.encode()).decode()}\r\n"
    return Proxy(_origin(parts.scheme, parts.hostname, port), fields)


def request_head(target: Target, fields: str, length: int | None, *, proxy: Proxy | None = None) -> bytes:
    """The head of a POST, or of a GET where there is no body.

    Args:
        target: what is asked for.
        fields: further header lines, each with its line's end.
        length: of the body, in bytes; None is no body.
        proxy: what it goes through; plain http is asked of the proxy itself.
    """
    method, size = ("GET", "") if length is None else ("POST", f"Content-Length: {length}\r\n")
    origin, path = target.origin, target.path
    if proxy is not None and origin.scheme == "http":
        path = f"http://{origin.authority}{path}"
        fields += proxy.fields
    return (
        f"{method} {path} HTTP/1.1\r\nHost: {origin.authority}\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
        f"{fields}{size}\r\n"
    ).encode("latin-1")


def connect_head(origin: Origin, proxy: Proxy) -> bytes:
    """The head with which a proxy is asked for a tunnel to a server."""
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    place = f"{host}:{origin.port}"
    return f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{proxy.fields}\r\n".encode("latin-1")


class Headers(Mapping[str, str]):
    """A response's headers, whatever their letters' case; of repeated ones the first.

    >>> Headers([(b"Content-Type", b"text/plain")])["content-type"]
    'text/plain'
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: list[tuple[bytes, bytes]]) -> None:
        self._fields = {name.lower(): value for name, value in reversed(fields)}

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower().encode()].decode("latin-1").strip()

    def find(self, name: bytes) -> str:
        """The value under a name in small letters, or "": what each call asks for, without the detours of ``get``."""
        value = self._fields.get(name)
        return "" if value is None else value.decode("latin-1").strip()

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def _origin(scheme: str, host: str, port: int | None) -> Origin:
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            raise ConfigError(f"host {excerpt(host)!r}: expected a name that can be looked up") from None
    return Origin(scheme, host, port or PORTS[scheme])
