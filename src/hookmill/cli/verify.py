"""`hookmill verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from hookmill.cli import options, progress
from hookmill.cli.output import count, print_json, print_line
from hookmill.cli.session import read_settings_or_exit
from hookmill.domain.errors import Invalid
from hookmill.domain.text import shown

if TYPE_CHECKING:
    from hookmill.app.verify import VerifyResult


def verify(json: options.AsJson = False) -> None:
    """Check the stored data for contradictions. Changes nothing."""
    settings = read_settings_or_exit()

    from hookmill.app import verify as app_verify

    try:
        with progress.phases() as report:
            result = app_verify.verify(settings, report)
    except KeyboardInterrupt:
        raise Invalid("The verification was interrupted.") from None
    _print(result, json)
    if result.problems:
        raise typer.Exit(1)


def _print(result: VerifyResult, json: bool) -> None:
    if json:
        print_json(
            {
                "consistent": not result.problems,
                "rows": result.rows,
                "problems": [
                    {"kind": each.kind, "row": each.row, "text": each.text, "advice": each.advice}
                    for each in result.problems
                ],
                "omitted_problems": result.omitted,
                "seconds": round(result.seconds, 3),
            }
        )
        return
    for problem in result.problems:
        print_line(f"{shown(problem.row)}: {shown(problem.text)}")
        print_line(f"  {shown(problem.advice)}")
    if result.omitted:
        print_line(f"{count(result.omitted, 'more problem')} of these kinds are not listed.")
    if result.problems:
        print_line()
    print_line(
        f"Checked {count(result.rows, 'row')} in {result.seconds:.1f} s. "
        + (f"There are {count(result.counts.total(), 'problem')}." if result.problems else "The data is consistent.")
    )
