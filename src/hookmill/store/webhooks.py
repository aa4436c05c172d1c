"""Reads and updates webhooks. Every change that the ingress must notice increments the webhook's revision."""

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from hookmill.domain.expect_every import expect_every_seconds, expect_every_text
from hookmill.domain.ids import FactoryId, SecretId, WebhookUid
from hookmill.domain.webhook import AuthMode, Webhook, WebhookSpec, WebhookState
from hookmill.store.database import Row, Transaction, from_row

_SPEC_COLUMNS: Final = tuple(name for name in WebhookSpec.__struct_fields__ if name not in ("secret_name", "enabled"))
"""The fields with a column of the same name. The table refers to the team secret, and has the state."""
_COLUMNS: Final = f"""
    w.uid, w.no, w.factory_id, w.state, {", ".join(f"w.{name}" for name in _SPEC_COLUMNS)},
    w.secret_version_id IS NOT NULL AS has_secret, w.revision, w.created_at, s.name AS secret_name,
    COALESCE(w.secret_version_id, '') = COALESCE((
        SELECT v.id FROM secret_versions v WHERE v.secret_id = w.secret_id ORDER BY v.version DESC LIMIT 1
    ), '') AS secret_is_current
"""


def add(
    tx: Transaction,
    uid: WebhookUid,
    spec: WebhookSpec,
    *,
    factory: FactoryId,
    state: WebhookState,
    secret_id: SecretId,
    secret_version_id: str | None,
    now: int,
) -> None:
    """Add a webhook. `secret_version_id` is None until the provider's secret is supplied."""
    tx.run(
        f"""
        INSERT INTO webhooks (uid, factory_id, {", ".join(_SPEC_COLUMNS)}, state, secret_id, secret_version_id,
                              expected_from, revision, created_at)
        VALUES (:uid, :factory, {", ".join(f":{name}" for name in _SPEC_COLUMNS)}, :state, :secret_id,
                :secret_version_id, :now, 1, :now)
        """,
        uid=uid,
        factory=factory,
        state=state.value,
        secret_id=secret_id,
        secret_version_id=secret_version_id,
        now=now,
        **_columns(spec, _SPEC_COLUMNS),
    )


def count_live(tx: Transaction, factory: FactoryId) -> int:
    """The number of the factory's webhooks that are not deleted."""
    return tx.integer(
        "SELECT COUNT(*) FROM webhooks WHERE factory_id = :factory AND state <> 'deleted'", factory=factory
    )


def by_uid(tx: Transaction, uid: WebhookUid) -> Webhook | None:
    """The webhook in any state, even deleted; None if the uid is unknown."""
    row = tx.one(f"SELECT {_COLUMNS} FROM webhooks w JOIN secrets s ON s.id = w.secret_id WHERE w.uid = :uid", uid=uid)
    return _webhook(row) if row else None


def with_uids(tx: Transaction, uids: Collection[WebhookUid]) -> dict[WebhookUid, Webhook]:
    """The webhooks with these uids, in any state and of any factory. Unknown uids are omitted."""
    if not uids:
        return {}
    rows = tx.all(
        f"SELECT {_COLUMNS} FROM webhooks w JOIN secrets s ON s.id = w.secret_id WHERE w.uid IN :uids", uids=list(uids)
    )
    return {row["uid"]: _webhook(row) for row in rows}


def live_by_name(tx: Transaction, factory: FactoryId, name: str) -> Webhook | None:
    """The webhook with this name that is not deleted; None if there is none."""
    row = tx.one(
        f"""
        SELECT {_COLUMNS} FROM webhooks w JOIN secrets s ON s.id = w.secret_id
        WHERE w.factory_id = :factory AND w.name = :name AND w.state <> 'deleted'
        """,
        factory=factory,
        name=name,
    )
    return _webhook(row) if row else None


def in_factory(tx: Transaction, factory: FactoryId, *, with_deleted: bool = False) -> Sequence[Webhook]:
    rows = tx.all(
        f"""
        SELECT {_COLUMNS} FROM webhooks w JOIN secrets s ON s.id = w.secret_id
        WHERE w.factory_id = :factory AND (:deleted OR w.state <> 'deleted')
        ORDER BY w.name, w.no
        """,
        factory=factory,
        deleted=with_deleted,
    )
    return [_webhook(row) for row in rows]


def set_state(tx: Transaction, uid: WebhookUid, state: WebhookState, now: int) -> None:
    """Set the state. From now on, an enabled webhook expects deliveries."""
    tx.run(
        """
        UPDATE webhooks
        SET state = :state, deleted_at = :deleted_at, expected_from = :now, revision = revision + 1
        WHERE uid = :uid
        """,
        uid=uid,
        now=now,
        state=state.value,
        deleted_at=now if state is WebhookState.DELETED else None,
    )


def change(tx: Transaction, uid: WebhookUid, spec: WebhookSpec, fields: Collection[str], now: int) -> None:
    """Replace some fields. If the expected time is one of them, it counts from now on."""
    columns = _columns(spec, [name for name in _SPEC_COLUMNS if name in fields])
    assignments = [f"{column} = :{column}" for column in columns]
    if "expect_every" in fields:
        assignments.append("expected_from = :now")
    tx.run(
        f"UPDATE webhooks SET {', '.join([*assignments, 'revision = revision + 1'])} WHERE uid = :uid",
        uid=uid,
        now=now,
        **columns,
    )


def set_secret(tx: Transaction, uid: WebhookUid, secret_id: SecretId, version_id: str) -> None:
    """Set the team secret, and the version that the webhook uses."""
    tx.run(
        """
        UPDATE webhooks SET secret_id = :secret, secret_version_id = :version, revision = revision + 1
        WHERE uid = :uid
        """,
        uid=uid,
        secret=secret_id,
        version=version_id,
    )


def secret_of(tx: Transaction, uid: WebhookUid) -> tuple[SecretId, str | None]:
    """The id of the webhook's team secret, and of the version that it uses; None before the first version."""
    row = tx.one("SELECT secret_id, secret_version_id FROM webhooks WHERE uid = :uid", uid=uid)
    if row is None:
        raise LookupError(uid)
    return row["secret_id"], row["secret_version_id"]


def increment_revisions(tx: Transaction, factory: FactoryId, uids: Iterable[WebhookUid]) -> None:
    """Make every process reload these webhooks of the factory, because their automations have changed."""
    # Rows are locked in the order of the webhooks' numbers, like in admission. Otherwise transactions could deadlock.
    selected = list(uids)
    if not selected:
        return
    for no in tx.scalars(
        "SELECT no FROM webhooks WHERE uid IN :uids AND factory_id = :factory ORDER BY no",
        uids=selected,
        factory=factory,
    ):
        tx.run("UPDATE webhooks SET revision = revision + 1 WHERE no = :no", no=no)


def options_from(stored: str | None) -> dict[str, Any] | None:
    """The signature options from their stored JSON text."""
    return json.loads(stored) if stored is not None else None


def networks_from(stored: str | None) -> tuple[str, ...]:
    """The allowed networks from their stored text."""
    return tuple(stored.split()) if stored is not None else ()


def _columns(spec: WebhookSpec, names: Iterable[str]) -> dict[str, Any]:
    """The stored values of these fields, by column."""
    return {name: _stored(name, getattr(spec, name)) for name in names}


def _stored(name: str, value: Any) -> Any:
    match name:
        case "signature_options" if value is not None:
            return json.dumps(value)
        case "allowed_networks":
            return " ".join(value) or None
        case "expect_every" if value is not None:
            return expect_every_seconds(value)
        case "auth_mode":
            return value.value
        case _:
            return value


def _webhook(row: Row) -> Webhook:
    state = WebhookState(row["state"])
    seconds = row["expect_every"]
    return from_row(
        Webhook,
        row,
        auth_mode=AuthMode(row["auth_mode"]),
        state=state,
        enabled=state is WebhookState.ENABLED,
        signature_options=options_from(row["signature_options"]),
        answers_handshakes=bool(row["answers_handshakes"]),
        has_secret=bool(row["has_secret"]),
        allowed_networks=networks_from(row["allowed_networks"]),
        expect_every=expect_every_text(seconds) if seconds is not None else None,
        secret_is_current=bool(row["secret_is_current"]),
    )
