"""Operations on the master keys. That one takes another's place is an act of management; to seal again what is there
is only work."""

from hookmill.domain.permission import MayAdminister
from hookmill.management.installation import Installation
from hookmill.store.database import retried
from hookmill.store.keys import rotation
from hookmill.store.keys.rotation import RotationPlan


class MasterKeyRotations:
    def __init__(self, installation: Installation) -> None:
        self._at = installation

    def begin(self, may: MayAdminister, planned: RotationPlan) -> None:
        """From here on everybody seals with the new key. Raises `Conflict` when another rotation was faster."""
        # Once begun it is not begun again, so a COMMIT whose end is unknown can be repeated.
        retried(lambda: self._begin(may, planned))

    def _begin(self, may: MayAdminister, planned: RotationPlan) -> None:
        with self._at.changing(may) as change:
            if rotation.begin(change.tx, planned):
                change.record("rotate", "master_key", planned.new.id, planned.new.id, before=planned.in_use.sealing)
            else:
                change.nothing()
