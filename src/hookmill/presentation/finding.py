"""The results of `hookmill doctor` as JSON."""

from __future__ import annotations

from typing import Annotated, Self

from msgspec import Meta

from hookmill.domain.finding import Examination, Finding, Status
from hookmill.presentation.view import View


class FindingView(View, frozen=True):
    check: str
    status: Status
    observation: str
    advice: Annotated[str | None, Meta(description="What to do. Null if there is nothing to do.")]

    @classmethod
    def of(cls, finding: Finding) -> Self:
        return cls(
            check=finding.check,
            status=finding.status,
            observation=finding.observation,
            advice=finding.advice or None,
        )


class ExaminationView(View, frozen=True):
    problems: int
    warnings: int
    findings: tuple[FindingView, ...]
    not_checked: Annotated[
        tuple[str, ...],
        Meta(description="The checks that were not made, because a check that they depend on has a problem."),
    ]

    @classmethod
    def of(cls, examination: Examination) -> Self:
        return cls(
            problems=examination.count(Status.PROBLEM),
            warnings=examination.count(Status.WARNING),
            findings=tuple(FindingView.of(finding) for finding in examination.findings),
            not_checked=examination.not_checked,
        )
