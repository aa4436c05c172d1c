"""One command's hold on the installation: its settings, the open store, the operations, and the factory it is about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from hookmill.cli.output import complain
from hookmill.domain.errors import Invalid

if TYPE_CHECKING:
    # Types only: what stands behind these names takes longer to import than most commands take to run.
    from hookmill.management import Management
    from hookmill.settings import Settings
    from hookmill.store.factories import Factory

UNUSABLE_SETTINGS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    settings: Settings
    management: Management
    factory: Factory


def settings_in_force() -> Settings:
    """The settings; when they can't be used, every problem is printed and the command ends with exit code 2."""
    from hookmill.settings import read_settings

    try:
        return read_settings()
    except Invalid as error:
        complain(str(error))
        raise typer.Exit(UNUSABLE_SETTINGS) from None


@contextmanager
def session(factory: str) -> Iterator[Session]:
    """Open what the settings name, for one command. Raises `NotFound` for an unknown factory."""
    from hookmill import app

    settings = settings_in_force()
    store = app.open_store(settings)
    try:
        management = app.management(settings, store)
        yield Session(settings=settings, management=management, factory=management.factory(factory))
    finally:
        store.close()
