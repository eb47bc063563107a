"""The files of deploy/: linted, valid by their schemas, and every command in them run.

No container engine is used. What an image would hold is built here and run in bubblewrap, without
a network, and with nothing to write to but /data and /tmp.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from test_serving_process import Process, is_ready, serve, wait_until
from tests.postgres_server import PostgresServer, running

from integration.image import Image
from integration.served import PATHS, request_body
from openconductor.cli import main
from openconductor.config import dump_toml
from openconductor.gym.questions import EXAMPLE
from openconductor.serving.key_ring import new_key

pytestmark = pytest.mark.timeout(900)  # the image's packages are downloaded
ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KEY, HASH = new_key()
HEADERS = {"authorization": f"Bearer {KEY}"}
STOP = """
"$@" &
pid=$!
until {check} 2>/dev/null; do kill -0 $pid; sleep 0.2; done
kill -TERM $pid
wait $pid
"""


def tool(name: str) -> str:
    """Return a linter of this environment; skip where it is absent."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    if found is None:
        pytest.skip(f"needs {name}, which `make setup` installs")
    return found


def compose() -> dict[str, Any]:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))


# ── linted ────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("hadolint", "Containerfile"),
        ("check-jsonschema", "--builtin-schema vendor.compose-spec compose.yaml"),
        ("caddy", "validate --adapter caddyfile --config Caddyfile"),
    ],
)
def test_a_linter_finds_nothing_in_the_files(name: str, options: str, tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    command = [tool(name), *options.split()]
    ran = subprocess.run(command, cwd=DEPLOY, env=environment, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_replica_is_read_only_has_no_privilege_and_all_that_it_mounts_is_there() -> None:
    services = compose()["services"]
    replicas = [service for name, service in services.items() if name.startswith("server-")]
    assert len(replicas) == 2
    for service in replicas:
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in service
        assert "ports" not in service, "only the proxy is reached from outside"
    for service in services.values():
        for mount in service.get("volumes", ()):
            source, _, _ = mount.partition(":")
            assert source in compose()["volumes"] or (DEPLOY / source).is_file()
    config = tomllib.loads((DEPLOY / "serve.toml").read_text("utf-8"))
    grace_s = int(services["server-1"]["stop_grace_period"].removesuffix("s"))
    assert config["drain_s"] < grace_s


def test_the_example_of_the_environment_names_every_variable() -> None:
    pool = tomllib.loads((DEPLOY / "pool.toml").read_text("utf-8"))
    keys = {worker["api_key_env"] for worker in pool["worker"]}
    lines = (DEPLOY / "example.env").read_text("utf-8").splitlines()
    named = {line.partition("=")[0] for line in lines if "=" in line}
    assert named == {"POSTGRES_PASSWORD", "SITE", *keys}


def test_what_the_replicas_serve_passes_its_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    changes = [f"pool={DEPLOY / 'pool.toml'}", f"journal={tmp_path / 'serve.sqlite'}", "port=0"]
    command = ["serve", "--config", str(DEPLOY / "serve.toml"), *changes]
    assert main([*command, "--dry-run", "--offline"]) == 0, capsys.readouterr()


# ── run ───────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image, whose packages come from the index."""
    probe = [
        "bwrap",
        "--unshare-all",
        "--unshare-user",
        "--disable-userns",
        "--uid",
        "1",
        "--ro-bind",
        "/",
        "/",
    ]
    try:
        subprocess.run([*probe, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs bubblewrap 0.8 and user namespaces: {error}")
    made = Image(ROOT, tmp_path_factory.mktemp("image"))
    made.build()
    return made


@pytest.mark.slow
def test_the_image_serves_is_healthy_and_stops_at_sigterm_on_a_read_only_file_system(
    image: Image,
) -> None:
    assert image.user.partition(":")[0] not in ("0", "root")
    config = {"host": "0.0.0.0", "key": [{"name": "ann", "hash": HASH}]}
    program = STOP.format(check=shlex.join(image.health_check))
    command = ["sh", "-euc", program, "sh", *image.entry_point, *image.arguments]
    ran = image.run(command, {"serve.toml": dump_toml(config)})
    assert ran.returncode == 0, ran.stderr
    assert "serving" in ran.stderr
    refused = image.run(["touch", "/opt/openconductor/file"])
    assert "Read-only file system" in refused.stderr


@pytest.mark.slow
def test_the_image_is_unhealthy_if_nothing_serves_and_names_a_config_that_is_not_mounted(
    image: Image,
) -> None:
    assert image.run(image.health_check).returncode != 0
    ran = image.run([*image.entry_point, "serve", "--config", "/etc/openconductor/none.toml"])
    assert ran.returncode == 2
    assert "/etc/openconductor/none.toml" in ran.stderr


@pytest.mark.slow
def test_the_commands_that_the_files_name_run_in_the_image(image: Image) -> None:
    made = image.run([*image.entry_point, "serve", "--new-key", "ann"])
    assert 'name = "ann"' in made.stdout
    demo = image.run([*image.entry_point, "demo", "--json"])
    assert json.loads(demo.stdout)["accuracy"]["conductor"] > 0.5


@pytest.mark.slow
def test_where_no_namespaces_are_allowed_programs_are_refused_with_the_reason(
    image: Image,
) -> None:
    program = "import openconductor; openconductor.run_untrusted('print(open(\"/etc/passwd\"))')"
    ran = image.run(["python", "-c", program])
    assert ran.returncode == 1
    assert "SandboxError: no sandbox works here" in ran.stderr
    assert "bubblewrap may not make namespaces here" in ran.stderr
    assert ran.stdout == ""


@pytest.mark.slow
def test_the_database_s_health_check_passes_on_a_database() -> None:
    kind, program, *options = compose()["services"]["database"]["healthcheck"]["test"]
    assert kind == "CMD"
    try:
        socket.create_server(("127.0.0.1", 5432)).close()
    except OSError:
        pytest.skip("needs the port 5432, which is in use")
    with running("-c", "listen_addresses=127.0.0.1") as server:
        command = [server.program(program), *options]
        subprocess.run(command, check=True, capture_output=True)
    away = subprocess.run(command, check=False, capture_output=True)
    assert away.returncode == 2


# ── two replicas behind the proxy ─────────────────────────────────────────────────────────────────
def replica(folder: Path, journal: str) -> AbstractContextManager[Process]:
    """Serve the shipped config with the gym for workers."""
    config = tomllib.loads((DEPLOY / "serve.toml").read_text("utf-8"))
    config |= {"host": "127.0.0.1", "port": 0, "pool": "gym", "conductor": "", "journal": journal}
    config["key"] = [{**config["key"][0], "hash": HASH, "rpm": 6000}]
    folder.mkdir()
    return serve(folder, **config)


@contextmanager
def proxy(folder: Path, *ports: int) -> Iterator[httpx.Client]:
    """Run the shipped proxy over servers at these ports; return a client that trusts it."""
    caddy = tool("caddy")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    servers = " ".join(f"127.0.0.1:{port}" for port in ports)
    environment = {**os.environ, "SITE": f"localhost:{port}", "SERVERS": servers}
    environment |= {"HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    adapt = [caddy, "adapt", "--adapter", "caddyfile", "--config", str(DEPLOY / "Caddyfile")]
    adapted = subprocess.run(adapt, env=environment, capture_output=True, check=True)
    config = json.loads(adapted.stdout)
    config["admin"] = {"disabled": True}
    for server in config["apps"]["http"]["servers"].values():
        server["automatic_https"] = {"disable_redirects": True}  # they need port 80
    (folder / "caddy.json").write_text(json.dumps(config))
    command = [caddy, "run", "--config", str(folder / "caddy.json")]
    with (
        (folder / "caddy.log").open("wb") as log,
        subprocess.Popen(command, env=environment, stderr=log) as run,
    ):
        try:
            authority = folder / "caddy/pki/authorities/local/root.crt"
            wait_until(authority.is_file)
            trust = ssl.create_default_context(cafile=str(authority))
            with httpx.Client(base_url=f"https://localhost:{port}", verify=trust) as client:
                wait_until(lambda: is_answered(client))
                yield client
        finally:
            run.terminate()


def is_answered(client: httpx.Client) -> bool:
    with suppress(httpx.TransportError):
        return client.get("/v1/models", headers=HEADERS).is_success
    return False


@pytest.mark.slow
def test_two_replicas_answer_behind_the_proxy_and_one_may_stop(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    journal = postgres.new_place()
    body = request_body("chat", EXAMPLE)
    with (
        replica(tmp_path / "first", journal) as first,
        replica(tmp_path / "second", journal) as second,
        proxy(tmp_path, first.port, second.port) as client,
    ):
        client.headers.update(HEADERS)

        def ask() -> int:
            return client.post(PATHS["chat"], json=body, timeout=60).status_code

        assert [ask() for _ in range(6)] == [200] * 6
        for path in ("/metrics", "/health/live"):
            assert client.get(path).status_code == 404
        for server in (first, second):
            metrics = httpx.get(f"{server.url}/metrics").text
            assert 'openconductor_requests_total{api="chat"' in metrics, "both were asked"
        told = {"model": "conductor", "input": EXAMPLE}
        with httpx.Client(headers=HEADERS, timeout=60) as direct:
            answer = direct.post(f"{first.url}/v1/responses", json=told)
            told["previous_response_id"] = answer.json()["id"]
            assert direct.post(f"{second.url}/v1/responses", json=told).status_code == 200
            identifier = answer.headers["x-request-id"]
            assert direct.get(f"{second.url}/v1/episodes/{identifier}").status_code == 200
        with ThreadPoolExecutor(8) as clients:
            answers = [clients.submit(ask) for _ in range(100)]
            wait_until(answers[20].done)
            first.process.send_signal(signal.SIGTERM)
            assert Counter(answer.result() for answer in answers) == {200: 100}
        assert first.process.wait(60) == 0
        assert not is_ready(first.url)
        assert [ask() for _ in range(4)] == [200] * 4
