"""The Dockerfile and the compose file. `make image` builds the image; docs/releasing.md says what is tried with it."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hookmill import __version__
from hookmill.settings import Settings
from tests.packaging.tools import errors_of, report_of
from tests.support.service import Service
from tests.support.waiting import LONG_SECONDS

ROOT = Path(__file__).resolve().parents[2]
DIRECTORY = ROOT / "deploy" / "docker"
DOCKERFILE = (DIRECTORY / "Dockerfile").read_text()
VARIABLES_OF_COMPOSE = {"HOOKMILL_IMAGE", "HOOKMILL_HOSTNAME", "HOOKMILL_UPSTREAM", "HOOKMILL_PROXY_NETWORK"}
"""Variables that are not settings. Containers of Hookmill don't get them."""


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, each with its arguments on one line."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split()[0], " ".join(line.split()[1:])) for line in joined.splitlines()]


@pytest.fixture
def services():
    services: dict[str, dict[str, Any]] = yaml.safe_load((DIRECTORY / "compose.yaml").read_text())["services"]
    return services


def test_dockerfile_has_no_known_weakness():
    code, output = report_of("hadolint", "--no-color", DIRECTORY / "Dockerfile")

    assert code == 0, output


def test_image_runs_as_a_numbered_account():
    final_stage = instructions(DOCKERFILE.rpartition("\nFROM ")[2])

    assert [arguments for name, arguments in final_stage if name == "USER"] == ["10001:10001"]


def test_image_gets_neither_secrets_nor_downloads():
    names = {name for name, _ in instructions(DOCKERFILE)}
    arguments = [arguments for name, arguments in instructions(DOCKERFILE) if name == "ARG"]

    assert "ADD" not in names
    assert arguments == ["PYTHON_IMAGE=python:3.13-slim-bookworm"]
    assert re.findall(r"https?://(?!127\.0\.0\.1)|curl|wget", DOCKERFILE) == []


def test_builder_gets_only_what_the_image_is_built_from():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copies = [arguments.split() for name, arguments in instructions(DOCKERFILE) if name == "COPY"]
    copied = {name for words in copies if not words[0].startswith("--from=") for name in words[:-1]}

    assert ignored[1] == "*"
    assert copied == allowed
    assert [name for name in copied if not (ROOT / name).exists()] == []


@pytest.fixture
def health_check():
    [command] = re.findall(r"^ +CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    program, *arguments = json.loads(command)
    assert program == "python3"
    return [sys.executable, *arguments]


def test_health_check_fails_when_the_service_is_stopped(health_check, tmp_path):
    service = Service(tmp_path / "data").start()

    def status():
        environment = {"HOOKMILL_PORT": str(service.port)}
        return subprocess.run(health_check, env=environment, stderr=subprocess.DEVNULL, timeout=LONG_SECONDS).returncode

    try:
        status_while_running = status()
    finally:
        service.kill()
    assert (status_while_running, status()) == (0, 1)


def test_compose_file_is_valid():
    assert errors_of(yaml.safe_load((DIRECTORY / "compose.yaml").read_text()), "compose-spec") == []


def test_compose_file_names_the_image_of_this_version(services):
    images = {services[name]["image"] for name in ("serve", "worker")}

    assert images == {f"${{HOOKMILL_IMAGE:-hookmill:{__version__}}}"}


def test_only_the_proxy_is_reachable(services):
    assert [name for name, service in services.items() if "ports" in service] == ["caddy"]
    assert "database" not in services["caddy"]["networks"]


def test_containers_that_send_alarms_reach_their_destinations(services):
    """The ingress sends them, too: it has a worker process, although it performs no runs."""
    for name in ("serve", "worker"):
        assert "outside" in services[name]["networks"]
        assert services[name]["env_file"] == [{"path": "hookmill.env", "required": False}]


def test_containers_can_write_to_their_volumes_only(services):
    assert {service["read_only"] for service in services.values()} == {True}
    assert all("no-new-privileges:true" in service["security_opt"] for service in services.values())
    assert all(service["cap_drop"] == ["ALL"] for name, service in services.items() if name != "postgres")


def test_every_service_has_a_health_check(services):
    """Docker Compose 2.26 fails to wait for a container whose check is turned off. Caddy's image has none to turn
    off."""
    assert [name for name, service in services.items() if service.get("healthcheck", {}).get("disable")] == []


def test_compose_file_mounts_files_that_exist(services):
    volumes = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])]
    paths = [volume for volume in volumes if volume.startswith(".")]

    assert len(paths) == 3
    assert [path for path in paths if not (DIRECTORY / path).is_file()] == []


def test_files_for_deployments_use_settings_that_exist():
    texts = [path.read_text() for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    variables = {name for text in texts for name in re.findall(r"\bHOOKMILL_[A-Z0-9_]+", text)}

    settings = {f"HOOKMILL_{name.upper()}" for name in Settings.model_fields}
    assert variables - settings == VARIABLES_OF_COMPOSE
