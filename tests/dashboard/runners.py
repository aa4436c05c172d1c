"""An installation whose runners are commands, and helpers that fill an installation."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hookmill import app
from hookmill.domain.permission import Role
from hookmill.management import WebhookWithSecret
from hookmill.runs.runners.command import CommandSettings
from tests.dashboard.conftest import Installation, create_first_admin
from tests.support.automations import automation_created
from tests.support.service import serving
from tests.support.triggers import received

WAITING_SCRIPT: Final = "import time\nprint('it waits', flush=True)\ntime.sleep(600)\n"
WAITING_RUNNER: Final = {"waits": [sys.executable, "-c", WAITING_SCRIPT]}
"""A runner whose runs end only when they are cancelled."""


@contextmanager
def installation_with_runners(
    data_dir: Path, runners: Mapping[str, Sequence[str]] = WAITING_RUNNER
) -> Iterator[Installation]:
    """An installation with an admin, ada@example.com, and these commands as runners."""
    data_dir.mkdir()
    tables = "".join(f"[runners.{name}]\nargv = {json.dumps(argv)}\n" for name, argv in runners.items())
    (data_dir / "hookmill.toml").write_text(tables)
    with serving(data_dir) as service:
        settings = service.read_settings().model_copy(
            update={"runners": {name: CommandSettings(argv=tuple(argv)) for name, argv in runners.items()}}
        )
        store = app.open_store(settings)
        management = app.build_management(settings, store)
        create_first_admin(management)
        yield Installation(service, management)
        store.close()


def create_automation(
    installation: Installation, name: str, webhook: WebhookWithSecret, *, runner: str = "package"
) -> str:
    """Create an automation that every delivery to the webhook triggers. Returns its id."""
    trigger = received(webhook.webhook.uid)
    return automation_created(
        installation.management, installation.may, name, prompt="Look at it.", triggers=[trigger], runner=runner
    ).id


def create_manager(installation: Installation, email: str, name: str) -> str:
    """Create a manager of the factory `default`. Returns the path of the member's sign-in link."""
    installation.management.members.add(installation.may_administer, email, name)
    installation.management.members.set_role(installation.may_administer, email, "default", Role.MANAGER)
    return f"/welcome/{installation.management.sessions.create_link(installation.may_administer, email).reveal()}"
