"""A real Prometheus for tests."""

import json
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support import debian
from tests.support.ports import free_port
from tests.support.processes import end_with_the_tests
from tests.support.waiting import until


def prometheus() -> str:
    """The path of Prometheus. Raises `ProgramUnavailable`."""
    return program("prometheus")


def program(name: str) -> str:
    """The path of `prometheus` or `promtool`. Raises `ProgramUnavailable`."""
    return debian.program(name, package="prometheus")


class Prometheus:
    """A running Prometheus, which `scraping` starts."""

    def __init__(self, port: int):
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
