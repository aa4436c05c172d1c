"""The units in `deploy/systemd`, checked by systemd itself. No running systemd is needed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.debian import program
from tests.support.waiting import LONG_SECONDS

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
PROGRAM = "/opt/hookmill/bin/hookmill"


def analyze(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [program("systemd-analyze", package="systemd"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONG_SECONDS)


def score(unit: Path) -> float:
    """How exposed the service is, from 0 to 10, where 0 is best."""
    report = analyze("security", "--offline=true", "--no-pager", unit)
    level = re.search(r"exposure level for \S+: (\S+)", report.stdout)
    assert level is not None, report.stderr
    return float(level.group(1))


@pytest.fixture(params=["hookmill.service", "hookmill-worker.service"])
def unit(request, tmp_path):
    """The unit, with the program of this environment."""
    path = tmp_path / str(request.param)
    installed = str(Path(sys.executable).with_name("hookmill"))
    path.write_text((UNITS / request.param).read_text().replace(PROGRAM, installed))
    return path


def test_unit_with_sandboxes_is_valid(unit):
    directory = unit.with_name(f"{unit.name}.d")
    directory.mkdir()
    shutil.copy(UNITS / "sandbox.conf", directory)

    report = analyze("verify", "--man=no", unit)

    assert (report.returncode, report.stdout + report.stderr) == (0, "")


@pytest.fixture
def unit_with_accounts(unit):
    directory = unit.with_name(f"{unit.name}.d")
    directory.mkdir()
    shutil.copy(UNITS / "accounts.conf", directory)
    return unit


def test_unit_is_valid(unit):
    report = analyze("verify", "--man=no", unit)

    assert (report.returncode, report.stdout + report.stderr) == (0, "")


def test_unit_with_accounts_is_valid(unit_with_accounts):
    report = analyze("verify", "--man=no", unit_with_accounts)

    assert (report.returncode, report.stdout + report.stderr) == (0, "")


def test_unit_exposes_little(unit):
    assert score(unit) < 2.0


def test_unit_with_accounts_exposes_more(unit_with_accounts):
    assert 2.0 < score(unit_with_accounts) < 3.5


def test_units_differ_in_their_command_only():
    service, worker = (UNITS / name for name in ("hookmill.service", "hookmill-worker.service"))

    def settings(unit):
        return [line for line in unit.read_text().splitlines() if line and not line.startswith(("#", "Description="))]

    assert [line.replace("hookmill worker", "hookmill serve") for line in settings(worker)] == settings(service)
