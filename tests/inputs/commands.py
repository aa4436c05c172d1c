"""Every argument and option of every command that takes a value, and the command run in the test's own process."""

import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest
import typer

from hookmill import cli
from tests.inputs.slots import UNIQUE

ENDLESS: Final = {"serve", "worker"}
"""They run until they are stopped, and take settings, which are checked as those of the environment are."""
WRITING: Final = {("export", "folder"), ("delivery payload", "--output"), ("delivery export", "--output")} | {
    ("run export", "--output")
}
"""What names a place to write to."""
EXCLUSIVE: Final = (
    {"--prompt", "--prompt-file"},
    {"--filter", "--filter-file", "--triggers-file", "--automation"},
    {"--webhook", "--triggers-file"},
    {"--delivery", "--body"},
    {"--body", "--data"},
    {"identifier", "--automation"},
    {"identifier", "--webhook"},
    {"identifier", "--state"},
)
GIVEN: Final[Mapping[str, Mapping[str, str]]] = {
    "apply": {"folder": "nothing"},
    "audit list": {},
    "automation change": {"name_or_id": "{automation}", "--prompt": "Look."},
    "automation create": {"name": UNIQUE, "--prompt": "Look.", "--webhook": "{webhook}"},
    "automation delete": {"name_or_id": "gone"},
    "automation disable": {"name_or_id": "{automation}"},
    "automation enable": {"name_or_id": "{automation}"},
    "automation list": {},
    "automation run": {"name_or_id": "{automation}"},
    "automation show": {"name_or_id": "{automation}"},
    "delivery export": {},
    "delivery list": {},
    "delivery payload": {"identifier": "{delivery}"},
    "delivery replay": {"identifier": "{delivery}"},
    "delivery show": {"identifier": "{delivery}"},
    "export": {"folder": UNIQUE},
    "factory change": {"name": "default", "--max-running": "3"},
    "factory create": {"name": UNIQUE},
    "factory list": {},
    "filter backtest": {"--filter": "{}"},
    "filter test": {"--delivery": "{delivery}", "--filter": "{}"},
    "key create": {"name": UNIQUE, "--role": "viewer"},
    "key list": {},
    "key revoke": {"name_or_id": "gone"},
    "keys add": {},
    "keys rotate": {},
    "keys show": {},
    "member add": {"email": f"{UNIQUE}@example.com", "--name": "Ada"},
    "member admin": {"email_or_id": "ada@example.com", "state": "on"},
    "member link": {"email_or_id": "ada@example.com"},
    "member list": {},
    "member remove": {"email_or_id": "gone"},
    "member role": {"email_or_id": "ada@example.com", "role": "viewer"},
    "migrate": {},
    "move": {"--to": "postgresql://127.0.0.1:1/nothing"},
    "plan": {"folder": "nothing"},
    "run cancel": {"identifier": "{run}"},
    "run export": {},
    "run list": {},
    "run log": {"identifier": "{run}"},
    "run queue": {},
    "run show": {"identifier": "{run}"},
    "scheme list": {},
    "scheme show": {"name": "github"},
    "secret create": {"name": UNIQUE},
    "secret delete": {"name": "GONE"},
    "secret list": {},
    "secret replace": {"name": "SPARE"},
    "secret show": {"name": "SPARE"},
    "send": {"webhook": "{webhook}", "--data": "{}", "--url": "http://127.0.0.1:1"},
    "validate": {"folder": "nothing"},
    "webhook create": {"name": UNIQUE},
    "webhook delete": {"name_or_uid": "gone"},
    "webhook disable": {"name_or_uid": "{webhook}"},
    "webhook enable": {"name_or_uid": "{webhook}"},
    "webhook list": {},
    "webhook rename": {"name_or_uid": "{webhook}", "new_name": "{webhook}"},
    "webhook rotate": {"name_or_uid": "{webhook}"},
    "webhook show": {"name_or_uid": "{webhook}"},
    "webhook sync": {"name_or_uid": "{webhook}"},
}
"""For every command: arguments and options with which it does something."""
IDS: Final = frozenset({"{webhook}", "{automation}", "{delivery}", "{run}"})
ALSO: Final[Mapping[tuple[str, str], Mapping[str, str]]] = {
    ("automation change", "--timezone"): {"--schedule": "nightly=@daily"},
    ("automation change", "--catch-up"): {"--schedule": "nightly=@daily"},
    ("automation create", "--timezone"): {"--schedule": "nightly=@daily"},
    ("automation create", "--catch-up"): {"--schedule": "nightly=@daily"},
    ("send", "--scheme"): {"webhook": "signed"},
    ("send", "--clock-skew"): {"webhook": "signed"},
    ("send", "--signing-key"): {"webhook": "signed"},
    ("webhook create", "--scheme"): {"--mode": "signature"},
    ("webhook create", "--signature"): {"--mode": "signature", "--scheme": "hmac"},
}
"""What an option needs beside it."""
OF_ALL: Final = {"audit list", "automation create", "key create", "webhook list"}
"""The commands that stand for all in what `--factory` takes, which is one option."""
ASKING: Final = {"key revoke", "member remove", "run cancel", "secret delete", "webhook delete"}
READING: Final = (
    ("automation create", "--prompt-file"),
    ("automation create", "--filter-file"),
    ("automation create", "--triggers-file"),
    ("automation run", "--payload"),
    ("filter test", "--filter-file"),
    ("filter test", "--body"),
    ("move", "--to"),
    ("secret create", "--from-stdin"),
    ("webhook create", "--secret-from-stdin"),
    ("send", "--body"),
)
"""Where standard input is read."""


LISTS: Final = ("webhook", "automation", "delivery", "run", "secret", "factory", "member", "key", "audit", "scheme")


@dataclass(frozen=True, slots=True)
class Place:
    """An argument or option of one command; standard input, where `by_stdin`."""

    command: str
    name: str
    by_stdin: bool = False
    has_json: bool = False

    def arguments(self, text: str, ids: Mapping[str, str], number: int) -> list[str]:
        """The command with that text in this place."""
        given = {**GIVEN[self.command], **ALSO.get((self.command, self.name), {})}
        given = {name: value.replace(UNIQUE, f"U{number}") for name, value in given.items()}
        given = {name: value.format(**ids) if value in IDS else value for name, value in given.items()}
        for group in EXCLUSIVE:
            if self.name in group:
                given = {name: value for name, value in given.items() if name not in group or name == self.name}
        is_flag = self.by_stdin and self.name.endswith("from-stdin")
        given[self.name] = "-" if self.by_stdin else text
        spelled = [*self.command.split()]
        for name, value in given.items():
            spelled += [name] if is_flag and name == self.name else [value] if name[0] != "-" else [name, value]
        spelled += ["--yes"] if self.command in ASKING else []
        # What is printed for people and for programs is put together by different code.
        return [*spelled, "--json"] if self.has_json and number % 2 else spelled

    def takes(self, text: str) -> bool:
        """Whether this text may be tried here: a command that writes may write nowhere but under this directory."""
        if self.by_stdin:
            return True
        return (self.command, self.name) not in WRITING or (
            text not in {"", ".", "data"} and not set(text) & set("/\\")
        )


def places() -> Iterator[Place]:
    """Every one that there is."""
    root = typer.main.get_command(cli.app)
    known = dict(_commands(root, ""))
    assert set(known) - ENDLESS == set(GIVEN), "every command has its arguments here"
    for name, command in known.items():
        if name in ENDLESS:
            continue
        # An argument under another name would be given beside the tested one, and every case would be a usage error.
        assert GIVEN[name].keys() <= {option for parameter in command.params for option in parameter.opts}, name
        has_json = any("--json" in parameter.opts for parameter in command.params)
        for parameter in command.params:
            is_shared = "--factory" in parameter.opts and name not in OF_ALL
            if not getattr(parameter, "is_flag", False) and not is_shared:
                yield Place(name, max(parameter.opts, key=len), has_json=has_json)
        yield from (Place(name, option, by_stdin=True, has_json=has_json) for of, option in READING if of == name)


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, each in inner.items():
        yield from _commands(each, f"{path} {name}".strip())


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: bytes
    err: bytes


def run(arguments: Sequence[str], stdin: bytes = b"") -> Ended:
    """The command in this process. What it does not foresee is raised."""
    streams = [io.TextIOWrapper(io.BytesIO(content), encoding="utf-8") for content in (stdin, b"", b"")]
    with pytest.MonkeyPatch.context() as patch:
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        try:
            cli.main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
    for stream in streams:
        stream.flush()
    _, out, err = (stream.buffer.getvalue() for stream in streams)
    return Ended(code, out, err)
