"""Alarms about the installation: disks, clocks and the certificate of the base URL."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hookmill.alarm_watch import AlarmEvaluator, installation
from hookmill.alarm_watch.certificate import certificate_expiry
from hookmill.domain.alarm import AlarmKind, AlarmThresholds, FreeSpace
from hookmill.domain.errors import DestinationUnavailable
from hookmill.maintenance import advance_retention_time, disk_space
from tests.alarms.conftest import Watch
from tests.support.certificates import certificates_in

DISK = (AlarmKind.DISK_LOW, "disk of here")
CLOCK = (AlarmKind.CLOCK_WRONG, "clock of here")
CERTIFICATE = (AlarmKind.CERTIFICATE_EXPIRING, "certificate of localhost")


@pytest.fixture
def present(watch):
    """A watch whose clock shows the real time, like the clock of the database server."""
    watch.world.clock.now = time.time_ns() // 1000
    return watch


def evaluator(watch: Watch, thresholds: AlarmThresholds | None = None, **config: Any) -> AlarmEvaluator:
    """The evaluator of a worker on the host `here`, unless `config` says otherwise."""
    changes = {"host": "here", "thresholds": thresholds or AlarmThresholds(), **config}
    return AlarmEvaluator(watch.database, replace(watch.config, **changes), watch.world.clock)


def test_disk_with_too_little_space_is_reported_until_it_has_enough(present, tmp_path):
    def read_free_space():
        space = disk_space(tmp_path, 0)
        return FreeSpace(free_bytes=space.free_bytes, free_inodes=None)

    free_bytes = read_free_space().free_bytes
    large = evaluator(present, AlarmThresholds(disk_free_bytes=free_bytes * 2), read_free_space=read_free_space)
    small = evaluator(present, AlarmThresholds(disk_free_bytes=free_bytes // 2), read_free_space=read_free_space)
    start = present.world.clock.now

    small.evaluate_host()
    before = present.open()
    large.evaluate_host()
    raised = present.open()
    with present.database.write() as tx:
        tx.run("UPDATE alarms SET clear_since = :since WHERE kind = 'disk_low'", since=start - 601_000_000)
    small.evaluate_host()

    assert (before, list(raised)) == ({}, [DISK])
    assert DISK not in present.open()
    url = next(notice.url for notice in present.notices if notice.kind is DISK[0])
    assert url.startswith("https://hooks.test/team/alarms/alm_")


def test_disk_that_cannot_be_read_changes_nothing(present, tmp_path):
    spaces = [FreeSpace(free_bytes=0, free_inodes=None)]

    def read_free_space():
        if not spaces:
            raise OSError("the disk is gone")
        return spaces.pop()

    here = evaluator(present, read_free_space=read_free_space)
    here.evaluate_host()
    here.evaluate_host()

    assert list(present.open()) == [DISK]
    assert present.open()[DISK].clear_since is None


def test_clock_that_differs_from_the_database_is_reported_until_it_is_right(present, world):
    here, clock = evaluator(present), world.clock
    real_time = clock.now
    advance_retention_time(world.database, real_time, 0)
    here.evaluate_host()
    right = present.open()
    clock.now = real_time + 25 * 3_600_000_000
    here.evaluate_host()
    ahead = present.open()
    clock.now = real_time - 60_000_000
    here.evaluate_host()
    behind = present.open()
    clock.now = real_time
    with present.database.write() as tx:
        tx.run("UPDATE alarms SET clear_since = :since", since=real_time - 601_000_000)
    here.evaluate_host()

    assert (right, list(ahead), list(behind), present.open()) == ({}, [CLOCK], [CLOCK], {})


def test_alarm_about_a_host_without_workers_is_resolved(present, world):
    evaluator(present, read_free_space=lambda: FreeSpace(free_bytes=0, free_inodes=None)).evaluate_host()
    other = evaluator(present, host="there")
    for _ in range(58):
        world.clock.advance(seconds=60)
        other.evaluate()
    is_open = DISK in present.open()
    for _ in range(15):
        world.clock.advance(seconds=60)
        other.evaluate()

    assert is_open
    assert present.open() == {}


@contextmanager
def tls_server(directory: Path, *, days: int) -> Iterator[int]:
    """A TLS server whose certificate is valid for so many days, on the port that it yields."""
    certificates_in(directory, days=days)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem", directory / "key.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, suppress(OSError), context.wrap_socket(connection, server_side=True) as tls:
                        tls.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(("days", "text"), [(13, "is valid until"), (-1, "expired on")])
def test_certificate_that_ends_soon_is_reported_until_it_is_renewed(present, tmp_path, monkeypatch, days, text):
    monkeypatch.setattr(installation, "CERTIFICATE_PAUSE_SECONDS", 0)
    with tls_server(tmp_path, days=days) as port:
        here = evaluator(present, base_url=f"https://localhost:{port}/hooks")
        present.evaluator = here
        present.world.clock.advance(seconds=200)
        assert here.evaluate()
        raised = present.open()
    here.evaluate()
    unreachable = present.open()
    with tls_server(tmp_path, days=15) as port:
        renewed = evaluator(present, base_url=f"https://localhost:{port}")
        present.world.clock.advance(seconds=200)
        assert renewed.evaluate()

    assert list(raised) == list(unreachable) == [CERTIFICATE]
    assert raised[CERTIFICATE].summary.startswith(f"The certificate {text} 20")
    assert present.open() == {}


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_server_without_a_handshake_ends_the_reading_in_time(greeting):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            # On a busy machine, the client may give up before it connects. It may also reset the connection.
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(greeting)
                    # It waits until the client gives up.
                    while connection.recv(65_536):
                        pass

        listener.settimeout(2)
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        began_at = time.monotonic()
        with pytest.raises(
            DestinationUnavailable, match=r"did not answer within 0\.3 seconds|failed the TLS handshake"
        ):
            certificate_expiry("127.0.0.1", listener.getsockname()[1], 0.3)
        elapsed = time.monotonic() - began_at
        thread.join(5)

    assert elapsed < 5


@pytest.mark.parametrize("host", ["hooks..example.com", ".example.com", f"{'h' * 64}.example.com"])
def test_name_that_cannot_be_looked_up_ends_no_evaluation(host):
    with pytest.raises(DestinationUnavailable, match="has no address"):
        certificate_expiry(host, 443, 1)


def test_http_base_url_has_no_certificate_and_no_alarm(present):
    here = evaluator(present, base_url="http://localhost:1")
    present.world.clock.advance(seconds=200)

    assert here.evaluate()
    assert present.open() == {}
