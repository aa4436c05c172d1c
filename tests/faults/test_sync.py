"""A 202 says that the delivery is on disk. kill -9 can't show a missing sync, as the kernel keeps what was written; the
order of system calls can."""

import secrets
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from hookmill.domain.ids import delivery_id
from hookmill.management import WebhookWithSecret
from tests.faults.audit import sqlite_is_whole
from tests.faults.plant import serving_planted
from tests.faults.senders import Line, request
from tests.faults.trace import Story, story, traced
from tests.support.service import Service, operator
from tests.support.strace import strace
from tests.support.waiting import until

SENDERS = 8
DELIVERIES_EACH = 15


def a_story_of_deliveries(directory: Path, planted: Mapping[str, str]) -> Story:
    """Everything that the service asks the kernel for while deliveries come in on several connections."""
    output = directory / "trace"
    under_strace = {"TRACE": traced(strace(), output)}
    taken: dict[str, str] = {}
    with serving_planted(
        directory / "data", under_strace | dict(planted), deliveries_per_minute=10_000, performs_runs=False
    ) as service:
        with service.management() as management:
            made = management.webhooks.create(operator(management), "source")
        senders = [threading.Thread(target=send, args=(service, made, taken)) for _ in range(SENDERS)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        assert len(taken) == SENDERS * DELIVERIES_EACH

        def whole() -> Story | None:
            told = story(output, "/hookmill.db-wal", taken)
            return told if told.answered == taken.keys() else None

        # The trace is written some time after what it tells of.
        told = until(whole, "the trace has every answer")
    assert told.unwritten == set(), "the trace has every write"
    return told


def send(service: Service, made: WebhookWithSecret, taken: dict[str, str]) -> None:
    with Line(service.port) as line:
        for _ in range(DELIVERIES_EACH):
            text = secrets.token_hex(16)
            answer = line.ask(request(made, b'{"text": "%s"}' % text.encode()))
            assert answer is not None
            assert answer.status == 202
            taken[answer.delivery_id] = text


def test_a_sync_of_the_log_precedes_every_202(tmp_path: Path):
    told = a_story_of_deliveries(tmp_path, {})

    assert told.unsynced == set()


@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL"])
def test_the_check_above_sees_a_store_that_does_not_sync(tmp_path: Path, synchronous: str):
    told = a_story_of_deliveries(tmp_path, {"PRAGMAS": f"PRAGMA synchronous = {synchronous}"})

    assert len(told.unsynced) > 0.9 * len(told.answered)


def test_a_sync_that_fails_is_never_answered_with_202(tmp_path: Path):
    # From its third sync on the writing process meets a disk that is broken, three times.
    broken_disk = f"{strace()} -f -o {tmp_path / 'trace'} -e trace=fdatasync -e inject=fdatasync:error=EIO:when=3..5"
    with serving_planted(
        tmp_path / "data", {"TRACE_WRITER": broken_disk}, deliveries_per_minute=1_000, performs_runs=False
    ) as service:
        with service.management() as management:
            may = operator(management)
            made = management.webhooks.create(may, "source")
        first = [service.post(made, b"[%d]" % number) for number in range(12)]
        assert (tmp_path / "trace").read_text().count("EIO") == 3, "the disk was broken"

        refused = [number for number, answer in enumerate(first) if answer.status == 503]
        for number in refused:
            until(lambda: service.post(made, b"[%d]" % number).status == 202, "the repeat is taken")  # noqa: B023
        service.kill()
        service.start()
        with service.management() as management:
            log = management.log.newest(may, webhook=made.webhook.uid, limit=100)

    assert {answer.status for answer in first} == {202, 503}
    accepted = [delivery_id(row.key) for row in log if row.label.wording == "Accepted"]
    assert len(accepted) == len(first)
    assert {answer.delivery_id for answer in first if answer.status == 202} <= set(accepted)
    assert sqlite_is_whole(tmp_path / "data" / "hookmill.db")
