"""The decorator that runs one test for many values."""

import pytest

from tests.support.for_each import for_each


def test_a_test_fails_with_the_errors_of_all_values_for_which_it_fails():
    seen = []

    @for_each("number", [1, 2, 3, 4])
    def is_odd(number, others):
        seen.append(number)
        assert number % 2 in others

    with pytest.raises(ExceptionGroup, match="2 of 4 failed: number 2, number 4") as raised:
        is_odd(others=[1])

    assert seen == [1, 2, 3, 4]
    assert len(raised.value.exceptions) == 2


def test_a_test_for_no_value_is_refused():
    with pytest.raises(AssertionError, match="a test for no value"):
        for_each("number", [])(lambda number: None)
