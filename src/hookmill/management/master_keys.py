"""Operations on the master keys. The start of a rotation is audited; resealing rows with the new key is not."""

from hookmill.domain.permission import MayAdminister
from hookmill.management.installation import Operations
from hookmill.store.database import retry
from hookmill.store.keys import rotation
from hookmill.store.keys.rotation import RotationPlan


class MasterKeyRotations(Operations):
    def begin(self, may: MayAdminister, plan: RotationPlan) -> None:
        """Make every process seal with the new key. Raises `Conflict` if another rotation is in progress."""
        # Beginning is idempotent, so a COMMIT with an unknown result can be retried.
        retry(lambda: self._begin(may, plan))

    def _begin(self, may: MayAdminister, plan: RotationPlan) -> None:
        with self._installation.changing(may) as change:
            if rotation.begin(change.tx, plan):
                change.record("rotate", "master_key", plan.new_key.id, plan.new_key.id, before=plan.in_use.sealing_id)
            else:
                change.skip_audit()
