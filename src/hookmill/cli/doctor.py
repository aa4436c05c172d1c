"""`hookmill doctor`: checks the installation, and says what to do."""

from __future__ import annotations

from typing import Final

import typer

from hookmill.cli import options
from hookmill.cli.output import count, print_json, print_line
from hookmill.domain.finding import Examination, Finding, Status
from hookmill.domain.text import shown
from hookmill.presentation.finding import ExaminationView

EXIT_PROBLEMS: Final = 1
_STATUS_WIDTH: Final = max(len(status) for status in Status)


def doctor(json: options.AsJson = False) -> None:
    """Check the installation: settings, disk, database, keys, runners, workers, proxies. Changes nothing."""
    from hookmill.app.doctor import CHECKS, examine
    from hookmill.settings import load_settings

    name_width = max(len(check.name) for check in CHECKS)
    examination = examine(load_settings(), (lambda _: None) if json else lambda one: _print_finding(one, name_width))
    _print_result(examination, json)


def _print_finding(finding: Finding, name_width: int) -> None:
    indent = " " * (_STATUS_WIDTH + name_width + 4)
    print_line(f"{finding.status:<{_STATUS_WIDTH}}  {finding.check:<{name_width}}  {_on_one_line(finding.observation)}")
    if finding.advice:
        print_line(f"{indent}→ {_on_one_line(finding.advice)}")


def _on_one_line(text: str) -> str:
    return shown(" ".join(text.split()))


def _print_result(examination: Examination, json: bool) -> None:
    if json:
        print_json(ExaminationView.of(examination))
    else:
        if examination.not_checked:
            print_line()
            print_line(f"Not checked because of the problems above: {', '.join(examination.not_checked)}.")
        print_line()
        problems = count(examination.count(Status.PROBLEM), "problem")
        print_line(f"{problems}, {count(examination.count(Status.WARNING), 'warning')}.".capitalize())
    if examination.has_problems:
        raise typer.Exit(EXIT_PROBLEMS)
