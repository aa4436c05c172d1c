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
from hookmill.cli.output import Column, as_json, call, complain, count, line, on_terminal, table
from hookmill.cli.progress import counting
from hookmill.cli.session import session
from hookmill.domain.text import shown

if TYPE_CHECKING:
    from hookmill.cli.session import Session
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
        app.command(cls=_EndsWithOne)(command)


class _EndsWithOne(TyperCommand):
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
    with _problems_told(json, so=""):
        found = definitions.validated(Path(folder), contract_only=contract_only)
    if json:
        counts = {"webhook_count": len(found.webhooks), "automation_count": len(found.automations)}
        as_json(counts | {"problems": []})
        return
    what = f"{count(len(found.webhooks), 'webhook')} and {count(len(found.automations), 'automation')}"
    line(f"{shown(folder)} has {what}, and no problem that can be seen without the factory.")


def plan(
    folder: Folder,
    allow_deletions: AllowDeletions = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Say what applying definition files would change. Nothing is changed. Ends with 2 when there are changes."""
    from hookmill import definitions

    with _session(factory) as here, _problems_told(json):
        may = _permission(here, factory)
        wanted = definitions.definitions_for(here.management, may, Path(folder))
        planned = definitions.plan(here.management, may, wanted)
        webhooks = here.management.webhooks.all(may)
        warnings = [*planned.warnings, *_tried(here, may, wanted)]
        _print(here, factory, planned, webhooks, warnings, json, applied=False)
    if planned.needs_consent is not None and not allow_deletions:
        complain(f"{planned.needs_consent}\nTo agree to that: {_agreeing(folder, factory)}")
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

    with _session(factory) as here, _problems_told(json):
        may = _permission(here, factory)
        wanted = definitions.definitions_for(here.management, may, Path(folder))
        try:
            applied = definitions.apply(here.management, may, wanted, may_delete=allow_deletions)
        except definitions.ConsentNeeded as error:
            complain(f"{error}\nNothing was changed. To agree to that: {_agreeing(folder, factory)}")
            raise typer.Exit(FAILED) from None
        warnings = [*applied.plan.warnings, *_tried(here, may, wanted)]
        _print(here, factory, applied.plan, applied.webhooks, warnings, json, applied=True)
    if applied.plan.has_changes:
        raise typer.Exit(CHANGES)


def export(folder: Folder, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Write a factory as definition files. Applied, they change no webhook and no automation."""
    from hookmill import definitions

    with _session(factory) as here, _problems_told(json, so=" Nothing was written."):
        may = _permission(here, factory)
        files = definitions.export(here.management, may)
    definitions.write(Path(folder), files)
    if json:
        as_json({"folder": folder, "files": sorted(files)})
        return
    line(f"{count(len(files), 'file')} written to {shown(folder)}. No secret is in them: they name team secrets.")
    if not may.factory.defined_by_files:
        line(f"From the first apply on, the factory changes through them alone: {call(_of('apply', folder), factory)}")


def _agreeing(folder: str, factory: str) -> str:
    return call(f"{_of('apply', folder)} --allow-deletions", factory)


def _of(command: str, folder: str) -> str:
    return f"{command} {shlex.quote(folder)}"


@contextmanager
def _session(factory: str) -> Iterator[Session]:
    try:
        with session(factory) as here:
            yield here
    except typer.Exit as ended:
        if ended.exit_code == CHANGES:
            # Settings that can't be used must not look like changes.
            raise typer.Exit(FAILED) from None
        raise


def _permission(here: Session, factory: str) -> MayManage:
    from hookmill.domain.permission import Channel

    return here.management.access.operator(factory, channel=Channel.FILES)


@contextmanager
def _problems_told(json: bool, so: str = " Nothing was changed.") -> Iterator[None]:
    from hookmill.definitions import UnusableDefinitions

    try:
        yield
    except UnusableDefinitions as error:
        _tell(error, json, so)
        raise typer.Exit(FAILED) from None


def _tell(error: UnusableDefinitions, json: bool, so: str) -> None:
    if json:
        as_json({"problems": [problem.as_json() for problem in error.problems]})
        return
    for problem in error.problems:
        complain(shown(str(problem)))
    complain(f"{count(len(error.problems), 'problem')}.{so}")


def _tried(here: Session, may: MayManage, wanted: Definitions) -> list[Problem]:
    """What the filters make of stored deliveries. Their bodies are read for it, which may take its time."""
    from hookmill import definitions

    warnings = []
    with counting("filter", beside_the_rows=False) as advance:
        for warning in definitions.backtest(here.management, may, wanted):
            advance(1)
            if warning is not None:
                warnings.append(warning)
    return warnings


def _print(
    here: Session,
    factory: str,
    planned: Plan,
    webhooks: Sequence[Webhook],
    warnings: Sequence[Problem],
    json: bool,
    *,
    applied: bool,
) -> None:
    if json:
        listed = [{"name": one.name, "uid": one.uid, "url": here.management.webhooks.url(one)} for one in webhooks]
        told: dict[str, Any] = planned.as_json() | {"warnings": [warning.as_json() for warning in sorted(warnings)]}
        as_json({"factory": factory, "applied": applied} | told | {"problems": [], "webhooks": listed})
        return
    from hookmill.definitions import lines_of_plan, summary_of

    _print_diff(lines_of_plan(planned))
    line(summary_of(planned))
    if planned.takes_over:
        when = "From now on" if applied else "Once applied"
        line(f"{when}, factory {shown(factory)} changes through its files alone.")
    if webhooks:
        line()
        table(
            [Column("WEBHOOK"), Column("UID", whole=True), Column("URL", whole=True, stacked=True)],
            [(one.name, one.uid, here.management.webhooks.url(one)) for one in webhooks],
        )
    for warning in sorted(warnings):
        complain(shown(f"Warning: {warning}"))


_STYLES = {"+": "green", "~": "yellow", "-": "red"}


def _print_diff(lines: Iterator[str]) -> None:
    if not on_terminal():
        for each in lines:
            line(shown(each))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=True)
    for each in lines:
        console.print(Text(shown(each), style=_STYLES.get(each.lstrip()[:1], "")))
