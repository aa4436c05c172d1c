"""Operations on webhooks. A change takes effect in every process before the call returns."""

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from hookmill.domain.errors import Conflict, Forbidden, Invalid, LimitReached, NotFound
from hookmill.domain.ids import SecretId, WebhookUid
from hookmill.domain.networks import EVERY_CLIENT_IS_THE_PROXY
from hookmill.domain.permission import Channel, MayManage, MayView
from hookmill.domain.secret import (
    GENERATED_BYTES,
    SecretValue,
    generate_value,
    is_url_safe,
    suggested_secret_name,
    usable_secret,
    usable_secret_name,
)
from hookmill.domain.spec import read
from hookmill.domain.webhook import (
    AUTHENTICATION_FIELDS,
    TOKEN_PLACEHOLDER,
    AuthMode,
    Webhook,
    WebhookSpec,
    WebhookState,
)
from hookmill.management.installation import Change, Operations, random_id
from hookmill.management.lookup import live_webhook_named, webhook_named
from hookmill.store import secrets, webhooks
from hookmill.store.database import Transaction


@dataclass(frozen=True, slots=True)
class WebhookWithSecret:
    """A webhook with its secret and complete URL. Pages and API responses show them only after `create` or `rotate`."""

    webhook: Webhook
    url: str = field(repr=False)
    """The complete URL. In the mode `url_token`, it contains `secret`, or a placeholder if `secret` is None."""
    secret: SecretValue | None
    """None if the webhook has no secret yet, or uses a team secret that existed before."""

    def reveal(self) -> str:
        """The text of the secret, which must not be None."""
        assert self.secret is not None, "the caller has checked that there is a secret"
        return self.secret.reveal()


class Webhooks(Operations):
    def create(self, may: MayManage, source: Mapping[str, Any], secret: str | None = None) -> WebhookWithSecret:
        """Create a webhook from the JSON of a `WebhookSpec`. Later, only `secret_for_sending` returns this secret and
        this complete URL again.

        If `secret_name` names an existing team secret, the webhook uses its value, which is not shown. If only the
        provider can make the secret and `secret` is None, the webhook is created disabled. It can be enabled after
        `rotate` has supplied the secret. Raises `Invalid` with JSON pointers, `Conflict` for a taken name, or
        `LimitReached` at the factory's limit.
        """
        spec = read(WebhookSpec, source)
        supplied_secret = _supplied_secret(spec, secret)
        with self._installation.changing_definition(may) as change:
            tx = change.tx
            limit = self._installation.config.webhooks_per_factory
            if webhooks.count_live(tx, may.factory.id) >= limit:
                raise LimitReached(
                    f"Factory {may.factory.name!r} has {limit} webhooks, which is the limit. Delete one first."
                )
            _refuse_taken_name(tx, may, spec.name)
            new_secret = None
            if spec.secret_name is not None and (existing_id := _existing_secret_id(tx, may, spec.secret_name)):
                if supplied_secret is not None:
                    raise Conflict(
                        f"Team secret {spec.secret_name} exists and has its own value. Leave the value out, or choose "
                        "another name.",
                        pointer="/secret_name",
                    )
                secret_id = existing_id
                version_id: str | None = self._usable_version_id(tx, existing_id, spec.secret_name, spec)
            else:
                new_secret = supplied_secret or _generate_secret(spec)
                secret_id, version_id = self._add_secret(change, may, spec, new_secret)
            uid = WebhookUid(random_id("wh"))
            webhooks.add(
                tx,
                uid,
                spec,
                factory=may.factory.id,
                state=WebhookState.ENABLED if spec.enabled and version_id is not None else WebhookState.DISABLED,
                secret_id=secret_id,
                secret_version_id=version_id,
                now=change.now,
            )
            webhook = _reload(tx, uid)
            details = webhook.spec.as_json()
            change.record("create", "webhook", uid, details.pop("name"), **details)
        return WebhookWithSecret(webhook, self._complete_url(webhook, new_secret), new_secret)

    def all(self, may: MayView, *, with_deleted: bool = False) -> Sequence[Webhook]:
        with self._installation.reading() as tx:
            return webhooks.in_factory(tx, may.factory.id, with_deleted=with_deleted)

    def get(self, may: MayView, uid_or_name: str) -> Webhook:
        """The webhook with this uid, or the one with this name that is not deleted. Raises `NotFound`."""
        with self._installation.reading() as tx:
            return webhook_named(tx, may, uid_or_name)

    def change(self, may: MayManage, uid_or_name: str, changes: Mapping[str, Any]) -> Webhook:
        """Change several fields of the webhook's spec in one transaction. None resets a field to its default.

        The uid, URL and log stay. After a change of the authentication, senders must be reconfigured. Raises `Invalid`
        with JSON pointers, `NotFound` for an unknown `secret_name`, and `Conflict` for a taken name; otherwise like
        `set_enabled`.
        """
        if list(changes) == ["enabled"] and isinstance(changes["enabled"], bool):
            # A newer version's catalogue of schemes may refuse the other fields. It can be disabled nevertheless.
            return self.set_enabled(may, uid_or_name, changes["enabled"])
        with self._installation.one_transaction(may) as tx:
            webhook = live_webhook_named(tx, may, uid_or_name)
            after = webhook.changed(changes)
            changed_fields = {
                name for name in WebhookSpec.__struct_fields__ if getattr(after, name) != getattr(webhook, name)
            }
            if definition_fields := changed_fields - {"enabled"}:
                self._change_definition(may, webhook, after, definition_fields)
            if "enabled" in changed_fields:
                self.set_enabled(may, webhook.uid, after.enabled)
            return _reload(tx, webhook.uid)

    def set_enabled(self, may: MayManage, uid_or_name: str, enabled: bool) -> Webhook:
        """Enable or disable the webhook. While it is disabled, senders get a 404. Enabling it syncs its secret, too.

        Raises `Conflict` if the webhook is deleted, or is to be enabled and has no secret; otherwise like `sync`.
        """
        state = WebhookState.ENABLED if enabled else WebhookState.DISABLED
        with self._installation.changing(may) as change:
            webhook = live_webhook_named(change.tx, may, uid_or_name)
            if enabled and webhook.state is not state and not webhook.secret_is_current:
                webhook = self._sync(change, webhook)
            if enabled and not webhook.has_secret:
                raise Conflict(
                    f"Webhook {webhook.name!r} has no secret yet. Supply the provider's secret first: "
                    f"hookmill webhook rotate {webhook.command_argument} --secret-from-stdin"
                    f"{may.factory.command_option}"
                )
            if webhook.state is state:
                change.skip_audit()
                return webhook
            webhooks.set_state(change.tx, webhook.uid, state, change.now)
            change.record("enable" if enabled else "disable", "webhook", webhook.uid, webhook.name)
            return _reload(change.tx, webhook.uid)

    def rotate(self, may: MayManage, uid_or_name: str, secret: str | None = None) -> WebhookWithSecret:
        """Replace the secret, and return the webhook with the new one. The state stays.

        The old secret stops working in every process before this returns. Raises `Invalid` if only the provider can
        make the secret and `secret` is None, and `Forbidden` like `refuse_shared_secret`.
        """
        with self._installation.changing(may) as change:
            tx = change.tx
            webhook = live_webhook_named(tx, may, uid_or_name)
            value = _supplied_secret(webhook, secret) or _generate_secret(webhook)
            if value is None:
                raise Invalid(
                    f"Only the provider can make the secret of {webhook.name!r}. Supply it: "
                    f"hookmill webhook rotate {webhook.command_argument} --secret-from-stdin"
                    f"{may.factory.command_option}"
                )
            secret_id, _ = webhooks.secret_of(tx, webhook.uid)
            refuse_shared_secret(tx, may, secret_id, webhook.secret_name)
            version_id = secrets.add_version(tx, secret_id, value, self._installation.master_keys, change.now)
            webhooks.set_secret(tx, webhook.uid, secret_id, version_id)
            change.record("rotate", "webhook", webhook.uid, webhook.name, secret_name=webhook.secret_name)
            webhook = _reload(tx, webhook.uid)
        return WebhookWithSecret(webhook, self._complete_url(webhook, value), value)

    def sync(self, may: MayManage, uid_or_name: str) -> Webhook:
        """Use the newest value of the team secret. The previous value stops working for this webhook immediately.

        Raises `Invalid` if the value can't authenticate this webhook's deliveries.
        """
        with self._installation.changing(may) as change:
            webhook = live_webhook_named(change.tx, may, uid_or_name)
            if webhook.secret_is_current:
                change.skip_audit()
                return webhook
            return self._sync(change, webhook)

    def delete(self, may: MayManage, uid_or_name: str) -> Webhook:
        """Delete the webhook. Senders get a 404 once the call returns. The log stays until retention prunes it."""
        with self._installation.changing_definition(may, needs_disk_space=False) as change:
            webhook = live_webhook_named(change.tx, may, uid_or_name)
            webhooks.set_state(change.tx, webhook.uid, WebhookState.DELETED, change.now)
            change.record("delete", "webhook", webhook.uid, webhook.name)
            return _reload(change.tx, webhook.uid)

    def url(self, webhook: Webhook) -> str:
        """The URL with a placeholder instead of the token, for display."""
        return self._installation.config.public_url + webhook.ingress_path()

    def warnings(self, webhook: Webhook) -> tuple[str, ...]:
        """Reasons why it may not work as it is meant, one sentence each."""
        warnings = []
        if webhook.allowed_networks and self._installation.config.lacks_trusted_proxies:
            warnings.append(EVERY_CLIENT_IS_THE_PROXY)
        try:
            _ = webhook.scheme
        except Invalid:
            warnings.append(
                f"This version can't use the signature scheme {webhook.signature_scheme!r} with these options, so "
                "the webhook accepts no deliveries. Change the scheme or its options."
            )
        return tuple(warnings)

    def secret_for_sending(self, may: MayManage, uid_or_name: str) -> WebhookWithSecret:
        """The webhook and the secret that it uses now, for sample deliveries. Pages and API responses must not show it.

        Raises `Conflict` if it has no secret yet.
        """
        with self._installation.reading() as tx:
            webhook = live_webhook_named(tx, may, uid_or_name)
            _, version_id = webhooks.secret_of(tx, webhook.uid)
            if version_id is None:
                raise Conflict(f"Webhook {webhook.name!r} has no secret yet. Supply the provider's secret first.")
            value = secrets.reveal(tx, version_id, self._installation.master_keys)
        return WebhookWithSecret(webhook, self._complete_url(webhook, value), value)

    def _change_definition(self, may: MayManage, webhook: Webhook, after: WebhookSpec, fields: Set[str]) -> None:
        # On a full disk, it must be possible to refuse senders.
        with self._installation.changing_definition(may, needs_disk_space=fields != {"allowed_networks"}) as change:
            if "name" in fields:
                _refuse_taken_name(change.tx, may, after.name)
            if fields & AUTHENTICATION_FIELDS:
                if after.secret_name is None:
                    raise Invalid("Name the team secret that the webhook uses.", pointer="/secret_name")
                if (secret_id := _existing_secret_id(change.tx, may, after.secret_name)) is None:
                    raise _secret_not_found_error(after.secret_name)
                version_id = self._usable_version_id(change.tx, secret_id, after.secret_name, after)
                webhooks.set_secret(change.tx, webhook.uid, secret_id, version_id)
            webhooks.change(change.tx, webhook.uid, after, fields, change.now)
            names = [name for name in WebhookSpec.__struct_fields__ if name in fields]
            change.record(
                "change",
                "webhook",
                webhook.uid,
                after.name,
                **{name: getattr(after, name) for name in names},
                before={name: getattr(webhook, name) for name in names},
            )

    def _sync(self, change: Change, webhook: Webhook) -> Webhook:
        secret_id, _ = webhooks.secret_of(change.tx, webhook.uid)
        version_id = self._usable_version_id(change.tx, secret_id, webhook.secret_name, webhook)
        webhooks.set_secret(change.tx, webhook.uid, secret_id, version_id)
        change.record("sync", "webhook", webhook.uid, webhook.name, secret_name=webhook.secret_name)
        return _reload(change.tx, webhook.uid)

    def _usable_version_id(self, tx: Transaction, secret_id: SecretId, secret_name: str, spec: WebhookSpec) -> str:
        """The id of a team secret's newest version, if its value can authenticate this webhook's deliveries."""
        version_id = secrets.newest_version_id(tx, secret_id)
        if version_id is None:
            raise Conflict(f"Team secret {secret_name} has no value yet. Set it first.", pointer="/secret_name")
        value = secrets.reveal(tx, version_id, self._installation.master_keys)
        try:
            _refuse_unfit_secret(spec, value)
        except Invalid as error:
            raise Invalid(f"Team secret {secret_name}: {error}", pointer="/secret_name") from None
        return version_id

    def _add_secret(
        self, change: Change, may: MayManage, spec: WebhookSpec, value: SecretValue | None
    ) -> tuple[SecretId, str | None]:
        """Add a team secret for the webhook. Returns the ids of the secret and its version (None without a value).

        Raises `NotFound` if a definition file names the secret.
        """
        # Files name existing secrets, and never create one.
        if may.actor.channel is Channel.FILES:
            raise _secret_not_found_error(spec.secret_name or "")
        name = spec.secret_name or _free_secret_name(change.tx, may, spec.name)
        secret_id = SecretId(random_id("sec"))
        secrets.add_secret(change.tx, secret_id, may.factory.team_id, name, change.now, factory=may.factory.id)
        change.record("create", "secret", secret_id, name)
        if value is None:
            return secret_id, None
        return secret_id, secrets.add_version(change.tx, secret_id, value, self._installation.master_keys, change.now)

    def _complete_url(self, webhook: Webhook, secret: SecretValue | None) -> str:
        url = self.url(webhook)
        if secret is None or webhook.auth_mode is not AuthMode.URL_TOKEN:
            return url
        return url.replace(TOKEN_PLACEHOLDER, secret.reveal())


def _generate_secret(spec: WebhookSpec) -> SecretValue | None:
    """A new secret; None if only the provider can make it."""
    entropy = os.urandom(GENERATED_BYTES)
    scheme = spec.scheme
    if scheme is None:
        return generate_value(entropy)
    from hookmill.domain.signatures.key import make_secret, service_makes_secrets

    return make_secret(scheme, entropy) if service_makes_secrets(scheme, spec.signature_scheme) else None


def _supplied_secret(spec: WebhookSpec, text: str | None) -> SecretValue | None:
    """The secret that a person supplied, if any. Raises `Invalid` for an unusable one."""
    if text is None:
        return None
    try:
        value = usable_secret(text)
        _refuse_unfit_secret(spec, value)
    except Invalid as error:
        raise Invalid(str(error), pointer="/secret") from None
    return value


def _refuse_unfit_secret(spec: WebhookSpec, value: SecretValue) -> None:
    """Raises `Invalid` for a secret that could never authenticate a delivery."""
    if spec.auth_mode is AuthMode.URL_TOKEN and not is_url_safe(value):
        raise Invalid("A url_token secret is part of the URL. Use only letters, digits and - . _ ~.")
    if (scheme := spec.scheme) is not None:
        from hookmill.domain.signatures.key import prepare_key

        prepare_key(scheme, value.reveal())


def sharing_of(tx: Transaction, may: MayManage, secret_id: SecretId) -> "SecretSharing":
    """Which factories created or use the secret: the one of the permission, and others."""
    using_factory_ids = {
        use.factory_id for use in secrets.uses_of_team_secrets(tx, may.factory.team_id) if use.secret_id == secret_id
    }
    creating_factory = secrets.creating_factory(tx, secret_id)
    return SecretSharing(
        created_or_used_here=may.factory.id in using_factory_ids or creating_factory == may.factory.id,
        created_or_used_elsewhere=bool({*using_factory_ids, creating_factory} - {may.factory.id}),
    )


@dataclass(frozen=True, slots=True)
class SecretSharing:
    created_or_used_here: bool
    """Whether the factory of the permission created the secret or has a webhook that uses it."""
    created_or_used_elsewhere: bool
    """Whether another factory created the secret or has a webhook that uses it."""


def refuse_foreign_secret(tx: Transaction, may: MayManage, secret_id: SecretId, name: str) -> None:
    """Raises `Conflict` if the factory of the permission neither created nor uses the secret.

    Admins are exempt. Secret names are unique in a team. So a manager can learn that a name is taken, but not by which
    factory.
    """
    if not (may.is_admin or sharing_of(tx, may, secret_id).created_or_used_here):
        raise Conflict(
            f"Another factory has a team secret named {name}. Choose another name, or ask an admin of the team."
        )


def refuse_shared_secret(tx: Transaction, may: MayManage, secret_id: SecretId, name: str) -> None:
    """Raises `Forbidden` if any other factory created or uses the secret. Admins are exempt.

    Otherwise a manager of one factory could change another factory through a shared secret.
    """
    if may.is_admin:
        return
    if sharing_of(tx, may, secret_id).created_or_used_elsewhere:
        raise Forbidden(f"Another factory owns or uses team secret {name} too. Only an admin of the team can do this.")


def _existing_secret_id(tx: Transaction, may: MayManage, name: str) -> SecretId | None:
    """The id of the team secret with this name, if there is one.

    Raises `Conflict` or `Forbidden` as described at `refuse_foreign_secret` and `refuse_shared_secret`.
    """
    secret_id = secrets.secret_id_named(tx, may.factory.team_id, usable_secret_name(name))
    if secret_id is not None:
        refuse_foreign_secret(tx, may, secret_id, name)
        refuse_shared_secret(tx, may, secret_id, name)
        if secrets.is_for_runs(tx, secret_id):
            raise Conflict(
                f"Team secret {name} is for runs, which can read it. So no webhook can use it. Choose another name."
            )
    return secret_id


def _secret_not_found_error(name: str) -> NotFound:
    return NotFound(
        f"No team secret is named {name[:80]!r}. Create it first: hookmill secret create {name[:80]} --from-stdin"
    )


def _free_secret_name(tx: Transaction, may: MayManage, webhook_name: str) -> str:
    """The suggested name, with a number if the team has a secret with that name."""
    suggested = suggested_secret_name(webhook_name)
    name, number = suggested, 1
    while secrets.secret_id_named(tx, may.factory.team_id, name) is not None:
        number += 1
        name = f"{suggested.removesuffix('_SECRET')}_{number}_SECRET"
    return name


def _refuse_taken_name(tx: Transaction, may: MayManage, name: str) -> None:
    if webhooks.live_by_name(tx, may.factory.id, name) is not None:
        raise Conflict(
            f"Factory {may.factory.name!r} already has a webhook named {name!r}. Choose another name.", pointer="/name"
        )


def _reload(tx: Transaction, uid: WebhookUid) -> Webhook:
    """The webhook after a change in the same transaction."""
    webhook = webhooks.by_uid(tx, uid)
    assert webhook is not None, "a webhook's row is never removed"
    return webhook
