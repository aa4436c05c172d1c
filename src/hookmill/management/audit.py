"""Operations on the audit log: list its lines. Each change adds its own line."""

from collections.abc import Sequence

from hookmill.domain.audit import AuditEntry
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.management.installation import Operations
from hookmill.store import audit


class Audit(Operations):
    def of_factory(self, may: MayManage, *, before: bytes | None = None, limit: int = 50) -> Sequence[AuditEntry]:
        """A page of lines, newest first. `before` is the key of the previous page's last line."""
        with self._installation.reading() as tx:
            return audit.newest(tx, may.factory.team_id, factory=may.factory.id, before=before, limit=limit)

    def of_team(self, may: MayAdminister, *, before: bytes | None = None, limit: int = 50) -> Sequence[AuditEntry]:
        """Like `of_factory`, but for all factories, including lines without a factory."""
        with self._installation.reading() as tx:
            return audit.newest(tx, may.team_id, factory=None, before=before, limit=limit)
