"""A real S3-compatible object store for tests: `rclone serve s3`, over TLS. It verifies the signatures of requests.

Each bucket is a directory, and each object a file in it.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import psutil

from hookmill.store.objects import ObjectStore, ObjectStoreConfig
from tests.support.certificates import certificates_in
from tests.support.ports import free_port
from tests.support.processes import end_with_the_tests
from tests.support.waiting import until

BUCKET: Final = "files-of-runs"


def is_stopped(thread: Path) -> bool:
    """Whether SIGSTOP has stopped a thread, by its directory in /proc."""
    # The name of the program, in parentheses, may contain spaces.
    return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"


class ObjectServer:
    """A server that tests can stop, freeze and start again. `config` is the configuration of its clients."""

    def __init__(self, directory: Path, *, has_path_style: bool):
        self._directory = directory
        # If the bucket is part of the host name, the bucket 127 at the endpoint 0.0.1 has the host 127.0.0.1.
        bucket, host = (BUCKET, "127.0.0.1") if has_path_style else ("127", "0.0.1")
        self.bucket = directory / "objects" / bucket
        self.bucket.mkdir(parents=True)
        self.ca_file, self._certificate, self._key = certificates_in(directory)
        self._port = free_port()
        self.config = ObjectStoreConfig(
            bucket=bucket,
            region="us-east-1",
            access_key_id=f"AK{secrets.token_hex(8)}",
            secret_access_key=secrets.token_hex(20),
            endpoint_url=f"https://{host}:{self._port}",
            has_path_style=has_path_style,
            prefix="runs",
            certificate_authority=self.ca_file.read_bytes(),
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self):
        program = shutil.which("rclone", path=sysconfig.get_path("scripts"))
        assert program is not None, "rclone is missing. Run `make setup`, which installs it."
        arguments = [program, "serve", "s3", "--config", os.devnull, "--addr", f"127.0.0.1:{self._port}"]
        arguments += ["--auth-key", f"{self.config.access_key_id},{self.config.secret_access_key}"]
        arguments += [f"--force-path-style={str(self.config.has_path_style).lower()}"]
        arguments += ["--cert", str(self._certificate), "--key", str(self._key), str(self.bucket.parent)]
        with (self._directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_the_tests
            )
        until(self._is_listening, "the object store listens")

    def stop(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """While the block runs, the server accepts connections, and never answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            # Until all of its threads have stopped, the server answers.
            threads = Path(f"/proc/{self._process.pid}/task")
            until(lambda: all(is_stopped(thread) for thread in threads.iterdir()), "the object store is frozen")
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def client(self, **changes: Any) -> ObjectStore:
        return ObjectStore(replace(self.config, **changes))

    def log(self) -> str:
        return (self._directory / "server.log").read_text()

    def object_keys(self) -> list[str]:
        """The keys of all objects."""
        return sorted(str(path.relative_to(self.bucket)) for path in self.bucket.rglob("*") if path.is_file())

    def settings(self) -> dict[str, str]:
        """The settings with which the service uses this object store, by their names."""
        return {
            "run_files": "s3",
            "s3_bucket": self.config.bucket,
            "s3_endpoint_url": self.config.endpoint_url or "",
            "s3_access_key_id": self.config.access_key_id,
            "s3_secret_access_key": self.config.secret_access_key,
            "s3_prefix": self.config.prefix,
            "s3_ca_file": str(self.ca_file),
        }

    def _is_listening(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        connections = psutil.Process(self._process.pid).net_connections("tcp")
        return any(each.status == psutil.CONN_LISTEN for each in connections)


@contextmanager
def serving_objects(directory: Path, *, has_path_style: bool = True) -> Iterator[ObjectServer]:
    server = ObjectServer(directory, has_path_style=has_path_style)
    server.start()
    try:
        yield server
    finally:
        server.stop()
