"""The benchmark, with one short round."""

import subprocess
import sys
from fnmatch import fnmatchcase

import pytest

from bench.__main__ import PAGE
from bench.process import REPOSITORY
from bench.table import COLUMNS_ON_PAGE, ROWS_ON_PAGE, Row, on_page

SECONDS_MAX = 300


@pytest.mark.proof
def test_short_benchmark_measures_the_yardstick_and_both_databases():
    command = [sys.executable, "-m", "bench", "--only", "steady", "--rounds", "1", "--seconds", "0.5"]

    measured = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=SECONDS_MAX)

    assert measured.returncode == 0, measured.stderr
    rows = [line[:3] for line in measured.stdout.splitlines() if line.startswith("(")]
    assert rows == ["(a)", "(b)", "(c)"]


def test_page_contains_the_main_rows_and_columns():
    rows = [
        Row(what="Verification, hmac-sha256, 1 KB", per_second=2, load_cores=7),
        Row(what="Verification, token, 1 KB"),
    ]

    heading, row = on_page(rows).splitlines()

    assert heading.split("  ")[0] == "measurement"
    assert "load cores" not in heading
    assert row.split() == ["Verification,", "hmac-sha256,", "1", "KB", "2"]


def test_every_main_row_and_column_is_on_the_page():
    table = PAGE.read_text().partition("## The figures\n\n```\n")[2].partition("\n```")[0]
    heading, *rows = table.splitlines()

    assert [column for column in COLUMNS_ON_PAGE if column not in heading] == []
    assert [pattern for pattern in ROWS_ON_PAGE if not any(fnmatchcase(row, f"{pattern}*") for row in rows)] == []
