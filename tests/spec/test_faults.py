"""Every tolerated fault has tests, and these tests exist."""

import ast
from functools import cache
from pathlib import Path

from tests.spec import report
from tests.spec.faults import FAULTS

TESTS = Path(__file__).parents[1]


def test_every_named_test_of_a_fault_exists():
    named_tests = sorted({test for fault in FAULTS.values() for test in fault.tests})

    missing = []
    for test in named_tests:
        file, _, function = test.partition("::")
        if function not in functions_of(file):
            missing.append(test)
    assert missing == []


def test_every_fault_has_a_test():
    assert [id_ for id_, fault in FAULTS.items() if not fault.tests] == []


def test_ids_of_faults_are_numbered_without_a_gap():
    assert list(FAULTS) == [f"F{number}" for number in range(1, len(FAULTS) + 1)]


def test_listing_contains_every_fault_with_its_tests():
    listing = report.faults()

    assert [
        id_ for id_, fault in FAULTS.items() if f"{id_}: {fault.what}\n    tests/{fault.tests[0]}" not in listing
    ] == []


@cache
def functions_of(file: str) -> frozenset[str]:
    """The names of the functions in a file of tests. Empty if the file does not exist."""
    path = TESTS / file
    if not path.is_file():
        return frozenset()
    return frozenset(node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))
