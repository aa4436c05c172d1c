"""The decorator that runs one test for many values."""

import pytest

from tests.support.for_each import for_each


def test_failing_test_reports_the_errors_of_all_values():
    numbers = []

    @for_each("number", [1, 2, 3, 4])
    def is_odd(number, others):
        numbers.append(number)
        assert number % 2 in others

    with pytest.raises(ExceptionGroup, match="2 of 4 failed: number 2, number 4") as raised:
        is_odd(others=[1])

    assert numbers == [1, 2, 3, 4]
    assert len(raised.value.exceptions) == 2


def test_empty_list_of_values_is_rejected():
    with pytest.raises(AssertionError, match="a test without values"):
        for_each("number", [])(lambda number: None)
