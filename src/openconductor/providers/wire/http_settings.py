"""Settings of a server behind HTTP: headers, query parameters, proxy and client certificate.

In their values ``$NAME`` stands for an environment variable, and ``$$`` for a dollar. What comes
from the environment counts as a secret. What is written out can change the answers, so it belongs
to the identity of a worker, except for headers that only say who asks.
"""

from __future__ import annotations

import re
import ssl
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cached_property
from string import Template
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from openconductor.errors import AuthFailed, ConfigError
from openconductor.providers.wire.failures import hide, secret_of

if TYPE_CHECKING:
    import httpx2

PORTS = {"http": 80, "https": 443}

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#%&'*+.^_`|~-]+")
_SECRET_NAME = re.compile(r"(key|token|secret|password|auth|authorization|cookie)$", re.IGNORECASE)
_OF_THE_CLIENT = frozenset(
    (
        "Accept-Encoding",
        "Connection",
        "Content-Length",
        "Content-Type",
        "Expect",
        "Host",
        "Proxy-Authorization",
        "Te",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
    )
)
_WHO_ASKS = frozenset(("Http-Referer", "User-Agent", "X-Title"))


class Server(NamedTuple):
    """A server or a proxy."""

    scheme: str
    host: str
    port: int

    @property
    def place(self) -> str:
        """Host and port, as CONNECT names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class HttpSettings:
    """Settings of the requests to one server.

    Args:
        headers: further headers of each request; they replace the client's own.
        query: query parameters of each request.
        proxy: the URL of the proxy; "": no proxy. None: the environment's proxy.
        client_cert: a PEM file with a certificate and its key, or a list of the certificate's file,
            the key's file and the key's password.
        logs_addresses: True if an SDK sends the requests, whose HTTP library logs their addresses.
            The query may then hold no secret.

    Attributes:
        identity: the values that can change the answers, as a text; "": there are none.

    Raises:
        ConfigError: a name or a value is invalid, a secret is written out, or the certificate
            cannot be loaded.
    """

    def __init__(
        self,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        proxy: str | None = None,
        client_cert: str | Sequence[str] | None = None,
        *,
        logs_addresses: bool = False,
    ) -> None:
        self._headers = {name.title(): value for name, value in (headers or {}).items()}
        self._query = dict(query or {})
        self._proxy = None if proxy is None else _fill_setting("proxy", proxy)
        if self._proxy:
            read_proxy(self._proxy)
        for name in self._headers:
            if not _HEADER_NAME.fullmatch(name):
                raise ConfigError(f"headers: got {name!r}, expected the name of a header")
            if name in _OF_THE_CLIENT:
                raise ConfigError(f"headers: {name} is set by the client; remove it")
        _check_values("headers", self._headers)
        _check_values("query", self._query)
        for name, value in self._query.items():
            if logs_addresses and variables_of(value):
                raise ConfigError(
                    f"query.{name}: this provider's library logs addresses; expected the value of "
                    "an environment variable in headers only"
                )
        if isinstance(client_cert, str):
            client_cert = (client_cert,)
        self._client_cert = tuple(client_cert or ())
        if self._client_cert:
            _ = self.tls  # an error in it is raised now
        self.identity = self._identity()

    def __bool__(self) -> bool:
        """True if something is set."""
        return bool(self._headers or self._query or self._client_cert or self._proxy is not None)

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that the headers and the query name."""
        values = " ".join([*self._headers.values(), *self._query.values()])
        return tuple(variables_of(values))

    @property
    def authorizes(self) -> bool:
        """True if the headers hold the server's ``Authorization``."""
        return "Authorization" in self._headers

    def check_set(self) -> None:
        """Raise AuthFailed if a variable in the headers or the query is not set."""
        self.read_headers()
        self.read_query()

    def read_headers(self) -> dict[str, str]:
        """Return the headers with the environment's values.

        Raises:
            AuthFailed: a variable is not set, or holds what no header can.
        """
        return {name: _fill(value) for name, value in self._headers.items()}

    def read_query(self) -> dict[str, str]:
        """Return the query parameters likewise."""
        return {name: _fill(value) for name, value in self._query.items()}

    def query_text(self) -> str:
        """Return the query of a request's target; "": no parameters."""
        if not self._query:
            return ""
        return f"?{urlencode(self.read_query())}"

    def proxy_url(self, scheme: str, host: str) -> str | None:
        """Return the URL of the proxy to a server. None: there is no proxy."""
        if self._proxy is not None:
            return self._proxy or None
        return None if proxy_bypass(host) else getproxies_environment().get(scheme)

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """The context of TLS connections to the server, with the client certificate.

        Raises:
            ConfigError: the certificate cannot be loaded.
        """
        context = ssl.create_default_context()  # reads the environment's certificates itself
        if not self._client_cert:
            return context
        expected = "expected a PEM file, or [certificate, key, password of the key]"
        if len(self._client_cert) > 3:
            raise ConfigError(f"client_cert: got {len(self._client_cert)} entries, {expected}")
        parts = [_fill_setting("client_cert", part) for part in self._client_cert]
        key_file = parts[1] if len(parts) > 1 else None
        password = parts[2] if len(parts) > 2 else ""
        try:
            context.load_cert_chain(parts[0], key_file, password)
        except OSError as error:
            raise ConfigError(f"client_cert: {error}; {expected}") from None
        return context

    def httpx_client(self, timeout: httpx2.Timeout) -> httpx2.AsyncClient:
        """Return a client of httpx2 with these settings, for SDKs that send requests themselves."""
        import httpx2

        return httpx2.AsyncClient(
            timeout=timeout,
            verify=self.tls if self else True,
            proxy=self._proxy or None,
            trust_env=self._proxy is None,
            limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
            event_hooks={"request": [self._prepare]},
        )

    async def _prepare(self, request: httpx2.Request) -> None:
        """Write headers and query into a request."""
        request.headers.update(self.read_headers())
        if self._query:
            request.url = request.url.copy_merge_params(self.read_query())

    def _identity(self) -> str:
        headers = {name: value for name, value in self._headers.items() if name not in _WHO_ASKS}
        written: list[str] = []
        for mark, values in (("?", self._query), ("", headers)):
            for name, value in sorted(values.items()):
                if not variables_of(value):
                    written.append(f"{mark}{name}={value}")
        return " ".join(written)


def variables_of(value: str) -> list[str]:
    """Return the environment variables that a value names."""
    return Template(value).get_identifiers()


def read_proxy(url: str) -> tuple[Server, str]:
    """Return a proxy and the header lines that it needs; ``http://`` if its URL has no scheme."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port or PORTS.get(parts.scheme)
    except ValueError:
        port = None
    host = parts.hostname
    if port is None or not host or parts.scheme not in PORTS:
        raise ConfigError(  # the URL is not shown, because it may hold a password
            "proxy (not shown): expected http(s)://[user:password@]host[:port]"
        )
    server = Server(parts.scheme, host, port)
    if parts.username is None:
        return server, ""
    password = unquote(parts.password or "")
    if password:
        hide(password)
    credentials = f"{unquote(parts.username)}:{password}"
    basic = b64encode(credentials.encode()).decode()
    return server, f"Proxy-Authorization: Basic {basic}\r\n"


def _check_values(where: str, values: Mapping[str, str]) -> None:
    for name, value in values.items():
        if not (value.isascii() and value.isprintable()):
            raise ConfigError(f"{where}.{name}: expected printable ASCII characters")
        if not Template(value).is_valid():
            raise ConfigError(
                f"{where}.{name}: expected $NAME for an environment variable, and $$ for a dollar"
            )
        if _SECRET_NAME.search(name) and not variables_of(value):
            raise ConfigError(
                f"{where}.{name}: looks like a key (not shown); keys come from the environment "
                'only: expected "$NAME" with the name of an environment variable'
            )


def _fill(text: str) -> str:
    """Return a value with the environment's values in it.

    Raises:
        AuthFailed: a variable is not set, or holds what no header can.
    """
    if "$" not in text:
        return text
    return Template(text).substitute({name: secret_of(name) for name in variables_of(text)})


def _fill_setting(name: str, text: str) -> str:
    """Return a setting that is read once, filled; raise ConfigError if a variable is not set."""
    try:
        return _fill(text)
    except AuthFailed as error:
        raise ConfigError(f"{name}: {error.message}") from None
    except ValueError:
        raise ConfigError(f"{name}: expected $NAME for an environment variable") from None
