"""What a caller can get wrong, as exceptions whose text says what happened, to which thing, and what to do.

HookmillError
├── Invalid            a value that was given cannot be used
│   └── InvalidFilter  a payload filter with problems, each at its place
├── NotFound           no such thing, or none that this caller may know of
├── Forbidden          the caller may know of it, and not do this
├── Revoked            the caller was let in, and is no longer
├── Conflict           the thing's present state forbids it
│   ├── LimitReached   one more would be too many
│   └── Changed        it is no longer what the caller has seen
└── StoreUnavailable   the database did not answer, or is full: try again later
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

ReportFailure = Callable[[str, BaseException], None]
"""Reports a failure to the operator: the component that failed, and the exception."""


class HookmillError(Exception):
    """The root of every error that a person can mend. `str(error)` is fit to be shown."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one place of a document: `pointer` is a JSON pointer (RFC 6901)."""

    pointer: str
    message: str


class Invalid(HookmillError):
    """A value that was given cannot be used. `faults` say where in a document it stands, if it stood in one."""

    def __init__(self, message: str, *, pointer: str | None = None) -> None:
        super().__init__(message)
        self.faults: tuple[Fault, ...] = (Fault(pointer, message),) if pointer is not None else ()


class InvalidFilter(Invalid):
    """A payload filter that cannot be saved, with every fault of it."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        lines = [f"  {fault.pointer or '/'}: {fault.message}" for fault in faults]
        super().__init__("The payload filter cannot be used:\n" + "\n".join(lines))
        self.faults = tuple(faults)


class NotFound(HookmillError):
    """No such thing, or none that this caller may know of."""


class Forbidden(HookmillError):
    """The caller may know of the thing, and their role does not let them do this to it."""


class Revoked(HookmillError):
    """Whoever was let in has lost that since: the key was revoked, the member was removed. Nothing was done."""


class Conflict(HookmillError):
    """The thing's present state forbids what was asked.

    `command` explains the state on the command line. Pages show `reason`, which is the text without it.
    """

    def __init__(self, reason: str, *, command: str = "") -> None:
        super().__init__(f"{reason} To see why: {command}" if command else reason)
        self.reason = reason


class LimitReached(Conflict):
    """One more would be too many."""


class Changed(Conflict):
    """Somebody else has changed the thing since the caller looked. Nothing was changed now."""


class StoreUnavailable(HookmillError):
    """The database did not answer, is full, or is locked. What was asked may or may not have happened."""
