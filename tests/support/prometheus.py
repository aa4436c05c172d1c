"""A real Prometheus for tests. Debian's package is unpacked into a cache, and its system service is never started."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.support.ports import free_port
from tests.support.processes import end_with_the_tests
from tests.support.waiting import until

PACKAGE: Final = "prometheus"
INSTALL_SECONDS: Final = 400


class PrometheusUnavailable(Exception):
    """There is no Prometheus. The text says what was tried and what to do."""


def prometheus() -> str:
    """The path of Prometheus. See `program`."""
    return program("prometheus")


def program(name: str) -> str:
    """The path of `prometheus` or `promtool`: the system's, or the one from Debian's package, which is unpacked now.

    Raises `PrometheusUnavailable`.
    """
    if installed := shutil.which(name):
        return installed
    unpacked = _cache() / "usr" / "bin" / name
    _cache().parent.mkdir(parents=True, exist_ok=True)
    with _cache().with_suffix(".lock").open("ab") as lock:
        # Several test processes may find at the same moment that it is missing.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not unpacked.exists():
            _unpack()
    return str(unpacked)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hookmill-tests" / PACKAGE


def _unpack() -> None:
    """Download Debian's package and unpack it. Installing it would start its service."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise PrometheusUnavailable(
            "There is no prometheus, and the tests of the metrics need it. Install your system's package of that name. "
            "(On Debian and Ubuntu, the tests download it.)"
        )
    tried = []
    with tempfile.TemporaryDirectory(dir=_cache().parent) as directory:
        for command in (["apt-get", "download", PACKAGE], ["apt-get", "update"], ["apt-get", "download", PACKAGE]):
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=INSTALL_SECONDS)
            if archives := list(Path(directory).glob("*.deb")):
                content = Path(directory, "content")
                subprocess.run(["dpkg-deb", "-x", archives[0], content], check=True, timeout=INSTALL_SECONDS)
                content.rename(_cache())
                return
            tried.append(f"`{' '.join(command)}`: {done.stderr.strip()[-200:]}")
    raise PrometheusUnavailable(f"There is no prometheus, and it could not be downloaded. {' '.join(tried)}")


class Prometheus:
    """A running Prometheus, which `scraping` starts."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/"

    def query(self, promql: str) -> list[tuple[Mapping[str, str], float]]:
        """The result of an instant query: the labels and the value of each series. Fails if Prometheus refuses it."""
        answer = self._get("query", query=promql)
        assert answer["status"] == "success", f"{promql}: {answer.get('error')}"
        data = answer["data"]
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(series["metric"], float(series["value"][1])) for series in data["result"]]

    def value(self, promql: str) -> float | None:
        """The value of a query with one series; None if there is none."""
        series = self.query(promql)
        assert len(series) <= 1, series
        return series[0][1] if series else None

    def targets(self) -> Sequence[Mapping[str, Any]]:
        targets: Sequence[Mapping[str, Any]] = self._get("targets")["data"]["activeTargets"]
        return targets

    def _get(self, path: str, **parameters: str) -> Any:
        try:
            with urllib.request.urlopen(
                f"{self._url}{path}?{urllib.parse.urlencode(parameters)}", timeout=20
            ) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)


@contextmanager
def scraping(directory: Path, configuration: str) -> Iterator[Prometheus]:
    """Start Prometheus with this scrape configuration, in YAML, and end it when the block ends."""
    port = free_port()
    directory.mkdir(exist_ok=True)
    config = directory / "prometheus.yaml"
    config.write_text(configuration)
    arguments = [prometheus(), f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}"]
    arguments += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with (directory / "prometheus.log").open("ab") as log:
        process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_the_tests
        )
    try:
        server = Prometheus(port)

        def answers() -> bool:
            assert process.poll() is None, (directory / "prometheus.log").read_text()
            # It answers 503 until it has started.
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=20):
                return True
            return False

        until(answers, "Prometheus answers")
        yield server
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
