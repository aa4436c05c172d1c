"""The context of one request to the dashboard: its member, form and query, and methods that create responses."""

import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl

import anyio.to_thread
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from hookmill.domain.errors import ReportFailure, StoreUnavailable
from hookmill.domain.factory import Factory
from hookmill.management import Management, SignedInMember
from hookmill.management.alarms import OpenAlarms
from hookmill.web.dashboard import pages
from hookmill.web.dashboard.effective_setting import EffectiveSetting
from hookmill.web.dashboard.sign_in_limits import GuessCounter, RefusalReports, SignInQueue
from hookmill.web.dashboard.urls import url

if TYPE_CHECKING:
    from hookmill.oidc.provider import Provider

FORM_FIELDS_MAX: Final = 1_000
MEMBER_THREADS: Final = 8
"""How many pages are rendered at the same time for members. More threads would only occupy database connections."""
UNAUTHENTICATED_THREADS: Final = 2
"""How many pages are rendered at the same time for unauthenticated clients. Members don't wait for these threads."""

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

    def all(self, name: str) -> list[str]:
        """Every value of a field that may be sent several times."""
        return [value for key, value in self._pairs if key == name]

    def optional(self, name: str) -> str | None:
        """The field without surrounding whitespace; None if it is empty."""
        return self[name].strip() or None

    def is_checked(self, name: str) -> bool:
        """Whether the form contains the field, even if it is empty. Browsers omit checkboxes that are not checked."""
        return name in dict(self._pairs)


def parse_form(body: bytes) -> SubmittedForm:
    """The fields of a form. Raises `ValueError` if the body is not a valid form."""
    text = body.decode("ascii")
    return SubmittedForm(parse_qsl(text, keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The parts of the service that pages need."""

    management: Management
    now_us: Callable[[], int]
    report_failure: ReportFailure
    is_https: bool
    settings: Mapping[str, EffectiveSetting] = field(default_factory=dict)
    """The effective settings by name, for admins."""
    has_room: Callable[[], bool] = lambda: True
    """Whether this host's disk has room for another delivery."""
    member_thread_limiter: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(MEMBER_THREADS))
    unauthenticated_thread_limiter: anyio.CapacityLimiter = field(
        default_factory=lambda: anyio.CapacityLimiter(UNAUTHENTICATED_THREADS)
    )
    hashing_limiter: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(1))
    """Limits the hashing of new passwords, of members and of holders of a sign-in link, to one at a time."""
    alarm_test_limiter: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(2))
    """Limits tests of alarm destinations, which may be slow. Other pages don't wait for these threads."""
    guess_counter: GuessCounter = field(default_factory=GuessCounter)
    refusal_reports: RefusalReports = field(default_factory=RefusalReports)
    sign_in_queue: SignInQueue = field(default_factory=SignInQueue)
    known_browser_queue: SignInQueue = field(default_factory=SignInQueue)
    """The queue of browsers that signed in to the same account before. Such browsers don't wait for other clients."""
    provider: "Provider | None" = None
    """The OpenID Connect provider. None: members can't sign in with one."""
    provider_queue: SignInQueue = field(default_factory=SignInQueue)
    known_browser_provider_queue: SignInQueue = field(default_factory=SignInQueue)
    """The queue of browsers in which a member signed in before."""


@dataclass(slots=True, kw_only=True)
class PageContext:
    """A request to the dashboard. `signed_in` is None for unauthenticated clients."""

    request: Request
    service: Service
    client: str | None
    signed_in: SignedInMember | None = None
    session_token: str | None = None
    """None for unauthenticated clients."""
    form: SubmittedForm = field(default_factory=SubmittedForm)
    factory: Factory | None = None
    """The factory of the page; None if the page has none."""

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
    def is_htmx(self) -> bool:
        """Whether htmx requests a part of a page."""
        return self.request.headers.get("hx-request") == "true"

    @property
    def csrf_token(self) -> str:
        return csrf_token_of(self.session_token or "")

    def open_alarms(self) -> OpenAlarms:
        """Which alarms the page marks. None if the database is unavailable, so that the error page is shown."""
        if self.signed_in is None:
            return OpenAlarms()
        try:
            return self.management.alarms.open_for(self.signed_in.caller, self.factory)
        except StoreUnavailable:
            return OpenAlarms()

    async def in_thread(
        self,
        function: Callable[..., T],
        *arguments: Any,
        limiter: anyio.CapacityLimiter | None = None,
        **keyword_arguments: Any,
    ) -> T:
        """Call `function` in a thread, so that the event loop continues to serve deliveries.

        Without a limiter, it waits for one of the threads for members, or of those for unauthenticated clients.
        """
        if limiter is None:
            limiter = (
                self.service.member_thread_limiter
                if self.signed_in is not None
                else self.service.unauthenticated_thread_limiter
            )
        return await anyio.to_thread.run_sync(partial(function, *arguments, **keyword_arguments), limiter=limiter)

    def render(self, template: str, **values: Any) -> str:
        """The template with these values, and with those that every template can use."""
        every_page = {
            "context": self,
            "factory": self.factory,
            "signed_in": self.signed_in,
            "csrf": self.csrf_token,
            "flash": pages.FLASH_MESSAGES.get(self.query.get("flash", "")),
            "now": self.service.now_us(),
        }
        return pages.render(template, every_page | values)

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Render a page, or a part of a page."""
        return HTMLResponse(self.render(template, **values), status)

    def page_if_changed(self, template: str, tag: str, **values: Any) -> Response:
        """Render a part that an open page polls. The response is empty if the page already has the version `tag`."""
        if tag and self.query.get("version") == tag:
            return Response(status_code=204)
        return self.page(template, **values)

    def redirect(self, *path: str, flash: str | None = None, **query: str) -> Response:
        """Redirect to the page with this path. `flash`: the key in `pages.FLASH_MESSAGES` of the message to show."""
        if flash is not None:
            query["flash"] = flash
        return RedirectResponse(url(*path, **query), 303)


def version_tag(*values: object) -> str:
    """A digest of the values that a part of a page shows. It changes if one of the values changes."""
    return sha256(repr(values).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def csrf_token_of(session_token: str) -> str:
    """The CSRF token of the session's forms. It can't be computed without the session token."""
    return sha256(f"form {session_token}".encode()).hexdigest()


def is_csrf_token_of(session_token: str, token: str) -> bool:
    return hmac.compare_digest(csrf_token_of(session_token).encode(), token.encode("utf-8", "surrogatepass"))
