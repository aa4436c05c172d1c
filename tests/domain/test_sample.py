"""The `curl` command that posts a sample, as shells run it."""

import json
import os
import shutil
import subprocess

import pytest

from hookmill.domain.sample import curl_line
from hookmill.domain.webhook import AuthMode

HOSTILE = 'it\'s $(touch harmed) `touch harmed` "x" \\ !! ; & | * ~'
SHELLS = [shell for shell in ("sh", "bash", "dash", "zsh", "ksh", "busybox") if shutil.which(shell)]


@pytest.fixture
def arguments_file(tmp_path):
    """The file in which a replaced `curl` records its arguments. A replaced `date` returns a later second each time."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, script in (
        ("curl", 'printf "%s\\0" "$@" > arguments'),
        ("date", '[ "$*" = +%s ] || exit 1; echo x >> "$0.calls"; echo $((1900000000 + $(wc -l < "$0.calls")))'),
    ):
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    return tmp_path / "arguments"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("mode", [AuthMode.TOKEN, AuthMode.URL_TOKEN])
def test_every_shell_passes_curl_a_new_body_each_time(arguments_file, shell, mode):
    line = curl_line(mode, f"https://hooks.test/{HOSTILE}", HOSTILE)
    assert line is not None
    assert "\n" not in line
    environment = {"PATH": f"{arguments_file.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    command = [shell, "sh", "-c", line] if shell == "busybox" else [shell, "-c", line]

    calls = []
    for _ in range(2):
        subprocess.run(command, cwd=arguments_file.parent, env=environment, check=True, timeout=20)
        calls.append(arguments_file.read_text().split("\0")[:-1])

    assert [json.loads(arguments[-2])["sent_at"] for arguments in calls] == [1_900_000_001, 1_900_000_002]
    credential = ["-H", f"Authorization: Bearer {HOSTILE}"] if mode is AuthMode.TOKEN else []
    for arguments in calls:
        assert arguments[:-2] == [*credential, "-H", "Content-Type: application/json", "-d"]
        assert arguments[-1] == f"https://hooks.test/{HOSTILE}"
    assert not (arguments_file.parent / "harmed").exists()
