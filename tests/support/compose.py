"""Starts the services of a compose file with Podman, which has no program for these files of its own.

It knows the keys that the project's file has, and refuses all others, so that no setting is left out unnoticed.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.waiting import LONG_SECONDS, until

_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
_IGNORED: Final = frozenset({"build", "env_file"})
"""The images exist already, and the file with further secrets, which is optional, does not."""


@dataclass(frozen=True)
class Composition:
    """The services of a compose file, started by an engine."""

    engine: Path
    file: Path
    variables: Mapping[str, str]
    """Those of the file `.env`."""
    images: Mapping[str, str]
    """The local image that stands in for each image of the file."""

    @cached_property
    def _document(self) -> dict[str, Any]:
        document: dict[str, Any] = yaml.safe_load(_VARIABLE.sub(self._value, self.file.read_text()))
        return document

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        services: dict[str, dict[str, Any]] = self._document["services"]
        return services

    def _value(self, reference: re.Match[str]) -> str:
        name, operator, text = reference.groups()
        value = self.variables.get(name)
        if value is None and operator == "-":
            value = text
        assert value is not None, f"the variable {name} is not set: {text}"
        return value

    def container(self, service: str) -> str:
        return f"{self._document['name']}-{service}-1"

    def podman(self, *arguments: str) -> str:
        process = self.start_podman(*arguments)
        assert process.returncode == 0, f"podman {arguments}:\n{process.stdout}{process.stderr}"
        return process.stdout

    def start_podman(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([self.engine, *arguments], capture_output=True, text=True, timeout=LONG_SECONDS)

    def execute(self, service: str, *command: str) -> str:
        return self.podman("exec", self.container(service), *command)

    def logs(self, service: str) -> str:
        process = self.start_podman("logs", self.container(service))
        return process.stdout + process.stderr

    def up(self):
        """Start all services, each after those on which it depends, and wait until those with a check are healthy."""
        for name, network in self._document["networks"].items():
            options = ["--internal"] if network.get("internal") else []
            options += [f"--subnet={config['subnet']}" for config in network.get("ipam", {}).get("config", [])]
            self.podman("network", "create", *options, self._own(name))
        started: set[str] = set()
        while len(started) < len(self.services):
            service = next(
                name
                for name, spec in self.services.items()
                if name not in started and started.issuperset(spec.get("depends_on", {}))
            )
            for other, dependency in self.services[service].get("depends_on", {}).items():
                assert dependency == {"condition": "service_healthy"}
                self._wait_until_healthy(other)
            self.podman("run", "--detach", *self._arguments(service))
            started.add(service)

    def _wait_until_healthy(self, service: str):
        # Podman leaves the schedule of checks to systemd.
        until(
            lambda: self.start_podman("healthcheck", "run", self.container(service)).returncode == 0,
            lambda: f"{service} is healthy:\n{self.logs(service)}",
            pause_seconds=0.3,
        )

    def down(self):
        """Remove everything but the volumes."""
        self.start_podman("rm", "--all", "--force", "--time=0")
        for name in self._document["networks"]:
            self.start_podman("network", "rm", "--force", self._own(name))

    def _own(self, name: str) -> str:
        return f"{self._document['name']}_{name}"

    def _arguments(self, service: str) -> Iterator[str]:
        spec = self.services[service]
        yield f"--name={self.container(service)}"
        yield from (f"--network={self._own(name)}:alias={service}" for name in spec["networks"])
        for key, value in spec.items():
            if key not in ("image", "command", "depends_on", "networks", *_IGNORED):
                yield from self._options(key, value)
        yield self.images[spec["image"]]
        yield from spec.get("command", [])

    def _options(self, key: str, value: Any) -> Iterator[str]:
        match key:
            case "read_only":
                yield f"--read-only={str(value).lower()}"
            case "restart":
                yield f"--restart={value}"
            case "tmpfs" | "cap_drop" | "cap_add" | "security_opt":
                yield from (
                    f"--{key.replace('_', '-')}={each.replace('privileges:true', 'privileges')}" for each in value
                )
            case "environment":
                yield from (f"--env={name}={text}" for name, text in value.items())
            case "ulimits":
                # If there are options, Podman ignores its defaults, and raises the other limits. Tests may not do so.
                limits = {"nproc": 4_096, **value}
                yield from (f"--ulimit={name}={number}:{number}" for name, number in limits.items())
            case "stop_grace_period":
                yield f"--stop-timeout={60 if value == '1m' else int(value.removesuffix('s'))}"
            case "ports":
                yield from (f"--publish={port}" for port in value)
            case "volumes":
                yield from (f"--volume={self._source(volume)}" for volume in value)
            case "healthcheck":
                [kind, *command] = value["test"]
                assert kind == "CMD"
                yield f"--health-cmd={' '.join(command)}"
                yield f"--health-timeout={value['timeout']}"
                yield f"--health-retries={value['retries']}"
            case _:
                raise AssertionError(f"the tests do not know the key {key} of a compose file")

    def _source(self, volume: str) -> str:
        source, rest = volume.split(":", 1)
        if source.startswith("."):
            return f"{(self.file.parent / source).resolve()}:{rest}"
        return f"{self._own(source)}:{rest}"
