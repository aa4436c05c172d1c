"""The interface of a runner: it receives a run's package, acts on it, and reports how that ended."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from hookmill.domain.errors import HookmillError
from hookmill.domain.run import Ended
from hookmill.runs.package import Package


class Instruction(Enum):
    """What a runner must do next."""

    CONTINUE = auto()
    CANCEL = auto()
    """A member cancelled the run: stop, and end it as cancelled."""
    ABANDON = auto()
    """The service stops, or another worker claimed the run: stop, and record nothing."""


NextInstruction = Callable[[], Instruction]
"""Called about twice a second while a runner works."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The attempt was stopped before its end. The run continues in another attempt, or another worker ends it."""


class HostFault(HookmillError):
    """A fault of the service or its host: disk, memory, open files, processes. The run does not fail; it is requeued.

    `counts_as_attempt`: whether the attempt counts towards `run_attempts_max`, because the command may have started.
    `runner`: the affected runner; None if no run can be performed.
    """

    def __init__(self, message: str, *, counts_as_attempt: bool = False, runner: str | None = None) -> None:
        super().__init__(message)
        self.counts_as_attempt = counts_as_attempt
        self.runner = runner


def reason_of(error: OSError | MemoryError) -> str:
    """The operating system's text for the error."""
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else "Cannot allocate memory"


class Runner(Protocol):
    @property
    def grace_seconds(self) -> float:
        """The longest time that the runner takes to stop."""
        ...

    def run(self, package: Package, next_instruction: NextInstruction) -> Ended | Abandoned:
        """Act on the package. A failure is an `Ended`, not an exception. Raises `HostFault` for a fault of the host."""
        ...
