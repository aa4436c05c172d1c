"""Operations on factories, and the first start."""

from collections.abc import Sequence

from hookmill.domain.errors import Conflict
from hookmill.domain.factory import Factory, usable_factory_name
from hookmill.domain.ids import FactoryId, TeamId
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.management.installation import Installation, random_name
from hookmill.store import factories

DEFAULT_FACTORY = "default"


class Factories:
    def __init__(self, installation: Installation) -> None:
        self._at = installation

    def set_up(self) -> tuple[Factory, bool]:
        """The factory `default`, and whether this call made it, with its team."""
        with self._at.writing_first() as tx:
            if (known := factories.factory_named(tx, DEFAULT_FACTORY)) is not None:
                return known, False
            team = TeamId(random_name("team"))
            factories.add_team(tx, team, "team", self._at.now())
            factory = Factory(FactoryId(random_name("fac")), team, DEFAULT_FACTORY)
            factories.add_factory(tx, factory, self._at.now())
            return factory, True

    def all(self, may: MayAdminister) -> Sequence[Factory]:
        with self._at.reading() as tx:
            return [factory for factory in factories.all_factories(tx) if factory.team_id == may.team_id]

    def create(self, may: MayAdminister, name: str) -> Factory:
        """A new factory, empty. Raises `Conflict` for a name that is taken."""
        name = usable_factory_name(name)
        with self._at.changing(may) as change:
            if factories.factory_named(change.tx, name) is not None:
                raise Conflict(f"There is a factory named {name!r} already. Choose another name.")
            factory = Factory(FactoryId(random_name("fac")), may.team_id, name)
            factories.add_factory(change.tx, factory, change.now)
            change.record("create", "factory", factory.id, name)
        return factory

    def take_by_files(self, may: MayManage) -> None:
        """From now on its webhooks and automations change through definition files alone."""
        with self._at.changing(may) as change:
            known = factories.by_id(change.tx, may.factory.id)
            if known is None or known.defined_by_files:
                change.nothing()
                return
            factories.define_by_files(change.tx, may.factory.id)
            change.record("define_by_files", "factory", may.factory.id, may.factory.name)
