"""All commands, by name. The module of a command is loaded when the command is used."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator, MutableMapping
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from hookmill.cli import contexts
from hookmill.cli.connection import SERVER_VARIABLE, variable

_COMMANDS: Final = {
    "serve": "service.serve",
    "worker": "service.worker",
    "migrate": "service.migrate",
    "move": "move.move",
    "backup": "backup.backup",
    "restore": "backup.restore",
    "verify": "verify.verify",
    "doctor": "doctor.doctor",
    "mcp": "mcp.mcp",
    "webhook": "webhook.commands",
    "automation": "automation.commands",
    "delivery": "delivery.commands",
    "run": "run.commands",
    "filter": "filters.commands",
    "scheme": "scheme.commands",
    "secret": "secret.commands",
    "factory": "factory.commands",
    "member": "member.commands",
    "key": "key.commands",
    "keys": "keys.commands",
    "alarm": "alarm.commands",
    "audit": "audit.commands",
    "send": "send.send",
    "validate": "definitions.validate",
    "plan": "definitions.plan",
    "apply": "definitions.apply",
    "export": "definitions.export",
    "login": "context.login",
    "context": "context.commands",
}
"""The module and the name in it, by the command's name."""
EXIT_ONE_COMMANDS: Final = frozenset({"validate", "plan", "apply", "export"})
"""They end with 1 for wrong usage: 2 would mean changes."""
CLIENT_COMMANDS: Final = frozenset(
    {"webhook", "delivery", "secret", "factory", "member", "key", "alarm", "audit", "plan", "apply", "export"}
)
"""They use the API, so they can use the service of another host."""
_COMMANDS_WITHOUT_SERVICE: Final = frozenset({"scheme", "validate", "login", "context", "mcp"})
_FILE_COMMANDS: Final = frozenset(
    {"serve", "worker", "migrate", "move", "backup", "restore", "verify", "doctor", "keys"}
)
"""They work with the files of this host, and take no notice of contexts."""
_PREFIX = "Value error, "
"""typer validates arguments with pydantic, which begins its messages with this."""


def require_usable(name: str) -> None:
    """Raise a usage error if the command can't use the selected server."""
    if name in CLIENT_COMMANDS | _COMMANDS_WITHOUT_SERVICE:
        return
    if variable(SERVER_VARIABLE) is not None:
        way = f"without --server and {SERVER_VARIABLE}"
    elif name not in _FILE_COMMANDS and contexts.current() is not None:
        way = f"after `hookmill context use {contexts.LOCAL}`"
    else:
        return
    raise typer.BadParameter(f"`hookmill {name}` works on the host of the service only. Run it there, {way}.")


class RootGroup(TyperGroup):
    """The group that contains all commands. It corrects messages about wrong usage."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _LazyCommands()

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except typer.BadParameter as error:
            error.message = error.message.removeprefix(_PREFIX)
            raise
        except BrokenPipeError:
            if not _reader_has_gone():
                raise
            # The reader, such as `head`, has all that it wants. What is still buffered goes to /dev/null at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit from None


class _LazyCommands(MutableMapping[str, Any]):
    """The commands by name. Each is loaded when it is looked up."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load(name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in _COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


def _load(name: str) -> Any:
    """The click command. Raises `KeyError` for an unknown name."""
    module_name, attribute = _COMMANDS[name].split(".")
    module = import_module(f"hookmill.cli.{module_name}")
    command = getattr(module, attribute)
    parent = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    if isinstance(command, typer.Typer):
        parent.add_typer(command, name=name)
    else:
        parent.command(name, cls=module.UsageErrorExitsWithOne if name in EXIT_ONE_COMMANDS else None)(command)
    # With a callback, typer keeps the group around a single command.
    parent.callback()(lambda: None)
    return typer.main.get_group(parent).commands[name]


class _PlainValue:
    """Stands for typer's conversion of a value that needs none."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        return value


def _use_texts_and_flags_as_they_are() -> None:
    """Replace typer's conversion of texts and flags.

    It converts all values with pydantic, even those of `--help`, and importing pydantic takes longer than a command.
    """
    for parameter_class in (TyperArgument, TyperOption):
        convert = parameter_class.get_runtime_param

        def choose(parameter: Any, convert: Callable[[Any], Any] = convert) -> Any:
            is_plain = parameter.type_descriptor.annotation in (str, bool)
            if is_plain and parameter.nargs == 1 and not parameter.multiple:
                return _PlainValue()
            return convert(parameter)

        parameter_class.get_runtime_param = choose  # type: ignore[assignment, method-assign]


_use_texts_and_flags_as_they_are()


def _reader_has_gone() -> bool:
    """Whether standard output is a pipe that nobody reads."""
    poll = select.poll()
    poll.register(sys.stdout, select.POLLOUT)
    return any(event & select.POLLERR for _, event in poll.poll(0))
