"""A service that is out of file descriptors answers what it can, 503 otherwise, and recovers."""

import json
import resource
from contextlib import ExitStack
from pathlib import Path

import psutil

from hookmill.app import open_files
from tests.faults.parts import Part, parts_of, wait_until_announced
from tests.faults.senders import delivery_request
from tests.http.raw_http import RawAnswer, RawConnection
from tests.support.loaded import Forked
from tests.support.service import create_webhook, serving
from tests.support.waiting import LONG_SECONDS, until


def test_service_out_of_file_descriptors_answers_503_and_recovers(tmp_path):
    with serving(tmp_path / "data", performs_runs=False) as service, ExitStack() as stack:
        with service.management() as management:
            webhook = create_webhook(management, "source")
        wait_until_announced(service)
        ingress = parts_of(service)[Part.INGRESS][0]
        connections = [stack.enter_context(RawConnection(service.port, seconds=LONG_SECONDS)) for _ in range(7)]
        until(lambda: has_accepted(ingress, connections), "the service has accepted the connections")
        _, hard_limit = resource.prlimit(ingress.pid, resource.RLIMIT_NOFILE)

        resource.prlimit(ingress.pid, resource.RLIMIT_NOFILE, (3, hard_limit))
        pages = [get(connection, b"/sign-in") for connection in connections[:3]]
        api_answers = [get(connection, b"/api/v1/me") for connection in connections[3:6]]
        connections[6].send(delivery_request(webhook, b'{"n": 1}'))
        delivery = connections[6].read_answer()
        resource.prlimit(ingress.pid, resource.RLIMIT_NOFILE, (hard_limit, hard_limit))

        statuses_afterwards = [service.request("GET", path).status for path in ("/sign-in", "/api/v1/me")]
        delivery_status_afterwards = service.post(webhook, b'{"n": 2}').status

    assert {(answer.status, answer.headers["retry-after"]) for answer in (*pages, *api_answers)} == {(503, "5")}
    assert delivery is not None
    assert delivery.status in (202, 503)
    assert (statuses_afterwards, delivery_status_afterwards) == ([200, 401], 202)
    assert "Traceback" not in service.log()
    errors = [json.loads(line) for line in service.log().splitlines() if '"level": "error"' in line]
    assert sorted(error["where"] for error in errors) == ["api", "dashboard"]


def has_accepted(ingress: psutil.Process, connections: list[RawConnection]) -> bool:
    """Whether the process has accepted all these connections."""
    accepted = ingress.net_connections(kind="tcp")
    client_ports = {each.raddr.port for each in accepted if each.status == psutil.CONN_ESTABLISHED}
    return client_ports >= {connection.local_port for connection in connections}


def get(connection: RawConnection, path: bytes) -> RawAnswer:
    connection.send(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = connection.read_answer()
    assert answer is not None
    return answer


def test_open_files_limit_is_raised_and_partly_reserved_for_the_store(tmp_path):
    limits = [(100, 4096), (256, 256), (100, 1_000_000)]
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = [(soft, hard) for soft, hard in limits if hard_limit == resource.RLIM_INFINITY or hard <= hard_limit]

    results = [_run_with_limits(soft, hard, tmp_path / f"{hard}") for soft, hard in limits]

    assert len(limits) >= 2
    for (soft, hard), (raised, connections, original) in zip(limits, results, strict=True):
        assert raised == hard
        assert original == soft
        assert connections == min(open_files.CONNECTIONS_MAX, hard - open_files.FILES_RESERVED)


def _run_with_limits(soft: int, hard: int, output: Path) -> tuple[int, int, int]:
    """The results of `_raise_limit` in a process of its own."""
    process = Forked(_raise_limit, (soft, hard), {}, output.parent, output)
    assert process.wait(LONG_SECONDS) == 0, output.read_text()
    raised, connections, original = json.loads(output.read_text())
    return raised, connections, original


def _raise_limit(soft: int, hard: int):
    """Print the raised soft limit, the allowed connections, and the original soft limit."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    open_files.raise_open_files_limit()
    raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    print(json.dumps([raised, open_files.allowed_connections(), open_files.original_open_files_limit()]), flush=True)
