"""`hookmill plan`, `apply`, `validate` and `export`: webhooks and automations as files in git.

Exit codes, for scripts: 0 for success, 1 for failure. `plan`, and `apply` with `--detailed-exitcode`, end with 2 if
there are changes. So wrong usage ends with 1, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeAlias

import typer
from typer.core import TyperCommand

from hookmill.cli import options
from hookmill.cli.connection import connected
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
from hookmill.client.requests import ApiProblem
from hookmill.domain.text import shown

if TYPE_CHECKING:
    from hookmill.client import Client
    from hookmill.client.types import DefinitionPlanJson

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
        help="Also refuse what other implementations of the contract don't have: event types, names of webhooks, "
        "run policies, run options except secrets, timezone and catch_up of schedules, and operators other than in, "
        "not_in and exists.",
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
    warnings = [warning.as_json() for warning in validated_definitions.warnings]
    if json:
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
    _print_warnings(warnings)


def plan(
    folder: Folder,
    allow_deletions: AllowDeletions = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Show what `apply` would change. Changes nothing. The exit code is 2 if there are changes."""
    with _connected(json) as client:
        planned = client.plan_definitions(factory, files=_texts_in(folder))
    _print_plan(planned, json)
    if planned["needs_consent"] is not None and not allow_deletions:
        print_error(f"{planned['needs_consent']}\nTo allow this: {_consent_command(folder, factory)}")
        raise typer.Exit(EXIT_FAILED)
    if planned["changes"]:
        raise typer.Exit(EXIT_CHANGES)


def apply(
    folder: Folder,
    allow_deletions: AllowDeletions = False,
    detailed_exitcode: DetailedExitCode = False,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Change a factory to match definition files, all or nothing."""
    with _connected(json) as client:
        try:
            applied = client.apply_definitions(factory, files=_texts_in(folder), allow_deletions=allow_deletions)
        except ApiProblem as error:
            if error.code != "consent_required":
                raise
            print_error(f"{error}\nNothing was changed. To allow this: {_consent_command(folder, factory)}")
            raise typer.Exit(EXIT_FAILED) from None
    _print_plan(applied, json)
    if detailed_exitcode and applied["changes"]:
        raise typer.Exit(EXIT_CHANGES)


def export(folder: Folder, factory: options.FactoryName = "default", json: options.AsJson = False) -> None:
    """Write a factory as definition files. Applying them changes no webhook and no automation."""
    from hookmill import definitions

    with _connected(json, closing=" Nothing was written.") as client:
        exported = client.export_definitions(factory)
    files = exported["files"]
    definitions.write(Path(folder), files)
    if json:
        print_json({"folder": folder, "files": sorted(files)})
        return
    print_line(f"Wrote {count(len(files), 'file')} to {shown(folder)}, with names of secrets, but no values.")
    if not exported["defined_by_files"]:
        apply_command = command_line(_with_folder("apply", folder), factory)
        print_line(f"After the first apply, only files can change its definitions: {apply_command}")


def _texts_in(folder: str) -> dict[str, str]:
    """The texts of the definition files by path. Raises `UnusableDefinitions` if they can't be sent."""
    from hookmill import definitions

    files = definitions.read_folder(Path(folder))
    contents = {**files.webhook_contents, **files.automation_contents}
    if files.problems or any(b"\0" in content or not _is_utf_8(content) for content in contents.values()):
        definitions.require_usable(files)
    return {path: content.decode() for path, content in contents.items()} | files.marks


def _is_utf_8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _consent_command(folder: str, factory: str) -> str:
    return command_line(f"{_with_folder('apply', folder)} --allow-deletions", factory)


def _with_folder(command: str, folder: str) -> str:
    return f"{command} {shlex.quote(folder)}"


@contextmanager
def _connected(json: bool, closing: str = " Nothing was changed.") -> Iterator[Client]:
    """A client of the API. Problems of the files are printed, and end the command."""
    with _report_problems(json, closing):
        try:
            with connected() as client:
                yield client
        except typer.Exit as exit_error:
            if exit_error.exit_code == EXIT_CHANGES:
                # Unusable settings end with 2, which would mean changes here.
                raise typer.Exit(EXIT_FAILED) from None
            raise


@contextmanager
def _report_problems(json: bool, closing: str) -> Iterator[None]:
    """If the definitions have problems, print them, and end the command. `closing` follows the number of problems."""
    from hookmill.definitions import UnusableDefinitions

    try:
        yield
    except UnusableDefinitions as error:
        _print_problems([problem.as_json() for problem in error.problems], json, closing)
    except ApiProblem as error:
        if not any("file" in problem for problem in error.errors):
            raise
        _print_problems([{**problem, "message": problem["detail"]} for problem in error.errors], json, closing)


def _print_problems(problems: Sequence[Mapping[str, Any]], json: bool, closing: str) -> NoReturn:
    if json:
        print_json({"problems": [{key: each.get(key) for key in _PROBLEM_FIELDS} for each in problems]})
    else:
        for problem in problems:
            print_error(shown(_text_of(problem)))
        print_error(f"{count(len(problems), 'problem')}.{closing}")
    raise typer.Exit(EXIT_FAILED)


_PROBLEM_FIELDS: Final = ("file", "line", "column", "message")


def _text_of(problem: Mapping[str, Any]) -> str:
    """The problem as compilers write it, for editors."""
    if problem.get("line") is None:
        return str(problem["message"])
    return f"{problem['file']}:{problem['line']}:{problem['column']}: {problem['message']}"


def _print_plan(planned: DefinitionPlanJson, json: bool) -> None:
    if json:
        print_json({**planned, "problems": []})
        return
    _print_diff(planned["lines"])
    print_line(planned["summary"])
    if planned["takes_over"]:
        when = "From now on" if planned["applied"] else "After the apply"
        print_line(f"{when}, only files can change the definitions of factory {shown(planned['factory'])}.")
    if planned["webhooks"]:
        print_line()
        print_table(
            [Column("WEBHOOK"), Column("UID", no_wrap=True), Column("URL", no_wrap=True, moves_below_if_narrow=True)],
            [(webhook["name"], webhook["uid"], webhook["url"]) for webhook in planned["webhooks"]],
        )
    _print_warnings(planned["warnings"])


def _print_warnings(warnings: Iterable[Mapping[str, Any]]) -> None:
    for warning in warnings:
        print_error(shown(f"Warning: {_text_of(warning)}"))


_STYLES_BY_SIGN = {"+": "green", "~": "yellow", "-": "red"}


def _print_diff(lines: Sequence[str]) -> None:
    if not on_terminal():
        for plan_line in lines:
            print_line(shown(plan_line))
        return
    from rich.text import Text

    console = new_console(soft_wrap=True)
    for plan_line in lines:
        console.print(Text(shown(plan_line), style=_STYLES_BY_SIGN.get(plan_line.lstrip()[:1], "")))
