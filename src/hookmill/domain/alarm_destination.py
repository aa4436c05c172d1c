"""Where notices of alarms are sent: an e-mail address, a chat that is compatible with Slack, or a signed webhook."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from hookmill.domain.alarm import ALARM_RULES, AlarmKind, AlarmScope
from hookmill.domain.errors import Invalid
from hookmill.domain.ids import FactoryId, TeamId
from hookmill.domain.secret import SecretValue

DESTINATIONS_MAX: Final = 20
"""How many destinations a factory may have, and how many the installation."""
URL_CHARACTERS_MAX: Final = 2_000
EMAIL_CHARACTERS_MAX: Final = 254
PORT_MAX: Final = 65_535
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}

_EMAIL: Final = re.compile(
    r"(?P<user>[A-Za-z0-9.!#$%&'*+/=?^_`{|}~\u0080-\U0010ffff-]{1,64})@(?P<domain>[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*)\Z"
)
_URL: Final = re.compile(
    r"(?P<scheme>https?)://"
    r"(?P<host>(?:[a-z0-9_-]{1,63}\.){0,30}[a-z0-9_-]{1,63}\.?|\[[0-9a-f:.]{2,45}\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>[/?][!-\"$-~]*)?\Z",
    re.IGNORECASE,
)
"""A URL in visible ASCII characters, without a user name and without a fragment."""


class DestinationKind(StrEnum):
    EMAIL = "email"
    SLACK = "slack"
    WEBHOOK = "webhook"


@dataclass(frozen=True, slots=True)
class EmailTarget:
    to: str


@dataclass(frozen=True, slots=True)
class SlackTarget:
    """Anyone who has the URL can post to the chat, so the URL is a secret."""

    url: SecretValue


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """The URL may contain a token, so it is a secret."""

    url: SecretValue
    signing_secret: SecretValue


Target = EmailTarget | SlackTarget | WebhookTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmDestination:
    """A destination without its secrets. Times are µs since 1970."""

    id: str
    """`ald_…`."""
    team_id: TeamId
    factory_id: FactoryId | None
    factory_name: str | None
    """None: the destination is for the installation."""
    kind: DestinationKind
    shown_target: str
    """The e-mail address, or the URL without its path."""
    alarm_kinds: tuple[AlarmKind, ...]
    """The kinds of alarms that it gets; empty for all."""
    includes_factories: bool
    """Whether a destination of the installation also gets the alarms of all factories."""
    created_at: int
    waiting: int = 0
    """How many messages wait to be sent, or to be sent again."""
    failed: int = 0
    """How many messages were given up and are still stored."""
    last_sent_at: int | None = None
    last_problem: str | None = None
    """Why the newest message that is not sent yet, or was given up, could not be sent."""


def shown_target(target: Target) -> str:
    """The target without its secrets: the e-mail address, or the URL without its path."""
    match target:
        case EmailTarget(to):
            return to
        case SlackTarget(url) | WebhookTarget(url, _):
            parts = parsed_url(url)
            return f"{parts.origin}{'/…' if parts.target != '/' else ''}"


def target_to_json(target: Target) -> Mapping[str, str]:
    """The target's fields with its secrets, to be sealed."""
    match target:
        case EmailTarget(to):
            return {"to": to}
        case SlackTarget(url):
            return {"url": url.reveal()}
        case WebhookTarget(url, signing_secret):
            return {"url": url.reveal(), "signing_secret": signing_secret.reveal()}


def target_from_json(kind: DestinationKind, fields: Mapping[str, Any]) -> Target:
    match kind:
        case DestinationKind.EMAIL:
            return EmailTarget(fields["to"])
        case DestinationKind.SLACK:
            return SlackTarget(SecretValue(fields["url"]))
        case DestinationKind.WEBHOOK:
            return WebhookTarget(SecretValue(fields["url"]), SecretValue(fields["signing_secret"]))


def usable_email(text: str) -> str:
    """`text`, trimmed, with the ASCII form of its domain. Raises `Invalid` unless it is one e-mail address."""
    user, at, domain = text.strip().rpartition("@")
    address = f"{user}{at}{ascii_host(domain)}"
    if len(address) > EMAIL_CHARACTERS_MAX or not _EMAIL.match(address) or not address.isprintable():
        raise Invalid(
            f"{text.strip()[:80]!r} is not an e-mail address. Write one, such as ops@example.com.", pointer="/to"
        )
    return address


def ascii_host(name: str) -> str:
    """The name with the ASCII forms of labels in other scripts; unchanged if it has none."""
    try:
        return name if name.isascii() else name.encode("idna").decode()
    except UnicodeError:
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class UrlParts:
    """The parts of a destination's URL, for a connection and a request."""

    scheme: str
    host: str
    """The name, or the address without brackets."""
    port: int
    target: str
    """The path and the query, beginning with a slash."""

    @property
    def host_header(self) -> str:
        """The value of the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """The URL without its path and query, which may be secret."""
        return f"{self.scheme}://{self.host_header}"


def usable_url(text: str, *, allows_http: bool) -> SecretValue:
    """`text`, trimmed. Raises `Invalid` unless it is an `https` URL without a user name and a fragment.

    The error does not contain the URL, which is a secret. `allows_http`: whether the URL may begin with `http://`.
    """
    url = SecretValue(text.strip())
    problem = None
    try:
        parts = parsed_url(url)
    except ValueError:
        problem = "must have a host, and after it only visible ASCII characters, without a user name and a fragment (#)"
    else:
        if len(url.reveal()) > URL_CHARACTERS_MAX:
            problem = f"must have at most {URL_CHARACTERS_MAX:,} characters"
        elif parts.scheme == "http" and not allows_http:
            problem = "must begin with https://"
    if problem is not None:
        raise Invalid(
            f"The destination's URL {problem}. Use one such as https://hooks.example.com/alarms.", pointer="/url"
        )
    return url


def parsed_url(url: SecretValue) -> UrlParts:
    """The parts of the URL. Raises `ValueError`, without the URL, if it is malformed."""
    scheme, separator, rest = url.reveal().partition("://")
    host = re.split(r"[/?:#@]", rest, maxsplit=1)[0]
    match = _URL.match(f"{scheme}{separator}{ascii_host(host)}{rest[len(host) :]}")
    if match is None:
        raise ValueError("malformed URL")
    scheme = match["scheme"].lower()
    port = int(match["port"] or _DEFAULT_PORTS[scheme])
    if not 1 <= port <= PORT_MAX:
        raise ValueError("malformed port")
    target = match["target"] or "/"
    return UrlParts(
        scheme=scheme,
        host=match["host"].strip("[]").rstrip(".").lower(),
        port=port,
        target=target if target.startswith("/") else f"/{target}",
    )


def usable_alarm_kinds(names: Iterable[str]) -> tuple[AlarmKind, ...]:
    """The kinds with these names, in the order of `AlarmKind`. Raises `Invalid` for an unknown name."""
    chosen = set()
    for name in names:
        try:
            chosen.add(AlarmKind(name))
        except ValueError:
            kinds = ", ".join(kind.value for kind in AlarmKind)
            raise Invalid(
                f"There is no alarm kind {name[:40]!r}. Kinds are: {kinds}.", pointer="/alarm_kinds"
            ) from None
    return tuple(kind for kind in AlarmKind if kind in chosen)


def kinds_within_reach(*, of_factory: bool, includes_factories: bool) -> tuple[AlarmKind, ...]:
    """The kinds that a destination can get: those about its factory, or those about the installation.

    If a destination of the installation `includes_factories`, it can get all kinds.
    """
    return tuple(
        kind
        for kind, rule in ALARM_RULES.items()
        if includes_factories or of_factory == (rule.scope is not AlarmScope.INSTALLATION)
    )


def refuse_kinds_out_of_reach(kinds: Iterable[AlarmKind], *, of_factory: bool, includes_factories: bool) -> None:
    """Raises `Invalid` for a kind that the destination would never get."""
    reach = kinds_within_reach(of_factory=of_factory, includes_factories=includes_factories)
    for kind in kinds:
        if kind not in reach:
            reason = (
                "is about the installation, and this destination is for a factory. Choose it for a destination of the "
                "installation"
                if of_factory
                else "is about factories, and this destination does not include them. Include factories, or omit it"
            )
            raise Invalid(f"The alarm kind {kind.value} {reason}.", pointer="/alarm_kinds")
