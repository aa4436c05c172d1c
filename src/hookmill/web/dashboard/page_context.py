"""One request for a page: who makes it, what it brought along, and how it is answered."""

import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import anyio.to_thread
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from hookmill.domain.factory import Factory
from hookmill.management import Management, SignedIn
from hookmill.web.dashboard import pages
from hookmill.web.dashboard.sign_in_limits import Guesses, SignInLine
from hookmill.web.dashboard.urls import url

FORM_FIELDS_MAX: Final = 1_000
THREADS: Final = 8
"""Pages made at the same time for members. More would wait for the database all the same, and keep its connections from
others."""
OPEN_THREADS: Final = 2
"""Pages made at the same time for everybody else: members do not wait for those who are not signed in."""

T = TypeVar("T")


class SubmittedForm(Mapping[str, str]):
    """The fields of a submitted form. A missing field reads as the empty string."""

    def __init__(self, pairs: Sequence[tuple[str, str]] = ()) -> None:
        self._pairs = tuple(pairs)

    def __getitem__(self, name: str) -> str:
        return next((value for key, value in self._pairs if key == name), "")

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._pairs))

    def __len__(self) -> int:
        return len(dict(self._pairs))

    def pairs(self) -> Sequence[tuple[str, str]]:
        """Every field as it was sent, in that order."""
        return self._pairs

    def all(self, name: str) -> list[str]:
        """Every value of a field that may be sent several times."""
        return [value for key, value in self._pairs if key == name]

    def optional(self, name: str) -> str | None:
        """The field without surrounding whitespace; None if it is empty."""
        return self[name].strip() or None

    def is_checked(self, name: str) -> bool:
        return name in dict(self._pairs)


def parse_form(body: bytes) -> SubmittedForm:
    """Raises `ValueError` if no browser would send this body."""
    text = body.decode("ascii")
    return SubmittedForm(parse_qsl(text, keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What every page may need to know of the service it belongs to."""

    management: Management
    now_us: Callable[[], int]
    failed: Callable[[str, BaseException], None]
    is_https: bool
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The settings in force, as the page that shows them does."""
    threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(THREADS))
    open_threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(OPEN_THREADS))
    hashing: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    """Where members and bearers of a link have a password hashed."""
    guesses: Guesses = field(default_factory=Guesses)
    sign_ins: SignInLine = field(default_factory=SignInLine)
    known_sign_ins: SignInLine = field(default_factory=SignInLine)
    """Of browsers from which the account was signed in to before: they wait for no others."""


@dataclass(slots=True, kw_only=True)
class PageContext:
    """A request and its answers. `signed_in` is None on the pages that are there for everybody."""

    request: Request
    service: Service
    client: str | None
    signed_in: SignedIn | None = None
    session: str | None = None
    form: SubmittedForm = field(default_factory=SubmittedForm)
    factory: Factory | None = None
    """The factory that the page is about."""
    page_path: str = ""
    """The path of the page, before its variable parts were filled in."""

    @property
    def management(self) -> Management:
        return self.service.management

    @property
    def query(self) -> QueryParams:
        return self.request.query_params

    @property
    def parameters(self) -> Mapping[str, str]:
        """The variable parts of the path."""
        return self.request.path_params

    @property
    def by_htmx(self) -> bool:
        """Whether a part of a page is wanted, not a whole one."""
        return self.request.headers.get("hx-request") == "true"

    @property
    def csrf(self) -> str:
        return csrf_of(self.session or "")

    async def in_thread(
        self, work: Callable[..., T], *arguments: Any, limiter: anyio.CapacityLimiter | None = None, **named: Any
    ) -> T:
        """Do what waits for the database, or takes long, where it keeps no delivery waiting."""
        if limiter is None:
            limiter = self.service.threads if self.signed_in is not None else self.service.open_threads
        return await anyio.to_thread.run_sync(partial(work, *arguments, **named), limiter=limiter)

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """A page, or a part of one."""
        return HTMLResponse(pages.render(template, self, values), status)

    def page_again(self, template: str, mark: str, **values: Any) -> Response:
        """A part that an open page asks for again and again. Nothing, when its reader has seen it as it is."""
        if mark and self.query.get("seen") == mark:
            return Response(status_code=204)
        return self.page(template, **values)

    def go(self, *path: str, flash: str | None = None, **query: str) -> Response:
        """Redirect to another page. `flash` is the key of the message that it shows, in `pages.FLASH_MESSAGES`."""
        if flash is not None:
            query["flash"] = flash
        return RedirectResponse(url(*path, **query), 303)


def mark_of(*shown: object) -> str:
    """What a page remembers of what it shows. Another one says that something has changed."""
    return sha256(repr(shown).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def csrf_of(session: str) -> str:
    """What a form of this session carries. Who doesn't know the session can't make it."""
    return sha256(f"form {session}".encode()).hexdigest()


def is_csrf_of(session: str, token: str) -> bool:
    return hmac.compare_digest(csrf_of(session).encode(), token.encode("utf-8", "surrogatepass"))
