"""Operations on team secrets. A value is shown when it is made or given, and never read back."""

from collections.abc import Sequence
from dataclasses import dataclass

from hookmill.domain.errors import Conflict, NotFound
from hookmill.domain.ids import SecretId
from hookmill.domain.permission import MayManage
from hookmill.domain.secret import SecretValue, usable_secret, usable_secret_name
from hookmill.management import compatibility
from hookmill.management.installation import Installation, random_name
from hookmill.management.webhooks import reach_of, refuse_if_others, refuse_if_shared
from hookmill.store import secrets
from hookmill.store.database import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamSecret:
    """A team secret without its value, and who uses it. Times are µs since 1970."""

    name: str
    created_at: int
    changed_at: int | None
    has_value: bool
    used_by: tuple[str, ...]
    """Names of this factory's webhooks."""
    used_elsewhere: bool
    """Whether other factories use it too: it then takes an admin to change it."""


class Secrets:
    def __init__(self, installation: Installation) -> None:
        self._at = installation

    def all(self, may: MayManage) -> Sequence[TeamSecret]:
        """The secrets that the caller may name: an admin every one, others those of their factory."""
        with self._at.reading() as tx:
            return self._secrets(tx, may)

    def get(self, may: MayManage, name: str) -> TeamSecret:
        """Raises `NotFound`."""
        for secret in self.all(may):
            if secret.name == name:
                return secret
        raise _not_found(name)

    def create(self, may: MayManage, name: str, value: str | None = None) -> SecretValue:
        """A new team secret, its value given or generated. Raises `Conflict` for a name that is taken."""
        name = usable_secret_name(name)
        kept = usable_secret(value) if value is not None else _generated()
        with self._at.changing(may) as change:
            known = secrets.secret_named(change.tx, may.factory.team_id, name)
            if known is not None:
                refuse_if_others(change.tx, may, known, name)
                raise Conflict(f"There is a team secret named {name} already. Replace it, or choose another name.")
            secret = SecretId(random_name("sec"))
            secrets.add_secret(change.tx, secret, may.factory.team_id, name, change.now, factory=may.factory.id)
            secrets.add_version(change.tx, secret, kept, self._at.key, change.now)
            change.record("create", "secret", secret, name)
        return kept

    def replace(self, may: MayManage, name: str, value: str | None = None) -> SecretValue:
        """A new value, given or generated. Webhooks use the one before until their next sync."""
        kept = usable_secret(value) if value is not None else _generated()
        with self._at.changing(may) as change:
            secret = self._secret(change.tx, may, name)
            secrets.add_version(change.tx, secret, kept, self._at.key, change.now)
            change.record("replace", "secret", secret, name)
        return kept

    def delete(self, may: MayManage, name: str) -> None:
        """Remove it with all its values. Raises `Conflict` while a webhook uses it."""
        with self._at.changing(may) as change:
            secret = self._secret(change.tx, may, name)
            used = [use for use in secrets.uses(change.tx, may.factory.team_id) if use.secret_id == secret]
            if used:
                names = [use.webhook_name for use in used if use.factory_id == may.factory.id]
                by = ", ".join(repr(name) for name in names) or "a webhook of another factory"
                these = "this webhook" if len(used) == 1 else "these webhooks"
                raise Conflict(f"Team secret {name} is used by {by}. Delete {these} first.")
            secrets.delete(change.tx, secret, change.now)
            change.record("delete", "secret", secret, name)

    def _secret(self, tx: Transaction, may: MayManage, name: str) -> SecretId:
        secret = secrets.secret_named(tx, may.factory.team_id, usable_secret_name(name))
        if secret is None or not (may.is_admin or reach_of(tx, may, secret).is_ours):
            raise _not_found(name)
        refuse_if_shared(tx, may, secret, name)
        return secret

    def _secrets(self, tx: Transaction, may: MayManage) -> Sequence[TeamSecret]:
        uses = secrets.uses(tx, may.factory.team_id)
        found = []
        for secret in secrets.of_team(tx, may.factory.team_id):
            here = [use for use in uses if use.secret_id == secret.id and use.factory_id == may.factory.id]
            elsewhere = any(use.secret_id == secret.id and use.factory_id != may.factory.id for use in uses)
            if not (may.is_admin or here or secret.factory_id == may.factory.id):
                continue
            found.append(
                TeamSecret(
                    name=secret.name,
                    created_at=secret.created_at,
                    changed_at=secret.changed_at,
                    has_value=secret.changed_at is not None,
                    used_by=tuple(use.webhook_name for use in here),
                    used_elsewhere=elsewhere,
                )
            )
        return found


def _generated() -> SecretValue:
    value = compatibility.generated_for(None, None)
    assert value is not None, "without a scheme the service makes its own"
    return value


def _not_found(name: str) -> NotFound:
    return NotFound(f"There is no team secret {name[:80]!r}. `hookmill secret list` shows them.")
