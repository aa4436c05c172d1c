"""What tests of the operations share: callers with a role, made as people make them."""

from collections.abc import Callable

import pytest

from hookmill.domain.permission import Caller, MayAdminister, MayManage, MayView, Role
from tests.support.passwords import quick_passwords
from tests.support.world import World

__all__ = ["quick_passwords"]


@pytest.fixture
def admin(world: World) -> MayAdminister:
    return world.management.access.operator_of_team()


@pytest.fixture
def caller(world: World, admin: MayAdminister) -> Callable[..., Caller]:
    """Somebody with a key of that role, for one factory or, as an admin, for all."""

    def come(role: Role, factory: str = "default") -> Caller:
        made = world.management.keys.create(
            admin, f"a {role.value}'s", role, factory=None if role is Role.ADMIN else factory
        )
        found = world.management.access.caller_with_token(made.token.reveal(), client="192.0.2.1")
        assert found is not None
        return found

    return come


@pytest.fixture
def viewer(world: World, caller: Callable[..., Caller]) -> MayView:
    return world.management.access.permission_to_view(caller(Role.VIEWER), "default")


@pytest.fixture
def manager(world: World, caller: Callable[..., Caller]) -> MayManage:
    """One who is no admin."""
    return world.management.access.permission_to_manage(caller(Role.MANAGER), "default")
