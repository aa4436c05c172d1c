"""The command itself: its version, its help, and what it does not load for them."""

import subprocess
import sys

import pytest

from hookmill import __version__
from tests.cli.conftest import Hookmill

NOUNS = ("webhook", "automation", "delivery", "run", "filter", "secret", "factory", "member", "key", "keys", "audit")
HEAVY = ("dbos", "granian", "sqlalchemy", "alembic", "pydantic", "cryptography", "rich.console")


def test_the_version_is_printed(hookmill: Hookmill):
    assert hookmill("--version").out == f"hookmill {__version__}\n"


def test_python_dash_m_is_the_same_command():
    printed = subprocess.check_output([sys.executable, "-m", "hookmill", "--version"], text=True)

    assert printed == f"hookmill {__version__}\n"


def test_the_help_names_every_command(hookmill: Hookmill):
    printed = hookmill("--help").out

    for name in ("serve", "worker", "migrate", "send", *NOUNS):
        assert f"\n  {name} " in printed


@pytest.mark.parametrize("group", [[], *([noun] for noun in NOUNS)])
def test_every_summary_fits_its_line(hookmill: Hookmill, group: list[str]):
    assert "..." not in hookmill(*group, "--help").out.partition("Commands:")[2]


def test_an_unknown_command_is_wrong_usage_with_a_suggestion(hookmill: Hookmill):
    assert "Did you mean 'delivery'?" in hookmill("delivry", exit_code=2).err


def test_help_does_not_wait_for_what_only_other_commands_need():
    program = f"import sys, hookmill.cli; print([name for name in {HEAVY} if name in sys.modules])"

    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"
