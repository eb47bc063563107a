"""Settings of a server: what is rejected, what belongs to a worker's identity."""

from __future__ import annotations

from pathlib import Path

import pytest

from openconductor.errors import AuthFailed, ConfigError
from openconductor.pool import WorkerPool
from openconductor.privacy import secrets_of_environment
from openconductor.providers import create
from openconductor.providers.wire.http_settings import HttpSettings

SECRET = "canary-of-a-header"
URL = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"headers": {"api-key": SECRET}}, r'headers.Api-Key: looks like a key .*"\$NAME"'),
        ({"headers": {"Cf-Aig-Authorization": SECRET}}, "looks like a key"),
        ({"query": {"subscription-key": SECRET}}, "looks like a key"),
        ({"headers": {"a b": "c"}}, "expected the name of a header"),
        ({"headers": {"A\r\nB": "c"}}, "expected the name of a header"),
        ({"headers": {"A": "b\r\nC: d"}}, "printable ASCII"),
        ({"headers": {"A": "100$"}}, r"\$\$ for a dollar"),
        ({"headers": {"host": "h"}}, "Host is set by the client"),
        ({"headers": {"Content-Length": "4"}}, "set by the client"),
        ({"query": {"v": "$ANY_NAME"}, "logs_addresses": True}, "logs addresses"),
        ({"proxy": "socks5://u:canary-of-a-header@h"}, r"expected http\(s\)://"),
        ({"proxy": "http://$UNSET_VARIABLE"}, "UNSET_VARIABLE is not set"),
        ({"client_cert": "missing.pem"}, "client_cert: .*No such file"),
        ({"client_cert": [__file__]}, "client_cert: .*expected a PEM file"),
        ({"client_cert": ["a", "b", "c", "d"]}, "got 4 entries"),
    ],
)
def test_a_wrong_setting_is_a_config_error_that_shows_no_secret(settings, message) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        HttpSettings(**settings)
    assert SECRET not in str(caught.value)


def test_values_come_from_the_environment_at_each_call_and_count_as_secrets(monkeypatch) -> None:
    settings = HttpSettings({"x-login": "user $ANY_NAME$$"}, {"v": "1 2", "sig": "${ANY_NAME}"})
    with pytest.raises(AuthFailed, match="ANY_NAME is not set"):
        settings.check_set()
    for value in (SECRET, "another-canary"):
        monkeypatch.setenv("ANY_NAME", value)
        assert settings.read_headers() == {"X-Login": f"user {value}$"}
        assert settings.query_text() == f"?v=1+2&sig={value}"
        assert value in secrets_of_environment()


@pytest.mark.parametrize(
    ("settings", "identity"),
    [
        ({}, ""),
        ({"query": {"api-version": "2024-10-21"}}, " ?api-version=2024-10-21"),
        ({"headers": {"anthropic-beta": "long"}}, " Anthropic-Beta=long"),
        ({"headers": {"api-key": "$ANY_NAME", "X-Title": "mine", "HTTP-Referer": "me"}}, ""),
        ({"proxy": "http://proxy.example:3128"}, ""),
    ],
)
def test_only_what_can_change_the_answers_belongs_to_the_identity(settings, identity) -> None:
    provider = create("openai_compatible", "m", base_url=URL, **settings)
    assert provider.identity == f"openai_compatible m {URL}{identity}"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('provider = "replay_pool"\nheaders = { a = "b" }', "'headers'"),
        ('command = ["tool"]\nprovider = "mcp"\nproxy = ""', "beside `command`"),
        (f'base_url = "{URL}?api-version=1"', "parameters go into `query`"),
        (f'base_url = "{URL}"\nquery = {{ api-version = 1 }}', "worker.0.query.api-version"),
        (
            f'base_url = "{URL}"\napi_key_env = "A"\nheaders = {{ Authorization = "Basic $B" }}',
            "headers already hold Authorization",
        ),
        (f'base_url = "{URL}"\nheaders = {{ Authorization = "Basic abc" }}', "not shown"),
        (f'base_url = "{URL}"\nheadres = {{ a = "b" }}', "'headers'"),
    ],
)
def test_a_wrong_worker_is_a_config_error(tmp_path: Path, lines: str, message: str) -> None:
    path = tmp_path / "pool.toml"
    path.write_text(f'[[worker]]\nname = "w"\nmodel = "m"\n{lines}\n', "utf-8")
    with pytest.raises(ConfigError, match=message):
        WorkerPool.from_toml(path)
