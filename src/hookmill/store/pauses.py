"""Disables automations with as many failed runs in a row as their policies allow."""

import os
from typing import Final

from hookmill.domain import ids
from hookmill.domain.permission import Actor, ActorKind, Channel
from hookmill.store import audit, automations, factories
from hookmill.store.database import Database

_SERVICE_ACTOR: Final = Actor(kind=ActorKind.SERVICE, id="service", name="service", channel=Channel.SERVICE)
_RANDOM_BYTES: Final = 8


def pause_failing(database: Database, now: int) -> None:
    """Disable every automation whose failures in a row have reached its policy's limit. `now` is in µs since 1970."""
    with database.read() as tx:
        failing = automations.failing(tx)
    for candidate in failing:
        with database.write() as tx:
            factory = factories.by_id(tx, candidate.factory_id)
            assert factory is not None, "factories are never deleted"
            # Every change of an automation acquires this lock first. The automation is read again, because it may have
            # changed before the lock.
            factories.lock_team(tx, factory.team_id)
            for automation in automations.failing(tx, automation=candidate.id):
                count = automation.pause_after_failures
                if count is None:
                    # The policy can't be read, so no run of the automation starts.
                    continue
                reason = "Its last run failed." if count == 1 else f"Its last {count} runs failed."
                automations.pause(tx, automation, reason, now)
                audit.add(
                    tx,
                    ids.time_ordered_key(now, os.urandom(_RANDOM_BYTES)),
                    team=factory.team_id,
                    factory=factory.id,
                    at=now,
                    actor=_SERVICE_ACTOR,
                    action="automation.pause",
                    subject=("automation", automation.id, automation.name),
                    details={"reason": reason},
                )
