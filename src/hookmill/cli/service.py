"""`hookmill serve`, `worker` and `migrate`."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from hookmill.cli import options
from hookmill.cli.output import count, print_fields, print_json, print_line, program, utc
from hookmill.cli.session import read_settings_or_exit
from hookmill.domain.automation import AutomationSpec, DeliveryFilter, WebhookTrigger
from hookmill.domain.errors import Conflict
from hookmill.domain.moment import iso, iso_or_none
from hookmill.domain.run import PACKAGE_RUNNER, PAYLOAD_FILE
from hookmill.domain.sample import FIRST_START_NAME, FIRST_START_PROMPT, curl_line
from hookmill.domain.text import shown
from hookmill.prctl import protect_memory
from hookmill.presentation.member import sign_in_url
from hookmill.presentation.webhook import WebhookWithSecretView

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hookmill.domain.automation import Automation
    from hookmill.domain.permission import MayManage
    from hookmill.domain.webhook import Webhook
    from hookmill.management import Management, WebhookWithSecret
    from hookmill.settings import Settings
    from hookmill.store.restored import Restoration

NAMES_SHOWN_MAX: Final = 5


def serve(
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(metavar="PORT", help="The port to listen on.")] = None,
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="The directory of the database, the master key and the runs.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(metavar="N", help="The number of ingress processes. More than one needs PostgreSQL.")
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Start the service. The first start sets everything up, and prints a curl line to try it."""
    # This comes before the service's modules are loaded, which takes a second. The environment may contain keys.
    protect_memory()
    _override_settings(
        host=host,
        port=port,
        data_dir=str(Path(data_dir).absolute()) if data_dir is not None else None,
        processes=processes,
    )
    settings = read_settings_or_exit()

    from hookmill import app
    from hookmill.app.open_files import raise_open_files_limit
    from hookmill.app.port import hold_port
    from hookmill.app.tls import refuse_unusable_files
    from hookmill.app.worker_process import prepare_host, refuse_unusable_runners, remove_mirrors_from_full_disk
    from hookmill.store.restored import take_announcement

    raise_open_files_limit()
    refuse_unusable_files(settings, serves=True, performs_runs=settings.performs_runs)
    if settings.performs_runs:
        refuse_unusable_runners(settings)
        remove_mirrors_from_full_disk(settings)
    with hold_port(settings.host, settings.port):
        store = app.open_store(settings, create=True)
        try:
            # A first start must not stop halfway.
            state = _set_up(app.build_management(settings, store, guards_disk=False), settings)
            state = replace(state, restoration=take_announcement(store.database))
        finally:
            store.close()
        if settings.performs_runs:
            prepare_host(settings)

        def announce() -> None:
            _announce(state, settings, " ".join([*_environment_assignments(settings), program()]), json)
            sys.stdout.flush()

        from hookmill.app.serve import serve as serve_until_stopped

        serve_until_stopped(settings, announce)


def worker(json: options.AsJson = False) -> None:
    """Perform runs in a process separate from `hookmill serve`. Needs PostgreSQL."""
    protect_memory()
    settings = read_settings_or_exit()
    if not settings.on_postgres:
        raise Conflict(
            "A separate worker needs PostgreSQL. On SQLite `hookmill serve` performs the runs itself. "
            "Set HOOKMILL_DATABASE_URL to postgresql://USER:PASSWORD@HOST/NAME."
        )

    from hookmill.app.open_files import raise_open_files_limit
    from hookmill.app.tls import refuse_unusable_files
    from hookmill.app.worker_process import prepare_host, refuse_unusable_runners, work_until_signalled
    from hookmill.store.database import open_database
    from hookmill.store.moved import refuse_unusable
    from hookmill.store.pooler import refuse_pooler

    raise_open_files_limit()
    refuse_unusable_files(settings, serves=False, performs_runs=True)
    refuse_unusable_runners(settings)
    with open_database(settings.store_url()) as database:
        refuse_pooler(database)
        refuse_unusable(database)
    prepare_host(settings)

    def announce() -> None:
        if json:
            print_json({"runs_at_once": settings.runs_at_once, "data_dir": str(settings.data_dir.absolute())})
        else:
            print_line(f"Performing up to {count(settings.runs_at_once, 'run')} at a time. Ctrl-C stops it.")
        sys.stdout.flush()

    work_until_signalled(announce)


def migrate(json: options.AsJson = False) -> None:
    """Upgrade the database to this version's schema. `hookmill serve` does the same."""
    settings = read_settings_or_exit()

    from hookmill.app.first_start import refuse_lost_database
    from hookmill.store.database import open_database
    from hookmill.store.migrate import migrate as migrate_database
    from hookmill.store.moved import refuse_unusable

    with open_database(settings.store_url()) as database:
        refuse_unusable(database)
        refuse_lost_database(settings, database)
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        changed = migrate_database(database)
    if json:
        print_json({"changed": changed})
        return
    print_line(
        "The database now has this version's schema." if changed else "The database already has this version's schema."
    )


def _override_settings(**options: str | int | None) -> None:
    """Set the environment variables of these options. They override the settings, also in child processes."""
    os.environ.update({f"HOOKMILL_{name.upper()}": str(value) for name, value in options.items() if value is not None})


_SHOWN_VARIABLES: Final = (
    "HOOKMILL_HOST",
    "HOOKMILL_PORT",
    "HOOKMILL_DATA_DIR",
    "HOOKMILL_CONFIG",
    "HOOKMILL_BASE_URL",
)
_SECRET_VARIABLES: Final = ("HOOKMILL_DATABASE_URL", "HOOKMILL_MASTER_KEY", "HOOKMILL_MASTER_KEY_PREVIOUS")
"""Variables with passwords or keys. Only their names are shown."""


def _environment_assignments(settings: Settings) -> list[str]:
    """Shell assignments of the variables with which other commands find this service from any directory."""
    variables = {name: value for name in _SHOWN_VARIABLES if (value := os.environ.get(name))}
    if "HOOKMILL_DATA_DIR" in variables:
        variables["HOOKMILL_DATA_DIR"] = str(settings.data_dir.absolute())
    if "HOOKMILL_CONFIG" in variables:
        variables["HOOKMILL_CONFIG"] = str(Path(variables["HOOKMILL_CONFIG"]).absolute())
    return [f"{variable}={shlex.quote(value)}" for variable, value in variables.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateAfterStart:
    """What exists after a start. Only a first start sets `first_webhook`, with the secret that is shown once.

    `webhooks` and `automations` are those of the factory `default`. `sign_in_link` is set while nobody can sign in to
    the dashboard.
    """

    webhooks: Sequence[Webhook]
    automations: Sequence[Automation]
    other_factories: Sequence[str]
    first_webhook: WebhookWithSecret | None
    first_webhook_view: WebhookWithSecretView | None
    sign_in_link: str | None
    restoration: Restoration | None = None
    """Set by the first start after a restore."""


def _set_up(management: Management, settings: Settings) -> StateAfterStart:
    factory, is_new = management.factories.set_up()
    may = management.access.operator(factory.name)
    created = _create_first_webhook_and_automation(management, may) if is_new else None
    token = management.sessions.create_first_link()
    factories = management.factories.all(management.access.operator_of_team())
    return StateAfterStart(
        webhooks=management.webhooks.all(may),
        automations=management.automations.all(may),
        other_factories=[other.name for other in factories if other.name != factory.name],
        first_webhook=created,
        first_webhook_view=WebhookWithSecretView.showing_secret(management, created, is_generated=True)
        if created is not None
        else None,
        sign_in_link=sign_in_url(settings.public_url(), token) if token is not None else None,
    )


def _create_first_webhook_and_automation(management: Management, may: MayManage) -> WebhookWithSecret:
    created = management.webhooks.create(may, {"name": FIRST_START_NAME})
    management.automations.create(
        may,
        AutomationSpec(
            name=FIRST_START_NAME,
            prompt=FIRST_START_PROMPT,
            triggers=(WebhookTrigger(event="received", filter=DeliveryFilter(webhook_ids=(created.webhook.uid,))),),
        ),
    )
    return created


def _announce(state: StateAfterStart, settings: Settings, command_prefix: str, json: bool) -> None:
    """Print the start message. `command_prefix` is the beginning of every suggested command: variables and program."""
    shown_host = f"[{settings.host}]" if ":" in settings.host else settings.host
    listen_url = f"http://{shown_host}:{settings.port}"
    data_dir = settings.data_dir.absolute()
    if json:
        message = {
            "listening": listen_url,
            "base_url": settings.public_url(),
            "data_dir": str(data_dir),
            "first_start": state.first_webhook is not None,
            "dashboard": {
                "url": state.sign_in_link or settings.public_url(),
                "signs_in_once": state.sign_in_link is not None,
            },
        }
        print_json(message | _announcement_fields(state))
        return
    print_line(f"Hookmill is ready at {listen_url}")
    print_line()
    if state.restoration is not None:
        for line in restoration_lines(state.restoration, performs_runs=settings.performs_runs):
            print_line(line)
        print_line()
    if state.first_webhook is not None:
        _announce_first(state.first_webhook, settings)
    else:
        _announce_existing(state, command_prefix)
    print_line()
    if state.sign_in_link is not None:
        print_line("To sign in to the dashboard, open this link. It works once, for a day:")
        print_line()
        print_line(state.sign_in_link)
        print_line()
    secret_variables = [name for name in _SECRET_VARIABLES if os.environ.get(name)]
    print_fields(
        [
            *([("Dashboard:", settings.public_url())] if state.sign_in_link is None else []),
            ("Deliveries:", f"{command_prefix} delivery list"),
            ("Runs:", f"{command_prefix} run list"),
            *(
                [("Commands need:", f"{', '.join(secret_variables)} with the values of this service")]
                if secret_variables
                else []
            ),
            ("Data:", str(data_dir)),
        ]
    )


def restoration_lines(restored: Restoration, *, performs_runs: bool) -> Iterator[str]:
    """The consequences of the restore. `performs_runs`: whether this service performs the runs itself."""
    until = restored.newest_delivery_at
    yield (
        f"This installation was restored from a backup of {utc(restored.taken_at)} UTC. Its newest delivery is "
        + (f"of {utc(until)} UTC:" if until is not None else "unknown:")
    )
    yield "- Later deliveries are not here. If their senders retry them, they are accepted."
    yield "- Earlier deliveries are here, so a retry of one of them is a Duplicate."
    if performs_runs:
        yield "- Runs that had not ended then are performed now, even if the original has performed them since."
    else:
        yield (
            "- This service performs no runs, because performs_runs is false. Runs that had not ended then wait, and "
            "any worker of this database performs them, even if the original has performed them since."
        )
    yield "- Messages about alarms that were unsent then are not sent. Alarms that were open are in the lists."
    yield "- Messages about results of runs that were unsent then are not sent."
    yield "- Later changes are undone, such as rotated secrets, revoked API keys and removed members."
    if performs_runs:
        yield "- The original installation must stay stopped. docs/backup.md has the details."
    else:
        yield (
            "- While the original installation runs, keep performs_runs false and start no worker here. Messages about "
            "new alarms still go to the destinations. docs/backup.md has the details."
        )


def _announce_first(created: WebhookWithSecret, settings: Settings) -> None:
    print_line(f"Created a webhook and an automation, both named {FIRST_START_NAME}. To try them, post a delivery:")
    print_line()
    print_line(str(curl_line(created.webhook.auth_mode, created.url, created.reveal())))
    print_line()
    print_line("Each delivery starts a run. Its package appears in")
    print_line(f"  {settings.data_dir.absolute() / 'runs' / '<run_id>' / PAYLOAD_FILE}")
    if settings.default_runner == PACKAGE_RUNNER:
        print_line("Nothing else is executed until you configure a runner that starts a command: see docs/runners.md.")
    print_line(
        "You can repeat the command: the time in the body makes each delivery a new event. "
        "Save the token: it is not shown again."
    )


def _announce_existing(state: StateAfterStart, command_prefix: str) -> None:
    existing = f"{_count_and_names(state.webhooks, 'webhook')}, {_count_and_names(state.automations, 'automation')}"
    if state.other_factories:
        existing += f"; {count(len(state.other_factories), 'other factory')}: {_name_list(state.other_factories)}"
    print_line(f"Existing: {existing}.")
    if not state.webhooks:
        print_line(f"To create a webhook: {command_prefix} webhook create NAME")
        return
    print_line("Secrets are not shown again. To replace one (the old one stops working immediately):")
    # NAME is a placeholder: a line that works when pasted could replace a secret by accident.
    print_line(f"  {command_prefix} webhook rotate NAME")


def _count_and_names(things: Sequence[Webhook] | Sequence[Automation], noun: str) -> str:
    names = _name_list([thing.name for thing in things])
    return f"{count(len(things), noun)} ({names})" if names else count(0, noun)


def _name_list(names: Sequence[str]) -> str:
    listed_names = [shown(name) for name in names[:NAMES_SHOWN_MAX]]
    if len(names) > NAMES_SHOWN_MAX:
        listed_names.append(f"{len(names) - NAMES_SHOWN_MAX} more")
    return ", ".join(listed_names)


def _announcement_fields(state: StateAfterStart) -> dict[str, Any]:
    if (restored := state.restoration) is not None:
        restoration = {
            "taken_at": iso(restored.taken_at),
            "restored_at": iso(restored.restored_at),
            "newest_delivery_at": iso_or_none(restored.newest_delivery_at),
        }
        return {"restored": restoration, **_announcement_fields(replace(state, restoration=None))}
    if state.first_webhook is not None:
        return {
            "webhook": state.first_webhook_view,
            "curl": curl_line(
                state.first_webhook.webhook.auth_mode, state.first_webhook.url, state.first_webhook.reveal()
            ),
        }
    return {
        "webhooks": [webhook.name for webhook in state.webhooks],
        "automations": [automation.name for automation in state.automations],
    }
