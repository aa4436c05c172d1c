"""The runners. The operator configures them, and each automation names one."""

from hookmill.runs.runners.command import CommandRunner
from hookmill.runs.runners.package import PackageRunner

__all__ = ["CommandRunner", "PackageRunner"]
