"""The page about the command line names everything that there is."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from hookmill.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
EXPLAINED_FOR_ALL = {"--help", "--factory", "--json", "--yes", "--install-completion", "--show-completion", "--version"}


def commands(command: Any, path: tuple[str, ...] = ("hookmill",)) -> Iterator[tuple[str, Any]]:
    """Every command that does something, under its full name."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


ALL = dict(commands(typer.main.get_command(app)))


def test_every_command_is_on_the_page():
    assert len(ALL) > 20
    assert [name for name in ALL if f"`{name}" not in PAGE] == []


def test_every_option_is_in_its_commands_section():
    missing = []
    for name, command in ALL.items():
        section = next(part for part in re.split(r"\n## ", PAGE) if f"`{name}" in part)
        options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        missing += [f"{name} {option}" for option in sorted(options - EXPLAINED_FOR_ALL) if option not in section]

    assert missing == []


def test_the_page_names_no_command_that_is_not_there():
    named = set(re.findall(r"`(hookmill(?: [a-z]+)+)", PAGE))

    assert named <= set(ALL)
