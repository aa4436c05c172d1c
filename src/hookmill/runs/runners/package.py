"""The default runner, which needs no configuration: it leaves the package on disk for another program."""

from dataclasses import dataclass

from hookmill.domain.run import Ended, RunState
from hookmill.runs.package import Package, make_durable
from hookmill.runs.runner import HostFault, NextInstruction


@dataclass(frozen=True, slots=True)
class PackageRunner:
    """Succeeds when the package is synced to disk."""

    grace_seconds: float = 0.0

    def run(self, package: Package, next_instruction: NextInstruction) -> Ended:
        try:
            make_durable(package)
        except OSError as error:
            if package.directory.parent.is_dir() and not package.directory.exists():
                # Another program has moved or removed the package. A second package would make it do its work twice.
                return Ended(state=RunState.FAILED, reason=f"The package could not be synced: {error.strerror}.")
            packages = package.directory.parent
            raise HostFault(f"A run's package could not be synced in {packages}: {error.strerror}.") from error
        return Ended(
            state=RunState.SUCCEEDED,
            output_tail=f"The package is ready to be picked up in {package.directory}.",
        )
