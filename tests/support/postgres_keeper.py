"""The keeper: a process that is the parent of one PostgreSQL server, and carries out orders from its standard input.

Each line of its input is an order in JSON, and each line of its output the result. At the end of the input, the process
that started the keeper has ended. The keeper then stops the server, and removes its directory.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

READY_SECONDS = 60
STOP_SECONDS = 20
POLL_SECONDS = 0.01

STOP_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class Keeper:
    """One data directory, and the server that uses it, unless it is stopped."""

    def __init__(self, order: dict[str, Any]):
        self.programs = Path()
        self.directory = Path(order["directory"])
        self.user: int | None = order["user"]
        self.group: int | None = order["group"]
        self.data = self.directory / "data"
        self.log = self.directory / "log"
        self.server: subprocess.Popen[bytes] | None = None

    def initialize(self, programs: str, superuser: str, verifier: str, settings: dict[str, str]):
        """Create the data directory. Raises `RuntimeError` with the server's messages."""
        self.programs = Path(programs)
        password_file = self.directory / "password"
        password_file.write_text(verifier)
        self._give_to_server_account(password_file)
        options = [f"--pgdata={self.data}", f"--username={superuser}", f"--pwfile={password_file}"]
        options += [
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
            "--no-instructions",
        ]
        if self._spawn("initdb", *options).wait() != 0:
            raise RuntimeError(self.last_messages())
        password_file.unlink()
        with (self.data / "postgresql.conf").open("a") as configuration:
            configuration.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self, port: str):
        """Start the server, and wait until it accepts connections. Raises `RuntimeError` with the server's messages."""
        self.server = self._spawn("postgres", "-D", str(self.data), "-p", port)
        deadline = time.monotonic() + READY_SECONDS
        while not self._is_ready(self.server.pid):
            if self.server.poll() is not None or time.monotonic() > deadline:
                self.stop("immediate")
                raise RuntimeError(self.last_messages())
            time.sleep(POLL_SECONDS)

    def stop(self, mode: str):
        """Stop the server, and wait for its end. The mode `immediate` is like a crash."""
        if self.server is None:
            return
        self.server.send_signal(STOP_SIGNALS[mode])
        try:
            self.server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        self.server = None

    def last_messages(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-8:]) or "it wrote no message"

    def _spawn(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath, "HOME": str(self.directory)}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [str(self.programs / program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment,
                user=self.user,
                group=self.group,
                extra_groups=None if self.user is None else [],
                umask=0o077,
            )

    def _give_to_server_account(self, path: Path):
        path.chmod(0o600)
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group)

    def _is_ready(self, pid: int) -> bool:
        # The eighth line of postmaster.pid is the state. The first is the process id, which is wrong in an old file.
        try:
            lines = (self.data / "postmaster.pid").read_text().split("\n")
        except FileNotFoundError:
            return False
        return lines[0] == str(pid) and len(lines) > 7 and lines[7].strip() == "ready"


def carry_out(keeper: Keeper, order: dict[str, Any]):
    match order["do"]:
        case "initialize":
            keeper.initialize(order["programs"], order["superuser"], order["verifier"], order["settings"])
        case "start":
            keeper.start(order["port"])
        case "stop":
            keeper.stop(order["mode"])
        case unknown:
            raise RuntimeError(f"the keeper has no order {unknown!r}")


def main():
    # SIGTERM has the same effect as the end of the input.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    keeper = Keeper(json.loads(sys.stdin.readline()))
    try:
        for line in sys.stdin:
            try:
                carry_out(keeper, json.loads(line))
                message = None
            except (RuntimeError, OSError) as error:
                message = str(error)
            print(json.dumps({"error": message}), flush=True)
    except BrokenPipeError:
        # The output is no longer read. Without this, the interpreter would fail when it flushes the output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        keeper.stop("fast")
        shutil.rmtree(keeper.directory, ignore_errors=True)


if __name__ == "__main__":
    main()
