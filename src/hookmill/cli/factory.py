"""`hookmill factory`: factories, which own webhooks and automations."""

from __future__ import annotations

from typing import Annotated

import typer

from hookmill.cli import inputs, options
from hookmill.cli.connection import connected
from hookmill.cli.output import Column, command_line, print_json, print_line, print_table
from hookmill.domain.text import shown

commands = typer.Typer(no_args_is_help=True, help="Factories, which own webhooks and automations.")


@commands.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name, unique in the team.", show_default=False)],
    json: options.AsJson = False,
) -> None:
    """Create an empty factory."""
    with connected() as client:
        factory = client.create_factory(name=name)
    if json:
        print_json(factory)
        return
    create_command = command_line("webhook create NAME", factory["name"])
    print_line(f"Factory {shown(factory['name'])} is ready. Its first webhook: {create_command}")


@commands.command("list")
def list_factories(json: options.AsJson = False) -> None:
    """List the team's factories, and whether files define them."""
    with connected() as client:
        factories = list(client.list_factories())
    if json:
        print_json({"items": factories})
        return
    print_table(
        [Column("NAME"), Column("DEFINED BY", no_wrap=True), Column("MAX RUNNING", no_wrap=True)],
        [
            (
                factory["name"],
                "files" if factory["defined_by_files"] else "hand",
                str(factory["max_running"]) if factory["max_running"] is not None else "no limit",
            )
            for factory in factories
        ],
    )


@commands.command()
def change(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The factory's name.", show_default=False)],
    max_running: Annotated[
        int | None,
        typer.Option(metavar="N", help="Workers perform at most N of its runs at the same time."),
    ] = None,
    no_max_running: Annotated[bool, typer.Option("--no-max-running", help="Remove that limit.")] = False,
    json: options.AsJson = False,
) -> None:
    """Limit how many of a factory's runs are performed together."""
    inputs.require_exactly_one(max_running=max_running, no_max_running=no_max_running)
    with connected() as client:
        factory = client.change_factory(name, max_running=max_running)
    if json:
        print_json(factory)
        return
    limit = f"at most {max_running:,} runs" if max_running is not None else "any number of runs"
    print_line(f"Workers perform {limit} of factory {shown(factory['name'])} at the same time.")
