"""What it means that no response began: each of aiohttp's errors has one name here."""

from __future__ import annotations

import ssl
from types import SimpleNamespace
from typing import cast

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.http import HttpProcessingError

from openconductor.errors import ConnectionLost, MalformedResponse, Unreachable, WorkerError, WorkerTimeout
from openconductor.providers.chat_failures import Secret
from openconductor.providers.http_body import no_response

KEY = "sk-0123456789abcdef"
WHERE = cast("ConnectionKey", SimpleNamespace(host="api.example", port=443, ssl=True, is_ssl=True))
REQUEST = cast("aiohttp.RequestInfo", SimpleNamespace(real_url="https://api.example/v1"))
PROXY_SAYS = aiohttp.ClientHttpProxyError(REQUEST, (), status=407, message=f"Proxy wants more than {KEY}")
GARBAGE = aiohttp.ClientResponseError(REQUEST, (), status=400, message=f"Bad status line {KEY}")


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (aiohttp.ConnectionTimeoutError("late"), Unreachable, True),
        (aiohttp.SocketTimeoutError("silence"), WorkerTimeout, True),
        (aiohttp.ClientConnectorDNSError(WHERE, OSError(-2, "Name or service not known")), Unreachable, True),
        (aiohttp.ClientConnectorError(WHERE, ConnectionRefusedError(111, "refused")), Unreachable, True),
        (aiohttp.ClientProxyConnectionError(WHERE, OSError(111, "refused")), Unreachable, True),
        (aiohttp.ClientConnectorSSLError(WHERE, ssl.SSLError(1, "handshake failed")), Unreachable, True),
        (aiohttp.ClientConnectorCertificateError(WHERE, ssl.CertificateError("self-signed")), Unreachable, False),
        (PROXY_SAYS, Unreachable, True),
        (aiohttp.ServerDisconnectedError(), Unreachable, True),
        (aiohttp.ClientOSError(104, "Connection reset by peer"), Unreachable, True),
        (ConnectionResetError(104, f"reset by {KEY}"), Unreachable, True),
        (aiohttp.ServerDisconnectedError(cast("str", SimpleNamespace(headers=KEY))), ConnectionLost, True),
        (GARBAGE, MalformedResponse, True),
        (HttpProcessingError(message=KEY), MalformedResponse, True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_no_response_has_one_name_and_never_shows_the_key(
    error: Exception, kind: type[WorkerError], retryable: bool
) -> None:
    meant = no_response(error, Secret(KEY), 3.0)
    assert type(meant) is kind
    assert meant.retryable is retryable
    assert "0123456789" not in str(meant)


def test_what_was_never_sent_is_not_billed_and_what_may_have_been_is_not_called_free() -> None:
    assert no_response(aiohttp.ConnectionTimeoutError(), Secret(), None).unbilled
    assert not no_response(aiohttp.SocketTimeoutError(), Secret(), None).unbilled
