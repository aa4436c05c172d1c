"""The writer process crashes or fails at each step of an admission: the delivery is stored whole or not at all."""

from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from hookmill.domain.permission import MayManage
from hookmill.management import Management, WebhookWithSecret
from tests.faults.audit import count_rows
from tests.faults.fault_injection import AdmissionFault, serving_with_faults
from tests.faults.senders import PersistentConnection, delivery_request, exchange, exchange_simultaneously
from tests.support.automations import automation_created
from tests.support.service import Answer, Service, operator
from tests.support.triggers import received
from tests.support.waiting import until

STEPS_MAX = 30
"""More steps than an admission has."""
DELIVERIES_PER_MINUTE = 6
ROUNDS_MAX = 30
NO_ROWS = (0, 0, 0, 0, 0, 0)
ACCEPTED = (1, 0, 0, 1, 1, 1)
ACCEPTED_AND_DUPLICATE = (1, 1, 0, 1, 1, 1)
"""Accepted, Duplicate, other, identities, payloads, runs: see `count_rows`."""


@dataclass(frozen=True, slots=True)
class FailingService:
    """A service whose admissions `fault` lets fail."""

    service: Service
    fault: AdmissionFault
    url: str

    def post(self, webhook: WebhookWithSecret, body: bytes) -> Answer:
        answer = exchange(self.service.port, delivery_request(webhook, body))
        assert answer is not None
        return answer

    def retry(self, webhook: WebhookWithSecret, body: bytes) -> Answer:
        """Send the delivery until the answer is not a 503."""

        def other_answer() -> Answer | None:
            answer = self.post(webhook, body)
            return answer if answer.status != 503 else None

        return until(other_answer, "the answer is not a 503")

    def automated_webhook(self, management: Management, may: MayManage, name: str) -> WebhookWithSecret:
        """A new webhook whose deliveries start a run."""
        webhook = management.webhooks.create(may, {"name": name})
        trigger = received(webhook.webhook.uid)
        automation_created(management, may, name, triggers=[trigger])
        return webhook

    def count_rows(self, webhook: WebhookWithSecret) -> tuple[int, ...]:
        return count_rows(self.url, webhook.webhook.no)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def failing_service(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp("failpoints")
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None
    url = server.create_database() if server is not None else None
    fault = AdmissionFault(directory / "order")
    with serving_with_faults(
        directory / "data",
        {"STEPS": str(fault.path)},
        database_url=url,
        deliveries_per_minute=DELIVERIES_PER_MINUTE,
        performs_runs=False,
        webhooks_per_factory=1000,
        master_key="A" * 43 + "=",
    ) as service:
        yield FailingService(service, fault, service.read_settings().store_url())
    if server is not None and url is not None:
        server.drop_database(url)


@pytest.mark.parametrize("how", ["kill", "raise"])
@pytest.mark.timeout(240)
def test_delivery_can_be_retried_after_a_failure_at_any_admission_step(failing_service, how):
    failed_steps: list[str] = []
    with failing_service.service.management() as management:
        may = operator(management)
        for number in range(1, STEPS_MAX):
            webhook = failing_service.automated_webhook(management, may, f"{how}-{number}")
            failing_service.fault.fail_at(number, how)
            first = failing_service.post(webhook, b'{"event": 1}')
            step = failing_service.fault.take_failed_step()
            if step is None:
                failing_service.fault.clear()
                break
            failed_steps.append(step)
            is_committed = step == "after COMMIT"

            assert first.status == 503, step
            assert first.headers["retry-after"]
            assert failing_service.count_rows(webhook) == (ACCEPTED if is_committed else NO_ROWS), step
            second = failing_service.retry(webhook, b'{"event": 1}')
            assert second.status == 202, step
            assert failing_service.count_rows(webhook) == (ACCEPTED_AND_DUPLICATE if is_committed else ACCEPTED), step
            # A delivery that was rolled back does not count for the rate limit.
            statuses = [failing_service.post(webhook, b"[%d]" % n).status for n in range(DELIVERIES_PER_MINUTE)]
            counted = 2 if is_committed else 1
            assert statuses == [202] * (DELIVERIES_PER_MINUTE - counted) + [429] * counted, step
    print(f"{how}: {failed_steps}")

    assert failed_steps[-2:] == ["COMMIT", "after COMMIT"]
    assert len(failed_steps) >= 7, "state, rate, identity, log, payload, run, COMMIT"


def test_transaction_error_fails_only_the_deliveries_of_its_batch(failing_service):
    with ExitStack() as stack:
        management = stack.enter_context(failing_service.service.management())
        connections = [stack.enter_context(PersistentConnection(failing_service.service.port)) for _ in range(16)]

        def deliver_to_new_webhooks(round_):
            """Deliver to a new webhook on each connection, while the first transaction fails. Returns the webhooks and
            the statuses."""
            may = operator(management)
            webhooks = [
                failing_service.automated_webhook(management, may, f"shared-{round_}-{number}")
                for number in range(len(connections))
            ]
            failing_service.fault.fail_at(3, "raise")
            answers = exchange_simultaneously(connections, [delivery_request(webhook, b"1") for webhook in webhooks])
            assert failing_service.fault.take_failed_step() is not None
            return webhooks, [answer.status for answer in answers if answer is not None]

        # How many deliveries share a transaction depends on chance.
        rounds = (deliver_to_new_webhooks(round_) for round_ in range(ROUNDS_MAX))
        webhooks, statuses = next(each for each in rounds if each[1].count(503) > 1)
    print(f"{statuses.count(503)} of {len(statuses)} deliveries shared the transaction")

    assert set(statuses) <= {202, 503}
    assert [failing_service.count_rows(webhook)[0] for webhook in webhooks] == [
        int(status == 202) for status in statuses
    ]
    assert [failing_service.retry(webhook, b'"once more"').status for webhook in webhooks] == [202] * len(webhooks)
