"""`hookmill login` and `hookmill context`: the servers that commands use, and their API keys."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

import typer

from hookmill.cli import contexts, inputs, options
from hookmill.cli.connection import KEY_VARIABLE, SERVER_VARIABLE, variable
from hookmill.cli.output import Column, print_error, print_json, print_line, print_table
from hookmill.client import Client
from hookmill.domain.text import shown, trimmed_text

commands = typer.Typer(no_args_is_help=True, help="The servers that commands use, and their API keys.")

ContextName = Annotated[str, typer.Argument(metavar="NAME", help="The context's name.", show_default=False)]


def login(
    server: Annotated[
        str, typer.Argument(metavar="URL", help="Such as https://hookmill.example.com.", show_default=False)
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="The context's name. The default is the server's host.")
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Let commands use the service at a URL. Asks for an API key, or reads it from standard input."""
    from hookmill.client.http import usable_server

    url = usable_server(server)
    parts = urlsplit(url)
    context_name = name or (parts.netloc if parts.netloc != contexts.LOCAL else f"{parts.netloc}-server")
    if context_name == contexts.LOCAL:
        raise typer.BadParameter(f"the name {contexts.LOCAL} is reserved for the service on this host")
    key = trimmed_text(inputs.read_secret("API key"))
    if not key.isascii() or not key.isprintable() or not key:
        raise typer.BadParameter("an API key begins with hmk_, and is printed by `hookmill key create`")
    with Client.of_server(url, key) as client:
        me = client.show_me()
    contexts.add(contexts.Context(context_name, url, key))
    if json:
        print_json({"context": context_name, "server": url, "key": me})
        return
    roles = "admin" if me["is_admin"] else ", ".join(f"{role['role']} in {role['name']}" for role in me["factories"])
    print_line(f"Commands now use {url} with the API key {shown(me['name'])} ({shown(roles)}).")
    print_line(f"To use the service on this host again: hookmill context use {contexts.LOCAL}")
    if variable(SERVER_VARIABLE) is not None:
        print_error(f"Warning: {SERVER_VARIABLE} is set, and takes precedence over the context.")
    elif variable(KEY_VARIABLE) is not None:
        print_error(f"Note: {KEY_VARIABLE} has no effect without {SERVER_VARIABLE}.")


@commands.command("list")
def list_contexts(json: options.AsJson = False) -> None:
    """List the contexts. Commands use the current one."""
    current = contexts.current()
    current_name = current.name if current is not None else contexts.LOCAL
    rows = [(contexts.LOCAL, None), *((context.name, context.server) for context in contexts.all_contexts())]
    if json:
        print_json(
            {"items": [{"name": name, "server": server, "current": name == current_name} for name, server in rows]}
        )
        return
    print_table(
        [Column("CURRENT", no_wrap=True), Column("NAME", no_wrap=True), Column("SERVER")],
        [("*" if name == current_name else "", name, server or "the service on this host") for name, server in rows],
    )


@commands.command()
def use(name: ContextName, json: options.AsJson = False) -> None:
    """Let commands use another context; local is the service on this host."""
    contexts.use(name)
    if json:
        print_json({"name": name, "current": True})
        return
    print_line(f"Commands now use the context {shown(name)}.")


@commands.command()
def remove(name: ContextName, json: options.AsJson = False) -> None:
    """Remove a context and its API key from this machine. The key stays valid."""
    contexts.remove(name)
    if json:
        print_json({"name": name, "removed": True})
        return
    print_line(f"The context {shown(name)} is removed. To end its key's access: hookmill key revoke KEY")
