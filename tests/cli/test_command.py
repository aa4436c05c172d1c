"""The command `hookmill`: its version, its help, and the modules that it does not load for them."""

import re
import subprocess
import sys

import pytest

from hookmill import __version__
from hookmill.build import build_id

GROUPS = (
    "webhook",
    "automation",
    "delivery",
    "run",
    "filter",
    "secret",
    "factory",
    "member",
    "key",
    "keys",
    "audit",
    "alarm",
)
SLOW_MODULES = ("granian", "sqlalchemy", "alembic", "pydantic", "cryptography", "rich.console")


def test_version_is_printed(hookmill):
    assert re.fullmatch(rf"hookmill {re.escape(__version__)} \(build [0-9a-f]{{12}}\)\n", hookmill("--version").out)


def test_python_dash_m_runs_the_same_command():
    output = subprocess.check_output([sys.executable, "-m", "hookmill", "--version"], text=True)

    assert output == f"hookmill {__version__} (build {build_id()})\n"


def test_command_in_a_deleted_directory_says_so(tmp_path):
    directory = tmp_path / "deleted"
    directory.mkdir()
    command = 'cd "$1" && rmdir "$1" && exec "$2" -m hookmill run list'

    result = subprocess.run(
        ["sh", "-c", command, "sh", str(directory), sys.executable], stderr=subprocess.PIPE, text=True, check=False
    )

    assert result.returncode == 1
    assert result.stderr == "The working directory of this command was deleted. Change to another directory.\n"


def test_help_names_every_command(hookmill):
    output = hookmill("--help").out

    for name in ("serve", "worker", "migrate", "send", *GROUPS):
        assert f"\n  {name} " in output


@pytest.mark.parametrize("group", [[], *([name] for name in GROUPS)])
def test_help_shortens_no_summary(hookmill, group):
    assert "..." not in hookmill(*group, "--help").out.partition("Commands:")[2]


def test_unknown_command_is_refused_with_a_suggestion(hookmill):
    assert "Did you mean 'delivery'?" in hookmill("delivry", exit_code=2).err


def test_help_does_not_load_slow_modules():
    program = f"import sys, hookmill.cli; print([name for name in {SLOW_MODULES} if name in sys.modules])"

    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"
