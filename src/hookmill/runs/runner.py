"""The interface of a runner: it receives a run's package, acts on it, and reports the result."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from hookmill.domain.errors import HookmillError
from hookmill.domain.run import Ended, Run
from hookmill.runs.package import Package


class Instruction(Enum):
    """What a runner must do next."""

    CONTINUE = auto()
    CANCEL = auto()
    """The run was cancelled: stop, and return a cancelled result."""
    ABANDON = auto()
    """The service stops, or another worker claimed the run: stop, and return `Abandoned`."""


NextInstruction = Callable[[], Instruction]
"""Returns the current instruction. A runner calls it about twice a second while it works."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The attempt does not end the run. The run continues in another attempt, or another worker ends it."""


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
        """The time that a stopped run gets to end by itself. A shutdown waits longer before it kills processes."""
        ...

    def end_earlier_attempts(self, run: Run) -> None:
        """End what earlier attempts of the run may have left running. Called before the package is written again.

        Raises `OSError` or `MemoryError`.
        """
        ...

    def run(self, package: Package, next_instruction: NextInstruction) -> Ended | Abandoned:
        """Act on the package. A failure of the run is returned. Raises `HostFault` only for a fault of the host."""
        ...
