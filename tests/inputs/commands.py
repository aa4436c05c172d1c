"""The inputs of all commands, and a function that runs a command in the test's process."""

import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
import typer

from hookmill import cli
from tests.inputs.requests import UNIQUE_NAME

ENDLESS_COMMANDS: Final = {"serve", "worker"}
"""They run until they are stopped. Their options are settings, which are validated like environment variables."""
OUTPUT_PATHS: Final = {("export", "folder"), ("delivery payload", "--output"), ("delivery export", "--output")} | {
    ("run export", "--output"),
    ("backup", "file"),
}
"""The inputs that name a path to write to."""
EXCLUSIVE_INPUTS: Final = (
    {"--prompt", "--prompt-file"},
    {"--filter", "--filter-file", "--triggers-file", "--automation"},
    {"--webhook", "--triggers-file"},
    {"--delivery", "--body"},
    {"--to", "--url-from-stdin"},
    {"--body", "--data"},
    {"identifier", "--automation"},
    {"identifier", "--webhook"},
    {"identifier", "--state"},
    {"--hours", "--until"},
    {"--workspace-ref", "--workspace-ref-from"},
    {"--workspace-base", "--workspace-base-from"},
)
UNKNOWN_ALARM: Final = "alm_" + "0" * 32
BASE_INPUTS: Final[Mapping[str, Mapping[str, str]]] = {
    "alarm destination add": {"kind": "slack", "--url-from-stdin": "{flag}"},
    "alarm destination list": {},
    "alarm destination remove": {"destination": "gone"},
    "alarm destination test": {"destination": "gone"},
    "alarm list": {},
    "alarm show": {"alarm": UNKNOWN_ALARM},
    "alarm snooze": {"alarm": UNKNOWN_ALARM, "--hours": "1"},
    "alarm wake": {"alarm": UNKNOWN_ALARM},
    "apply": {"folder": "nothing"},
    "audit list": {},
    "automation change": {"name_or_id": "{automation}", "--prompt": "Look."},
    "automation create": {"name": UNIQUE_NAME, "--prompt": "Look.", "--webhook": "{webhook}"},
    "automation delete": {"name_or_id": "gone"},
    "automation disable": {"name_or_id": "{automation}"},
    "automation enable": {"name_or_id": "{automation}"},
    "automation list": {},
    "automation run": {"name_or_id": "{automation}"},
    "automation show": {"name_or_id": "{automation}"},
    "backup": {"file": UNIQUE_NAME},
    "context list": {},
    "context remove": {"name": "gone"},
    "context use": {"name": "gone"},
    "delivery export": {},
    "delivery list": {},
    "delivery payload": {"identifier": "{delivery}"},
    "delivery replay": {"identifier": "{delivery}"},
    "delivery show": {"identifier": "{delivery}"},
    "doctor": {"--through": "http://127.0.0.1:1"},
    "export": {"folder": UNIQUE_NAME},
    "factory change": {"name": "default", "--max-running": "3"},
    "factory create": {"name": UNIQUE_NAME},
    "factory list": {},
    "filter backtest": {"--filter": "{}"},
    "filter test": {"--delivery": "{delivery}", "--filter": "{}"},
    "key create": {"name": UNIQUE_NAME, "--role": "viewer"},
    "key list": {},
    "key revoke": {"name_or_id": "gone"},
    "keys add": {},
    "keys rotate": {},
    "keys show": {},
    "mcp": {"--server": "http://127.0.0.1:1"},
    "login": {"server": "https://", "--name": UNIQUE_NAME},
    "member add": {"email": f"{UNIQUE_NAME}@example.com", "--name": "Ada"},
    "member admin": {"email_or_id": "ada@example.com", "state": "on"},
    "member link": {"email_or_id": "ada@example.com"},
    "member list": {},
    "member remove": {"email_or_id": "gone"},
    "member role": {"email_or_id": "ada@example.com", "role": "viewer"},
    "migrate": {},
    "move": {"--to": "postgresql://127.0.0.1:1/nothing"},
    "plan": {"folder": "nothing"},
    "restore": {"file": "nothing"},
    "run cancel": {"identifier": "{run}"},
    "run export": {},
    "run list": {},
    "run log": {"identifier": "{run}"},
    "run queue": {},
    "run show": {"identifier": "{run}"},
    "scheme list": {},
    "scheme show": {"name": "github"},
    "secret create": {"name": UNIQUE_NAME},
    "secret delete": {"name": "GONE"},
    "secret list": {},
    "secret replace": {"name": "SPARE"},
    "secret show": {"name": "SPARE"},
    "send": {"webhook": "{webhook}", "--data": "{}", "--url": "http://127.0.0.1:1"},
    "validate": {"folder": "nothing"},
    "verify": {},
    "webhook change": {"name_or_uid": "{webhook}", "--allowed-network": "0.0.0.0/0", "--expect-every": "1h"},
    "webhook create": {"name": UNIQUE_NAME},
    "webhook delete": {"name_or_uid": "gone"},
    "webhook disable": {"name_or_uid": "{webhook}"},
    "webhook enable": {"name_or_uid": "{webhook}"},
    "webhook list": {},
    "webhook rotate": {"name_or_uid": "{webhook}"},
    "webhook show": {"name_or_uid": "{webhook}"},
    "webhook sync": {"name_or_uid": "{webhook}"},
}
"""The arguments and options of each command. The tested input is added to them, or replaces one of them."""
FLAG: Final = "{flag}"
"""The value of an option that has none."""
ID_PLACEHOLDERS: Final = frozenset({"{webhook}", "{automation}", "{delivery}", "{run}"})
ADDITIONAL_INPUTS: Final[Mapping[tuple[str, str], Mapping[str, str]]] = {
    ("automation change", "--timezone"): {"--schedule": "nightly=@daily"},
    ("automation change", "--catch-up"): {"--schedule": "nightly=@daily"},
    ("automation create", "--timezone"): {"--schedule": "nightly=@daily"},
    ("automation create", "--catch-up"): {"--schedule": "nightly=@daily"},
    ("alarm destination add", "--include-factories"): {"--installation": FLAG},
    ("automation change", "--field-max"): {"--field": "pr=/n"},
    ("automation create", "--field-max"): {"--field": "pr=/n"},
    **{
        (f"automation {verb}", f"--workspace-{part}"): {"--workspace": "app"}
        for verb in ("change", "create")
        for part in ("ref", "ref-from", "base", "base-from", "depth")
    },
    ("send", "--scheme"): {"webhook": "signed"},
    ("send", "--clock-skew"): {"webhook": "signed"},
    ("send", "--signing-key"): {"webhook": "signed"},
    ("webhook create", "--scheme"): {"--mode": "signature"},
    ("webhook create", "--signature"): {"--mode": "signature", "--scheme": "hmac"},
}
"""The inputs that an option requires."""
FACTORY_COMMANDS: Final = {"alarm list", "audit list", "automation create", "key create", "webhook list"}
"""All commands share the option `--factory`. It is tested with these commands only."""
CONFIRMED_COMMANDS: Final = {"key revoke", "member remove", "run cancel", "secret delete", "webhook delete"}
"""The commands that ask for confirmation without `--yes`."""
STDIN_INPUTS: Final = (
    ("automation create", "--prompt-file"),
    ("automation create", "--filter-file"),
    ("automation create", "--triggers-file"),
    ("automation run", "--payload"),
    ("backup", "--with-key"),
    ("filter test", "--filter-file"),
    ("filter test", "--body"),
    ("move", "--to"),
    ("restore", "file"),
    ("alarm destination add", "--url-from-stdin"),
    ("secret create", "--from-stdin"),
    ("webhook create", "--secret-from-stdin"),
    ("send", "--body"),
)
"""The inputs that are read from standard input."""
STDIN_FLAGS: Final = {"--from-stdin", "--secret-from-stdin", "--url-from-stdin", "--with-key"}
"""Options without a value, with which a command reads standard input."""
LISTED_RESOURCES: Final = (
    "alarm",
    "webhook",
    "automation",
    "delivery",
    "run",
    "secret",
    "factory",
    "member",
    "key",
    "audit",
    "scheme",
)


@dataclass(frozen=True, slots=True)
class CommandInput:
    """An argument or option of a command, with its value on the command line or, if `from_stdin`, on standard input."""

    command: str
    name: str
    from_stdin: bool = False
    has_json: bool = False

    def arguments(self, value: str, ids: Mapping[str, str], number: int) -> list[str]:
        """The arguments of the command with this value. `number` makes names unique."""
        inputs = {**BASE_INPUTS[self.command], **ADDITIONAL_INPUTS.get((self.command, self.name), {})}
        inputs = {name: text.replace(UNIQUE_NAME, f"U{number}") for name, text in inputs.items()}
        inputs = {name: text.format(**ids) if text in ID_PLACEHOLDERS else text for name, text in inputs.items()}
        for group in EXCLUSIVE_INPUTS:
            if self.name in group:
                inputs = {name: text for name, text in inputs.items() if name not in group or name == self.name}
        is_flag = self.from_stdin and self.name in STDIN_FLAGS
        inputs[self.name] = FLAG if is_flag else "-" if self.from_stdin else value
        arguments = [*self.command.split()]
        for name, text in inputs.items():
            arguments += [name] if text == FLAG else [text] if name[0] != "-" else [name, text]
        arguments += ["--yes"] if self.command in CONFIRMED_COMMANDS else []
        # Different code prints text and JSON, so the tests alternate between them.
        return [*arguments, "--json"] if self.has_json and number % 2 else arguments

    def accepts(self, value: str) -> bool:
        """False if the command would write to this path, and the path may be outside the test's directory."""
        if self.from_stdin:
            return True
        return (self.command, self.name) not in OUTPUT_PATHS or (
            value not in {"", ".", "data"} and not set(value) & set("/\\")
        )


def command_inputs() -> Iterator[CommandInput]:
    """Every input of every command."""
    root = typer.main.get_command(cli.app)
    commands = dict(_commands(root, ""))
    assert set(commands) - ENDLESS_COMMANDS == set(BASE_INPUTS), "BASE_INPUTS has every command"
    for name, command in commands.items():
        if name in ENDLESS_COMMANDS:
            continue
        # With a wrong name, the tested argument would be an additional one, and each call only a usage error.
        assert BASE_INPUTS[name].keys() <= {option for parameter in command.params for option in parameter.opts}, name
        has_json = any("--json" in parameter.opts for parameter in command.params)
        for parameter in command.params:
            is_shared = "--factory" in parameter.opts and name not in FACTORY_COMMANDS
            if not getattr(parameter, "is_flag", False) and not is_shared:
                yield CommandInput(name, max(parameter.opts, key=len), has_json=has_json)
        for command_name, option in STDIN_INPUTS:
            if command_name == name:
                yield CommandInput(name, option, from_stdin=True, has_json=has_json)


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield path, command
        return
    for name, subcommand in subcommands.items():
        yield from _commands(subcommand, f"{path} {name}".strip())


@dataclass(frozen=True, slots=True)
class CommandOutput:
    exit_code: int
    out: bytes
    err: bytes


def run(arguments: Sequence[str], stdin: bytes = b"") -> CommandOutput:
    """Run the command in this process. Raises the exceptions that the command does not handle."""
    streams = [io.TextIOWrapper(io.BytesIO(content), encoding="utf-8") for content in (stdin, b"", b"")]
    with pytest.MonkeyPatch.context() as patch:
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        try:
            cli.main(arguments)
        except SystemExit as system_exit:
            exit_code = int(system_exit.code or 0)
    for stream in streams:
        stream.flush()
    _, out, err = (stream.buffer.getvalue() for stream in streams)
    return CommandOutput(exit_code, out, err)
