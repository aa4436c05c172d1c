"""A session of one command: its settings, its operations on the open store, and its permission."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from hookmill.cli.output import print_error
from hookmill.domain.errors import Invalid

if TYPE_CHECKING:
    # Only for types: importing these modules takes longer than most commands run.
    from hookmill.domain.permission import MayManage
    from hookmill.management import Management
    from hookmill.settings import Settings

EXIT_UNUSABLE_SETTINGS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorySession:
    """The session of a command on one factory."""

    settings: Settings
    management: Management
    may: MayManage


def read_settings_or_exit() -> Settings:
    """The settings. If they are invalid, print every problem and end the command with exit code 2."""
    from hookmill.settings import read_settings

    try:
        return read_settings()
    except Invalid as error:
        print_error(str(error))
        raise typer.Exit(EXIT_UNUSABLE_SETTINGS) from None


@contextmanager
def factory_session(factory: str) -> Iterator[FactorySession]:
    """Open the installation that the settings name. Raises `NotFound` for an unknown factory."""
    with _open_management() as (settings, management):
        yield FactorySession(settings=settings, management=management, may=management.access.operator(factory))


@contextmanager
def _open_management() -> Iterator[tuple[Settings, Management]]:
    from hookmill import app

    settings = read_settings_or_exit()
    store = app.open_store(settings)
    try:
        yield settings, app.build_management(settings, store)
    finally:
        store.close()
