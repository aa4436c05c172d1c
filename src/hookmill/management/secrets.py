"""Operations on team secrets. A value is shown only when it is created or replaced."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from hookmill.domain.errors import Conflict, NotFound
from hookmill.domain.ids import SecretId
from hookmill.domain.permission import MayManage
from hookmill.domain.secret import (
    GENERATED_BYTES,
    SecretValue,
    generate_value,
    usable_secret,
    usable_secret_for_runs,
    usable_secret_name,
)
from hookmill.management.installation import Operations, random_id
from hookmill.management.webhooks import refuse_foreign_secret, refuse_shared_secret, sharing_of
from hookmill.store import automations, secrets
from hookmill.store.database import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamSecret:
    """A team secret without its value, and its users. Times are µs since 1970."""

    name: str
    created_at: int
    changed_at: int | None
    """When its newest value was stored; None if it has no value yet."""
    has_value: bool
    used_by: tuple[str, ...]
    """The names of this factory's webhooks that use it."""
    used_elsewhere: bool
    """Whether webhooks of other factories use it. Only an admin can change a secret that another factory uses or
    created."""
    created_here: bool
    """Whether this factory created it. Only the factory that created a secret for runs can use it."""
    for_runs: bool
    """Whether runs of the factory that created it may get it. No webhook uses such a secret."""
    used_by_automations: tuple[str, ...]
    """The names of this factory's automations whose runs get it."""


class Secrets(Operations):
    def all(self, may: MayManage) -> Sequence[TeamSecret]:
        """The secrets that the caller may see: all for an admin, else those that the factory created or uses."""
        with self._installation.reading() as tx:
            return self._visible_secrets(tx, may)

    def get(self, may: MayManage, name: str) -> TeamSecret:
        """The secret with this name. Raises `NotFound`, also if the caller may not see it."""
        for secret in self.all(may):
            if secret.name == name:
                return secret
        raise _not_found_error(name)

    def create(self, may: MayManage, name: str, value: str | None = None, *, for_runs: bool = False) -> SecretValue:
        """Create a team secret, and return its value. Generates the value if it is None.

        `for_runs`: whether it is for runs of this factory, and not for webhooks. This can't be changed later: nobody
        may read the secret of a webhook through a run. Raises `Conflict` for a taken name.
        """
        name = usable_secret_name(name)
        new_value = _new_value(value, for_runs=for_runs)
        with self._installation.changing(may, needs_disk_space=True) as change:
            existing = secrets.secret_id_named(change.tx, may.factory.team_id, name)
            if existing is not None:
                refuse_foreign_secret(change.tx, may, existing, name)
                raise Conflict(f"A team secret named {name} already exists. Replace it, or choose another name.")
            secret_id = SecretId(random_id("sec"))
            secrets.add_secret(
                change.tx, secret_id, may.factory.team_id, name, change.now, factory=may.factory.id, for_runs=for_runs
            )
            secrets.add_version(change.tx, secret_id, new_value, self._installation.master_keys, change.now)
            change.record("create", "secret", secret_id, name, **({"for_runs": True} if for_runs else {}))
        return new_value

    def replace(self, may: MayManage, name: str, value: str | None = None) -> SecretValue:
        """Replace the value, and return the new one. Generates it if it is None.

        Webhooks use the previous value until their next sync. Runs get the new value from their next attempt.
        """
        with self._installation.changing(may) as change:
            secret_id = self._changeable_secret_id(change.tx, may, name)
            new_value = _new_value(value, for_runs=secrets.is_for_runs(change.tx, secret_id))
            secrets.add_version(change.tx, secret_id, new_value, self._installation.master_keys, change.now)
            change.record("replace", "secret", secret_id, name)
        return new_value

    def delete(self, may: MayManage, name: str) -> None:
        """Delete the secret with all its values. Raises `Conflict` while a webhook that is not deleted uses it.

        The next attempts of runs that get the secret fail.
        """
        with self._installation.changing(may) as change:
            secret_id = self._changeable_secret_id(change.tx, may, name)
            uses = [
                use
                for use in secrets.uses_of_team_secrets(change.tx, may.factory.team_id)
                if use.secret_id == secret_id
            ]
            if uses:
                names = [use.webhook_name for use in uses if use.factory_id == may.factory.id]
                users = ", ".join(repr(name) for name in names) or "a webhook of another factory"
                these = "this webhook" if len(uses) == 1 else "these webhooks"
                raise Conflict(f"Team secret {name} is used by {users}. Delete {these} first.")
            secrets.delete(change.tx, secret_id, change.now)
            change.record("delete", "secret", secret_id, name)

    def _changeable_secret_id(self, tx: Transaction, may: MayManage, name: str) -> SecretId:
        """The id of the secret with this name. Raises `NotFound`, and `Forbidden` if only an admin can change it."""
        secret_id = secrets.secret_id_named(tx, may.factory.team_id, usable_secret_name(name))
        if secret_id is None or not (may.is_admin or sharing_of(tx, may, secret_id).created_or_used_here):
            raise _not_found_error(name)
        refuse_shared_secret(tx, may, secret_id, name)
        return secret_id

    def _visible_secrets(self, tx: Transaction, may: MayManage) -> Sequence[TeamSecret]:
        uses = secrets.uses_of_team_secrets(tx, may.factory.team_id)
        own_automations = automations.in_factory(tx, may.factory.id)
        visible = []
        for secret in secrets.of_team(tx, may.factory.team_id):
            own_uses = [use for use in uses if use.secret_id == secret.id and use.factory_id == may.factory.id]
            used_elsewhere = any(use.secret_id == secret.id and use.factory_id != may.factory.id for use in uses)
            if not (may.is_admin or own_uses or secret.factory_id == may.factory.id):
                continue
            visible.append(
                TeamSecret(
                    name=secret.name,
                    created_at=secret.created_at,
                    changed_at=secret.changed_at,
                    has_value=secret.changed_at is not None,
                    used_by=tuple(use.webhook_name for use in own_uses),
                    used_elsewhere=used_elsewhere,
                    created_here=secret.factory_id == may.factory.id,
                    for_runs=secret.for_runs,
                    used_by_automations=tuple(
                        automation.name
                        for automation in own_automations
                        if secret.for_runs
                        and secret.factory_id == may.factory.id
                        and any(each.name == secret.name for each in automation.run_secrets)
                    ),
                )
            )
        return visible


def _new_value(supplied: str | None, *, for_runs: bool) -> SecretValue:
    """The value that the caller supplied or, if it is None, a generated one."""
    if supplied is None:
        return generate_value(os.urandom(GENERATED_BYTES))
    return usable_secret_for_runs(supplied) if for_runs else usable_secret(supplied)


def _not_found_error(name: str) -> NotFound:
    return NotFound(f"There is no team secret {name[:80]!r}. `hookmill secret list` shows them.")
