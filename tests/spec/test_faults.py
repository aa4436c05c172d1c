"""Every tolerated fault has tests, these tests exist, and every test and every fault of the drill has a row."""

import ast
from functools import cache
from pathlib import Path

from tests.drill import faults as drill
from tests.spec import report
from tests.spec.faults import FAULTS, NO_FAULTS

TESTS = Path(__file__).parents[1]
FILES_OF_FAULTS = sorted(
    path.relative_to(TESTS).as_posix()
    for path in (*TESTS.glob("faults/test_*.py"), TESTS / "runs" / "test_crashes.py", TESTS / "runs" / "test_faults.py")
)
NAMES_IN_DRILL = {name for faults in drill.FAULTS.values() for name in faults}


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


def test_every_test_in_the_files_of_faults_has_a_row():
    in_files = {
        f"{file}::{name}" for file in FILES_OF_FAULTS for name in functions_of(file) if name.startswith("test_")
    }
    in_rows = {test for fault in FAULTS.values() for test in fault.tests}

    assert len(in_files) > 50
    assert in_files - in_rows - NO_FAULTS.keys() == set(), "name them in tests/spec/faults.py"
    assert NO_FAULTS.keys() <= in_files - in_rows


def test_every_fault_of_the_drill_belongs_to_one_row():
    named = [name for fault in FAULTS.values() for name in fault.in_drill]

    assert sorted(named) == sorted(NAMES_IN_DRILL)
    assert drill.SLOW <= NAMES_IN_DRILL


def test_every_function_of_a_fault_is_in_the_drill():
    module = ast.parse((TESTS / "drill" / "faults.py").read_text())
    functions = {
        node.name
        for node in module.body
        if isinstance(node, ast.FunctionDef)
        and ast.unparse(node.returns or ast.Constant(None)) in {"EndedFault", "Fault"}
    }
    tables = [node.value for node in module.body if isinstance(node, ast.AnnAssign)]
    in_tables = {node.id for table in tables if table for node in ast.walk(table) if isinstance(node, ast.Name)}

    assert len(functions) > 20
    assert functions - in_tables == set(), "add them to FAULTS in tests/drill/faults.py"


def test_ids_of_faults_are_numbered_without_a_gap():
    assert list(FAULTS) == [f"F{number}" for number in range(1, len(FAULTS) + 1)]


def test_listing_contains_every_fault_with_its_tests():
    listing = report.faults()
    names = {f"    in the drill: {', '.join(fault.in_drill)}" for fault in FAULTS.values() if fault.in_drill}

    assert [
        id_ for id_, fault in FAULTS.items() if f"{id_}: {fault.what}\n    tests/{fault.tests[0]}" not in listing
    ] == []
    assert names <= set(listing.splitlines())


@cache
def functions_of(file: str) -> frozenset[str]:
    """The names of the functions in a file of tests. Empty if the file does not exist."""
    path = TESTS / file
    if not path.is_file():
        return frozenset()
    return frozenset(node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))
