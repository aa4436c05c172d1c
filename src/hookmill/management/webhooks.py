"""Operations on webhooks. What changes what a delivery would meet holds, in every process, before the call returns."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from hookmill.domain.errors import Conflict, Forbidden, Invalid, LimitReached, NotFound
from hookmill.domain.ids import SecretId, WebhookUid
from hookmill.domain.permission import Channel, MayManage, MayView
from hookmill.domain.secret import SecretValue, suggested_secret_name, usable_secret, usable_secret_name
from hookmill.domain.webhook import TOKEN_PLACEHOLDER, AuthMode, Webhook, WebhookState, usable_name
from hookmill.management import compatibility
from hookmill.management.installation import Change, Installation, random_name
from hookmill.management.lookup import live_webhook_named, webhook_named
from hookmill.store import secrets, webhooks
from hookmill.store.database import Transaction

if TYPE_CHECKING:
    from hookmill.domain.signatures.scheme import Scheme


class Unset(Enum):
    """Says of a field that may be None that it stays as it is."""

    UNSET = "kept"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, slots=True)
class WebhookWithSecret:
    """A webhook at the one moment when its secret and complete URL are shown."""

    webhook: Webhook
    url: str = field(repr=False)
    """It may hold the token."""
    secret: SecretValue | None
    """None while the provider has yet to give its own, and for a team secret that was there before: its value is
    never shown."""

    def reveal(self) -> str:
        """The secret's text, where there is one."""
        assert self.secret is not None, "asked of a webhook whose secret is to be shown"
        return self.secret.reveal()


class Webhooks:
    def __init__(self, installation: Installation) -> None:
        self._at = installation

    def create(
        self,
        may: MayManage,
        name: str,
        *,
        auth_mode: AuthMode = AuthMode.TOKEN,
        signature_scheme: str | None = None,
        signature_options: dict[str, Any] | None = None,
        answers_handshakes: bool = False,
        secret: str | None = None,
        secret_name: str | None = None,
        delivery_id_header: str | None = None,
        event_header: str | None = None,
        enabled: bool = True,
    ) -> WebhookWithSecret:
        """A new webhook. A secret made or given for it and its URL are in the answer, and nowhere afterwards.

        `secret_name` may name a team secret that is there, whose value is then used and not shown. Where only the
        provider can make the secret and none is given, the webhook is disabled until it is supplied. Raises
        `LimitReached` at the factory's limit.
        """
        name = usable_name("webhook", name)
        scheme = compatibility.usable_scheme(auth_mode, signature_scheme, signature_options, answers_handshakes)
        delivery_id_header = compatibility.usable_header(scheme, delivery_id_header)
        event_header = compatibility.usable_event_header(scheme, signature_scheme, event_header)
        given = usable_secret(secret) if secret is not None else None
        if given is not None:
            compatibility.refuse_unfit_secret(auth_mode, scheme, given)
        with self._at.changing_definition(may) as change:
            tx = change.tx
            limit = self._at.config.webhooks_per_factory
            if webhooks.count_live(tx, may.factory.id) >= limit:
                raise LimitReached(
                    f"Factory {may.factory.name!r} has {limit} webhooks, the most it may have. Delete one first."
                )
            _refuse_taken_name(tx, may, name)
            shown = None
            if secret_name is not None and (known := _known_secret(tx, may, secret_name)) is not None:
                if given is not None:
                    raise Conflict(
                        f"Team secret {secret_name} exists and has its own value. Leave the value out, or rename."
                    )
                secret_id = known
                version: str | None = self._fit_version(tx, known, secret_name, auth_mode, scheme)
            else:
                shown = given or compatibility.generated_for(scheme, signature_scheme)
                secret_id, version = self._new_secret(change, may, name, secret_name, shown)
            uid = WebhookUid(random_name("wh"))
            webhooks.add(
                tx,
                webhooks.NewWebhook(
                    uid=uid,
                    factory_id=may.factory.id,
                    name=name,
                    auth_mode=auth_mode,
                    state=WebhookState.ENABLED if enabled and version is not None else WebhookState.DISABLED,
                    secret_id=secret_id,
                    secret_version_id=version,
                    signature_scheme=signature_scheme,
                    signature_options=signature_options,
                    answers_handshakes=answers_handshakes,
                    delivery_id_header=delivery_id_header,
                    event_header=event_header,
                ),
                change.now,
            )
            webhook = _again(tx, uid)
            change.record(
                "create",
                "webhook",
                uid,
                name,
                auth_mode=auth_mode.value,
                signature_scheme=signature_scheme,
                secret_name=webhook.secret_name,
                enabled=webhook.state is WebhookState.ENABLED,
            )
        return WebhookWithSecret(webhook, self._complete_url(webhook, shown), shown)

    def all(self, may: MayView, *, with_deleted: bool = False) -> Sequence[Webhook]:
        with self._at.reading() as tx:
            return webhooks.in_factory(tx, may.factory.id, with_deleted=with_deleted)

    def get(self, may: MayView, named: str) -> Webhook:
        """The webhook with this uid, or the live one with this name. Raises `NotFound`."""
        with self._at.reading() as tx:
            return webhook_named(tx, may, named)

    def change(
        self,
        may: MayManage,
        named: str,
        *,
        name: str | None = None,
        enabled: bool | None = None,
        delivery_id_header: str | Unset | None = UNSET,
        event_header: str | Unset | None = UNSET,
    ) -> Webhook:
        """Several of these at once: all of them, or none. What is not named stays."""
        with self._at.together(may):
            webhook = self.get(may, named)
            if name is not None:
                webhook = self.rename(may, webhook.uid, name)
            if delivery_id_header is not UNSET:
                webhook = self._set_delivery_id_header(may, webhook.uid, delivery_id_header)
            if event_header is not UNSET:
                webhook = self._set_event_header(may, webhook.uid, event_header)
            if enabled is not None:
                webhook = self.set_enabled(may, webhook.uid, enabled)
        return webhook

    def rename(self, may: MayManage, named: str, name: str) -> Webhook:
        """Its uid, URL and log stay. Raises `Conflict` for a name that another one has."""
        name = usable_name("webhook", name)
        with self._at.changing_definition(may) as change:
            webhook = live_webhook_named(change.tx, may, named)
            if webhook.name == name:
                change.nothing()
                return webhook
            _refuse_taken_name(change.tx, may, name)
            webhooks.rename(change.tx, webhook.uid, name)
            change.record("rename", "webhook", webhook.uid, name, before=webhook.name)
            return _again(change.tx, webhook.uid)

    def set_enabled(self, may: MayManage, named: str, enabled: bool) -> Webhook:
        """Deliveries resume, or stop: senders get 404 from the moment this returns. Deleted webhooks stay deleted."""
        state = WebhookState.ENABLED if enabled else WebhookState.DISABLED
        with self._at.changing(may) as change:
            webhook = live_webhook_named(change.tx, may, named)
            if enabled and not webhook.has_secret:
                raise Conflict(
                    f"Webhook {webhook.name!r} has no secret yet. Supply the provider's first: "
                    f"hookmill webhook rotate {webhook.uid} --secret-from-stdin"
                )
            if webhook.state is state:
                change.nothing()
                return webhook
            webhooks.set_state(change.tx, webhook.uid, state, change.now)
            change.record("enable" if enabled else "disable", "webhook", webhook.uid, webhook.name)
            return _again(change.tx, webhook.uid)

    def rotate(self, may: MayManage, named: str, secret: str | None = None) -> WebhookWithSecret:
        """A new secret, generated or given. The old one stops working everywhere before this returns; the state
        stays.

        Raises `Invalid` where only the provider can make the secret and none is given, and `Forbidden` where another
        factory uses the secret too.
        """
        given = usable_secret(secret) if secret is not None else None
        with self._at.changing(may) as change:
            tx = change.tx
            webhook = live_webhook_named(tx, may, named)
            scheme = compatibility.scheme_of(webhook)
            if given is not None:
                compatibility.refuse_unfit_secret(webhook.auth_mode, scheme, given)
            value = given or compatibility.generated_for(scheme, webhook.signature_scheme)
            if value is None:
                raise Invalid(
                    f"The secret of {webhook.name!r} is agreed on with its provider. Give it over: "
                    f"hookmill webhook rotate {webhook.uid} --secret-from-stdin"
                )
            secret_id, _ = webhooks.secret_of(tx, webhook.uid)
            refuse_if_shared(tx, may, secret_id, webhook.secret_name)
            version = secrets.add_version(tx, secret_id, value, self._at.key, change.now)
            webhooks.use_secret_version(tx, webhook.uid, version)
            change.record("rotate", "webhook", webhook.uid, webhook.name, secret_name=webhook.secret_name)
            webhook = _again(tx, webhook.uid)
        return WebhookWithSecret(webhook, self._complete_url(webhook, value), value)

    def sync(self, may: MayManage, named: str) -> Webhook:
        """Use the newest value of the team secret from now on; the one before stops working at once.

        Raises `Invalid` for a value that doesn't fit this webhook.
        """
        with self._at.changing(may) as change:
            webhook = live_webhook_named(change.tx, may, named)
            if webhook.secret_is_current:
                change.nothing()
                return webhook
            secret_id, _ = webhooks.secret_of(change.tx, webhook.uid)
            scheme = compatibility.scheme_of(webhook)
            version = self._fit_version(change.tx, secret_id, webhook.secret_name, webhook.auth_mode, scheme)
            webhooks.use_secret_version(change.tx, webhook.uid, version)
            change.record("sync", "webhook", webhook.uid, webhook.name, secret_name=webhook.secret_name)
            return _again(change.tx, webhook.uid)

    def delete(self, may: MayManage, named: str) -> Webhook:
        """Senders get 404 from the moment this returns. The log stays until retention takes it."""
        with self._at.changing_definition(may) as change:
            webhook = live_webhook_named(change.tx, may, named)
            webhooks.set_state(change.tx, webhook.uid, WebhookState.DELETED, change.now)
            change.record("delete", "webhook", webhook.uid, webhook.name)
            return _again(change.tx, webhook.uid)

    def redefine(
        self,
        may: MayManage,
        named: str,
        *,
        auth_mode: AuthMode,
        signature_scheme: str | None,
        signature_options: dict[str, Any] | None,
        answers_handshakes: bool,
        secret_name: str,
        delivery_id_header: str | None,
        event_header: str | None,
    ) -> Webhook:
        """Make it what its definition says now. Its uid, state and log stay; its senders must follow.

        `secret_name` must be there. Raises `NotFound`, and `Invalid` for what doesn't fit together.
        """
        scheme = compatibility.usable_scheme(auth_mode, signature_scheme, signature_options, answers_handshakes)
        delivery_id_header = compatibility.usable_header(scheme, delivery_id_header)
        event_header = compatibility.usable_event_header(scheme, signature_scheme, event_header)
        with self._at.changing_definition(may) as change:
            tx = change.tx
            webhook = live_webhook_named(tx, may, named)
            secret_id = _known_secret(tx, may, secret_name)
            if secret_id is None:
                raise _no_such_secret(secret_name)
            version = self._fit_version(tx, secret_id, secret_name, auth_mode, scheme)
            webhooks.redefine(
                tx,
                webhook.uid,
                webhooks.NewWebhook(
                    uid=webhook.uid,
                    factory_id=may.factory.id,
                    name=webhook.name,
                    auth_mode=auth_mode,
                    state=webhook.state,
                    secret_id=secret_id,
                    secret_version_id=version,
                    signature_scheme=signature_scheme,
                    signature_options=signature_options,
                    answers_handshakes=answers_handshakes,
                    delivery_id_header=delivery_id_header,
                    event_header=event_header,
                ),
            )
            change.record(
                "redefine",
                "webhook",
                webhook.uid,
                webhook.name,
                auth_mode=auth_mode.value,
                signature_scheme=signature_scheme,
                secret_name=secret_name,
                delivery_id_header=delivery_id_header,
                event_header=event_header,
            )
            return _again(tx, webhook.uid)

    def url(self, webhook: Webhook) -> str:
        """The URL to show: a URL token is a placeholder in it."""
        return self._at.config.public_url + webhook.ingress_path()

    def secret_for_sending(self, may: MayManage, named: str) -> WebhookWithSecret:
        """The secret in use, for the operator's own sample deliveries. No page or API answer may carry it."""
        with self._at.reading() as tx:
            webhook = live_webhook_named(tx, may, named)
            _, version = webhooks.secret_of(tx, webhook.uid)
            if version is None:
                raise Conflict(f"Webhook {webhook.name!r} has no secret yet: supply the provider's first.")
            value = secrets.reveal(tx, version, self._at.key)
        return WebhookWithSecret(webhook, self._complete_url(webhook, value), value)

    def _set_delivery_id_header(self, may: MayManage, named: str, header: str | Unset | None) -> Webhook:
        assert not isinstance(header, Unset)
        with self._at.changing_definition(may) as change:
            webhook = live_webhook_named(change.tx, may, named)
            header = compatibility.usable_header(compatibility.scheme_of(webhook), header)
            if webhook.delivery_id_header == header:
                change.nothing()
                return webhook
            webhooks.set_delivery_id_header(change.tx, webhook.uid, header)
            change.record("change", "webhook", webhook.uid, webhook.name, delivery_id_header=header)
            return _again(change.tx, webhook.uid)

    def _set_event_header(self, may: MayManage, named: str, header: str | Unset | None) -> Webhook:
        assert not isinstance(header, Unset)
        with self._at.changing_definition(may) as change:
            webhook = live_webhook_named(change.tx, may, named)
            header = compatibility.usable_event_header(
                compatibility.scheme_of(webhook), webhook.signature_scheme, header
            )
            if webhook.event_header == header:
                change.nothing()
                return webhook
            webhooks.set_event_header(change.tx, webhook.uid, header)
            change.record("change", "webhook", webhook.uid, webhook.name, event_header=header)
            return _again(change.tx, webhook.uid)

    def _fit_version(
        self, tx: Transaction, secret_id: SecretId, secret_name: str, mode: AuthMode, scheme: "Scheme | None"
    ) -> str:
        """The newest version of a team secret, if it can authenticate this webhook's deliveries."""
        version = secrets.newest_version(tx, secret_id)
        if version is None:
            raise Conflict(f"Team secret {secret_name} has no value yet. Set it first.")
        value = secrets.reveal(tx, version, self._at.key)
        compatibility.refuse_unfit_secret(mode, scheme, value, f"Team secret {secret_name}: ")
        return version

    def _new_secret(
        self, change: Change, may: MayManage, webhook_name: str, secret_name: str | None, value: SecretValue | None
    ) -> tuple[SecretId, str | None]:
        """A team secret of the webhook's own, with its value or still without one."""
        if may.actor.channel is Channel.FILES:
            raise _no_such_secret(secret_name or "")
        name = secret_name or _free_secret_name(change.tx, may, webhook_name)
        secret_id = SecretId(random_name("sec"))
        secrets.add_secret(change.tx, secret_id, may.factory.team_id, name, change.now, factory=may.factory.id)
        change.record("create", "secret", secret_id, name)
        if value is None:
            return secret_id, None
        return secret_id, secrets.add_version(change.tx, secret_id, value, self._at.key, change.now)

    def _complete_url(self, webhook: Webhook, secret: SecretValue | None) -> str:
        shown = self.url(webhook)
        if secret is None or webhook.auth_mode is not AuthMode.URL_TOKEN:
            return shown
        return shown.replace(TOKEN_PLACEHOLDER, secret.reveal())


def reach_of(tx: Transaction, may: MayManage, secret: SecretId) -> "Reach":
    """How far a secret reaches, as seen from one factory."""
    users = {use.factory_id for use in secrets.uses(tx, may.factory.team_id) if use.secret_id == secret}
    made_in = secrets.made_in(tx, secret)
    is_ours = may.factory.id in users or made_in == may.factory.id
    return Reach(is_ours=is_ours, is_others=bool(users - {may.factory.id}) or made_in not in {None, may.factory.id})


@dataclass(frozen=True, slots=True)
class Reach:
    is_ours: bool
    is_others: bool


def refuse_if_others(tx: Transaction, may: MayManage, secret: SecretId, name: str) -> None:
    """Names of secrets are one team's, so a manager can learn that one is taken; not by whom. Raises `Conflict`."""
    if not (may.is_admin or reach_of(tx, may, secret).is_ours):
        raise Conflict(
            f"A team secret named {name} exists, which this factory does not use. Choose another name, or ask an admin "
            "of the team."
        )


def refuse_if_shared(tx: Transaction, may: MayManage, secret: SecretId, name: str) -> None:
    """One factory's managers must not reach into another through a secret: neither of both, nor of the other's that
    waits to be used. Raises `Forbidden`."""
    if may.is_admin:
        return
    if reach_of(tx, may, secret).is_others:
        raise Forbidden(
            f"Team secret {name} belongs to another factory too, or to several. This takes an admin of the team."
        )


def _known_secret(tx: Transaction, may: MayManage, name: str) -> SecretId | None:
    secret = secrets.secret_named(tx, may.factory.team_id, usable_secret_name(name))
    if secret is not None:
        refuse_if_others(tx, may, secret, name)
        refuse_if_shared(tx, may, secret, name)
    return secret


def _no_such_secret(name: str) -> NotFound:
    return NotFound(
        f"No team secret is named {name[:80]!r}. Create it first: hookmill secret create {name[:80]} --from-stdin"
    )


def _free_secret_name(tx: Transaction, may: MayManage, webhook_name: str) -> str:
    suggested = suggested_secret_name(webhook_name)
    name, count = suggested, 1
    while secrets.secret_named(tx, may.factory.team_id, name) is not None:
        count += 1
        name = f"{suggested.removesuffix('_SECRET')}_{count}_SECRET"
    return name


def _refuse_taken_name(tx: Transaction, may: MayManage, name: str) -> None:
    if webhooks.live_by_name(tx, may.factory.id, name) is not None:
        raise Conflict(f"Factory {may.factory.name!r} already has a webhook named {name!r}. Choose another name.")


def _again(tx: Transaction, uid: WebhookUid) -> Webhook:
    """The webhook as it stands after a change in the same transaction."""
    webhook = webhooks.by_uid(tx, uid)
    assert webhook is not None, "a webhook's row is never removed"
    return webhook
