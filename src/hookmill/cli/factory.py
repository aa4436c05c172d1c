"""`hookmill factory`: what owns webhooks and automations."""

from __future__ import annotations

from typing import Annotated

import typer

from hookmill.cli import options
from hookmill.cli.output import Column, as_json, call, line, table
from hookmill.cli.session import team_session
from hookmill.domain.text import shown
from hookmill.presentation.factory import FactoryView

commands = typer.Typer(no_args_is_help=True, help="Factories: what owns webhooks and automations.")


@commands.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called, in the team.", show_default=False)],
    json: options.AsJson = False,
) -> None:
    """Create a factory. It has nothing in it yet."""
    with team_session() as here:
        factory = here.management.factories.create(here.may, name)
    if json:
        as_json(FactoryView.of(factory))
        return
    line(f"Factory {shown(factory.name)} is ready. Its first webhook: {call('webhook create NAME', factory.name)}")


@commands.command("list")
def list_factories(json: options.AsJson = False) -> None:
    """List the team's factories, and whether files define them."""
    with team_session() as here:
        found = here.management.factories.all(here.may)
    if json:
        as_json({"factories": [FactoryView.of(factory) for factory in found]})
        return
    table(
        [Column("NAME"), Column("DEFINED BY", whole=True)],
        [(factory.name, "files" if factory.defined_by_files else "hand") for factory in found],
    )
