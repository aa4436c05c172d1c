"""Looks for problems of runners and credentials: for `hookmill doctor`, and for the log when a worker starts."""

import shutil
import threading
import time
from collections.abc import Iterator
from typing import Final

from hookmill.app import log
from hookmill.domain.errors import DestinationUnavailable, Invalid
from hookmill.domain.finding import listed
from hookmill.runs.runner import reason_of
from hookmill.runs.workspaces.checkouts import WorkspaceUnavailable
from hookmill.runs.workspaces.git import GIT_MISSING
from hookmill.runs.workspaces.preparation import credential_of_environment
from hookmill.settings import Settings
from hookmill.store import automations, factories
from hookmill.store.database import Database, Transaction

LOOK_SECONDS: Final = 30.0
"""When a worker starts, no further runner is examined after this time.

One runner takes up to 40 s. That is longer than the deadline of the check `runners` of `hookmill doctor`. If the check
exceeds its deadline, `doctor` reports this as a problem, and keeps the earlier findings."""


def examined_runners(settings: Settings) -> Iterator[tuple[str, str, bool]]:
    """Each runner's name, what it does or why its runs would fail, and whether it can be used."""
    packages = settings.data_dir.absolute() / "runs"
    for name, runner in settings.all_runners().items():
        try:
            yield name, runner.examine(packages), True
        except Invalid as error:
            yield name, str(error), False
        except OSError as error:
            yield name, f"It can't be examined: {reason_of(error)}.", False


def automations_without_runner(tx: Transaction, settings: Settings) -> list[str]:
    """The enabled automations whose runner is not in the settings. Their runs fail."""
    return [
        f"{automation.name!r} of factory {factory.name!r} ({automation.runner})"
        for factory in factories.all_factories(tx)
        for automation in automations.in_factory(tx, factory.id)
        if automation.enabled and automation.runner not in settings.runner_names()
    ]


def log_problems_meanwhile(settings: Settings, database: Database) -> None:
    """Log the problems of runners, repositories and destinations, in a thread.

    They never prevent a start: other runs need others.
    """
    threading.Thread(target=_log_problems, args=(settings, database), name="runner problems", daemon=True).start()


def _log_problems(settings: Settings, database: Database) -> None:
    deadline = time.monotonic() + LOOK_SECONDS
    try:
        if settings.repositories and shutil.which("git") is None:
            log.warning("repositories", GIT_MISSING)
        with database.read() as tx:
            without_runner = automations_without_runner(tx, settings)
        if without_runner:
            log.warning(
                "automations", f"their runner is not in the settings, so their runs fail: {listed(without_runner)}"
            )
        for where, text in _credential_problems(settings):
            log.warning(where, text)
        for name, text, is_usable in examined_runners(settings):
            if not is_usable:
                log.warning(f"runner {name}", text)
            if time.monotonic() > deadline:
                return
    except Exception as error:
        log.failure("runs", error)


def _credential_problems(settings: Settings) -> Iterator[tuple[str, str]]:
    """The repositories and destinations whose credential is not usable, and why. Connects to nothing."""
    for name, repository in sorted(settings.repositories.items()):
        try:
            credential_of_environment(name, repository)
        except WorkspaceUnavailable as error:
            yield f"repository {name}", str(error)
    if not settings.destinations:
        return
    # Imported here, because few services have destinations.
    from hookmill.results.delivery import refuse_unusable_credential

    for name, destination in sorted(settings.destinations.items()):
        try:
            refuse_unusable_credential(destination)
        except DestinationUnavailable as error:
            yield f"destination {name}", f"{error} Its results can't be delivered."
