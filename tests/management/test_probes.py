"""Temporary webhooks of `hookmill doctor`."""

import pytest

from hookmill.domain.errors import NotFound


def test_only_temporary_webhooks_can_be_removed_with_their_log(world):
    webhook = world.webhook()
    assert world.post(webhook, b"{}").status == 202

    with pytest.raises(NotFound, match="is not a temporary webhook"):
        world.management.probes.remove(world.may, webhook.webhook.uid)

    assert world.labels(webhook) == ["Accepted"]
    assert [each.uid for each in world.management.webhooks.all(world.may)] == [webhook.webhook.uid]
