"""The kind `package`, and the default runner: it leaves the package on disk for another program."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from hookmill.domain.run import Ended, Run, RunState
from hookmill.runs.package import Package, make_durable
from hookmill.runs.runner import HostFault, NextInstruction
from hookmill.runs.runners.kind import RunnerContext, RunnerSettings


@dataclass(frozen=True, slots=True)
class PackageRunner:
    """Succeeds when the package is synced to disk."""

    grace_seconds: float = 0.0

    def end_earlier_attempts(self, run: Run) -> None:
        """Nothing: it starts no processes."""

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
            output_tail="Nothing was executed, because this runner only writes files. The package is ready to be "
            f"picked up in {package.directory}.",
        )


class PackageSettings(RunnerSettings):
    """The settings of a runner that only writes the run's files."""

    kind: Literal["package"] = Field(default="package", description="`package` only writes the run's files.")

    def create_runner(self, context: RunnerContext) -> PackageRunner:
        return PackageRunner()

    def summary(self) -> str:
        return "only writes the run's files"
