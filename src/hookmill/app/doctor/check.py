"""A check, which runs in a thread, with a deadline."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from hookmill.domain.errors import HookmillError
from hookmill.domain.finding import Finding, problem

T = TypeVar("T")

CHECK_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Check(Generic[T]):
    """One check. `examine` yields its findings, and may raise `HookmillError` and `OSError`."""

    name: str
    examine: Callable[[T], Iterator[Finding]]
    needs: tuple[str, ...] = ()
    """The names of the checks that must have found no problem before."""
    seconds: float = CHECK_SECONDS
    """The deadline."""


def findings_of(check: Check[T], subject: T) -> Iterator[Finding]:
    """The findings of the check. An error, or a check that does not end in time, is a problem."""
    findings: list[Finding] = []
    errors: list[Exception] = []

    def make() -> None:
        try:
            findings.extend(check.examine(subject))
        except Exception as error:
            errors.append(error)

    # A check may hang in a system call, such as on a network file system. Only a daemon thread lets the process end.
    thread = threading.Thread(target=make, name=check.name, daemon=True)
    thread.start()
    thread.join(check.seconds)
    yield from list(findings)
    if thread.is_alive():
        yield problem(
            f"the check did not end within {check.seconds:g} s",
            "Find out what does not respond: a disk, a network file system, a name server or another host.",
        )
    for error in errors:
        yield _problem_of(error)


def _problem_of(error: Exception) -> Finding:
    match error:
        case HookmillError():
            # These texts say what to do.
            return problem(str(error), "")
        case OSError():
            place = f": {error.filename}" if error.filename is not None else ""
            return problem(f"{error.strerror or type(error).__name__}{place}", "Check this file or address.")
        case _:
            return problem(
                f"the check itself failed with {type(error).__name__}",
                "Report this as a fault of `hookmill doctor`.",
            )
