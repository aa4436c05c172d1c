"""An installation with commands as runners: one that runs until it is stopped, or others."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hookmill import app
from hookmill.domain.permission import Role
from hookmill.management import WebhookWithSecret
from tests.dashboard.conftest import PASSWORD, Installation
from tests.support.service import serving

WAITS: Final = "import time\nprint('it waits', flush=True)\ntime.sleep(600)\n"
WAITING: Final = {"waits": [sys.executable, "-c", WAITS]}


@contextmanager
def installation_with_runners(data_dir: Path, runners: Mapping[str, Sequence[str]] = WAITING) -> Iterator[Installation]:
    """With an admin, ada@example.com, and these commands as runners."""
    data_dir.mkdir()
    written = "".join(f"[runners.{name}]\nargv = {json.dumps(argv)}\n" for name, argv in runners.items())
    (data_dir / "hookmill.toml").write_text(written)
    with serving(data_dir) as service:
        settings = service.read_settings().model_copy(update={"runners": dict.fromkeys(runners)})
        store = app.open_store(settings)
        management = app.build_management(settings, store)
        link = management.sessions.create_first_link()
        assert link is not None
        management.sessions.accept_link(
            link.reveal(), password=PASSWORD, email="ada@example.com", name="Ada", client=None
        )
        yield Installation(service, management)
        store.close()


def automation(installation: Installation, name: str, webhook: WebhookWithSecret, *, runner: str = "package") -> str:
    """An automation that every delivery to the webhook starts. Its id."""
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [webhook.webhook.uid]}}
    made = installation.management.automations.create(
        installation.may, name, prompt="Look at it.", triggers=[trigger], runner=runner
    )
    return made.id


def member(installation: Installation, email: str, name: str) -> str:
    """A new member's one-time link, as a path."""
    admin = installation.management.access.operator_of_team()
    installation.management.members.add(admin, email, name)
    installation.management.members.set_role(admin, email, "default", Role.MANAGER)
    return f"/welcome/{installation.management.sessions.create_link(admin, email).reveal()}"
