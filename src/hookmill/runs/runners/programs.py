"""The programs that runners start. A missing one has the same text in `hookmill doctor`, in the log and in a run."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hookmill.domain.text import shown
from hookmill.runs.runners.account import UnixAccount

_FIRST_LINE_BYTES_MAX: Final = 256
"""The part of a script in which Linux looks for an interpreter."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program that a runner starts."""

    name: str
    """Its name in PATH, or its path."""
    setting: str
    """The setting that names it, such as `argv`."""
    installation: str | None = None
    """The command that installs it; None if that is unknown."""

    def path_in(self, search_path: str) -> str | None:
        """Where the program is; None if there is no executable one."""
        return shutil.which(self.name, path=search_path)

    def problem(self, search_path: str, account: UnixAccount | None = None) -> str | None:
        """Why the account can't start the program, and what to do; None if it can.

        `search_path`: the value of PATH. `account`: None stands for that of the service. Raises `Invalid` if the file
        system does not respond.
        """
        path = self.path_in(search_path)
        if path is None:
            state = "is not executable" if Path(self.name).exists() else "does not exist"
            how = f" with {self.installation}" if self.installation is not None else ""
            return f"Its program {self.name} {state}. Install it{how}, or correct the runner's {self.setting}."
        if account is not None and not account.is_own and not account.can_execute(Path(path)):
            return (
                f"The account {account.name} may not execute {path}. Run chmod o+x on it and on each of its "
                "directories, or use another program."
            )
        return _interpreter_problem(path)


def _interpreter_problem(path: str) -> str | None:
    """Why the interpreter in a script's first line can't be started; None if it can, or if the file is no script."""
    try:
        with Path(path).open("rb") as file:
            line = file.readline(_FIRST_LINE_BYTES_MAX)
    except OSError:
        # The service's account need not be able to read it.
        return None
    if b"\0" in line:
        # A binary file. An emulator may be installed for one of another system.
        return None
    if not line.startswith(b"#!"):
        return (
            f"Its program {path} is a text whose first line names no interpreter. Begin the file with a line such as "
            "#!/bin/sh, and nothing before #!."
        )
    if line.endswith(b"\r\n"):
        return (
            f"The lines of its program {path} end as on Windows (CRLF), so its interpreter is not found. Convert the "
            "file to line ends of Unix, such as with dos2unix."
        )
    interpreter = os.fsdecode((line[2:].split() or [b""])[0])
    if interpreter.startswith("/") and not Path(interpreter).exists():
        return (
            f"Its program {path} needs the interpreter {shown(interpreter[:200])}, which does not exist. Install it, "
            "or correct the first line of the file."
        )
    return None
