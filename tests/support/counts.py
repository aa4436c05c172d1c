"""How often race-prone tests repeat what they do: a few times for every change, and more often with `make proof`."""

from collections.abc import Iterable
from typing import Any

import pytest

_ARE_FULL = False


def count(full: int, *, usually: int) -> int:
    """The number of repetitions in this run of the tests: `full` with `make proof`, otherwise `usually`.

    Constants of test modules may call it: the choice is made before these modules are imported.
    """
    return full if _ARE_FULL else usually


def are_full() -> bool:
    """Whether this run repeats everything at the full count."""
    return _ARE_FULL


def make_full():
    """Choose the full counts. Call it before test modules are imported."""
    global _ARE_FULL
    _ARE_FULL = True


def only_in_proof(*values: object) -> Any:
    """Parameters of a test for which it runs only with `make proof`. See the marker `proof`."""
    return pytest.param(*values, marks=pytest.mark.proof)


def one_usually(step: int, cases: Iterable[Any]) -> list[Any]:
    """Cases of a test that takes one argument for each element of a case, or one argument if a case is no tuple.

    The first of each `step` cases always runs, and the others only with `make proof`.
    """
    return [
        case if number % step == 0 else only_in_proof(*(case if isinstance(case, tuple) else (case,)))
        for number, case in enumerate(cases)
    ]


ON_POSTGRES_IN_PROOF = pytest.mark.parametrize("store_url", ["sqlite", only_in_proof("postgres")], indirect=True)
"""Runs a test of a fixture that needs `store_url` on SQLite, and on PostgreSQL only with `make proof`."""
