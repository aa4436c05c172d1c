"""Delivers events while the database fails at the first call, then at the second one, until all calls have failed."""

import os
from contextlib import closing

import pytest

from hookmill.management import WebhookWithSecret
from tests.faults.audit import count_rows
from tests.faults.drivers import Failure, deliver_until_killed, failing_drivers
from tests.support.loaded import Forked
from tests.support.waiting import LONG_SECONDS
from tests.support.world import World

CALLS_MAX = 60
"""More calls than a delivery makes."""
EVENT = b'{"event": 1}'
NO_ROWS = (0, 0, 0, 0, 0, 0)
ALL_ROWS = (1, 0, 0, 1, 1, 1)
"""Accepted, Duplicate, other, identities, payloads, runs: see `count_rows`."""


def automated_webhook(world: World, number: int) -> WebhookWithSecret:
    """A new webhook with an automation, so that the delivery makes every call that a delivery can make."""
    webhook = world.webhook(f"source-{number}")
    world.automation(f"automation-{number}", webhook)
    return webhook


def is_stored_whole(world: World, webhook: WebhookWithSecret) -> bool:
    """Whether the delivery is stored. Fails if only some of its rows are."""
    rows = count_rows(world.url, webhook.webhook.no)
    assert rows in (NO_ROWS, ALL_ROWS)
    return rows == ALL_ROWS


def require_safe_retry(world: World, webhook: WebhookWithSecret, *, is_stored: bool):
    """Fails unless a retry of the delivery and the next event are recorded."""
    assert world.post(webhook, EVENT).status == 202
    assert world.post(webhook, b'{"event": 2}').status == 202
    assert count_rows(world.url, webhook.webhook.no) == (2, int(is_stored), 0, 2, 2, 2)


@pytest.mark.parametrize("failure", [Failure.BEFORE, Failure.AFTER, Failure.FROM_THEN_ON], ids=lambda each: each.name)
def test_delivery_can_be_retried_after_any_failing_database_call(store_url, failure):
    failed_calls: list[str] = []
    failed_call: str | None = ""
    stored_with_503 = 0
    with failing_drivers() as fault, closing(World(store_url, webhooks_per_factory=CALLS_MAX)) as world:
        for number in range(1, CALLS_MAX):
            webhook = automated_webhook(world, number)
            # Afterwards, the writer makes no further call for earlier deliveries: it handles messages in order.
            world.dropped_attempts(webhook)
            fault.fail_at(number, failure)
            status = world.post(webhook, EVENT).status
            failed_call = fault.clear()
            is_stored = is_stored_whole(world, webhook)
            assert status == 202 or (status == 503 and failed_call is not None)
            assert is_stored or status == 503
            if failed_call is None:
                break
            require_safe_retry(world, webhook, is_stored=is_stored)
            failed_calls.append(failed_call)
            stored_with_503 += is_stored and status == 503
    print(failed_calls)

    assert failed_call is None, "the last delivery had no failing call"
    assert "COMMIT" in failed_calls
    assert (stored_with_503 > 0) == (failure is Failure.AFTER)


def test_delivery_can_be_retried_after_a_kill_before_any_database_call(store_url, tmp_path):
    stored_before_kill: list[bool] = []
    exit_code, output = 1, tmp_path / "output"
    with closing(World(store_url, webhooks_per_factory=CALLS_MAX)) as world:
        for number in range(1, CALLS_MAX):
            webhook = automated_webhook(world, number)
            output.write_text("")
            arguments = (store_url, webhook.webhook.uid, webhook.reveal(), EVENT, number)
            process = Forked(deliver_until_killed, arguments, os.environ, tmp_path, output)
            exit_code = process.wait(LONG_SECONDS)
            printed = output.read_text()
            is_stored = is_stored_whole(world, webhook)
            assert exit_code in (0, -9), printed
            # On PostgreSQL, the writer notifies workers after its answer, in a last call.
            assert printed in ("", "202\n")
            assert is_stored or not printed
            if exit_code == 0:
                break
            require_safe_retry(world, webhook, is_stored=is_stored)
            stored_before_kill.append(is_stored)
    print(f"{len(stored_before_kill)} processes were killed, {stored_before_kill.count(True)} of them after the COMMIT")

    assert exit_code == 0, "the last process was not killed"
    assert stored_before_kill.count(False) >= 8
    assert stored_before_kill.count(True) > 0
