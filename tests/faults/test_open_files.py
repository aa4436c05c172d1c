"""A service that may open no more files answers what it can, 503 what it can't, and goes on once it may again."""

import json
import resource
from contextlib import ExitStack
from pathlib import Path

import psutil

from hookmill.app import open_files
from tests.faults.parts import Part, parts_of, wait_until_announced
from tests.faults.senders import request
from tests.http.raw_http import RawAnswer, RawConnection
from tests.support.loaded import Forked
from tests.support.service import operator, serving
from tests.support.waiting import LONG_SECONDS, until


def test_service_without_files_to_open_answers_503_and_heals(tmp_path: Path):
    with serving(tmp_path / "data", performs_runs=False) as service, ExitStack() as connections:
        with service.management() as management:
            webhook = management.webhooks.create(operator(management), "source")
        wait_until_announced(service)
        ingress = parts_of(service)[Part.INGRESS][0]
        wires = [connections.enter_context(RawConnection(service.port, seconds=LONG_SECONDS)) for _ in range(7)]
        until(lambda: are_accepted(wires, ingress), "the service has accepted them")
        _, most = resource.prlimit(ingress.pid, resource.RLIMIT_NOFILE)

        resource.prlimit(ingress.pid, resource.RLIMIT_NOFILE, (3, most))
        pages = [asked(wire, b"/sign-in") for wire in wires[:3]]
        api = [asked(wire, b"/api/v1/me") for wire in wires[3:6]]
        wires[6].send(request(webhook, b'{"n": 1}'))
        delivery = wires[6].read_answer()
        resource.prlimit(ingress.pid, resource.RLIMIT_NOFILE, (most, most))

        after = [service.request("GET", path).status for path in ("/sign-in", "/api/v1/me")]
        posted = service.post(webhook, b'{"n": 2}').status

    assert {(answer.status, answer.headers["retry-after"]) for answer in (*pages, *api)} == {(503, "5")}
    assert delivery is not None
    assert delivery.status in (202, 503)
    assert (after, posted) == ([200, 401], 202)
    assert "Traceback" not in service.log()
    faults = [json.loads(line) for line in service.log().splitlines() if '"level": "error"' in line]
    assert sorted(fault["where"] for fault in faults) == ["api", "dashboard"]


def are_accepted(wires: list[RawConnection], ingress: psutil.Process) -> bool:
    """Whether the process has each connection's other end open. Others come and go meanwhile."""
    found = ingress.net_connections(kind="tcp")
    theirs = {each.raddr.port for each in found if each.status == psutil.CONN_ESTABLISHED}
    return theirs >= {wire.local_port for wire in wires}


def asked(wire: RawConnection, path: bytes) -> RawAnswer:
    wire.send(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = wire.read_answer()
    assert answer is not None
    return answer


def test_limit_is_raised_and_leaves_files_to_the_store(tmp_path: Path):
    limits = [(100, 4096), (256, 256), (100, 1_000_000)]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = [(soft, most) for soft, most in limits if hard == resource.RLIM_INFINITY or most <= hard]

    measured = [_measured(soft, most, tmp_path / f"{most}") for soft, most in limits]

    assert len(limits) >= 2
    for (found, most), (soft, connections, before) in zip(limits, measured, strict=True):
        assert soft == most
        assert before == found
        assert connections == min(open_files.CONNECTIONS_MAX, most - open_files.FILES_RESERVED)


def _measured(soft: int, hard: int, output: Path) -> tuple[int, int, int]:
    process = Forked(_measure, (soft, hard), {}, output.parent, output)
    assert process.wait(LONG_SECONDS) == 0, output.read_text()
    raised, connections, before = json.loads(output.read_text())
    return raised, connections, before


def _measure(soft: int, hard: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    open_files.raise_open_files_limit()
    raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    print(json.dumps([raised, open_files.allowed_connections(), open_files.original_open_files_limit()]), flush=True)
