"""Checks of the Git repositories that automations may name for workspaces."""

from collections.abc import Iterator
from typing import Final

from hookmill.app import keys
from hookmill.app.doctor.database import inspected_tables
from hookmill.domain.finding import Finding, ok, problem
from hookmill.outbound.connection import MessageDeadline
from hookmill.runs.workspaces.checkouts import WorkspaceUnavailable, answer_of
from hookmill.runs.workspaces.git import Credential, GitError
from hookmill.runs.workspaces.preparation import credential_of, credential_of_environment
from hookmill.runs.workspaces.repository import RepositorySettings
from hookmill.settings import Settings
from hookmill.store import factories

REPOSITORY_SECONDS: Final = 10.0
"""How long one repository may take to answer."""
TOTAL_SECONDS: Final = 50.0


def check_repositories(settings: Settings) -> Iterator[Finding]:
    """Whether each repository answers. Nothing is fetched."""
    deadline = MessageDeadline(TOTAL_SECONDS)
    for name, repository in sorted(settings.repositories.items()):
        seconds = min(REPOSITORY_SECONDS, deadline.remaining)
        if seconds == 0:
            yield problem(f"there was no time left to ask the repository {name}", "Correct the others first.")
            continue
        try:
            credential = _credential(settings, name, repository)
            answer = answer_of(repository, credential=credential, seconds=seconds)
        except (WorkspaceUnavailable, GitError, OSError) as error:
            yield problem(f"the repository {name}: {error}", "")
            continue
        if answer.exit_status == 0:
            yield ok(f"the repository {name} ({repository.place}) answers")
        else:
            yield problem(
                f"the repository {name} ({repository.place}) does not answer: {answer.message}",
                "Correct its url or its password, or the network. For SSH, the service's account needs a key and the "
                "server's entry in its known_hosts.",
            )


def _credential(settings: Settings, name: str, repository: RepositorySettings) -> Credential | None:
    if repository.secret is None:
        return credential_of_environment(name, repository)
    with inspected_tables(settings) as tx:
        team = factories.only_team(tx) if tx is not None else None
        if tx is None or team is None:
            raise WorkspaceUnavailable(
                f"its password, the team secret {repository.secret}, can't be read before the first start of the "
                "service. Start the service once."
            )
        return credential_of(tx, name, repository, team, keys.key_ring(settings))
