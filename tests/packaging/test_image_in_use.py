"""The image and the compose file as an operator uses them: built by `scripts/image`, started as docs/operating.md says.

The engine is Podman with runc. Images built from Debian packages replace those of a registry: Python, PostgreSQL and
Caddy.
"""

import base64
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest

from hookmill import __version__
from tests.support.compose import Composition
from tests.support.images import IMAGE, ROOT, build_image, debian_archive, import_archive
from tests.support.podman import podman
from tests.support.waiting import LONG_SECONDS, until

pytestmark = [pytest.mark.proof, pytest.mark.timeout(900)]

OPTIONS: Final = (
    "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges",
    "--volume=hookmill:/var/lib/hookmill",
)  # fmt: skip
"""Those of the guide. Requests come from inside the container, so no port is published."""
NAME: Final = "hookmill"
SUMMARY: Final = "A summary."
COMMAND: Final = f"test -f event-payload.json && echo '{SUMMARY}' > outputs/summary.md && id -u"
RUNNERS: Final = json.dumps({"sh": {"argv": ["sh", "-c", COMMAND]}})


@pytest.fixture(scope="module")
def engine():
    # In a longer path, Podman notices the end of a container only after 20 seconds. Memory would be too small.
    directory = Path(tempfile.mkdtemp(prefix="hm-", dir="/tmp"))
    try:
        engine = podman(directory, has_networks=True)
        build_image(engine, directory)
        yield engine
        subprocess.run([engine, "rm", "--all", "--force", "--time=0"], capture_output=True, timeout=60)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class Container:
    """A service in a container."""

    def __init__(self, engine: Path):
        self._engine = engine
        options = (*OPTIONS, "--network=none", f"--env=HOOKMILL_RUNNERS={RUNNERS}")
        self.podman("run", "--detach", f"--name={NAME}", *options, IMAGE)
        try:
            until(lambda: self.status_of("healthcheck", "run", NAME) == 0, self.log, pause_seconds=0.3)
        except BaseException:
            self.remove()
            raise

    def podman(self, *arguments: str) -> str:
        process = self._start(arguments)
        assert process.returncode == 0, f"{arguments}:\n{process.stdout}{process.stderr}"
        return process.stdout

    def status_of(self, *arguments: str) -> int:
        return self._start(arguments).returncode

    def _start(self, arguments: tuple[str, ...]) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([self._engine, *arguments], capture_output=True, text=True, timeout=LONG_SECONDS)

    def execute(self, *command: str) -> str:
        return self.podman("exec", NAME, *command)

    def hookmill(self, *arguments: str) -> Any:
        return json.loads(self.execute("hookmill", *arguments, "--json"))

    def log(self) -> str:
        process = self._start(("logs", NAME))
        return process.stdout + process.stderr

    def stop(self) -> int:
        """Stop it like an operator. Returns the exit status."""
        self.podman("stop", "--time=40", NAME)
        return int(self.podman("inspect", "--format={{.State.ExitCode}}", NAME))

    def remove(self):
        self._start(("rm", "--force", "--time=0", NAME))


def test_delivery_to_the_image_starts_a_run_that_succeeds(engine):
    container = Container(engine)
    try:
        container.hookmill("webhook", "create", "pulls", "--mode", "signature", "--scheme", "standard_webhooks")
        container.hookmill("automation", "create", "a", "--webhook", "pulls", "--runner", "sh", "--prompt", "Do it.")
        sent = container.execute("hookmill", "send", "pulls", "--url", "http://127.0.0.1:8420", "--data", '{"a": 1}')
        [run] = until(
            lambda: container.hookmill("run", "list", "--state", "succeeded")["items"],
            lambda: f"the run has succeeded: {container.hookmill('run', 'list')}",
            pause_seconds=0.5,
        )
        shown = container.hookmill("run", "show", run["run_id"])

        assert container.execute("id", "-u") == "10001\n"
        assert container.status_of("exec", NAME, "touch", "/opt/hookmill/x", "/etc/hookmill/x", "/var/x") == 1
        assert "CapBnd:\t0000000000000000\n" in container.execute("cat", "/proc/1/status")
        assert run["delivery_id"] in sent
        assert shown["output_tail"] == "10001\n"
        assert SUMMARY in json.dumps(shown)
        # SIGTERM ends the service in an orderly way: its exit status is not that of SIGKILL.
        assert container.stop() == 0
        container.remove()

        container = Container(engine)

        assert [delivery["delivery_id"] for delivery in container.hookmill("delivery", "list")["items"]] == [
            run["delivery_id"]
        ]
        assert container.stop() == 0
    finally:
        container.remove()


# The compose file


POSTGRES, CADDY = "localhost/postgres", "localhost/caddy"
VARIABLES: Final = {
    "POSTGRES_PASSWORD": "0123456789abcdef",
    "HOOKMILL_MASTER_KEY": base64.b64encode(bytes(range(32))).decode(),
    # For this name, Caddy issues the certificate itself.
    "HOOKMILL_HOSTNAME": "localhost",
}
POST: Final = """
import http.client, ssl, sys
path, token, authority, body = sys.argv[1:]
connection = http.client.HTTPSConnection("localhost", 443, context=ssl.create_default_context(cadata=authority))
connection.request("POST", path, body, {"Authorization": "Bearer " + token})
response = connection.getresponse()
print(response.status, response.read().decode())
"""


@pytest.fixture
def network():
    """A network namespace of its own, in which every port is free: the file of `nsenter`."""
    script = "ip link set lo up && echo up && exec sleep 900"
    holder = subprocess.Popen(["unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"up\n"
        yield f"/proc/{holder.pid}/ns/net"
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


@pytest.fixture
def composition(engine, network, tmp_path):
    archive = engine.with_name("services.tar")
    entrypoint = Path(__file__).with_name("postgres-entrypoint")
    debian_archive(archive, ["postgresql", "caddy"], f"upload {entrypoint} /entrypoint", 'chmod 755 "$1/entrypoint"')
    import_archive(engine, archive, POSTGRES, 'ENTRYPOINT ["/entrypoint"]', "VOLUME /var/lib/postgresql")
    import_archive(engine, archive, CADDY, "ENV XDG_CONFIG_HOME=/config", "ENV XDG_DATA_HOME=/data")
    archive.unlink()
    deploy = shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    (deploy / "docker" / "hookmill.toml").write_text(
        f"default_runner = 'sh'\n[runners.sh]\nargv = ['sh', '-c', {json.dumps(COMMAND)}]\n"
    )
    (deploy / "docker" / "hookmill.toml").chmod(0o644)
    in_network = tmp_path / "podman"
    in_network.write_text(f'#!/bin/sh\nexec nsenter --net={network} {engine} "$@"\n')
    in_network.chmod(0o755)
    composition = Composition(
        in_network,
        deploy / "docker" / "compose.yaml",
        VARIABLES,
        {"postgres:18": POSTGRES, "caddy:2": CADDY, f"hookmill:{__version__}": IMAGE},
    )
    try:
        yield composition
    finally:
        composition.down()


def test_delivery_through_caddy_is_performed_by_the_worker_and_outlasts_a_restart(composition, network):
    def hookmill(*arguments):
        return json.loads(composition.execute("serve", "hookmill", *arguments, "--json"))

    composition.up()
    webhook = hookmill("webhook", "create", "ci")
    hookmill("automation", "create", "a", "--webhook", "ci", "--prompt", "Do it.")
    authority_file = "/data/caddy/pki/authorities/local/root.crt"
    authority = until(
        lambda: composition.start_podman("exec", composition.container("caddy"), "cat", authority_file).stdout,
        lambda: f"Caddy has a certificate: {composition.logs('caddy')}",
    )
    path = f"/webhooks/w/{webhook['uid']}"
    post = ["nsenter", f"--net={network}", sys.executable, "-c", POST, path, webhook["secret"], authority, '{"a": 1}']
    answer = until(
        lambda: subprocess.run(post, capture_output=True, text=True, timeout=LONG_SECONDS).stdout,
        lambda: f"Caddy answers: {composition.logs('caddy')}",
        pause_seconds=0.5,
    )

    assert answer.startswith("202 "), answer + composition.logs("serve")
    [run] = until(
        lambda: hookmill("run", "list", "--state", "succeeded")["items"],
        lambda: f"the run has succeeded:\n{hookmill('run', 'list')}\n{composition.logs('worker')}",
        pause_seconds=0.5,
    )
    assert run["delivery_id"] in answer
    for service in ("caddy", "worker", "serve", "postgres"):
        composition.podman("stop", composition.container(service))
        status = composition.podman("inspect", "--format={{.State.ExitCode}}", composition.container(service))
        assert status == "0\n", f"{service}:\n{composition.logs(service)}"
    composition.down()

    composition.up()

    assert [each["run_id"] for each in hookmill("run", "list")["items"]] == [run["run_id"]]
