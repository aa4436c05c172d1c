"""A short drill on each kind of database. `make drill` runs a long one."""

import random

import pytest

from tests.drill import report
from tests.drill.faults import FAULTS
from tests.drill.run import DrillPlan, run_drill
from tests.drill.site import DatabaseKind
from tests.support.counts import count

FAULTS_INJECTED = count(40, usually=6)
DELIVERIES = count(6_000, usually=360)


@pytest.mark.timeout(600)
@pytest.mark.proof
@pytest.mark.parametrize("kind", list(DatabaseKind), ids=lambda kind: kind.value)
def test_random_faults_lose_and_double_no_delivery_or_run(kind, tmp_path):
    plan = DrillPlan(
        faults=FAULTS_INJECTED,
        deliveries=DELIVERIES,
        seconds=300,
        seed=random.randrange(2**32),
        per_second=120,
        senders=16,
        fault_seconds_max=0.6,
        with_slow_faults=False,
    )
    print(f"seed {plan.seed}")

    result = run_drill(kind, plan, tmp_path)

    print(report.summary(result))
    assert {name: number for name, number in result.violations.items() if number} == {}
    assert result.is_complete
    assert len(result.recoveries) >= min(FAULTS_INJECTED, 10)
    assert [name for name in result.violations if f"| `{name}` |" not in report.PAGE_TEXT] == []


def test_reliability_page_is_up_to_date_and_covers_both_databases():
    page = report.PAGE.read_text()

    assert [title for title in report.TITLES.values() if f" | {title}" not in page] == []
    assert page.partition("## The machine")[0] == report.PAGE_TEXT.partition("## The machine")[0]


def test_drill_has_at_least_12_kinds_of_faults_for_each_database():
    assert {kind: len(faults) >= 12 for kind, faults in FAULTS.items()} == dict.fromkeys(DatabaseKind, True)
