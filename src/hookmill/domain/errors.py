"""The base classes of the exceptions whose texts people may see. Other modules define further subclasses.

The texts say what happened, to which object, and what to do.

HookmillError
├── Invalid            an argument has an invalid value
├── NotFound           the object does not exist, or the caller has no permission to view it
├── Forbidden          the caller may view the object, but not perform this operation
├── Revoked            the caller's key or membership ended during the operation
├── Conflict           the present state of the object, or of the host, forbids the operation
│   ├── LimitReached   a limit on the number of objects is reached
│   └── Changed        the object has changed since the caller read it
├── SignInRefused      the OpenID Connect provider refused the sign-in, or its answer can't be trusted
├── ProviderUnavailable      the OpenID Connect provider does not give a valid response: the caller may try again later
├── ObjectStoreUnavailable   the object store does not answer, or refuses a request: the caller may try again later
├── DestinationUnavailable   a destination did not accept a message about an alarm or a run
└── StoreUnavailable   the database does not answer or is locked: the caller may try again later
    ├── TransactionConflict    the database rolled the transaction back because of a concurrent one
    └── DiskFull       the disk has no room for the change, which was not made
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

ReportFailure = Callable[[str, BaseException], None]
"""Reports a failure to the operator: the component that failed, and the exception."""


def reporting_once(report_failure: ReportFailure) -> ReportFailure:
    """Reports an error only if its text differs from that of the last error of its type."""
    last_texts: dict[str, str] = {}

    def report(component: str, error: BaseException) -> None:
        kind, text = type(error).__name__, str(error)
        if last_texts.get(kind) != text:
            last_texts[kind] = text
            report_failure(component, error)

    return report


def describe_fault(error: BaseException) -> str:
    """The type of an exception that nobody expected, and the line of ours at which it was raised.

    Its text is left out, because it may quote sensitive data.
    """
    place = ""
    traceback = error.__traceback__
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__", "")
        if module.partition(".")[0] == "hookmill":
            place = f" in {module}, line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return f"a fault of type {type(error).__name__}{place}"


class HookmillError(Exception):
    """The base class of errors that a person can fix. `str(error)` may be displayed: it contains no secret."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem at one place of a document. `pointer` is a JSON pointer (RFC 6901)."""

    pointer: str
    message: str


class Invalid(HookmillError):
    """An argument has an invalid value. If the argument came from a document, `faults` says where the problem is."""

    def __init__(self, message: str, *, pointer: str | None = None) -> None:
        super().__init__(message)
        self.faults: tuple[Fault, ...] = (Fault(pointer, message),) if pointer is not None else ()

    @classmethod
    def at(cls, faults: Sequence[Fault]) -> "Invalid":
        """The error for one or more problems of a document."""
        error = Invalid(" ".join(fault.message for fault in faults))
        error.faults = tuple(faults)
        return error

    def faults_at(self, pointer: str) -> tuple[Fault, ...]:
        """The faults of a value at this pointer of a larger document: one if they have no pointers."""
        faults = self.faults or (Fault("", str(self)),)
        return tuple(Fault(pointer + fault.pointer, fault.message) for fault in faults)


class NotFound(HookmillError):
    """The object does not exist, or the caller has no permission to view it."""


class Forbidden(HookmillError):
    """The caller may view the object, but the caller's role does not allow this operation."""


class Revoked(HookmillError):
    """The key was revoked, or the member removed, after the permission was granted. Nothing was changed."""


class Conflict(HookmillError):
    """The present state of the object, or of the host, forbids the operation. Also raised for a wrong old password.

    `command` is a command line that explains the state. Pages show `reason`, which is the text without `command`.
    `pointer` is a JSON pointer to the field that causes the conflict.
    """

    def __init__(self, reason: str, *, command: str = "", pointer: str = "") -> None:
        super().__init__(f"{reason} To see why: {command}" if command else reason)
        self.reason = reason
        self.pointer = pointer


class LimitReached(Conflict):
    """A limit on the number of objects is reached."""


class Changed(Conflict):
    """Somebody else has changed the object since the caller read it. The failed operation changed nothing."""


class StoreUnavailable(HookmillError):
    """The database does not answer or is locked. Except for `DiskFull`, the operation may have been performed."""


class DatabaseUnreachable(StoreUnavailable):
    """The database's server does not answer, or has ended the connection."""


class TransactionConflict(StoreUnavailable):
    """The database rolled the transaction back because of a concurrent one. The same transaction may succeed now."""


class DiskFull(StoreUnavailable):
    """The disk is full, or almost full. The change was not made. The text names no file or host."""


class SignInRefused(HookmillError):
    """The OpenID Connect provider refused the sign-in, or its answer can't be trusted.

    `is_suspicious`: whether the cause may be an attack, or a wrong setting here or at the provider. The operator should
    then know of it, so it is reported in the service's log.
    """

    def __init__(self, message: str, *, is_suspicious: bool = True) -> None:
        super().__init__(message)
        self.is_suspicious = is_suspicious


class ProviderUnavailable(HookmillError):
    """The OpenID Connect provider does not answer, or not as it must.

    `is_repeated`: whether the same failure was raised before, a moment ago.
    """

    def __init__(self, message: str, *, is_repeated: bool = False) -> None:
        super().__init__(message)
        self.is_repeated = is_repeated


class ObjectStoreUnavailable(HookmillError):
    """The object store, which has the contents of runs' files, does not answer or refuses a request."""


class DestinationUnavailable(HookmillError):
    """A destination did not accept a message about an alarm or a run.

    The text has neither a URL's path nor a response's body.
    """
