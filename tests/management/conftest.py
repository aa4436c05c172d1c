"""Callers and permissions for the tests of the management operations."""

from collections.abc import Callable

import pytest

from hookmill.domain.permission import Caller, MayAdminister, MayManage, Role
from tests.support.passwords import quick_passwords
from tests.support.sqlite_usually import store_url
from tests.support.world import World

__all__ = ["quick_passwords", "store_url"]


@pytest.fixture
def admin(world: World) -> MayAdminister:
    return world.management.access.operator_of_team()


@pytest.fixture
def caller(world: World, admin: MayAdminister) -> Callable[..., Caller]:
    """Creates an API key with a role, and returns its caller. The key of an admin is for all factories."""

    def create(role: Role, factory: str = "default") -> Caller:
        key = world.management.keys.create(
            admin, f"{role.value}'s key", role, factory=None if role is Role.ADMIN else factory
        )
        caller = world.management.access.caller_with_token(key.token.reveal(), client="192.0.2.1")
        assert caller is not None
        return caller

    return create


@pytest.fixture
def manager(world: World, caller: Callable[..., Caller]) -> MayManage:
    """The permission of a caller who is a manager, and not an admin."""
    return world.management.access.permission_to_manage(caller(Role.MANAGER), "default")
