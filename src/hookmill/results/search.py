"""Searches lists of a GitHub or a Gitea for what an earlier attempt or an earlier run has created."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from hookmill.results.repository_access import RepositoryAccess
from hookmill.store.results import ClaimedResult, NotSent

PAGE_SIZES: Final = (50, 5, 1)
"""How many objects a page has. If a page is too large to be read, smaller ones follow."""
PAGES_MAX: Final = 30
ARRIVED: Final = "An earlier attempt had arrived."


def find(
    access: RepositoryAccess,
    path: str,
    is_wanted: Callable[[dict[str, Any]], bool | NotSent],
    *,
    key: str | None = None,
) -> dict[str, Any] | NotSent | None:
    """The first object that is wanted, or why it can't be searched. None if there is none in the first pages.

    `key`: the name of the list in the answer. None: the answer is the list.
    """
    sizes = list(PAGE_SIZES)
    size_name = "per_page" if access.destination.kind == "github" else "limit"
    seen = 0
    for _ in range(PAGES_MAX):
        separator = "&" if "?" in path else "?"
        page = f"{size_name}={sizes[0]}&page={seen // sizes[0] + 1}"
        outcome, answer = access.call("GET", f"{path}{separator}{page}")
        if isinstance(outcome, NotSent):
            return outcome
        objects = answer.get(key) if key is not None and isinstance(answer, dict) else answer
        if not isinstance(objects, list):
            # The answer was too large, or was cut on its way. What is searched may be in its missing part.
            if len(sizes) > 1:
                del sizes[0]
                continue
            noun = path.partition("?")[0].rpartition("/")[2].replace("-", " ")
            return NotSent(problem=f"The answer with the {noun} could not be read.", status=outcome.status)
        for each in objects:
            wanted = is_wanted(each) if isinstance(each, dict) else False
            if isinstance(wanted, NotSent):
                return wanted
            if wanted:
                return dict(each)
        # A Gitea has all comments on one page, whatever its size.
        if len(objects) != sizes[0]:
            return None
        seen += len(objects)
    return None


def details_url(claimed: ClaimedResult, access: RepositoryAccess) -> str | None:
    """The page of the run; None if GitHub refuses its URL, as it does if only this machine can reach the host."""
    is_usable = urlsplit(claimed.result.url).scheme == "https" or access.destination.kind != "github"
    return claimed.result.url if is_usable else None
