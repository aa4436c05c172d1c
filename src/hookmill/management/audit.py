"""Operations on the audit log: it is read. What is changed writes itself down."""

from collections.abc import Sequence

from hookmill.domain.audit import AuditEntry
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.management.installation import Installation
from hookmill.store import audit


class Audit:
    def __init__(self, installation: Installation) -> None:
        self._at = installation

    def of_factory(self, may: MayManage, *, before: bytes | None = None, limit: int = 50) -> Sequence[AuditEntry]:
        """Newest first; `before` is the last one of the page before."""
        with self._at.reading() as tx:
            return audit.newest(tx, may.factory.team_id, factory=may.factory.id, before=before, limit=limit)

    def of_team(self, may: MayAdminister, *, before: bytes | None = None, limit: int = 50) -> Sequence[AuditEntry]:
        """As `of_factory`, of all factories and of what belongs to none."""
        with self._at.reading() as tx:
            return audit.newest(tx, may.team_id, factory=None, before=before, limit=limit)
