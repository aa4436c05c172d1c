"""A factory and the installation: both own alarms and destinations of alarms, and have the same routes for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hookmill.web.api.access import require_admin, require_factory_admin, require_manager, require_viewer


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmOwner:
    path: str
    prefix: str
    """The beginning of the names of operations and of path parameters."""
    name: str
    subjects: str
    """What the alarms are about."""
    view: Callable[..., Any]
    """The requirement of operations that only read alarms."""
    manage: Callable[..., Any]
    administer: Callable[..., Any]
    """The requirement of operations on destinations."""


FACTORY: Final = AlarmOwner(
    path="/factories/{factory}",
    prefix="",
    name="a factory",
    subjects="the factory's webhooks and automations",
    view=require_viewer,
    manage=require_manager,
    administer=require_factory_admin,
)
INSTALLATION: Final = AlarmOwner(
    path="",
    prefix="installation_",
    name="the installation",
    subjects="the installation, such as its disks, clocks and workers",
    view=require_admin,
    manage=require_admin,
    administer=require_admin,
)
