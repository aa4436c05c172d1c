"""The ingress rejects a delivery without a proof of authentication, and limits what a defect costs."""

from typing import Any

import pytest

from hookmill.domain.automation import DeliveryFilter, Subscription
from hookmill.domain.delivery import Attempt, Label
from hookmill.domain.payload import Parsed
from hookmill.domain.run import RunState
from hookmill.domain.run_policy import RunPolicy
from hookmill.domain.webhook import AuthMode
from hookmill.store.admission.plan import Rejection
from tests.support.automations import automation_created
from tests.support.world import World, world_for_test


@pytest.mark.parametrize("mode", [AuthMode.TOKEN, AuthMode.SIGNATURE])
def test_delivery_without_a_proof_is_rejected(sqlite_store, mode):
    for world in world_for_test(sqlite_store):
        scheme = "standard_webhooks" if mode is AuthMode.SIGNATURE else None
        created = world.webhook(auth_mode=mode, signature_scheme=scheme)
        world.post(created, token="wrong")
        webhook = world.ingress._snapshot.get(created.webhook.uid)
        assert webhook is not None

        plan = world.ingress._evaluate(webhook, attempt(world, created.webhook.uid), None, b"{}")

        assert isinstance(plan, Rejection)
        assert plan.label is Label.REJECTED_AUTH


def attempt(world: World, uid: str) -> Attempt:
    return Attempt(
        uid=uid,
        url_token=None,
        received_at=world.clock(),
        headers={},
        authorization=None,
        authorization_count=0,
        conflicting_headers=frozenset(),
        target=b"",
        peer="",
    )


def fail_for(automation: str, monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> None:
    """Make a method that evaluates automations raise for one of them, as a defect would."""
    original = getattr(owner, method)

    def evaluate(self: Any, *arguments: Any) -> Any:
        if automation in (getattr(self, "automation_id", None), arguments[0]):
            raise RecursionError
        return original(self, *arguments)

    monkeypatch.setattr(owner, method, evaluate)


@pytest.mark.parametrize(("owner", "method"), [(RunPolicy, "policy_key"), (Subscription, "matches")])
def test_fault_in_one_automation_interrupts_only_its_run(world, owner, method, monkeypatch):
    webhook = world.webhook()
    faulty = world.automation("faulty", webhook)
    world.automation("healthy", webhook)
    fail_for(faulty.id, monkeypatch, owner, method)

    assert world.post(webhook, b"{}").status == 202

    runs = {run.automation_name: run for run in world.runs(webhook)}
    assert {name: run.state for name, run in runs.items()} == {
        "faulty": RunState.INTERRUPTED,
        "healthy": RunState.QUEUED,
    }
    assert "a fault of type RecursionError" in runs["faulty"].reason
    assert [component for component, _ in world.failures] == [f"automation {faulty.id}"]
    world.failures.clear()


def test_fault_in_one_trigger_leaves_the_others_of_its_automation(sqlite_store, monkeypatch):
    original = DeliveryFilter.matches

    def matches(self: DeliveryFilter, event: str | None, payload: Parsed) -> bool:
        if self.event:
            raise RecursionError
        return original(self, event, payload)

    for world in world_for_test(sqlite_store):
        webhook = world.webhook()
        every_delivery = {"webhook_ids": [webhook.webhook.uid]}
        triggers = [
            {"provider": "webhook", "event": "received", "filter": delivery_filter}
            for delivery_filter in ({**every_delivery, "event": ["push"]}, every_delivery)
        ]
        automation_created(world.management, world.may, "both", triggers=triggers)
        monkeypatch.setattr(DeliveryFilter, "matches", matches)

        assert world.post(webhook, b"{}").status == 202

        assert [run.state for run in world.runs(webhook)] == [RunState.QUEUED]


def test_unexpected_fault_is_answered_503_and_reported(sqlite_store, monkeypatch):
    for world in world_for_test(sqlite_store):
        webhook = world.webhook()
        monkeypatch.setattr("hookmill.ingress.identify", lambda *_: 1 / 0)

        answer = world.post(webhook, b"{}")

        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert [component for component, _ in world.failures] == ["ingress"]
        world.failures.clear()
        monkeypatch.undo()
        assert world.post(webhook, b"{}").status == 202
