"""The workspace of a run: a checkout of a Git repository that the operator allows.

The automation names the repository. A payload can choose what is checked out, but only as a commit id, branch or tag.
The same is true of the base, with which the checkout can be compared.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Annotated, Final, Literal

from msgspec import Meta
from msgspec.structs import force_setattr

from hookmill.domain import json_pointer
from hookmill.domain.errors import Fault, Invalid
from hookmill.domain.filters.values import MISSING
from hookmill.domain.payload import Json, Parsed
from hookmill.domain.payload_pointer import Pointer, value_at
from hookmill.domain.spec import Spec

REPOSITORY_PATTERN: Final = "[a-z][a-z0-9_-]{0,63}"
DEPTH: Final = 1
"""The default of `Workspace.depth`."""
DEPTH_MAX: Final = 1_000_000
FULL_DEPTH: Final = 0
BASE_REF: Final = "refs/hookmill/base"
"""The ref in a checkout that names the base. It is no branch, so `git push --all` does not push it."""
BASE_REF_NAME: Final = BASE_REF.removeprefix("refs/")
"""The same for commands. A branch or tag with this name would not hide it."""
BASE_DEPTHS: Final = (100, 1_000)
"""With a base, so many commits are fetched first; the whole history only if these don't suffice."""
REF_CHARACTERS_MAX: Final = 1_000
_REPOSITORY: Final = re.compile(rf"{REPOSITORY_PATTERN}\Z")
_COMMIT: Final = re.compile(r"(?:[0-9a-fA-F]{40}|[0-9a-fA-F]{64})\Z")
_FORBIDDEN_CHARACTERS: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]")
"""Those of `git check-ref-format`. The other ones mean nothing in a refspec or a pattern."""
_INVISIBLE_CATEGORIES: Final = ("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")
_BRANCHES: Final = "refs/heads/"
_TAGS: Final = "refs/tags/"


class RefKind(Enum):
    DEFAULT = auto()
    """The default branch of the repository."""
    COMMIT = auto()
    NAME = auto()
    """A branch, or else a tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitRef:
    """A commit to fetch. Git can't read its full names as an option, a pattern or an expression."""

    kind: RefKind
    text: str | None = None
    """The commit id in lower case, or the name as it was written; None for the default branch."""
    is_from_payload: bool = False

    @property
    def full_names(self) -> tuple[str, ...]:
        """The refs of the repository that the name may mean, in the order of precedence. Empty for a commit id."""
        if self.kind is RefKind.COMMIT:
            return ()
        if self.text is None:
            return ("HEAD",)
        if self.text.startswith((_BRANCHES, _TAGS)):
            return (self.text,)
        return (_BRANCHES + self.text, _TAGS + self.text)


DEFAULT_REF: Final = GitRef(kind=RefKind.DEFAULT)


class RefFromPayload(Spec, frozen=True, kw_only=True):
    """A commit id, branch or tag that the payload has."""

    pointer: Annotated[Pointer, Meta(description="Its JSON pointer in the payload.")]


Ref = Annotated[str, Meta(min_length=1, max_length=REF_CHARACTERS_MAX)] | RefFromPayload


class Workspace(Spec, frozen=True, kw_only=True):
    """The checkout of a Git repository that each run gets."""

    repository: Annotated[
        str,
        Meta(
            pattern=f"^{REPOSITORY_PATTERN}$",
            description="The name of a repository in the operator's settings. It never comes from the payload.",
            extra={
                "phrase": "the name of a repository that the operator allows: up to 64 lower-case letters, digits, - "
                "and _, beginning with a letter"
            },
        ),
    ]
    ref: Annotated[
        Ref | None,
        Meta(description="A commit id, branch or tag, or where the payload has it. Null: the default branch."),
    ] = None
    base: Annotated[
        Ref | None,
        Meta(
            description="A commit id, branch or tag, or where the payload has it, with which commands can compare the "
            "checkout. Null: none."
        ),
    ] = None
    depth: Annotated[
        Annotated[int, Meta(ge=FULL_DEPTH, le=DEPTH_MAX)] | Literal["full"],
        Meta(
            description="How many commits of the history the checkout has, or more if there is a base. 0 and full: all."
        ),
    ] = DEPTH

    def __post_init__(self) -> None:
        force_setattr(self, "depth", self.commits)

    @property
    def commits(self) -> int:
        """How many commits of the history it has, at least. `FULL_DEPTH`: all."""
        return FULL_DEPTH if isinstance(self.depth, str) else self.depth

    def problems(self) -> Iterator[Fault]:
        for name, ref in (("ref", self.ref), ("base", self.base)):
            if isinstance(ref, str):
                try:
                    git_ref(ref, subject=f"The {name} of the workspace")
                except Invalid as error:
                    yield Fault(f"/{name}", str(error))

    def ref_in(self, payload: Parsed | None) -> GitRef:
        """The commit to check out for a run with this payload. Raises `Invalid`, without values of the payload."""
        return _ref_in(self.ref, payload, "ref") or DEFAULT_REF

    def base_in(self, payload: Parsed | None) -> GitRef | None:
        """The base of the checkout for a run with this payload; None without one. Raises `Invalid`, like `ref_in`."""
        return _ref_in(self.base, payload, "base")


def _ref_in(ref: Ref | None, payload: Parsed | None, name: str) -> GitRef | None:
    if isinstance(ref, RefFromPayload):
        return _ref_at(ref.pointer, payload, name)
    return git_ref(ref) if ref is not None else None


def _ref_at(pointer: str, payload: Parsed | None, name: str) -> GitRef:
    """The ref at a place of the payload. Raises `Invalid`, without values of the payload."""
    subject = f"The {name} of the workspace, at {pointer} in the payload,"
    if payload is None:
        raise Invalid(f"{subject} is missing, because this run has no payload.")
    value = value_at(payload.value, json_pointer.steps_of(pointer))
    if value is MISSING:
        raise Invalid(f"{subject} is missing.")
    if not isinstance(value, str):
        raise Invalid(f"{subject} is not a string.")
    return git_ref(value, subject=subject, is_from_payload=True)


def git_ref(text: str, *, subject: str = "The ref", is_from_payload: bool = False) -> GitRef:
    """The commit id, branch or tag that `text` names. Raises `Invalid`; its text begins with `subject`."""
    if _COMMIT.match(text):
        return GitRef(kind=RefKind.COMMIT, text=text.lower(), is_from_payload=is_from_payload)
    if reason := _reason_against(text):
        raise Invalid(
            f"{subject} {reason}. It must be a commit id of 40 or 64 hexadecimal digits, or the name of a branch or "
            "tag."
        )
    return GitRef(kind=RefKind.NAME, text=text, is_from_payload=is_from_payload)


def _reason_against(text: str) -> str | None:
    """Why the text names no branch or tag that may be fetched; None if it does.

    The rules are those of `git check-ref-format`, and a few for names that people or programs could misread. Git always
    gets the full name of a ref, so a shell's special characters do no harm.
    """
    if not text:
        return "is empty"
    if len(text) > REF_CHARACTERS_MAX:
        return f"has more than {REF_CHARACTERS_MAX:,} characters"
    if _FORBIDDEN_CHARACTERS.search(text):
        return "contains a space, a control character or one of ~ ^ : ? * [ \\"
    if any(unicodedata.category(character) in _INVISIBLE_CATEGORIES for character in text):
        return "contains a character that is not visible"
    name = text.removeprefix(_BRANCHES if text.startswith(_BRANCHES) else _TAGS)
    if name.startswith("refs/"):
        return "begins with refs/, but not with refs/heads/ or refs/tags/"
    if not name or name in ("@", "HEAD"):
        return "names neither a branch nor a tag"
    if ".." in name or "@{" in name or name.endswith("."):
        return "contains .. or @{, or ends with a dot"
    if name.startswith("-") or any(
        not part or part.startswith(".") or part.endswith(".lock") for part in name.split("/")
    ):
        return "has a part between slashes that is empty, begins with a dot or ends with .lock, or it begins with -"
    return None


def depths_to_fetch(depth: int, *, has_base: bool) -> tuple[int, ...]:
    """How many commits of the history are fetched, one number after the other, until the merge base is certain."""
    if depth == FULL_DEPTH or not has_base:
        return (depth,)
    first = max(depth, BASE_DEPTHS[0])
    return (first, *(larger for larger in BASE_DEPTHS if larger > first), FULL_DEPTH)


def is_repository_name(name: str) -> bool:
    return _REPOSITORY.match(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutCommits:
    """The ids of the commits of a checkout, as Git resolved them."""

    commit: str
    base_commit: str | None = None
    """None without a base."""
    merge_base: str | None = None
    """The newest common ancestor of both, at which the changes since the base begin; None without a base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOut:
    """The fields about a workspace in the envelope for programs."""

    repository: str
    ref: GitRef | None
    """None if the payload has no usable ref."""
    base: GitRef | None = None
    """None without a base, or if the payload has no usable one."""
    has_base: bool = False
    """Whether the automation names a base. Without one, the envelope does not mention it."""
    commits: CheckoutCommits | None
    """None without a checkout."""

    def as_json(self) -> dict[str, Json]:
        commits = self.commits
        fields: dict[str, Json] = {
            "repository": self.repository,
            "ref": _ref_json(self.ref),
            "commit": commits.commit if commits is not None else None,
        }
        if self.has_base:
            fields |= {
                "base": _ref_json(self.base),
                "base_commit": commits.base_commit if commits is not None else None,
                "merge_base": commits.merge_base if commits is not None else None,
            }
        return fields


def _ref_json(ref: GitRef | None) -> dict[str, Json]:
    return {
        "value": ref.text if ref is not None else None,
        "trust": "untrusted" if ref is None or ref.is_from_payload else "trusted",
    }
