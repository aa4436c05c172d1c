"""The main task as a new user does it: the first start prints a curl command, which posts a delivery, which starts a
run."""

import json
import os
import re
import subprocess
import time

import pytest

from hookmill.domain.ids import run_id
from hookmill.domain.run import Run, RunState
from tests.faults.parts import Part, parts_of
from tests.support.service import Service, serving
from tests.support.waiting import LONG_SECONDS, until


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("first") / "data") as running:
        yield running


def printed_command(service: Service) -> str:
    """The curl command that the first start prints when the service is ready."""

    def commands() -> list[str]:
        return re.findall("^(curl .*)\n", service.log(), re.MULTILINE)

    return until(commands, lambda: f"a curl command is printed:\n{service.log()}")[0]


def payload_of_run(service: Service, delivery_id: str) -> bytes:
    """The payload in the package of the run that this delivery started. Waits until the run has ended."""
    with service.management() as management:
        may = management.access.operator("default")

        def ended_runs() -> list[Run]:
            return [run for run in management.runs.of_delivery(may, delivery_id) if run.state.is_final]

        [run] = until(ended_runs, "the run has ended")
        assert run.state is RunState.SUCCEEDED
        return (service.data_dir / "runs" / run_id(run.id) / "event-payload.json").read_bytes()


def test_printed_curl_command_starts_a_run_each_time(service):
    payloads = []
    for _ in range(2):
        result = subprocess.run(["sh", "-c", printed_command(service)], capture_output=True, check=True, timeout=30)
        payloads.append(json.loads(payload_of_run(service, json.loads(result.stdout)["delivery_id"])))
        # `sent_at` has whole seconds. In the same second, the body would be a duplicate.
        second = int(time.time())
        while int(time.time()) == second:
            time.sleep(0.05)

    assert [payload["message"] for payload in payloads] == ["Hello from curl"] * 2
    assert 0 < payloads[1]["sent_at"] - payloads[0]["sent_at"] < LONG_SECONDS


def pull_request_event() -> bytes:
    """A body of 100 KB, like that of a code host.

    It is indented, with several writing systems, escapes, URLs and large numbers.
    """
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


def test_large_body_is_attached_to_its_run_byte_for_byte(service, tmp_path):
    body = pull_request_event()
    assert 95_000 < len(body) < 125_000
    (tmp_path / "body.json").write_bytes(body)
    command = re.sub(r" -d '.*}' ", f" --data-binary @{tmp_path / 'body.json'} ", printed_command(service))

    result = subprocess.run(["sh", "-c", command], capture_output=True, check=True, timeout=30)

    assert payload_of_run(service, json.loads(result.stdout)["delivery_id"]) == body


def test_only_the_worker_process_has_a_lower_priority(service):
    printed_command(service)

    niceness = {part: {process.nice() for process in processes} for part, processes in parts_of(service).items()}

    own_niceness = os.getpriority(os.PRIO_PROCESS, 0)
    assert niceness == {
        Part.SUPERVISOR: {own_niceness},
        Part.INGRESS: {own_niceness},
        Part.WRITER: {own_niceness},
        Part.WORKER: {min(own_niceness + 10, 19)},
        Part.FORKS: {own_niceness},
    }
