"""The programs that runners start. A missing one has the same text in `hookmill doctor`, in the log and in a run."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from hookmill.runs.runners.account import UnixAccount


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
        if account is not None and not account.is_own and not account.can_execute(path):
            return (
                f"The account {account.name} may not execute {path}. Run chmod o+x on it and on each of its "
                "directories, or use another program."
            )
        return None
