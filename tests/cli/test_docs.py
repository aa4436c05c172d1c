"""`docs/cli.md` describes all commands and options."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from hookmill import presentation
from hookmill.cli import app
from hookmill.presentation.view import View

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "cli.md").read_text()
COMMON_OPTIONS = {"--help", "--factory", "--json", "--yes", "--install-completion", "--show-completion", "--version"}


def commands(command: Any, path: tuple[str, ...] = ("hookmill",)) -> Iterator[tuple[str, Any]]:
    """The full name of each command that is no group, and the command."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


COMMANDS = dict(commands(typer.main.get_command(app)))


def test_page_names_every_command():
    assert len(COMMANDS) > 20
    assert [name for name in COMMANDS if f"`{name}" not in PAGE] == []


def test_section_of_each_command_names_its_options():
    missing = []
    for name, command in COMMANDS.items():
        section = next(part for part in re.split(r"\n## ", PAGE) if f"`{name}" in part)
        options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        missing += [f"{name} {option}" for option in sorted(options - COMMON_OPTIONS) if option not in section]

    assert missing == []


def test_page_names_only_existing_commands():
    names = set(re.findall(r"`(hookmill(?: [a-z]+)+)", PAGE))

    assert names <= set(COMMANDS)


def views(view: type[View] = View) -> Iterator[type[View]]:
    """All subclasses of the view that define JSON of resources."""
    for subclass in view.__subclasses__():
        yield from views(subclass)
        if subclass.__module__.startswith(presentation.__name__):
            yield subclass


def test_pages_name_every_field_of_resources_in_json():
    for module in pkgutil.iter_modules(presentation.__path__, f"{presentation.__name__}."):
        importlib.import_module(module.name)
    pages = "".join(page.read_text() for page in DOCS.glob("*.md"))

    fields = {f"{view.__name__}.{field}": field for view in views() for field in view.__struct_fields__}

    assert [name for name, field in fields.items() if f"`{field}`" not in pages] == []
