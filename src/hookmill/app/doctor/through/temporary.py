"""Temporary webhooks in the installation that the settings name, and its log."""

import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from hookmill.app import Store, build_management
from hookmill.app.doctor.through.deployment import ProbeWebhook
from hookmill.domain.delivery import Delivery
from hookmill.domain.errors import Conflict, NotFound
from hookmill.domain.permission import MayManage
from hookmill.domain.signatures.rule import scheme_named
from hookmill.domain.signatures.sign import ENTROPY_BYTES, example_secret
from hookmill.domain.webhook import AuthMode
from hookmill.management import Management
from hookmill.settings import Settings
from hookmill.store.exclusion import excluding_others

WEBHOOKS_MAX: Final = 8
"""How many temporary `token` webhooks share the deliveries, if the rate limit is low."""
WEBHOOKS_AT_ONCE: Final = 3
"""How many temporary webhooks exist at the same time, unless the rate limit is low."""
FAILURES_FILLED_MAX: Final = 1_000
"""A higher limit of failed authentications is not used up, because that many rows would take long."""
LOG_ROWS_MAX: Final = 2_000
ID_HEADER: Final = "Hookmill_Doctor_Id"
"""The delivery id header of the temporary `token` webhooks. Its underscores are allowed, but some proxies drop it."""
_DOCTOR_LOCK: Final = 0x646F6374
"""The number of PostgreSQL's advisory lock."""


class TemporaryWebhooks:
    """Webhooks that exist during the check. Use `temporary_webhooks`, which removes them."""

    def __init__(self, settings: Settings, management: Management, may: MayManage) -> None:
        self.public_url = settings.public_url()
        self.trusted_proxies: Sequence[str] = settings.trusted_proxies
        self.port = settings.port
        self._settings = settings
        self._management = management
        self._may = may
        self._token_webhooks: list[ProbeWebhook] = []
        self._url_token_webhook: ProbeWebhook | None = None
        self._deliveries: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._present: list[ProbeWebhook] = []
        """Not yet removed."""

    def for_delivery(self) -> ProbeWebhook:
        return self._choose(self._deliveries, self._settings.deliveries_per_minute, "deliveries_per_minute")

    def for_failure(self) -> ProbeWebhook:
        limit = self._settings.failed_authentications_per_minute
        return self._choose(self._failures, limit, "failed_authentications_per_minute")

    def _choose(self, counts: Counter[str], limit: int, setting: str) -> ProbeWebhook:
        """The first webhook whose rate limit is not used up."""
        for webhook in self._token_webhooks:
            if counts[webhook.uid] < limit:
                break
        else:
            if len(self._token_webhooks) == WEBHOOKS_MAX:
                raise Conflict(f"{setting} is {limit}, which is too low for the checks. Raise it for a minute.")
            webhook = self._create(AuthMode.TOKEN, delivery_id_header=ID_HEADER)
            self._token_webhooks.append(webhook)
        counts[webhook.uid] += 1
        return webhook

    def url_token_webhook(self) -> ProbeWebhook:
        if self._url_token_webhook is None:
            self._url_token_webhook = self._create(AuthMode.URL_TOKEN)
        return self._url_token_webhook

    @contextmanager
    def signed_webhook(self, scheme: str) -> Iterator[ProbeWebhook]:
        secret = example_secret(scheme_named(scheme, None), os.urandom(ENTROPY_BYTES))
        webhook = self._create(AuthMode.SIGNATURE, scheme=scheme, secret=secret.webhook_secret)
        yield webhook
        self.delete(webhook)

    def _create(
        self,
        mode: AuthMode,
        *,
        scheme: str | None = None,
        secret: str | None = None,
        delivery_id_header: str | None = None,
    ) -> ProbeWebhook:
        created = self._management.probes.create(
            self._may, auth_mode=mode, signature_scheme=scheme, secret=secret, delivery_id_header=delivery_id_header
        )
        webhook = ProbeWebhook(uid=created.webhook.uid, auth_mode=mode, secret=secret or created.reveal())
        self._present.append(webhook)
        return webhook

    def disable(self, webhook: ProbeWebhook) -> None:
        self._management.webhooks.set_enabled(self._may, webhook.uid, False)

    def delete(self, webhook: ProbeWebhook) -> None:
        self._management.probes.remove(self._may, webhook.uid)
        self._present.remove(webhook)

    def use_up_failures(self, webhook: ProbeWebhook) -> bool:
        limit = self._settings.failed_authentications_per_minute
        if limit > FAILURES_FILLED_MAX:
            return False
        self._management.probes.use_up_failed_authentications(self._may, webhook.uid, limit)
        return True

    def delivery(self, delivery_id: str) -> Delivery | None:
        try:
            return self._management.log.get(self._may, delivery_id)
        except NotFound:
            return None

    def payload(self, delivery_id: str) -> bytes | None:
        try:
            return self._management.log.payload(self._may, delivery_id)
        except NotFound:
            return None

    def log_of(self, webhook: ProbeWebhook) -> Sequence[Delivery]:
        return self._management.log.newest(self._may, webhook=webhook.uid, limit=LOG_ROWS_MAX)

    def log(self) -> Sequence[Delivery]:
        return [row for webhook in self._present for row in self.log_of(webhook)]


@contextmanager
def temporary_webhooks(settings: Settings, store: Store, factory: str | None) -> Iterator[TemporaryWebhooks]:
    """Creates temporary webhooks while the block runs, and removes them afterwards, with those of a killed `doctor`.

    `factory`: None for the first one that has room. Raises `Conflict` if another `doctor` runs, or no factory has room.
    """
    with excluding_others(store.database, number=_DOCTOR_LOCK, file_name="doctor.lock") as is_alone:
        if not is_alone:
            raise Conflict("Another `hookmill doctor --through` checks this installation. Wait until it ends.")
        management = build_management(settings, store)
        team = management.access.operator_of_team()
        management.probes.remove_leftovers(team)
        may = management.access.operator(factory) if factory is not None else _factory_with_room(management)
        try:
            yield TemporaryWebhooks(settings, management, may)
        finally:
            with _uninterrupted():
                management.probes.remove_leftovers(team)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let signals to stop wait until the block ends."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _factory_with_room(management: Management) -> MayManage:
    limit = management.config.webhooks_per_factory
    for factory in management.factories.all(management.access.operator_of_team()):
        may = management.access.operator(factory.name)
        has_room = len(management.webhooks.all(may)) + WEBHOOKS_AT_ONCE <= limit
        if has_room and not factory.defined_by_files:
            return may
    raise Conflict(
        f"No factory can have {WEBHOOKS_AT_ONCE} temporary webhooks: each is defined by files, or near its limit of "
        f"{limit}. Create one: hookmill factory create doctor"
    )
