"""Disables automations whose runs failed too often in a row, as their policies say."""

import os
from typing import Final

from hookmill.domain import ids
from hookmill.domain.permission import Actor, ActorKind, Channel
from hookmill.store import audit, automations, factories
from hookmill.store.database import Database

_SERVICE: Final = Actor(kind=ActorKind.SERVICE, id="service", name="service", channel=Channel.SERVICE)
_RANDOM_BYTES: Final = 8


def pause_failing(database: Database, now: int) -> None:
    """Disable every automation that has reached its number of failures. `now` is in µs since 1970."""
    with database.read() as tx:
        failing = automations.failing(tx)
    for each in failing:
        with database.write() as tx:
            factory = factories.by_id(tx, each.factory_id)
            assert factory is not None, "factories are never deleted"
            # Every change of an automation takes this lock first.
            factories.lock_team(tx, factory.team_id)
            for automation in automations.failing(tx, only=each.id):
                count = automation.policy.pause_after_failures
                reason = "Its last run failed." if count == 1 else f"Its last {count} runs failed."
                automations.pause(tx, automation, reason, now)
                audit.add(
                    tx,
                    ids.time_ordered_key(now, os.urandom(_RANDOM_BYTES)),
                    team=factory.team_id,
                    factory=factory.id,
                    at=now,
                    actor=_SERVICE,
                    action="automation.pause",
                    subject=("automation", automation.id, automation.name),
                    details={"reason": reason},
                )
