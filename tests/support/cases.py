"""Many small cases as one test. To collect and report a test takes longer than most of these take to run."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

SHOWN_MAX = 5


def for_each(
    names: str | Sequence[str], cases: Iterable[Any], ids: Iterable[object] | Callable[[Any], object] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the test with each of the cases, whatever becomes of the others, and tell which of them failed.

    It is written as `pytest.mark.parametrize` is. What the cases share is set up once: this is for tests that leave
    nothing behind.
    """
    one = isinstance(names, str)
    parameters = [names] if isinstance(names, str) else list(names)
    given = [[case] if one else list(case) for case in cases]
    shown = [_named(case, ids) for case in given] if ids is None or callable(ids) else [str(each) for each in ids]
    assert len(given) == len(shown) > 0
    assert all(len(case) == len(parameters) for case in given), f"a case has not one value for each of {parameters}"

    def of(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test, updated=())
        def of_all(**shared: Any) -> None:
            failures: list[Exception] = []
            for case, name in zip(given, shown, strict=True):
                try:
                    test(**shared, **dict(zip(parameters, case, strict=True)))
                except Exception as failure:
                    failure.add_note(f"This was {', '.join(parameters)}: {name}")
                    failures.append(failure)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(given)} cases failed", failures[:SHOWN_MAX])

        rest = [each for each in signature.parameters.values() if each.name not in parameters]
        assert len(rest) == len(signature.parameters) - len(parameters), f"{test} takes no {parameters}"
        of_all.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        of_all.pytestmark = list(getattr(test, "pytestmark", ()))  # type: ignore[attr-defined]
        return of_all

    return of


def _named(case: Sequence[Any], ids: Callable[[Any], object] | None) -> str:
    return ", ".join(str(ids(value)) if ids is not None else repr(value)[:120] for value in case)
