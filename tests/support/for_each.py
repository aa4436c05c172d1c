"""Runs one test for each of many values. Thousands of parametrized tests would take longer than what they check."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any


def for_each(parameter: str, values: Sequence[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: pytest collects one test, which runs for every value. The test fails with the errors of all values
    for which it fails, each with its value."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run(**fixtures: Any):
            errors = []
            for value in values:
                try:
                    test(**{parameter: value}, **fixtures)
                except Exception as error:
                    error.add_note(f"{parameter} {value}")
                    errors.append(error)
            if errors:
                failed = ", ".join(str(error.__notes__[-1]) for error in errors)
                raise ExceptionGroup(f"{len(errors)} of {len(values)} failed: {failed}", errors)

        assert values, "a test without values can't fail"
        # Not `functools.wraps`, because it would copy the marks of Hypothesis, which is to wrap only `test`.
        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        signature = inspect.signature(test)
        assert parameter in signature.parameters, f"{test.__name__} has no parameter {parameter}"
        others = [each for name, each in signature.parameters.items() if name != parameter]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        if marks := getattr(test, "pytestmark", None):
            run.pytestmark = marks  # type: ignore[attr-defined]
        return run

    return decorate
