"""The results that an automation declares: what a worker delivers about its runs, and to which destination.

The operator's settings define the destinations with their credentials. The payload only selects a repository, an issue
and a commit, at JSON pointers, and each value is verified.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Final

from msgspec import Meta
from msgspec.structs import force_setattr

from hookmill.domain import json_pointer
from hookmill.domain.errors import Fault, Invalid
from hookmill.domain.filters.globs import Glob
from hookmill.domain.filters.values import MISSING
from hookmill.domain.payload import Json, parsed_payload
from hookmill.domain.payload_pointer import Pointer, value_at
from hookmill.domain.spec import Spec
from hookmill.domain.text import printable

RESULTS_MAX: Final = 10
DESTINATION_PATTERN: Final = "[a-z][a-z0-9_-]{0,63}"
CONTEXT_CHARACTERS_MAX: Final = 100
NUMBER_MAX: Final = 2**53 - 1
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}/(?!\.{1,2}\Z)[A-Za-z0-9_.-]{1,100}\Z")
_COMMIT: Final = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
"""The id of a commit in a repository with SHA-1 or with SHA-256."""


class ResultKind(StrEnum):
    GITHUB_CHECK = "github_check"
    GITHUB_COMMENT = "github_comment"
    GITHUB_REVIEW = "github_review"
    GITHUB_STATUS = "github_status"
    SLACK = "slack"
    WEBHOOK = "webhook"


class ResultDestinationKind(StrEnum):
    """The kinds of destinations. A Gitea has nearly the same API as GitHub, without check runs."""

    GITHUB = "github"
    GITEA = "gitea"
    SLACK = "slack"
    WEBHOOK = "webhook"


DESTINATION_KINDS: Final[Mapping[ResultKind, tuple[ResultDestinationKind, ...]]] = {
    ResultKind.GITHUB_CHECK: (ResultDestinationKind.GITHUB,),
    ResultKind.GITHUB_COMMENT: (ResultDestinationKind.GITHUB, ResultDestinationKind.GITEA),
    ResultKind.GITHUB_REVIEW: (ResultDestinationKind.GITHUB, ResultDestinationKind.GITEA),
    ResultKind.GITHUB_STATUS: (ResultDestinationKind.GITHUB, ResultDestinationKind.GITEA),
    ResultKind.SLACK: (ResultDestinationKind.SLACK,),
    ResultKind.WEBHOOK: (ResultDestinationKind.WEBHOOK,),
}
"""The kinds of destinations that can get a result of each kind."""
STATUS_KINDS: Final = frozenset({ResultKind.GITHUB_CHECK, ResultKind.GITHUB_STATUS})
"""The kinds whose messages say what state a run has."""
DISCUSSION_KINDS: Final = frozenset({ResultKind.GITHUB_COMMENT, ResultKind.GITHUB_REVIEW})
"""The kinds whose messages appear in the discussion of a pull request. Only the newest run counts there."""
STATE_KINDS: Final = STATUS_KINDS | DISCUSSION_KINDS
"""The kinds of which a newer message replaces one that still waits."""
_REPOSITORY_POINTERS: Final = ("/repository/full_name",)
_NUMBER_POINTERS: Final = ("/pull_request/number", "/issue/number", "/number")
_COMMIT_POINTERS: Final = (
    "/pull_request/head/sha",
    "/merge_group/head_sha",
    "/check_run/head_sha",
    "/check_suite/head_sha",
    "/workflow_run/head_sha",
    "/workflow_job/head_sha",
    "/deployment/sha",
    "/after",
)
"""Where GitHub and Gitea put the values. The first pointer that selects a value counts."""


OPTIONAL_FIELDS: Final[Mapping[ResultKind, tuple[str, ...]]] = {
    ResultKind.GITHUB_CHECK: ("context", "repository", "commit"),
    ResultKind.GITHUB_COMMENT: ("update", "repository", "number"),
    ResultKind.GITHUB_REVIEW: ("repository", "number", "commit"),
    ResultKind.GITHUB_STATUS: ("context", "repository", "commit"),
    ResultKind.SLACK: (),
    ResultKind.WEBHOOK: (),
}


class DeclaredResult(Spec, frozen=True, kw_only=True, omit_defaults=True):
    """A result of one kind that a worker delivers about each run. Without pointers, the provider's usual ones apply."""

    kind: Annotated[ResultKind, Meta(description="What is delivered.")]
    destination: Annotated[
        str,
        Meta(
            pattern=f"^{DESTINATION_PATTERN}$",
            description="The name of a destination in the operator's settings.",
            extra={"phrase": "the name of a destination in the operator's settings"},
        ),
    ]
    context: Annotated[
        Annotated[str, Meta(min_length=1, max_length=CONTEXT_CHARACTERS_MAX)] | None,
        Meta(description="The name of a commit status or a check run. Null: the automation's name."),
    ] = None
    update: Annotated[bool | None, Meta(description="Whether the next run updates the comment. Null: it does.")] = None
    repository: Annotated[Pointer | None, Meta(description="The JSON pointer of the repository's name.")] = None
    number: Annotated[Pointer | None, Meta(description="The JSON pointer of the number of the issue.")] = None
    commit: Annotated[Pointer | None, Meta(description="The JSON pointer of the commit's id.")] = None

    def __post_init__(self) -> None:
        if self.update:
            # Equal results have equal values.
            force_setattr(self, "update", None)

    def problems(self) -> Iterator[Fault]:
        allowed = ("kind", "destination", *OPTIONAL_FIELDS[self.kind])
        for name in self.__struct_fields__:
            if name not in allowed and getattr(self, name) is not None:
                yield Fault(f"/{name}", f"A result of the kind {self.kind} has no {name}. It has {', '.join(allowed)}.")
        if self.context is not None and not self.context.isprintable():
            yield Fault("/context", "context must be a text of visible characters.")

    def as_text(self) -> str:
        """The result as people write it in `json_of_text`. With other keys, it is the text of the JSON."""
        has_more = any((self.repository, self.number, self.commit, self.update is not None))
        if has_more or (self.context is not None and self.context != self.context.strip()):
            return json.dumps(self.as_json(), ensure_ascii=False)
        return "=".join((self.kind.value, self.destination, *([self.context] if self.context is not None else [])))


DeclaredResults = Annotated[
    tuple[DeclaredResult, ...],
    Meta(
        max_length=RESULTS_MAX,
        extra_json_schema={"uniqueItems": True},
        description="What a worker delivers about each run, and to which destination of the settings. Null: nothing.",
    ),
]


def json_of_text(text: str) -> dict[str, Any] | None:
    """The JSON of `KIND=DESTINATION` or `KIND=DESTINATION=CONTEXT`, which is not checked. None: it is neither."""
    kind, separator, rest = text.partition("=")
    destination, context_separator, context = rest.partition("=")
    if not separator:
        return None
    return {"kind": kind, "destination": destination, **({"context": context} if context_separator else {})}


# What one run delivers


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationRules:
    """What the settings allow for a destination. `repositories` are the patterns of allowed ones, in lower case."""

    kind: ResultDestinationKind
    repositories: tuple[Glob, ...] = ()
    factories: tuple[str, ...] | None = None
    """The names of the factories whose automations may use it; None: all."""
    has_app: bool = False
    """Whether its credential is the key of a GitHub App. GitHub lets nothing else write check runs."""

    def allows(self, repository: str) -> bool:
        return any(glob.matches(repository.lower()) for glob in self.repositories)


def destinations_of(factory: str, destinations: Mapping[str, DestinationRules]) -> Mapping[str, DestinationRules]:
    """The destinations that automations of the factory with this name may use."""
    return {
        name: rules
        for name, rules in sorted(destinations.items())
        if rules.factories is None or factory in rules.factories
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTarget:
    """Where in its destination the result goes. Each value is verified."""

    repository: str | None = None
    number: int | None = None
    commit: str | None = None
    context: str | None = None
    is_updated: bool = False
    """Of a comment: whether the next run updates it."""

    def text(self) -> str:
        """The target for people. Empty for a destination that is the target itself."""
        if self.repository is None:
            return ""
        if self.number is not None:
            return f"{self.repository}#{self.number}"
        return f"{self.repository}@{(self.commit or '')[:12]} {self.context or ''}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedResult:
    """A result of one run. With a `refusal`, nothing is delivered: it says why, without text of the payload."""

    number: int
    """The position in the automation's list, from 0."""
    kind: ResultKind
    destination: str
    target: ResultTarget
    refusal: str | None = None

    @property
    def reports_start(self) -> bool:
        """Whether the start of the run is delivered, too."""
        return self.kind in STATUS_KINDS or self.kind is ResultKind.WEBHOOK


def plan_results(
    results: Sequence[DeclaredResult],
    payload: bytes | None,
    automation_name: str,
    destinations: Mapping[str, DestinationRules],
) -> list[PlannedResult]:
    """What a run with this payload delivers."""
    parsed = parsed_payload(payload)
    value = parsed.value if parsed is not None else MISSING
    return [_plan(number, result, value, automation_name, destinations) for number, result in enumerate(results)]


def _plan(
    number: int,
    result: DeclaredResult,
    payload: Json,
    automation_name: str,
    destinations: Mapping[str, DestinationRules],
) -> PlannedResult:
    target = ResultTarget()
    refusal = None
    try:
        rules = rules_for(result.kind, result.destination, destinations)
        target = _target(result, payload, automation_name)
        refuse_repository(target, rules)
    except Invalid as error:
        refusal = str(error)
    return PlannedResult(
        number=number, kind=result.kind, destination=result.destination, target=target, refusal=refusal
    )


def rules_for(kind: ResultKind, destination: str, destinations: Mapping[str, DestinationRules]) -> DestinationRules:
    """The rules of the destination. Raises `Invalid` if there is none, or if it can't get results of this kind."""
    rules = destinations.get(destination)
    if rules is None:
        raise Invalid(
            f"The settings have no destination {destination!r} that the factory may use. Add it to the settings of "
            "every host that performs runs, and restart the service."
        )
    if (problem := kind_problem(kind, destination, rules)) is not None:
        raise Invalid(problem)
    return rules


def kind_problem(kind: ResultKind, destination: str, rules: DestinationRules) -> str | None:
    """Why the destination can't get results of this kind; None: it can."""
    if rules.kind in DESTINATION_KINDS[kind]:
        if kind is ResultKind.GITHUB_CHECK and not rules.has_app:
            return (
                f"The destination {destination!r} has a token, and GitHub lets only apps write check runs. Set app_id "
                "and app_key_from instead of secret_from."
            )
        return None
    return f"The destination {destination!r} is of the kind {rules.kind.value}, which gets no {kind.value}."


def refuse_repository(target: ResultTarget, rules: DestinationRules) -> None:
    """Raises `Invalid` if the settings don't allow the target's repository."""
    if target.repository is not None and not rules.allows(target.repository):
        raise Invalid(
            f"The destination does not allow the repository {target.repository}. Its setting repositories names those "
            "that it allows."
        )


def _target(result: DeclaredResult, payload: Json, automation_name: str) -> ResultTarget:
    match result.kind:
        case ResultKind.GITHUB_COMMENT:
            return ResultTarget(
                repository=_repository(result, payload),
                number=_number(result, payload),
                is_updated=result.update is not False,
            )
        case ResultKind.GITHUB_REVIEW:
            return ResultTarget(
                repository=_repository(result, payload),
                number=_number(result, payload),
                commit=_commit_if_any(result, payload),
            )
        case ResultKind.GITHUB_STATUS | ResultKind.GITHUB_CHECK:
            name = printable(automation_name).replace("\n", " ")
            return ResultTarget(
                repository=_repository(result, payload),
                commit=_commit(result, payload),
                context=result.context or f"hookmill/{name}"[:CONTEXT_CHARACTERS_MAX],
            )
        case ResultKind.SLACK | ResultKind.WEBHOOK:
            return ResultTarget()


def _repository(result: DeclaredResult, payload: Json) -> str:
    value, place = _selected(payload, result.repository, _REPOSITORY_POINTERS)
    if isinstance(value, str) and _REPOSITORY.match(value):
        return value
    raise _unusable("a repository such as owner/name", place, value)


def _number(result: DeclaredResult, payload: Json) -> int:
    value, place = _selected(payload, result.number, _NUMBER_POINTERS)
    if type(value) is int and 1 <= value <= NUMBER_MAX:
        return value
    raise _unusable("the number of an issue or a pull request", place, value)


def _commit(result: DeclaredResult, payload: Json) -> str:
    value, place = _selected(payload, result.commit, _COMMIT_POINTERS)
    if isinstance(value, str) and _COMMIT.match(value) and value.strip("0"):
        return value
    raise _unusable("the id of a commit (40 or 64 hexadecimal digits)", place, value)


def _commit_if_any(result: DeclaredResult, payload: Json) -> str | None:
    """The commit to review. None: that of the pull request, because the payload is about a comment, for example."""
    if result.commit is None and _selected(payload, None, _COMMIT_POINTERS)[0] is MISSING:
        return None
    return _commit(result, payload)


def _selected(payload: Json, declared: str | None, usual: Sequence[str]) -> tuple[Json, str]:
    pointers = (declared,) if declared is not None else usual
    for pointer in pointers:
        value = value_at(payload, json_pointer.steps_of(pointer))
        if value is not MISSING and value is not None:
            return value, pointer
    return MISSING, " or ".join(pointers)


def _unusable(what: str, place: str, value: Json) -> Invalid:
    problem = "has no value" if value is MISSING else "has another value"
    return Invalid(f"The payload {problem} at {place}, where it must have {what}.")
