"""Copies of a delivery that wait for the first one's transaction, whose process is then killed."""

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.faults.audit import count_rows
from tests.faults.parts import Part, kill_part
from tests.faults.plant import Steps, serving_planted
from tests.faults.senders import Line, ask, request
from tests.support.service import Answer, operator, serving
from tests.support.waiting import until

COPIES = 15
SETTINGS: dict[str, Any] = {"deliveries_per_minute": 1_000, "performs_runs": False, "master_key": "A" * 43 + "="}


def test_one_copy_is_accepted_when_the_winner_is_killed_while_others_wait(postgres_url: str, tmp_path: Path):
    steps = Steps(tmp_path / "order")
    answers: list[Answer | None] = []
    with ExitStack() as stack:
        winner = stack.enter_context(
            serving_planted(tmp_path / "winner", {"STEPS": str(steps.path)}, database_url=postgres_url, **SETTINGS)
        )
        other = stack.enter_context(serving(tmp_path / "other", database_url=postgres_url, **SETTINGS))
        with winner.management() as management:
            may = operator(management)
            webhook = management.webhooks.create(may, "copied")
            trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [webhook.webhook.uid]}}
            management.automations.create(may, "all", prompt="Look.", triggers=[trigger])
        delivery = request(webhook, b'{"event": 1}')

        # By this step, the identity is claimed.
        steps.fail_at("INSERT INTO runs", "stop")
        first = threading.Thread(target=lambda: answers.append(ask(winner.port, delivery)))
        first.start()
        until(lambda: steps.struck, "the winner stands still in its transaction")
        lines = [stack.enter_context(Line(other.port)) for _ in range(COPIES)]
        for line in lines:
            assert line.say(delivery)
        rows_meanwhile = count_rows(postgres_url, webhook.webhook.no)
        kill_part(winner, Part.WRITER)
        copies = [line.answer() for line in lines]
        first.join()
        rows = count_rows(postgres_url, webhook.webhook.no)
        retried = until(
            lambda: (answer := ask(winner.port, delivery)) and answer.status == 202, "the winner's sender is answered"
        )

    assert rows_meanwhile == (0, 0, 0, 0, 0, 0)
    assert [answer.status if answer is not None else None for answer in (*answers, *copies)] == [503] + [202] * COPIES
    assert rows == (1, COPIES - 1, 0, 1, 1, 1)
    assert retried
