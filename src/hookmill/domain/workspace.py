"""The workspace of a run: a checkout of a Git repository that the operator allows.

The automation names the repository. A payload can choose what is checked out, but only as a commit id, branch or tag.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from hookmill.domain import json_pointer
from hookmill.domain.errors import Invalid
from hookmill.domain.filters.values import MISSING
from hookmill.domain.payload import Json, Parsed
from hookmill.domain.payload_pointer import usable_pointer, value_at

REPOSITORY_PATTERN: Final = "[a-z][a-z0-9_-]{0,63}"
DEPTH: Final = 1
"""The default of `Workspace.depth`."""
DEPTH_MAX: Final = 1_000_000
FULL_DEPTH: Final = 0
REF_CHARACTERS_MAX: Final = 200
_REPOSITORY: Final = re.compile(rf"{REPOSITORY_PATTERN}\Z")
_COMMIT: Final = re.compile(r"(?:[0-9a-fA-F]{40}|[0-9a-fA-F]{64})\Z")
_REF_CHARACTERS: Final = re.compile(r"[\w./+@#=,-]+\Z")
"""Fewer characters than Git allows: none of them is special in a refspec or a pattern."""
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
    """The commit to check out. Git can't read any of these values as an option, a pattern or an expression."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The run option: which repository the runs of an automation get, and which ref of it."""

    repository: str
    """The name of a repository in the operator's settings."""
    ref: str | None = None
    """A commit id, branch or tag. None: `ref_pointer` selects it, or else it is the default branch."""
    ref_pointer: str | None = None
    """The JSON pointer of the ref in the payload."""
    depth: int = DEPTH
    """How many commits of the history the checkout has. `FULL_DEPTH`: all."""

    def as_json(self) -> dict[str, Any]:
        """The workspace in definition files and in the store, without what has its default."""
        source: dict[str, Any] = {"repository": self.repository}
        if self.ref_pointer is not None:
            source["ref"] = {"pointer": self.ref_pointer}
        elif self.ref is not None:
            source["ref"] = self.ref
        if self.depth != DEPTH:
            source["depth"] = self.depth if self.depth != FULL_DEPTH else "full"
        return source

    def ref_in(self, payload: Parsed | None) -> GitRef:
        """The commit to check out for a run with this payload. Raises `Invalid`, without values of the payload."""
        if self.ref_pointer is None:
            return git_ref(self.ref) if self.ref is not None else DEFAULT_REF
        value = value_at(payload.value if payload is not None else MISSING, json_pointer.steps_of(self.ref_pointer))
        subject = f"The ref of the workspace, at {self.ref_pointer} in the payload,"
        if payload is None:
            raise Invalid(f"{subject} is missing, because this run has no payload.")
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
    """Why the text names no branch or tag; None if it does. These rules are stricter than those of Git."""
    if not text:
        return "is empty"
    if len(text) > REF_CHARACTERS_MAX:
        return f"has more than {REF_CHARACTERS_MAX} characters"
    if not _REF_CHARACTERS.match(text):
        return "contains a character other than letters, digits and . _ - / + @ # = ,"
    name = text.removeprefix(_BRANCHES if text.startswith(_BRANCHES) else _TAGS)
    if name.startswith("refs/"):
        return "begins with refs/, but not with refs/heads/ or refs/tags/"
    if not name or name in ("@", "HEAD"):
        return "names neither a branch nor a tag"
    if ".." in name or "@{" in name:
        return "contains .. or @{"
    if any(not part or part.startswith((".", "-")) or part.endswith((".", ".lock")) for part in name.split("/")):
        return "has a part between slashes that is empty, begins with . or -, or ends with . or .lock"
    return None


def workspace_from_json(source: Any) -> Workspace:
    """The workspace that a definition describes. Raises `Invalid` with a JSON pointer into the automation."""
    if not isinstance(source, Mapping):
        raise Invalid(
            "workspace must be an object with a repository, such as {repository: app, ref: main}.", pointer="/workspace"
        )
    for key in source:
        if key not in ("repository", "ref", "depth"):
            raise Invalid(
                f"Unknown key {str(key)[:40]!r} of workspace. Known keys: repository, ref, depth.", pointer="/workspace"
            )
    ref, ref_pointer = _ref(source.get("ref"))
    return Workspace(
        repository=_repository(source.get("repository")),
        ref=ref,
        ref_pointer=ref_pointer,
        depth=_depth(source.get("depth")),
    )


def is_repository_name(name: str) -> bool:
    return _REPOSITORY.match(name) is not None


def _repository(name: Any) -> str:
    if isinstance(name, str) and is_repository_name(name):
        return name
    if isinstance(name, Mapping):
        raise Invalid(
            "The repository of a workspace can't come from the payload. Write the name of a repository that the "
            "operator allows.",
            pointer="/workspace/repository",
        )
    raise Invalid(
        "The repository of a workspace must be the name of one that the operator allows: up to 64 lower-case letters, "
        "digits, - and _, beginning with a letter.",
        pointer="/workspace/repository",
    )


def _ref(source: Any) -> tuple[str | None, str | None]:
    """The literal ref, or the pointer to it in the payload."""
    place = "/workspace/ref"
    if source is None:
        return None, None
    if isinstance(source, str):
        try:
            git_ref(source, subject="The ref of the workspace")
        except Invalid as error:
            raise Invalid(str(error), pointer=place) from None
        return source, None
    if isinstance(source, Mapping) and set(source) == {"pointer"}:
        return None, usable_pointer(source["pointer"], f"{place}/pointer", "The pointer of the workspace's ref")
    raise Invalid("The ref of a workspace must be a text, or {pointer: /a/pointer}.", pointer=place)


def _depth(source: Json) -> int:
    if source is None:
        return DEPTH
    if source == "full":
        return FULL_DEPTH
    if type(source) is int and FULL_DEPTH <= source <= DEPTH_MAX:
        return source
    raise Invalid(
        f"The depth of a workspace must be full, or a whole number from 1 to {DEPTH_MAX:,}; 0 means full.",
        pointer="/workspace/depth",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOut:
    """The fields about a workspace in the envelope for programs."""

    repository: str
    ref: GitRef | None
    """None if the payload has no usable ref."""
    commit: str | None
    """The id of the commit, as Git resolved it; None without a checkout."""

    def as_json(self) -> dict[str, Json]:
        ref = self.ref
        return {
            "repository": self.repository,
            "ref": {
                "value": ref.text if ref is not None else None,
                "trust": "untrusted" if ref is None or ref.is_from_payload else "trusted",
            },
            "commit": self.commit,
        }
