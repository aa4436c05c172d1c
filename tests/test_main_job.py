"""The main job as a newcomer meets it: a first start prints a line, the line posts a delivery, and that starts a
run."""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hookmill.domain.ids import run_id
from hookmill.domain.run import Run, RunState
from tests.faults.parts import Part, parts_of
from tests.support.service import Service, serving
from tests.support.waiting import LONG_SECONDS, until


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("first") / "data") as running:
        yield running


def printed_line(service: Service) -> str:
    """The line that the first start prints once everything is ready."""

    def lines() -> list[str]:
        return re.findall("^(curl .*)\n", service.log(), re.MULTILINE)

    return until(lines, lambda: f"a curl line is printed:\n{service.log()}")[0]


def finished_payload(service: Service, delivery_id: str) -> bytes:
    """What is attached to the finished run that this delivery started."""
    with service.management() as management:
        may = management.access.operator("default")

        def ended() -> list[Run]:
            return [run for run in management.runs.of_delivery(may, delivery_id) if run.state.is_final]

        [run] = until(ended, "the run has ended")
        assert run.state is RunState.SUCCEEDED
        return (service.data_dir / "runs" / run_id(run.id) / "event-payload.json").read_bytes()


def test_the_printed_line_pasted_twice_starts_two_runs(service: Service):
    payloads = []
    for _ in range(2):
        answered = subprocess.run(["sh", "-c", printed_line(service)], capture_output=True, check=True, timeout=30)
        payloads.append(json.loads(finished_payload(service, json.loads(answered.stdout)["delivery_id"])))
        second = int(time.time())
        while int(time.time()) == second:
            time.sleep(0.05)

    assert [payload["message"] for payload in payloads] == ["Hello from curl"] * 2
    assert 0 < payloads[1]["sent_at"] - payloads[0]["sent_at"] < LONG_SECONDS


def pull_request_event() -> bytes:
    """A body like a code host's: 100 KB, indented, with text in several scripts, escapes, links and numbers."""
    commits = [
        {
            "sha": f"{number:040x}",
            "message": f'fix: "quoted" \\ slashed\n\n<b>ünïcode</b> 漢字 \U0001f680 #{number}',
            "url": f"https://api.example.com/repos/o/r/commits/{number:040x}",
            "author": {"id": 9_007_199_254_740_993 + number, "site_admin": False, "name": None},
            "additions": number * 1.5,
        }
        for number in range(270)
    ]
    return json.dumps({"action": "opened", "commits": commits}, indent=2, ensure_ascii=False).encode()


def test_a_large_body_is_attached_byte_for_byte(service: Service, tmp_path: Path):
    body = pull_request_event()
    assert 95_000 < len(body) < 125_000
    (tmp_path / "body.json").write_bytes(body)
    line = re.sub(r" -d '.*}' ", f" --data-binary @{tmp_path / 'body.json'} ", printed_line(service))

    answered = subprocess.run(["sh", "-c", line], capture_output=True, check=True, timeout=30)

    assert finished_payload(service, json.loads(answered.stdout)["delivery_id"]) == body


def test_runs_stand_back_behind_deliveries(service: Service):
    printed_line(service)

    niceness = {part: {process.nice() for process in processes} for part, processes in parts_of(service).items()}

    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert niceness == {
        Part.SUPERVISOR: {own},
        Part.INGRESS: {own},
        Part.WRITER: {own},
        Part.WORKER: {min(own + 10, 19)},
        Part.FORKS: {own},
    }
