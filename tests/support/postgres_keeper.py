"""The process that keeps one PostgreSQL server, and takes it away when its owner is gone.

It is the server's parent and does what its standard input says. The end of that input means that the owner is
done, or was killed: the server is stopped and its directory removed.
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
    """One data directory and, at most times, the server that runs on it."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.programs = Path()
        self.directory = Path(order["directory"])
        self.user: int | None = order["user"]
        self.group: int | None = order["group"]
        self.data = self.directory / "data"
        self.log = self.directory / "log"
        self.server: subprocess.Popen[bytes] | None = None

    def initialize(self, programs: str, superuser: str, verifier: str, settings: dict[str, str]) -> None:
        """Makes the data directory. Raises with the server's own words when that fails."""
        self.programs = Path(programs)
        password_file = self.directory / "password"
        password_file.write_text(verifier)
        self._hand_over(password_file)
        options = [f"--pgdata={self.data}", f"--username={superuser}", f"--pwfile={password_file}"]
        options += [
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
            "--no-instructions",
        ]
        if self._spawn("initdb", *options).wait() != 0:
            raise RuntimeError(self.last_words())
        password_file.unlink()
        with (self.data / "postgresql.conf").open("a") as configuration:
            configuration.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self, port: str) -> None:
        """Returns when connections are accepted. Raises with the server's own words when they won't be."""
        self.server = self._spawn("postgres", "-D", str(self.data), "-p", port)
        deadline = time.monotonic() + READY_SECONDS
        while not self._is_ready(self.server.pid):
            if self.server.poll() is not None or time.monotonic() > deadline:
                self.stop("immediate")
                raise RuntimeError(self.last_words())
            time.sleep(POLL_SECONDS)

    def stop(self, mode: str) -> None:
        """Returns when the server is gone. `immediate` leaves it as a crash would."""
        if self.server is None:
            return
        self.server.send_signal(STOP_SIGNALS[mode])
        try:
            self.server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
        self.server = None

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-8:]) or "it said nothing"

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

    def _hand_over(self, path: Path) -> None:
        path.chmod(0o600)
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group)

    def _is_ready(self, pid: int) -> bool:
        # The eighth line of the server's own note says how far it is; the first guards against an older note.
        try:
            note = (self.data / "postmaster.pid").read_text().split("\n")
        except FileNotFoundError:
            return False
        return note[0] == str(pid) and len(note) > 7 and note[7].strip() == "ready"


def obey(keeper: Keeper, order: dict[str, Any]) -> None:
    match order["do"]:
        case "initialize":
            keeper.initialize(order["programs"], order["superuser"], order["verifier"], order["settings"])
        case "start":
            keeper.start(order["port"])
        case "stop":
            keeper.stop(order["mode"])
        case unknown:
            raise RuntimeError(f"nobody taught the keeper to {unknown}")


def main() -> None:
    # Whoever ends all processes politely gets the same clean end as an owner who is done.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    keeper = Keeper(json.loads(sys.stdin.readline()))
    try:
        for line in sys.stdin:
            try:
                obey(keeper, json.loads(line))
                trouble = None
            except (RuntimeError, OSError) as failure:
                trouble = str(failure)
            print(json.dumps({"trouble": trouble}), flush=True)
    except BrokenPipeError:
        # The owner is gone and nobody listens; what is left to do does not need a listener.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        keeper.stop("fast")
        shutil.rmtree(keeper.directory, ignore_errors=True)


if __name__ == "__main__":
    main()
