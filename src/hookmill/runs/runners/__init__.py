"""What can be done with a run's package. The operator says which runners there are; an automation names one."""

from hookmill.runs.runners.command import CommandRunner
from hookmill.runs.runners.package import PackageRunner

__all__ = ["CommandRunner", "PackageRunner"]
