"""Temporary webhooks, with which `hookmill doctor` tests a deployment. Removing one removes its log and secret, too."""

from collections.abc import Mapping
from secrets import token_hex
from typing import Any, Final

from hookmill.domain.errors import NotFound
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.domain.probe import NAME_PREFIX, SECRET_NAME_PREFIX, is_probe
from hookmill.domain.webhook import Webhook
from hookmill.management.access import Access
from hookmill.management.installation import Installation
from hookmill.management.lookup import live_webhook_named
from hookmill.management.secrets import Secrets
from hookmill.management.webhooks import Webhooks, WebhookWithSecret
from hookmill.store import factories, identity_segments, log_retention, webhooks
from hookmill.store.admission import window_counts
from hookmill.store.database import Transaction

ROWS_PER_STEP: Final = 100


class Probes:
    def __init__(
        self, installation: Installation, access: Access, all_webhooks: Webhooks, all_secrets: Secrets
    ) -> None:
        self._installation = installation
        self._access = access
        self._webhooks = all_webhooks
        self._secrets = all_secrets

    def create(self, may: MayManage, source: Mapping[str, Any], secret: str | None = None) -> WebhookWithSecret:
        """Create a temporary webhook from the JSON of a `WebhookSpec` without names. Raises like `Webhooks.create`."""
        digits = token_hex(8)
        names = {"name": f"{NAME_PREFIX}{digits}", "secret_name": f"{SECRET_NAME_PREFIX}{digits.upper()}"}
        return self._webhooks.create(may, {**source, **names}, secret)

    def remove(self, may: MayManage, uid: str) -> None:
        """Delete the temporary webhook and its secret, and remove its rows from the log, with their identities.

        Raises `NotFound` if the webhook is not a temporary one.
        """
        with self._installation.reading() as tx:
            webhook = _probe_named(tx, may, uid)
        with self._installation.one_transaction(may):
            self._webhooks.delete(may, uid)
            self._secrets.delete(may, webhook.secret_name)
            self._clear_log(may, webhook)

    def _clear_log(self, may: MayManage, webhook: Webhook) -> None:
        """Remove the rows of a temporary webhook from the log. There are few, because the webhook exists for a minute.

        Its identities and counts are removed, too: `hookmill verify` reports those whose delivery is missing.
        """
        with self._installation.changing(may) as change:
            change.skip_audit()
            identity_segments.remove_of_webhook(change.tx, webhook.no)
            window_counts.remove_of_webhook(change.tx, webhook.no)
            while keys := log_retention.keys_of_webhook(change.tx, webhook.no, at_most=ROWS_PER_STEP):
                if not log_retention.remove(change.tx, keys):
                    # Another transaction has locked the rows. Retention removes them later.
                    return

    def remove_leftovers(self, may: MayAdminister) -> int:
        """Remove the temporary webhooks of all factories, and return their number.

        The caller makes sure that no `doctor` uses them.
        """
        with self._installation.reading() as tx:
            leftovers = [
                (factory.name, webhook.uid)
                for factory in factories.all_factories(tx)
                if factory.team_id == may.team_id
                for webhook in webhooks.in_factory(tx, factory.id)
                if is_probe(webhook.name, webhook.secret_name)
            ]
        for factory_name, uid in leftovers:
            self.remove(self._access.operator(factory_name), uid)
        return len(leftovers)


def _probe_named(tx: Transaction, may: MayManage, uid: str) -> Webhook:
    webhook = live_webhook_named(tx, may, uid)
    if not is_probe(webhook.name, webhook.secret_name):
        raise NotFound(f"Webhook {webhook.name!r} is not a temporary webhook of `hookmill doctor`.")
    return webhook
