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
    """A fault of the service or its host: disk, memory, open files, processes. The run does not fail; it is
    requeued, unless the fault counts as its last attempt.

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


class UncreatedRunner:
    """Takes the place of a runner that could not be created, so that the other runners of the worker still work.

    Its runs wait, because they are not at fault. Each attempt tries to create the runner again.
    """

    grace_seconds = 0.0

    def __init__(self, name: str, create: Callable[[], Runner]) -> None:
        self._name = name
        self._create = create

    def end_earlier_attempts(self, run: Run) -> None:
        self._created().end_earlier_attempts(run)

    def run(self, package: Package, next_instruction: NextInstruction) -> Ended | Abandoned:
        return self._created().run(package, next_instruction)

    def _created(self) -> Runner:
        try:
            return self._create()
        except Exception as error:
            # The texts of other errors may contain values of settings.
            reason = str(error) if isinstance(error, HookmillError) else f"a fault of type {type(error).__name__}."
            raise HostFault(f"The runner {self._name!r} can't be created: {reason}", runner=self._name) from error
