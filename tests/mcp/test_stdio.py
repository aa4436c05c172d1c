"""`hookmill mcp`: what it writes, and what it says if it can't start."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from hookmill.cli import mcp
from hookmill.domain.errors import Invalid
from tests.mcp.test_endpoint import INITIALIZE, SHOW_ME
from tests.support.ports import free_port

LIST_TOOLS = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def exchange(messages: list[Any], *arguments: str, **variables: str) -> tuple[list[Any], str]:
    """The messages on standard output, each of which must be JSON-RPC, and the text on standard error."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HOOKMILL_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "hookmill", "mcp", *arguments],
        env=inherited | {f"HOOKMILL_{name}": value for name, value in variables.items()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    answers = []
    with process:
        for message in messages:
            process.stdin.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
            process.stdin.flush()
            if isinstance(message, dict) and "id" in message:
                answers.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.stderr is not None
        errors = process.stderr.read()
    assert process.returncode == 0
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    return answers, errors


def test_standard_output_has_only_the_protocol(scene):
    server = f"http://127.0.0.1:{scene.service.port}/"

    (_, tools, result), _ = exchange(
        [INITIALIZE, INITIALIZED, LIST_TOOLS, SHOW_ME | {"id": 3}],
        "--server",
        server,
        API_KEY=scene.keys["viewer"],
        SERVER="http://127.0.0.1:1",
    )

    assert len(tools["result"]["tools"]) > 20
    assert '"name":"viewer"' in result["result"]["content"][0]["text"]


def test_client_learns_that_the_service_is_unreachable():
    server = f"http://127.0.0.1:{free_port()}"

    (_, tools, call), errors = exchange(
        [INITIALIZE, INITIALIZED, LIST_TOOLS, SHOW_ME | {"id": 3}], API_KEY="hmk_canary-key", SERVER=server
    )

    for answer in (tools, call):
        assert answer["error"]["message"] == f"Could not connect to {server}: Connection refused."
    assert "canary" not in errors


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({}, "Set HOOKMILL_API_KEY to an API key of the service"),
        ({"API_KEY": " "}, "Set HOOKMILL_API_KEY to an API key of the service"),
        ({"API_KEY": "hmk_x", "SERVER": "hooks.example"}, "hooks.example is not the URL of a service."),
        ({"API_KEY": "hmk_x", "SERVER": "https://user:pass@hooks.example"}, "is not the URL of a service."),
    ],
)
def test_problems_are_reported_at_the_start(monkeypatch, variables, problem):
    for name in ("API_KEY", "SERVER"):
        monkeypatch.delenv(f"HOOKMILL_{name}", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(f"HOOKMILL_{name}", value)

    with pytest.raises(Invalid, match=problem):
        mcp.mcp()


def test_missing_library_is_reported(monkeypatch):
    monkeypatch.setattr(mcp, "find_spec", lambda _: None)

    with pytest.raises(Invalid, match=r"install hookmill with the extra mcp: hookmill\[mcp\]"):
        mcp.mcp()
