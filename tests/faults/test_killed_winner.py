"""Copies of a delivery wait for the transaction of the first one, whose process is then killed."""

import threading
from contextlib import ExitStack
from typing import Any

from tests.faults.audit import count_rows
from tests.faults.fault_injection import AdmissionFault, serving_with_faults
from tests.faults.parts import Part, kill_part
from tests.faults.senders import PersistentConnection, delivery_request, exchange
from tests.support.automations import automation_created
from tests.support.service import Answer, operator, serving
from tests.support.triggers import received
from tests.support.waiting import until

COPIES = 15
"""The copies that wait."""
SETTINGS: dict[str, Any] = {"deliveries_per_minute": 1_000, "performs_runs": False, "master_key": "A" * 43 + "="}


def test_waiting_copy_is_accepted_if_the_process_of_the_first_is_killed(postgres_url, tmp_path):
    fault = AdmissionFault(tmp_path / "order")
    first_answers: list[Answer | None] = []
    with ExitStack() as stack:
        winner = stack.enter_context(
            serving_with_faults(tmp_path / "winner", {"STEPS": str(fault.path)}, database_url=postgres_url, **SETTINGS)
        )
        other = stack.enter_context(serving(tmp_path / "other", database_url=postgres_url, **SETTINGS))
        with winner.management() as management:
            may = operator(management)
            webhook = management.webhooks.create(may, {"name": "copied"})
            trigger = received(webhook.webhook.uid)
            automation_created(management, may, "all", triggers=[trigger])
        request = delivery_request(webhook, b'{"event": 1}')

        # At this step, the transaction has claimed the identity.
        fault.fail_at("INSERT INTO runs", "stop")
        first_sender = threading.Thread(target=lambda: first_answers.append(exchange(winner.port, request)))
        first_sender.start()
        until(
            fault.take_failed_step, lambda: f"the winner is stopped in its transaction (first answer: {first_answers})"
        )
        connections = [stack.enter_context(PersistentConnection(other.port)) for _ in range(COPIES)]
        for connection in connections:
            assert connection.send(request)
        rows_meanwhile = count_rows(postgres_url, webhook.webhook.no)
        kill_part(winner, Part.WRITER)
        answers = [connection.read_answer() for connection in connections]
        first_sender.join()
        rows = count_rows(postgres_url, webhook.webhook.no)
        until(
            lambda: (answer := exchange(winner.port, request)) and answer.status == 202,
            "a retry to the killed process's service is answered 202",
        )

    assert rows_meanwhile == (0, 0, 0, 0, 0, 0)
    statuses = [answer.status if answer is not None else None for answer in (*first_answers, *answers)]
    assert statuses == [503] + [202] * COPIES
    assert rows == (1, COPIES - 1, 0, 1, 1, 1)
