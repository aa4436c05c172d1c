"""The findings of the checks of `hookmill doctor`: an observation, and advice to the operator."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self

NAMES_MAX: Final = 5
"""How many things a finding names."""


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """The checked thing works, but should be changed, or may soon be a problem."""
    PROBLEM = "problem"
    """Something does not work, or can lose data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of a check. The texts contain no secret."""

    status: Status
    observation: str
    """The observation, with the name of the thing. A sentence without a full stop at its end, or several sentences."""
    advice: str = ""
    """The advice. Empty if there is nothing to do."""
    check: str = ""
    """The stable name of the check, such as `disk space`. Empty until `of_check`."""

    def of_check(self, name: str) -> Self:
        """The finding with the name of the check that has made it, unless it has another one."""
        return self if self.check else replace(self, check=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """The results of all checks."""

    findings: tuple[Finding, ...]
    not_checked: tuple[str, ...]
    """The checks that were not made, because a check that they depend on has a problem."""

    @property
    def has_problems(self) -> bool:
        return any(finding.status is Status.PROBLEM for finding in self.findings)

    def count(self, status: Status) -> int:
        return sum(finding.status is status for finding in self.findings)


def ok(observation: str) -> Finding:
    return Finding(status=Status.OK, observation=observation)


def warning(observation: str, advice: str) -> Finding:
    return Finding(status=Status.WARNING, observation=observation, advice=advice)


def problem(observation: str, advice: str) -> Finding:
    return Finding(status=Status.PROBLEM, observation=observation, advice=advice)


def listed(names: Sequence[str]) -> str:
    """The first names of things for an observation, and how many more there are."""
    more = f", and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more
