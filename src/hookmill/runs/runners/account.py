"""The Unix account that a command runs as."""

import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hookmill.domain.errors import Invalid

ACCOUNT_CHECK_SECONDS: Final = 20.0


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

    @property
    def process_options(self) -> dict[str, Any]:
        """The arguments with which `subprocess` starts a process of the account."""
        if self.is_own:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": os.getgrouplist(self.name, self.gid)}

    def check_reachable(self, packages: Path) -> None:
        """Raises `Invalid` if a process of the account can't change to the directory of the packages."""
        if not self.can_execute(packages):
            raise Invalid(
                f"The runner's user {self.name!r} can't reach {packages}. The account needs the execute permission on "
                "each parent directory: run chmod o+x on them, or set HOOKMILL_DATA_DIR to another place."
            )

    def can_execute(self, path: Path) -> bool:
        """Whether the account has the execute permission. Raises `Invalid` if the file system does not respond."""
        command = ["/bin/sh", "-c", 'test -x "$1"', "sh", str(path)]
        try:
            # Without the service's environment, which contains secrets.
            process = subprocess.run(command, env={}, timeout=ACCOUNT_CHECK_SECONDS, **self.process_options)
        except subprocess.TimeoutExpired:
            raise Invalid(
                f"The check whether the runner's user {self.name!r} can use {path} took longer than "
                f"{ACCOUNT_CHECK_SECONDS:g} s. Check that the file system responds, and start the service again."
            ) from None
        return process.returncode == 0


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
