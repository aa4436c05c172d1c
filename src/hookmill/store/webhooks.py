"""Reads and updates webhooks. Every change that the ingress must notice increments the webhook's revision."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hookmill.domain.ids import FactoryId, SecretId, WebhookUid
from hookmill.domain.webhook import AuthMode, Webhook, WebhookState
from hookmill.store.database import Row, Transaction, from_row

_COLUMNS = """
    w.uid, w.no, w.factory_id, w.name, w.auth_mode, w.state, w.signature_scheme, w.signature_options,
    w.answers_handshakes, w.delivery_id_header, w.event_header, w.allowed_networks, w.expect_every,
    w.secret_version_id IS NOT NULL AS has_secret, w.revision, w.created_at, s.name AS secret_name,
    COALESCE(w.secret_version_id, '') = COALESCE((
        SELECT v.id FROM secret_versions v WHERE v.secret_id = w.secret_id ORDER BY v.version DESC LIMIT 1
    ), '') AS secret_is_current
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookFields:
    """The columns of a webhook that can be redefined."""

    auth_mode: AuthMode
    secret_id: SecretId
    secret_version_id: str | None
    """None until the provider's secret is supplied."""
    signature_scheme: str | None
    signature_options: dict[str, Any] | None = None
    answers_handshakes: bool = False
    delivery_id_header: str | None = None
    event_header: str | None = None
    allowed_networks: tuple[str, ...] = ()

    def columns(self) -> dict[str, Any]:
        """The stored values, by column."""
        return asdict(self) | {
            "auth_mode": self.auth_mode.value,
            "signature_options": json.dumps(self.signature_options) if self.signature_options is not None else None,
            "allowed_networks": stored_networks(self.allowed_networks),
        }


def add(
    tx: Transaction,
    uid: WebhookUid,
    definition: WebhookFields,
    *,
    factory: FactoryId,
    name: str,
    state: WebhookState,
    expect_every_seconds: int | None = None,
    now: int,
) -> None:
    tx.run(
        """
        INSERT INTO webhooks (uid, factory_id, name, auth_mode, state, secret_id, secret_version_id,
                              signature_scheme, signature_options, answers_handshakes, delivery_id_header,
                              event_header, allowed_networks, expect_every, expected_from, revision, created_at)
        VALUES (:uid, :factory, :name, :auth_mode, :state, :secret_id, :secret_version_id,
                :signature_scheme, :signature_options, :answers_handshakes, :delivery_id_header,
                :event_header, :allowed_networks, :expect_every, :now, 1, :now)
        """,
        uid=uid,
        factory=factory,
        name=name,
        state=state.value,
        expect_every=expect_every_seconds,
        now=now,
        **definition.columns(),
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


ChangeableColumn = Literal["name", "delivery_id_header", "event_header", "allowed_networks", "secret_version_id"]


def set_column(tx: Transaction, uid: WebhookUid, column: ChangeableColumn, value: str | None) -> None:
    """Change one column. `allowed_networks` is stored as `stored_networks` returns it."""
    tx.run(f"UPDATE webhooks SET {column} = :value, revision = revision + 1 WHERE uid = :uid", uid=uid, value=value)


def set_expect_every(tx: Transaction, uid: WebhookUid, seconds: int | None, now: int) -> None:
    """Expect a delivery within every `seconds` from now on; none if `seconds` is None.

    The revision stays, because the ingress does not use this field.
    """
    tx.run(
        "UPDATE webhooks SET expect_every = :seconds, expected_from = :now WHERE uid = :uid",
        uid=uid,
        seconds=seconds,
        now=now,
    )


def redefine(tx: Transaction, uid: WebhookUid, definition: WebhookFields) -> None:
    """Replace the webhook's configuration. The uid, name, state and log stay."""
    columns = definition.columns()
    assignments = ", ".join(f"{column} = :{column}" for column in columns)
    tx.run(f"UPDATE webhooks SET {assignments}, revision = revision + 1 WHERE uid = :uid", uid=uid, **columns)


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


def stored_networks(networks: tuple[str, ...]) -> str | None:
    return " ".join(networks) or None


def networks_from(stored: str | None) -> tuple[str, ...]:
    """The allowed networks from their stored text."""
    return tuple(stored.split()) if stored is not None else ()


def _webhook(row: Row) -> Webhook:
    return from_row(
        Webhook,
        row,
        auth_mode=AuthMode(row["auth_mode"]),
        state=WebhookState(row["state"]),
        signature_options=options_from(row["signature_options"]),
        answers_handshakes=bool(row["answers_handshakes"]),
        has_secret=bool(row["has_secret"]),
        allowed_networks=networks_from(row["allowed_networks"]),
        expect_every_seconds=row["expect_every"],
        secret_is_current=bool(row["secret_is_current"]),
    )
