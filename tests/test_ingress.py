"""The ingress evaluates a delivery without a proof of authentication as rejected."""

import pytest

from hookmill.domain.delivery import Attempt, Label
from hookmill.domain.webhook import AuthMode
from hookmill.store.admission.plan import Rejection
from tests.support.world import World, world_for_test


@pytest.mark.parametrize("mode", [AuthMode.TOKEN, AuthMode.SIGNATURE])
def test_delivery_without_a_proof_is_rejected(sqlite_store: str, mode: AuthMode):
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
