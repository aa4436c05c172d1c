"""Operations on factories, and the first start."""

from collections.abc import Sequence
from dataclasses import replace

from hookmill.domain.errors import Conflict
from hookmill.domain.factory import Factory, usable_factory_name
from hookmill.domain.ids import FactoryId, TeamId
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.domain.run_policy import usable_max_running
from hookmill.management.installation import Operations, random_id
from hookmill.management.lookup import factory_named
from hookmill.store import factories
from hookmill.store.notifications import notify_workers

DEFAULT_FACTORY = "default"


class Factories(Operations):
    def set_up(self) -> tuple[Factory, bool]:
        """Create the team and the factory `default` if necessary. Returns the factory, and whether it is new."""
        with self._installation.locking_set_up() as tx:
            if (existing := factories.factory_named(tx, DEFAULT_FACTORY)) is not None:
                return existing, False
            team = TeamId(random_id("team"))
            factories.add_team(tx, team, "team", self._installation.now())
            factory = Factory(FactoryId(random_id("fac")), team, DEFAULT_FACTORY)
            factories.add_factory(tx, factory, self._installation.now())
            return factory, True

    def all(self, may: MayAdminister) -> Sequence[Factory]:
        with self._installation.reading() as tx:
            return [factory for factory in factories.all_factories(tx) if factory.team_id == may.team_id]

    def named(self, may: MayAdminister, name: str) -> Factory:
        """The team's factory with this name. Raises `NotFound`."""
        with self._installation.reading() as tx:
            return factory_named(tx, may, name)

    def create(self, may: MayAdminister, name: str) -> Factory:
        """Create an empty factory. Raises `Conflict` for a taken name."""
        name = usable_factory_name(name)
        with self._installation.changing(may, needs_disk_space=True) as change:
            if factories.factory_named(change.tx, name) is not None:
                raise Conflict(f"A factory named {name!r} already exists. Choose another name.")
            factory = Factory(FactoryId(random_id("fac")), may.team_id, name)
            factories.add_factory(change.tx, factory, change.now)
            change.record("create", "factory", factory.id, name)
        return factory

    def set_max_running(self, may: MayAdminister, name: str, max_running: int | None) -> Factory:
        """Limit how many runs of the factory are performed at the same time. None removes the limit.

        Runs that are running continue, even above the limit. Raises `NotFound` or `Invalid`.
        """
        limit = usable_max_running(max_running) if max_running is not None else None
        with self._installation.changing(may) as change:
            factory = factory_named(change.tx, may, name)
            if factory.max_running == limit:
                change.skip_audit()
                return factory
            factories.set_max_running(change.tx, factory.id, limit)
            change.record("set_max_running", "factory", factory.id, factory.name, max_running=limit)
            # Runs that the former limit held back may start now.
            notify_workers(change.tx)
        return replace(factory, max_running=limit)

    def define_by_files(self, may: MayManage) -> None:
        """Let definition files define the factory. Other channels can then only enable, disable, rotate and sync."""
        with self._installation.changing(may) as change:
            factory = factories.by_id(change.tx, may.factory.id)
            if factory is None or factory.defined_by_files:
                change.skip_audit()
                return
            factories.set_defined_by_files(change.tx, may.factory.id)
            change.record("define_by_files", "factory", may.factory.id, may.factory.name)
