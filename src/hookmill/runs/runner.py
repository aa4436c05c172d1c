"""What a runner is: it is given a run's package, acts on it, and says how that ended."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from hookmill.domain.errors import HookmillError
from hookmill.domain.run import Ended
from hookmill.runs.package import Package


class Instruction(Enum):
    """What a runner at work is told when it asks."""

    CONTINUE = auto()
    CANCEL = auto()
    """Someone wants the run cancelled: stop, and end it."""
    ABANDON = auto()
    """The service stops, or the run is in other hands: stop, and leave no mark."""


NextInstruction = Callable[[], Instruction]
"""To be asked about twice a second by a runner that takes its time."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The attempt was stopped before its end. Its run is not over, or is somebody else's to end."""


class HostFault(HookmillError):
    """A fault of the service or its host (disk, memory, open files, processes), so never the run's failure.

    Its run goes back to the backlog. `acted`: the command may have done something by then, so the attempt counts.
    `runner`: the name of the only runner that met it, where others may work; None: no run can be performed.
    """

    def __init__(self, message: str, *, acted: bool = False, runner: str | None = None) -> None:
        super().__init__(message)
        self.acted = acted
        self.runner = runner


def reason_of(error: OSError | MemoryError) -> str:
    """Why the host refused, in the system's words."""
    return (error.strerror or type(error).__name__) if isinstance(error, OSError) else "Cannot allocate memory"


class Runner(Protocol):
    @property
    def grace_seconds(self) -> float:
        """How long it may take to stop."""
        ...

    def run(self, package: Package, watch: NextInstruction) -> Ended | Abandoned:
        """Act on the package. What goes wrong on the way is an end too. Raises `HostFault`, and nothing else that can
        be foreseen."""
        ...
