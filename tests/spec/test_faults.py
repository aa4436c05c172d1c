"""Every fault of the register is shown by tests that exist."""

import ast
from functools import cache
from pathlib import Path

from tests.spec import report
from tests.spec.faults import FAULTS

TESTS = Path(__file__).parents[1]


def test_every_test_that_the_register_of_faults_names_exists():
    named = {test for fault in FAULTS.values() for test in fault.tests}

    assert [
        test for test in sorted(named) if test.partition("::")[2] not in functions_of(test.partition("::")[0])
    ] == []


def test_every_fault_of_the_register_has_a_test():
    assert [id_ for id_, fault in FAULTS.items() if not fault.tests] == []
    assert list(FAULTS) == [f"F{number}" for number in range(1, len(FAULTS) + 1)]


def test_listing_has_every_fault_with_its_tests():
    listing = report.faults()

    assert [
        id_ for id_, fault in FAULTS.items() if f"{id_}: {fault.what}\n    tests/{fault.tests[0]}" not in listing
    ] == []


@cache
def functions_of(file: str) -> frozenset[str]:
    """The names of the functions of a module of tests; none if there is no such module."""
    path = TESTS / file
    if not path.is_file():
        return frozenset()
    return frozenset(node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))
