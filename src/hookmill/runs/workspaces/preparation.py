"""Gives a run the workspace that its automation names: checks what is allowed, and finds the ref and the credential."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hookmill.domain.errors import Invalid, StoreUnavailable
from hookmill.domain.ids import AutomationId, TeamId
from hookmill.domain.payload import parsed_payload
from hookmill.domain.run import Run
from hookmill.domain.secret import SecretValue, problem_of_variable, usable_secret
from hookmill.domain.text import trimmed_text
from hookmill.domain.workspace import CheckoutCommits, Workspace
from hookmill.runs.runner import HostFault, Instruction, NextInstruction
from hookmill.runs.workspaces.checkouts import (
    Checkouts,
    HostShortage,
    WorkspaceRefused,
    WorkspaceStopped,
    WorkspaceUnavailable,
)
from hookmill.runs.workspaces.git import Credential
from hookmill.runs.workspaces.repository import RepositorySettings
from hookmill.store import factories, secrets
from hookmill.store.database import Database, Transaction
from hookmill.store.keys.sealing import KeyRing, WrongKey


class RepositoryBusy(Exception):
    """As many runs as may make a workspace of the same repository do so. The run must wait without a slot."""


class RepositoryPlaces:
    """Limits how many runs of this process make a workspace of the same repository: to half of the slots.

    So a slow repository, and runs that wait for its mirror, leave slots for other runs.
    """

    def __init__(self, slots: int = 1) -> None:
        self._places = max(1, slots // 2)
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()
        self._waiting: dict[AutomationId, str] = {}
        """The repository for which a run of each of these automations waits."""
        self.wake: Callable[[], None] = lambda: None
        """Called when runs that wait may begin."""

    @contextmanager
    def place(self, repository: str, automation: AutomationId) -> Iterator[None]:
        """Raises `RepositoryBusy`."""
        with self._lock:
            if self._taken[repository] >= self._places:
                self._waiting[automation] = repository
                raise RepositoryBusy
            self._taken[repository] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[repository] -= 1
                self._waiting = {each: waiting for each, waiting in self._waiting.items() if waiting != repository}
            self.wake()

    def waiting_automations(self) -> Collection[AutomationId]:
        with self._lock:
            return frozenset(self._waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspaces:
    """What a worker needs to give runs their workspaces."""

    repositories: Mapping[str, RepositorySettings]
    """The operator's repositories, by name."""
    runners: Collection[str]
    """The names of the runners that start a program on this host. The runs of others get no checkout."""
    checkouts: Checkouts
    database: Database
    master_keys: KeyRing
    places: RepositoryPlaces = field(default_factory=RepositoryPlaces)

    def check_out(
        self, run: Run, payload: bytes | None, next_instruction: NextInstruction
    ) -> Callable[[Path], CheckoutCommits] | None:
        """A function that makes the run's workspace in a directory; None if the run gets none.

        Raises `WorkspaceRefused` if the automation or the payload asks for something that it may not have. So does the
        function, which also raises `WorkspaceUnavailable`, `RepositoryBusy`, `WorkspaceStopped`, `HostFault` and
        `OSError`.
        """
        workspace = run.options.workspace
        if workspace is None:
            return None
        try:
            parsed = parsed_payload(payload)
            ref, base = workspace.ref_in(parsed), workspace.base_in(parsed)
        except Invalid as error:
            raise WorkspaceRefused(str(error)) from None
        if run.runner not in self.runners:
            return None

        def tick() -> None:
            if (instruction := next_instruction()) is not Instruction.CONTINUE:
                raise WorkspaceStopped(instruction)

        def check_out(target: Path) -> CheckoutCommits:
            repository, credential = self._repository_and_credential(run, workspace)
            try:
                with self.places.place(workspace.repository, run.automation_id):
                    return self.checkouts.check_out(
                        workspace.repository,
                        repository,
                        ref,
                        workspace.commits,
                        target,
                        base=base,
                        credential=credential,
                        tick=tick,
                    )
            except HostShortage as error:
                # The runs of other runners need no workspace, or a smaller one, so they go on.
                raise HostFault(str(error), counts_as_attempt=error.has_begun, runner=run.runner) from None

        return check_out

    def _repository_and_credential(
        self, run: Run, workspace: Workspace
    ) -> tuple[RepositorySettings, Credential | None]:
        try:
            with self.database.read() as tx:
                factory = factories.by_id(tx, run.factory_id)
                assert factory is not None, "factories are never deleted"
                repository = self.repositories.get(workspace.repository)
                if repository is None or not repository.may_use(factory.name):
                    raise WorkspaceRefused(
                        f"The service started without a repository {workspace.repository!r} for this factory. If "
                        "hookmill.toml has it now, restart the service. Otherwise add it there, or choose another "
                        "repository in the automation."
                    )
                return repository, credential_of(
                    tx, workspace.repository, repository, factory.team_id, self.master_keys
                )
        except StoreUnavailable as error:
            raise HostFault(f"The password of a repository could not be read: {error}") from error


def credential_of(
    tx: Transaction, name: str, repository: RepositorySettings, team: TeamId, keys: KeyRing
) -> Credential | None:
    """The credential of the repository; None if it needs none. Raises `WorkspaceUnavailable`."""
    if repository.secret is None:
        return credential_of_environment(name, repository)
    password = _team_secret(tx, team, repository.secret, keys)
    if password is None:
        raise WorkspaceUnavailable(
            f"The team secret {repository.secret} for the repository {name!r} does not exist, or has no usable "
            "value. Create it with `hookmill secret create`."
        )
    return Credential(url=repository.url, username=repository.username, password=password)


def credential_of_environment(name: str, repository: RepositorySettings) -> Credential | None:
    """The credential in `secret_from`; None if the repository has none there. Raises `WorkspaceUnavailable`."""
    if repository.secret_from is None:
        return None
    value = os.environ.get(repository.secret_from)
    if (problem := problem_of_variable(value)) is not None:
        raise WorkspaceUnavailable(
            f"The variable {repository.secret_from}, which must contain the password of the repository {name!r}, "
            f"{problem}. Set it for every process that performs runs, or correct the repository's secret_from."
        )
    password = _usable_password(trimmed_text(value or ""))
    if password is None:
        raise WorkspaceUnavailable(
            f"The variable {repository.secret_from} has no usable password for the repository {name!r}: it must be one "
            "line of at most 4,096 printable characters. Correct it for every process that performs runs."
        )
    return Credential(url=repository.url, username=repository.username, password=password)


def _team_secret(tx: Transaction, team: TeamId, name: str, keys: KeyRing) -> SecretValue | None:
    secret = secrets.secret_id_named(tx, team, name)
    version = secrets.newest_version_id(tx, secret) if secret is not None else None
    if version is None:
        return None
    try:
        return _usable_password(secrets.reveal(tx, version, keys).reveal())
    except WrongKey as error:
        raise WorkspaceUnavailable(f"The team secret {name} can't be decrypted: {error}") from None


def _usable_password(text: str) -> SecretValue | None:
    """The password; None if Git could read it as something else: its helpers have lines."""
    try:
        return usable_secret(text, characters_min=1) if text.isprintable() else None
    except Invalid:
        return None
