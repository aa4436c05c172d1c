"""`hookmill doctor`: checks the installation, and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from hookmill.cli import options
from hookmill.cli.output import count, print_json, print_line
from hookmill.cli.session import read_settings_or_exit
from hookmill.domain.finding import Examination, Finding, Status
from hookmill.domain.text import shown
from hookmill.presentation.finding import ExaminationView

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
    ca_file: options.CaFile = None,
    factory: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --through: the factory of the temporary webhooks."),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Check the installation and what proxies in front of it change. Says what to do. Ends with 1 for a problem."""
    if through is None and factory is not None:
        raise typer.BadParameter("--factory needs --through")
    if through is not None:
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

    from hookmill.app.doctor.proxy_checks import Options, examine_through

    through_options = Options(ca_file=Path(ca_file) if ca_file is not None else None, factory=factory)
    return examine_through(settings, url, through_options, _reporter(json))


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
