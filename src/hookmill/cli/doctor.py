"""`hookmill doctor`: checks the installation, and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from hookmill.cli import inputs, options
from hookmill.cli.output import confirm, count, print_json, print_line
from hookmill.cli.session import read_settings_or_exit
from hookmill.domain.errors import Invalid
from hookmill.domain.finding import Examination, Finding, Status
from hookmill.domain.text import shown
from hookmill.domain.webhook import INGRESS_PREFIX, TOKEN_PLACEHOLDER, AuthMode
from hookmill.presentation.finding import ExaminationView

if TYPE_CHECKING:
    from hookmill.app.doctor.exchange import Origin
    from hookmill.app.doctor.through.deployment import ProbeWebhook

EXIT_PROBLEMS: Final = 1
_STATUS_WIDTH: Final = max(len(status) for status in Status)
_NAME_WIDTH: Final = 16
"""The width of the longest name of a check."""


def doctor(
    through: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Check what proxies change: send deliveries to temporary webhooks at this URL, such as base_url.",
        ),
    ] = None,
    webhook_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Without the installation's settings: check with this webhook, whose secret is on standard input. "
            "Its automations start runs.",
        ),
    ] = None,
    secret_from_stdin: Annotated[
        bool,
        typer.Option(
            "--secret-from-stdin", help="With --webhook-url: read the secret of that webhook from standard input."
        ),
    ] = False,
    ca_file: options.CaFile = None,
    factory: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --through: the factory of the temporary webhooks."),
    ] = None,
    yes: options.Yes = False,
    json: options.AsJson = False,
) -> None:
    """Check the installation and what proxies in front of it change. Says what to do. Ends with 1 for a problem."""
    inputs.require_at_most_one(through=through, webhook_url=webhook_url)
    if through is None and factory is not None:
        raise typer.BadParameter("--factory needs --through")
    if webhook_url is None and secret_from_stdin:
        raise typer.BadParameter("--secret-from-stdin needs --webhook-url")
    if webhook_url is not None:
        inputs.require_yes_with_json(json, yes)
        examination = _examine_from_outside(webhook_url, secret_from_stdin, ca_file, yes, json)
    elif through is not None:
        examination = _examine_through(through, ca_file, factory, json)
    else:
        from hookmill.app.doctor import examine
        from hookmill.app.doctor.exchange import tls_context
        from hookmill.settings import load_settings

        tls = tls_context(Path(ca_file)) if ca_file is not None else None
        examination = examine(load_settings(), _reporter(json), tls)
    _print_result(examination, json)


def _examine_through(url: str, ca_file: str | None, factory: str | None, json: bool) -> Examination:
    settings = read_settings_or_exit()

    from hookmill.app.doctor.through import Options, examine_through

    through_options = Options(ca_file=Path(ca_file) if ca_file is not None else None, factory=factory)
    return examine_through(settings, url, through_options, _reporter(json))


def _examine_from_outside(
    webhook_url: str, secret_from_stdin: bool, ca_file: str | None, yes: bool, json: bool
) -> Examination:
    from hookmill.app.doctor.through import Options, examine_from_outside

    origin, webhook = _webhook_at(webhook_url, inputs.read_secret() if secret_from_stdin else None)
    if not yes:
        confirm(
            f"Send about 30 deliveries to {origin}{INGRESS_PREFIX}{webhook.uid}? Automations that select this webhook "
            "start runs."
        )
    through_options = Options(ca_file=Path(ca_file) if ca_file is not None else None)
    return examine_from_outside(origin, webhook, through_options, _reporter(json))


def _webhook_at(url: str, secret: str | None) -> tuple[Origin, ProbeWebhook]:
    """The deployment and the webhook. Raises `Invalid`."""
    from hookmill.app.doctor.exchange import Origin
    from hookmill.app.doctor.through.deployment import ProbeWebhook

    base, prefix, rest = url.partition(INGRESS_PREFIX)
    uid, _, token = rest.partition("/")
    if not prefix or not uid or urlsplit(url).query or token not in {"", TOKEN_PLACEHOLDER}:
        raise Invalid(
            f"This is not the URL of a webhook. Use one such as https://hooks.example.com{INGRESS_PREFIX}wh_…, with "
            f"{TOKEN_PLACEHOLDER} in the place of a token."
        )
    if secret is None or not secret.strip():
        raise Invalid("The checks need the secret of the webhook. Use --secret-from-stdin.")
    mode = AuthMode.URL_TOKEN if token else AuthMode.TOKEN
    return Origin.of(base), ProbeWebhook(uid=uid, auth_mode=mode, secret=secret.strip())


def _reporter(json: bool) -> Callable[[Finding], None]:
    """Prints each finding as soon as it is known, unless the result is printed as JSON."""
    return (lambda _: None) if json else _print_finding


def _print_finding(finding: Finding) -> None:
    print_line(
        f"{finding.status:<{_STATUS_WIDTH}}  {finding.check:<{_NAME_WIDTH}}  {_on_one_line(finding.observation)}"
    )
    if finding.advice:
        print_line(f"{'':{_STATUS_WIDTH + _NAME_WIDTH + 4}}→ {_on_one_line(finding.advice)}")


def _on_one_line(text: str) -> str:
    return shown(" ".join(text.split()))


def _print_result(examination: Examination, json: bool) -> None:
    if json:
        print_json(ExaminationView.of(examination))
    else:
        if examination.not_checked:
            print_line()
            print_line(f"Not checked because of the problems above: {', '.join(examination.not_checked)}.")
        problems = count(examination.count(Status.PROBLEM), "problem")
        print_line()
        print_line(f"{problems}, {count(examination.count(Status.WARNING), 'warning')}.".capitalize())
    if examination.has_problems:
        raise typer.Exit(EXIT_PROBLEMS)
