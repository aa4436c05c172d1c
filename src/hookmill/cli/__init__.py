"""The command line. Its commands call the same operations as the API."""

import functools
import gc
import os
import re
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer

from hookmill import __version__
from hookmill.cli.commands import CLIENT_COMMANDS, EXIT_ONE_COMMANDS, RootGroup, require_usable
from hookmill.cli.connection import SERVER_VARIABLE
from hookmill.cli.output import print_error, print_line
from hookmill.cli.standard_streams import open_missing_streams
from hookmill.domain.errors import DiskFull, HookmillError, Invalid, StoreUnavailable
from hookmill.domain.text import shown

EXIT_FAILED = 1
EXIT_WRONG_USAGE = 2
POINTERS_TO_SETTINGS: Final = ("/runner", "/workspace/repository", "/results/")
"""The values that name something in the settings."""

app = typer.Typer(
    name="hookmill",
    cls=RootGroup,
    help="A self-hosted webhook receiver: webhooks in, runs out.",
    no_args_is_help=True,
    # Plain help: rich frames take twice as long to print, and are noise in a pipe.
    rich_markup_mode=None,
    # An unexpected error prints a plain traceback: local variables may hold secrets.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        from hookmill.build import build_id

        print_line(f"hookmill {__version__} (build {build_id()})")
        raise typer.Exit


@app.callback()
def _hookmill(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Use the service at this URL, with the API key in HOOKMILL_API_KEY or of `login`."
        ),
    ] = None,
) -> None:
    if server is not None:
        # The settings of `serve` that are options are passed in the same way.
        os.environ[SERVER_VARIABLE] = server
    if context.invoked_subcommand not in CLIENT_COMMANDS:
        gc.enable()
    if context.invoked_subcommand is not None:
        require_usable(context.invoked_subcommand)


@functools.cache
def _build_command() -> Callable[..., object]:
    """The click command that contains all commands, which it loads when they are used."""
    return typer.main.get_command(app)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and end the process: exit code 0 for success, 1 for failure, 2 for wrong usage."""
    open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Print characters that the terminal can't show as escapes, instead of raising an error.
            stream.reconfigure(errors="backslashreplace")
    command_arguments = sys.argv[1:] if arguments is None else arguments
    _refuse_invalid_utf8(command_arguments)
    try:
        _build_command()(command_arguments, prog_name="hookmill")
    except DiskFull as error:
        print_error(str(error))
    except StoreUnavailable as error:
        is_missing = re.search(r'database ".*" does not exist$', str(error)) is not None
        advice = (
            "Create it, or correct database_url."
            if is_missing
            else "Check that it runs, that its disk has free space, and that the settings are right."
        )
        print_error(f"The database can't be used now: {error}\n{advice}")
    except HookmillError as error:
        print_error(str(error) + _note_without_settings_file(error))
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not _working_directory_exists():
            print_error("The working directory of this command was deleted. Change to another directory.")
            sys.exit(EXIT_FAILED)
        file_name = f": {shown(str(error.filename))}" if error.filename is not None else ""
        print_error(f"The operating system reported an error: {error.strerror or error}{file_name}.")
    sys.exit(EXIT_FAILED)


def _working_directory_exists() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _note_without_settings_file(error: HookmillError) -> str:
    """A note if the error may only mean that this command, unlike the service, read no settings file; else nothing."""
    from hookmill.settings import CONFIG_FILE, settings_file_exists

    names_settings = isinstance(error, Invalid) and any(
        fault.pointer.startswith(POINTERS_TO_SETTINGS) for fault in error.faults
    )
    if not names_settings or settings_file_exists():
        return ""
    return (
        f"\nThis command read no settings file, because there is no {CONFIG_FILE} in {shown(str(Path.cwd()))}. If the "
        "service has one, start the command in the service's directory, or set HOOKMILL_CONFIG to the file."
    )


def _refuse_invalid_utf8(arguments: Sequence[str]) -> None:
    """End the process if an argument is not UTF-8. No database, request or JSON can hold such text.

    Python represents the invalid bytes as lone surrogates.
    """
    for argument in arguments:
        if any("\ud800" <= character <= "\udfff" for character in argument):
            print_error(f"An argument is not UTF-8: '{shown(argument[:100])}'.")
            sys.exit(EXIT_FAILED if arguments[0] in EXIT_ONE_COMMANDS else EXIT_WRONG_USAGE)
