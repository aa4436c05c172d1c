"""`hookmill plan`, `apply`, `validate` and `export`: webhooks and automations as files in git.

Exit codes, for scripts: 0 for success, 1 for failure. `plan`, and `apply` with `--detailed-exitcode`, end with 2 if
there are changes. So wrong usage ends with 1, too.
"""

from __future__ import annotations

import shlex
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
    new_console,
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

EXIT_FAILED = 1
EXIT_CHANGES = 2

Folder: TypeAlias = Annotated[
    str, typer.Argument(metavar="DIR", help="The folder with the folders webhooks and automations.", show_default=False)
]
AllowDeletions: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-deletions",
        help="Allow deleting webhooks that have no file: their URLs stop working permanently. "
        "At the first apply, also allow deleting automations that have no file.",
    ),
]
DetailedExitCode: TypeAlias = Annotated[
    bool, typer.Option("--detailed-exitcode", help="End with 2 instead of 0 if there were changes.")
]
ContractOnly: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--contract-only",
        help="Also refuse what other implementations of the contract don't have: event types, run policies, run "
        "options except secrets, timezone and catch_up of schedules, and operators other than in, not_in and exists.",
    ),
]


class UsageErrorExitsWithOne(TyperCommand):
    """A command that ends with 1 for wrong usage: 2 would mean changes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.Exit:
            raise
        except Exception as error:
            # typer has no public name for its usage errors.
            if isinstance(getattr(error, "exit_code", None), int):
                error.exit_code = EXIT_FAILED  # type: ignore[attr-defined]
            raise


def validate(folder: Folder, contract_only: ContractOnly = False, json: options.AsJson = False) -> None:
    """Check definition files without an installation. Shows file, line and column of every problem."""
    from hookmill import definitions

    # Validation never changes anything, so its message doesn't mention changes.
    with _report_problems(json, closing=""):
        validated_definitions = definitions.validated_definitions(Path(folder), contract_only=contract_only)
    webhook_count, automation_count = len(validated_definitions.webhooks), len(validated_definitions.automations)
    if json:
        warnings = [warning.as_json() for warning in validated_definitions.warnings]
        print_json(
            {
                "webhook_count": webhook_count,
                "automation_count": automation_count,
                "problems": [],
                "warnings": warnings,
            }
        )
        return
    counts_text = f"{count(webhook_count, 'webhook')} and {count(automation_count, 'automation')}"
    print_line(f"{shown(folder)} has {counts_text}, and no problem that can be detected without the factory.")
    _print_warnings(validated_definitions.warnings)


def plan(
    folder: Folder,
    allow_deletions: AllowDeletions = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Show what `apply` would change. Changes nothing. The exit code is 2 if there are changes."""
    from hookmill import definitions

    with _open_session(factory) as session, _report_problems(json):
        may = _permission(session, factory)
        desired = definitions.definitions_for(session.management, may, definitions.read_folder(Path(folder)))
        factory_plan = definitions.plan(session.management, may, desired)
        webhooks = session.management.webhooks.all(may)
        warnings = [*factory_plan.warnings, *_filter_warnings(session, may, desired)]
        _print_plan(session, factory, factory_plan, webhooks, warnings, json, is_applied=False)
    if factory_plan.consent_reason is not None and not allow_deletions:
        print_error(f"{factory_plan.consent_reason}\nTo allow this: {_consent_command(folder, factory)}")
        raise typer.Exit(EXIT_FAILED)
    if factory_plan.has_changes:
        raise typer.Exit(EXIT_CHANGES)


def apply(
    folder: Folder,
    allow_deletions: AllowDeletions = False,
    detailed_exitcode: DetailedExitCode = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Change a factory to match definition files, all or nothing."""
    from hookmill import definitions

    with _open_session(factory) as session, _report_problems(json):
        may = _permission(session, factory)
        desired = definitions.definitions_for(session.management, may, definitions.read_folder(Path(folder)))
        try:
            result = definitions.apply(session.management, may, desired, may_delete=allow_deletions)
        except definitions.ConsentNeeded as error:
            print_error(f"{error}\nNothing was changed. To allow this: {_consent_command(folder, factory)}")
            raise typer.Exit(EXIT_FAILED) from None
        warnings = [*result.plan.warnings, *_filter_warnings(session, may, desired)]
        _print_plan(session, factory, result.plan, result.webhooks, warnings, json, is_applied=True)
    if detailed_exitcode and result.plan.has_changes:
        raise typer.Exit(EXIT_CHANGES)


def export(folder: Folder, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Write a factory as definition files. Applying them changes no webhook and no automation."""
    from hookmill import definitions

    with _open_session(factory) as session, _report_problems(json, closing=" Nothing was written."):
        may = _permission(session, factory)
        files = definitions.export(session.management, may)
    definitions.write(Path(folder), files)
    if json:
        print_json({"folder": folder, "files": sorted(files)})
        return
    print_line(f"Wrote {count(len(files), 'file')} to {shown(folder)}, with names of secrets, but no values.")
    if not may.factory.defined_by_files:
        apply_command = command_line(_with_folder("apply", folder), factory)
        print_line(f"After the first apply, only files can change its definitions: {apply_command}")


def _consent_command(folder: str, factory: str) -> str:
    return command_line(f"{_with_folder('apply', folder)} --allow-deletions", factory)


def _with_folder(command: str, folder: str) -> str:
    return f"{command} {shlex.quote(folder)}"


@contextmanager
def _open_session(factory: str) -> Iterator[FactorySession]:
    try:
        with factory_session(factory) as session:
            yield session
    except typer.Exit as exit_error:
        if exit_error.exit_code == EXIT_CHANGES:
            # Unusable settings end with 2, which would mean changes here.
            raise typer.Exit(EXIT_FAILED) from None
        raise


def _permission(session: FactorySession, factory: str) -> MayManage:
    from hookmill.domain.permission import Channel

    return session.management.access.operator(factory, channel=Channel.FILES)


@contextmanager
def _report_problems(json: bool, closing: str = " Nothing was changed.") -> Iterator[None]:
    """If the definitions have problems, print them, and end the command. `closing` follows the number of problems."""
    from hookmill.definitions import UnusableDefinitions

    try:
        yield
    except UnusableDefinitions as error:
        _print_problems(error, json, closing)
        raise typer.Exit(EXIT_FAILED) from None


def _print_problems(error: UnusableDefinitions, json: bool, closing: str) -> None:
    if json:
        print_json({"problems": [problem.as_json() for problem in error.problems]})
        return
    for problem in error.problems:
        print_error(shown(str(problem)))
    print_error(f"{count(len(error.problems), 'problem')}.{closing}")


def _filter_warnings(session: FactorySession, may: MayManage, desired: Definitions) -> list[Problem]:
    """Warnings about filters that match no stored delivery. Reading the bodies may take long."""
    from hookmill import definitions

    warnings = []
    with row_counter("filter", prints_rows_to_terminal=False) as advance:
        for warning in definitions.backtest(session.management, may, desired):
            advance(1)
            if warning is not None:
                warnings.append(warning)
    return warnings


def _print_plan(
    session: FactorySession,
    factory: str,
    factory_plan: Plan,
    webhooks: Sequence[Webhook],
    warnings: Sequence[Problem],
    json: bool,
    *,
    is_applied: bool,
) -> None:
    if json:
        webhook_fields = [
            {"name": webhook.name, "uid": webhook.uid, "url": session.management.webhooks.url(webhook)}
            for webhook in webhooks
        ]
        plan_fields: dict[str, Any] = factory_plan.as_json() | {
            "warnings": [warning.as_json() for warning in sorted(warnings)]
        }
        print_json(
            {"factory": factory, "applied": is_applied} | plan_fields | {"problems": [], "webhooks": webhook_fields}
        )
        return
    from hookmill.definitions import lines_of_plan, summary_of

    _print_diff(lines_of_plan(factory_plan))
    print_line(summary_of(factory_plan))
    if factory_plan.files_take_over:
        when = "From now on" if is_applied else "After the apply"
        print_line(f"{when}, only files can change the definitions of factory {shown(factory)}.")
    if webhooks:
        print_line()
        print_table(
            [Column("WEBHOOK"), Column("UID", no_wrap=True), Column("URL", no_wrap=True, moves_below_if_narrow=True)],
            [(webhook.name, webhook.uid, session.management.webhooks.url(webhook)) for webhook in webhooks],
        )
    _print_warnings(sorted(warnings))


def _print_warnings(warnings: Sequence[Problem]) -> None:
    for warning in warnings:
        print_error(shown(f"Warning: {warning}"))


_STYLES_BY_SIGN = {"+": "green", "~": "yellow", "-": "red"}


def _print_diff(lines: Iterator[str]) -> None:
    if not on_terminal():
        for plan_line in lines:
            print_line(shown(plan_line))
        return
    from rich.text import Text

    console = new_console(soft_wrap=True)
    for plan_line in lines:
        console.print(Text(shown(plan_line), style=_STYLES_BY_SIGN.get(plan_line.lstrip()[:1], "")))
