"""`hookmill plan`, `apply`, `validate` and `export`: webhooks and automations as files in git.

Programs read the exit code: 0 when there is nothing to do, 2 when there is something to do or it was done, 1 when it
could not be. Wrong usage ends with 1 here, because 2 says something else.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand

from hookmill.cli import options
from hookmill.cli.output import (
    Column,
    command_line,
    count,
    on_terminal,
    print_error,
    print_json,
    print_line,
    print_table,
)
from hookmill.cli.progress import row_counter
from hookmill.cli.session import factory_session
from hookmill.domain.text import shown

if TYPE_CHECKING:
    from hookmill.cli.session import FactorySession
    from hookmill.definitions import Definitions, Plan, Problem, UnusableDefinitions
    from hookmill.domain.permission import MayManage
    from hookmill.domain.webhook import Webhook

COMMANDS = frozenset({"validate", "plan", "apply", "export"})
FAILED = 1
CHANGES = 2

Folder: TypeAlias = Annotated[
    str, typer.Argument(metavar="DIR", help="The folder that holds webhooks and automations.", show_default=False)
]
AllowDeletions: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-deletions",
        help="Agree to delete webhooks that are in no file, whose URLs die; and, at the first apply, automations.",
    ),
]
ContractOnly: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--contract-only",
        help="Refuse payload filters that use other operators than the contract's: in, not_in and exists.",
    ),
]


def register(app: typer.Typer) -> None:
    """Give the application these commands."""
    for command in (validate, plan, apply, export):
        app.command(cls=_UsageErrorExitsWithOne)(command)


class _UsageErrorExitsWithOne(TyperCommand):
    """A command whose wrong usage must not look like changes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.Exit:
            raise
        except Exception as error:
            # What typer raises for wrong usage has no public name of its own.
            if isinstance(getattr(error, "exit_code", None), int):
                error.exit_code = FAILED  # type: ignore[attr-defined]
            raise


def validate(folder: Folder, contract_only: ContractOnly = False, json: options.AsJson = False) -> None:
    """Check definition files without an installation. Every problem is reported with its line and column."""
    from hookmill import definitions

    # Nothing could have been changed, so nothing is said of it.
    with _problems_reported(json, outcome=""):
        valid = definitions.validated(Path(folder), contract_only=contract_only)
    if json:
        counts = {"webhook_count": len(valid.webhooks), "automation_count": len(valid.automations)}
        print_json(counts | {"problems": []})
        return
    counted = f"{count(len(valid.webhooks), 'webhook')} and {count(len(valid.automations), 'automation')}"
    print_line(f"{shown(folder)} has {counted}, and no problem that can be seen without the factory.")


def plan(
    folder: Folder,
    allow_deletions: AllowDeletions = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Say what applying definition files would change. Nothing is changed. Ends with 2 when there are changes."""
    from hookmill import definitions

    with _open_session(factory) as session, _problems_reported(json):
        may = _permission(session, factory)
        desired = definitions.definitions_for(session.management, may, Path(folder))
        planned = definitions.plan(session.management, may, desired)
        webhooks = session.management.webhooks.all(may)
        warnings = [*planned.warnings, *_filter_warnings(session, may, desired)]
        _print_plan(session, factory, planned, webhooks, warnings, json, applied=False)
    if planned.needs_consent is not None and not allow_deletions:
        print_error(f"{planned.needs_consent}\nTo agree to that: {_consent_command(folder, factory)}")
        raise typer.Exit(FAILED)
    if planned.has_changes:
        raise typer.Exit(CHANGES)


def apply(
    folder: Folder,
    allow_deletions: AllowDeletions = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Make a factory what definition files say. All of it, or nothing; ends with 2 when something was changed."""
    from hookmill import definitions

    with _open_session(factory) as session, _problems_reported(json):
        may = _permission(session, factory)
        desired = definitions.definitions_for(session.management, may, Path(folder))
        try:
            applied = definitions.apply(session.management, may, desired, may_delete=allow_deletions)
        except definitions.ConsentNeeded as error:
            print_error(f"{error}\nNothing was changed. To agree to that: {_consent_command(folder, factory)}")
            raise typer.Exit(FAILED) from None
        warnings = [*applied.plan.warnings, *_filter_warnings(session, may, desired)]
        _print_plan(session, factory, applied.plan, applied.webhooks, warnings, json, applied=True)
    if applied.plan.has_changes:
        raise typer.Exit(CHANGES)


def export(folder: Folder, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Write a factory as definition files. Applied, they change no webhook and no automation."""
    from hookmill import definitions

    with _open_session(factory) as session, _problems_reported(json, outcome=" Nothing was written."):
        may = _permission(session, factory)
        files = definitions.export(session.management, may)
    definitions.write(Path(folder), files)
    if json:
        print_json({"folder": folder, "files": sorted(files)})
        return
    print_line(f"{count(len(files), 'file')} written to {shown(folder)}. No secret is in them: they name team secrets.")
    if not may.factory.defined_by_files:
        apply_command = command_line(_with_folder("apply", folder), factory)
        print_line(f"From the first apply on, the factory changes through them alone: {apply_command}")


def _consent_command(folder: str, factory: str) -> str:
    return command_line(f"{_with_folder('apply', folder)} --allow-deletions", factory)


def _with_folder(command: str, folder: str) -> str:
    return f"{command} {shlex.quote(folder)}"


@contextmanager
def _open_session(factory: str) -> Iterator[FactorySession]:
    try:
        with factory_session(factory) as session:
            yield session
    except typer.Exit as ended:
        if ended.exit_code == CHANGES:
            # Settings that can't be used must not look like changes.
            raise typer.Exit(FAILED) from None
        raise


def _permission(session: FactorySession, factory: str) -> MayManage:
    from hookmill.domain.permission import Channel

    return session.management.access.operator(factory, channel=Channel.FILES)


@contextmanager
def _problems_reported(json: bool, outcome: str = " Nothing was changed.") -> Iterator[None]:
    from hookmill.definitions import UnusableDefinitions

    try:
        yield
    except UnusableDefinitions as error:
        _print_problems(error, json, outcome)
        raise typer.Exit(FAILED) from None


def _print_problems(error: UnusableDefinitions, json: bool, outcome: str) -> None:
    if json:
        print_json({"problems": [problem.as_json() for problem in error.problems]})
        return
    for problem in error.problems:
        print_error(shown(str(problem)))
    print_error(f"{count(len(error.problems), 'problem')}.{outcome}")


def _filter_warnings(session: FactorySession, may: MayManage, desired: Definitions) -> list[Problem]:
    """What the filters make of stored deliveries. Their bodies are read for it, which may take its time."""
    from hookmill import definitions

    warnings = []
    with row_counter("filter", rows_on_terminal=False) as advance:
        for warning in definitions.backtest(session.management, may, desired):
            advance(1)
            if warning is not None:
                warnings.append(warning)
    return warnings


def _print_plan(
    session: FactorySession,
    factory: str,
    planned: Plan,
    webhooks: Sequence[Webhook],
    warnings: Sequence[Problem],
    json: bool,
    *,
    applied: bool,
) -> None:
    if json:
        listed = [
            {"name": webhook.name, "uid": webhook.uid, "url": session.management.webhooks.url(webhook)}
            for webhook in webhooks
        ]
        plan_fields: dict[str, Any] = planned.as_json() | {
            "warnings": [warning.as_json() for warning in sorted(warnings)]
        }
        print_json({"factory": factory, "applied": applied} | plan_fields | {"problems": [], "webhooks": listed})
        return
    from hookmill.definitions import lines_of_plan, summary_of

    _print_diff(lines_of_plan(planned))
    print_line(summary_of(planned))
    if planned.takes_over:
        when = "From now on" if applied else "Once applied"
        print_line(f"{when}, factory {shown(factory)} changes through its files alone.")
    if webhooks:
        print_line()
        print_table(
            [Column("WEBHOOK"), Column("UID", whole=True), Column("URL", whole=True, stacked=True)],
            [(webhook.name, webhook.uid, session.management.webhooks.url(webhook)) for webhook in webhooks],
        )
    for warning in sorted(warnings):
        print_error(shown(f"Warning: {warning}"))


_STYLES = {"+": "green", "~": "yellow", "-": "red"}


def _print_diff(lines: Iterator[str]) -> None:
    if not on_terminal():
        for plan_line in lines:
            print_line(shown(plan_line))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)
    for plan_line in lines:
        console.print(Text(shown(plan_line), style=_STYLES.get(plan_line.lstrip()[:1], "")))
