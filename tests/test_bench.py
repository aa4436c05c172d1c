"""The benchmark, with one short round."""

import subprocess
import sys

import pytest

from bench.process import REPOSITORY

SECONDS_MAX = 300


@pytest.mark.proof
def test_short_benchmark_measures_the_yardstick_and_both_databases():
    command = [sys.executable, "-m", "bench", "--only", "steady", "--rounds", "1", "--seconds", "0.5"]

    measured = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=SECONDS_MAX)

    assert measured.returncode == 0, measured.stderr
    rows = [line[:3] for line in measured.stdout.splitlines() if line.startswith("(")]
    assert rows == ["(a)", "(b)", "(c)"]
