"""Reads the audit log, and adds entries. Entries are never changed or removed."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hookmill.domain.audit import AuditEntry
from hookmill.domain.ids import FactoryId, TeamId
from hookmill.domain.permission import Actor
from hookmill.store.database import Row, Transaction, from_row


def add(
    tx: Transaction,
    key: bytes,
    *,
    team: TeamId,
    factory: FactoryId | None,
    at: int,
    actor: Actor,
    action: str,
    subject: tuple[str, str, str],
    details: Mapping[str, Any],
) -> None:
    """Add an entry. `subject` is the kind, id and name of the object that was changed."""
    tx.run(
        """
        INSERT INTO audit_log (id, team_id, factory_id, at, actor_kind, actor_id, actor_name, channel, client,
                               action, subject_kind, subject_id, subject_name, details)
        VALUES (:id, :team, :factory, :at, :actor_kind, :actor_id, :actor_name, :channel, :client,
                :action, :subject_kind, :subject_id, :subject_name, :details)
        """,
        id=key,
        team=team,
        factory=factory,
        at=at,
        actor_kind=actor.kind.value,
        actor_id=actor.id,
        actor_name=actor.name,
        channel=actor.channel.value,
        client=actor.client,
        action=action,
        subject_kind=subject[0],
        subject_id=subject[1],
        subject_name=subject[2],
        details=json.dumps(details),
    )


def newest(
    tx: Transaction, team: TeamId, *, factory: FactoryId | None, before: bytes | None, limit: int
) -> Sequence[AuditEntry]:
    """A page of entries, of one factory or of the whole team, newest first.

    `before` is the key of the previous page's last entry.
    """
    rows = tx.all(
        f"""
        SELECT a.*, f.name AS factory_name
        FROM audit_log a LEFT JOIN factories f ON f.id = a.factory_id
        WHERE a.team_id = :team
          {"AND a.factory_id = :factory" if factory is not None else ""}
          {"AND a.id < :before" if before is not None else ""}
        ORDER BY a.id DESC
        LIMIT :limit
        """,
        team=team,
        limit=limit,
        factory=factory,
        before=before,
    )
    return [_entry(row) for row in rows]


def _entry(row: Row) -> AuditEntry:
    return from_row(AuditEntry, row, key=row["id"], details=json.loads(row["details"]))
