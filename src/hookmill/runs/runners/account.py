"""The Unix account that a command runs as."""

import os
import pwd
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hookmill.domain.errors import Invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class UnixAccount:
    """The account of this host that a command runs as."""

    name: str
    uid: int
    gid: int
    home: str

    @property
    def is_own(self) -> bool:
        """Whether it is the service's own account."""
        return self.uid == os.geteuid()

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that a sign-in of the account sets."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    def check_reachable(self, packages: Path) -> None:
        """Raises `Invalid` if a process of the account can't change to the directory of the packages."""
        reason = _failure_as(self, _CHDIR_SCRIPT, packages)
        if reason:
            raise Invalid(
                f"The runner's user {self.name!r} can't reach {packages}: {reason}. The account needs the execute "
                "permission on each parent directory: run chmod o+x on them, or set HOOKMILL_DATA_DIR to another place."
            )

    def can_execute(self, program: str) -> bool:
        return not _failure_as(self, _ACCESS_SCRIPT, Path(program))


def own_home() -> dict[str, str]:
    """The service's HOME, or that of its account: systemd starts services of root without it."""
    if home := os.environ.get("HOME"):
        return {"HOME": home}
    try:
        return {"HOME": pwd.getpwuid(os.geteuid()).pw_dir}
    except KeyError:
        # The account has no name, such as in a container.
        return {}


def unix_account(user: str | int) -> UnixAccount:
    """The account with this name or number. Raises `Invalid` if there is none, or if the service can't use it."""
    try:
        entry = pwd.getpwuid(int(user)) if str(user).isdecimal() else pwd.getpwnam(str(user))
    except (KeyError, OverflowError):
        raise Invalid(
            f"This system has no account {user!r}. Create it, or name another one as the runner's user."
        ) from None
    account = UnixAccount(name=entry.pw_name, uid=entry.pw_uid, gid=entry.pw_gid, home=entry.pw_dir)
    if os.geteuid() != 0 and not account.is_own:
        raise Invalid(
            f"Commands can run as {account.name!r} only if the service runs as root, or as that account itself. "
            "Start it as root, or remove the runner's user."
        )
    return account


_BECOME_ACCOUNT: Final = """
import os, sys
name, uid, gid, path = sys.argv[1:]
os.initgroups(name, int(gid))
os.setgid(int(gid))
os.setuid(int(uid))
"""
_CHDIR_SCRIPT: Final = """
try:
    os.chdir(path)
except OSError as error:
    print(error.strerror)
"""
_ACCESS_SCRIPT: Final = """
if not os.access(path, os.X_OK):
    print("it is not executable")
"""
ACCOUNT_CHECK_SECONDS: Final = 20.0


def _failure_as(account: UnixAccount, script: str, path: Path) -> str:
    """Execute the script about the path in a process of the account. Raises `Invalid` if the process takes too long.

    Returns an empty text if the script succeeded. Otherwise what it printed, or the last line of its traceback.
    """
    arguments = (account.name, str(account.uid), str(account.gid), path)
    try:
        process = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _BECOME_ACCOUNT + script, *arguments],
            capture_output=True,
            text=True,
            timeout=ACCOUNT_CHECK_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise Invalid(
            f"The check whether the runner's user {account.name!r} can use {path} took longer than "
            f"{ACCOUNT_CHECK_SECONDS:g} s. Check that the file system responds, and start the service again."
        ) from None
    if printed := process.stdout.strip():
        return printed
    traceback = process.stderr.strip().splitlines()
    return traceback[-1] if traceback else ""
