"""Every place in a request where a value can stand: in addresses, queries, headers and bodies."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from hookmill.web.api import PREFIX, application
from hookmill.web.api.openapi import openapi_document
from hookmill.web.dashboard import PAGES
from tests.inputs.service import NOT_OPENED, Service
from tests.inputs.values import Strange
from tests.support.service import Answer

MARK: Final = "the strange value"
UNIQUE: Final = "a name that no other request has"
HEADERS: Final = ("Authorization", "Content-Type", "Accept", "If-None-Match", "X-Forwarded-For", "Cookie", "User-Agent")
"""Those that the API's description does not name, because every operation takes them, and all in the same way."""
OF_ALL: Final = {"show_me", "change_member"}
"""The operations that stand for all in this."""

_FILTER: Final = {"action": ["opened"], "n": {"in": [1], "not_in": [2]}, "deep": {"er": {"exists": True}}}
_POLICY: Final = {
    "concurrency": {"key": ["/n"], "limit": 2, "when_busy": "queue"},
    "debounce": {"seconds": 1, "max_seconds": 2},
    "retry": {"attempts": 2, "backoff_seconds": 1, "max_backoff_seconds": 2, "exit_codes": [3]},
    "priority": "high",
    "max_running": 3,
    "pause_after_failures": 2,
}
_TRIGGER: Final = {
    "provider": "webhook",
    "event": "received",
    "filter": {"webhook_ids": ["{uid}"], "event": ["push"], "payload": _FILTER},
}
_SCHEDULE: Final = {
    "provider": "schedule",
    "event": "cron_fired",
    "schedule": {"name": "nightly", "cron": "0 3 * * *", "timezone": "Europe/Berlin", "catch_up": "none"},
}
_HMAC: Final = {
    "header": "X-Signature",
    "prefix": "v1=",
    "algorithm": "sha256",
    "encoding": "hex",
    "secret": "text",
    "content": "{ts}.{body}",
    "timestamp_header": "X-Time",
    "timestamp_unit": "s",
    "tolerance_seconds": 300,
}
BODIES: Final[Mapping[str, list[dict[str, Any]]]] = {
    "create_factory": [{"name": UNIQUE}],
    "change_factory": [{"max_running": 5}],
    "create_webhook": [
        {
            "name": UNIQUE,
            "secret": "given-secret",
            "delivery_id_header": "X-Id",
            "event_header": "X-Event-Type",
            "enabled": True,
            "secret_name": UNIQUE,
        },
        {"name": UNIQUE, "auth_mode": "signature", "signature_scheme": "github", "answers_handshakes": False},
        {
            "name": UNIQUE,
            "auth_mode": "signature",
            "signature_scheme": "hmac",
            "signature_options": _HMAC,
            "secret": "given-secret",
        },
        {"name": UNIQUE, "auth_mode": "url_token", "secret": "given-secret"},
    ],
    "change_webhook": [
        {
            "name": "source of default",
            "enabled": True,
            "delivery_id_header": "X-Id",
            "event_header": "X-Event-Type",
        }
    ],
    "rotate_webhook": [{"secret": "given-secret"}],
    "create_secret": [{"name": UNIQUE, "value": "given-secret"}],
    "replace_secret": [{"value": "given-secret"}],
    "create_automation": [
        {
            "name": UNIQUE,
            "prompt": "Look.",
            "triggers": [_TRIGGER, _SCHEDULE],
            "runner": "package",
            "enabled": True,
            **_POLICY,
        }
    ],
    "change_automation": [
        {
            "name": "reader of default",
            "prompt": "Look.",
            "triggers": [_TRIGGER, _SCHEDULE],
            "runner": "package",
            "enabled": True,
            **_POLICY,
        }
    ],
    "cancel_runs": [{"automation": "reader of default", "webhook": "{uid}", "state": "running"}, {"all": False}],
    "run_automation": [{"payload": {"n": [1]}}],
    "replay_delivery": [{"automation": "reader of default"}],
    "test_filter": [{"delivery_id": "{delivery}", "filter": _FILTER, "event": ["push"], "webhook_ids": ["{uid}"]}],
    "backtest_filter": [
        {"filter": _FILTER, "event": ["push"], "webhook_ids": ["{uid}"], "last": 5}
        | {name: _POLICY[name] for name in ("concurrency", "debounce")}
    ],
    "add_member": [{"email": f"{UNIQUE}@example.com", "name": "Ada", "is_admin": False}],
    "change_member": [{"is_admin": False}],
    "give_role": [{"role": "viewer"}],
    "create_key": [{"name": "ci", "role": "viewer", "factory": "default", "expires_at": "2035-01-01T00:00:00Z"}],
}
"""For every operation that takes a body: bodies that it accepts, and in which each of its fields stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One place for a value. `where` is path, query, header, field (of a body), key or body."""

    method: str
    path: str
    where: str
    name: str
    body: str | None = field(default=None, repr=False)
    """JSON with a mark where the value goes, if it goes there."""

    def fill(self, service: Service, value: Strange, number: int) -> Answer:
        """The answer to the request with that value in this place. `number` is no other request's."""
        places = dict(service.places)
        if self.method == "DELETE":
            # What there is has to stay, for the requests that follow.
            places = {name: _other(text) if name != "factory" else text for name, text in places.items()}
        quoted = {name: quote(text, safe="") for name, text in places.items()}
        if self.where == "path":
            quoted[self.name] = quote(value.text.encode("utf-8", "surrogatepass"), safe="")
        path = self.path.format(**quoted)
        if self.where == "query":
            path += f"?{self.name}={quote(value.text.encode('utf-8', 'surrogatepass'), safe='')}"
        headers = {}
        if self.where == "header":
            # No HTTP server lets more through.
            text = value.text.translate({13: " ", 10: " ", 0: " "})
            headers[self.name] = text.encode("utf-8", "surrogatepass").decode("latin-1")
        raw = None
        if self.body is not None:
            text = self.body.replace(UNIQUE, f"U{number}")
            for name in ("uid", "delivery"):
                text = text.replace(f'"{{{name}}}"', json.dumps(service.places[name]))
            text = text.replace(f'"{MARK}"', value.json if self.where != "key" else json.dumps(value.text))
            raw = text.encode("utf-8", "surrogatepass")
        return service.api.ask(
            self.method, path, raw=raw, headers=headers, key="" if self.name == "Authorization" else service.api.admin
        )


QUERIES: Final[Mapping[str, tuple[str, ...]]] = {
    "/f/{factory}": ("flash",),
    "/f/{factory}/deliveries": ("webhook", "label", "since", "until", "identity", "event", "before"),
    "/f/{factory}/deliveries/{delivery}": ("raw", "version"),
    "/f/{factory}/runs": ("webhook", "automation", "state", "before"),
    "/f/{factory}/runs/rows": ("webhook", "automation", "state", "version"),
    "/f/{factory}/runs/queue": ("after", "cancelled"),
    "/f/{factory}/runs/queue/rows": ("version",),
    "/f/{factory}/automations/new": ("webhook", "delivery"),
    "/f/{factory}/automations/{automation}": ("tested_delivery",),
    "/f/{factory}/automations/{automation}/edit": ("triggers", "delivery"),
    "/f/{factory}/webhooks/new": ("scheme",),
    "/f/{factory}/audit": ("before",),
    "/team/audit": ("before",),
    "/sign-in": ("next",),
}
"""The parameters of the dashboard's pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSlot:
    """One place for a value in the address of a page."""

    path: str
    where: str
    name: str

    def fill(self, service: Service, value: Strange) -> Answer:
        """The page at the address with that value in this place."""
        text = quote(value.text.encode("utf-8", "surrogatepass"), safe="")
        places = {name: quote(place, safe="") for name, place in service.places.items()}
        if self.where == "path":
            return service.admin.get(self.path.format(**places | {self.name: text}))
        return service.admin.get(f"{self.path.format(**places)}?{self.name}={text}")


def page_slots() -> Iterator[PageSlot]:
    """Every variable part and every parameter of a page's address."""
    paths = [page.path for page in PAGES if page.method == "GET" and page.path not in NOT_OPENED]
    assert set(QUERIES) <= set(paths)
    for path in paths:
        for name in re.findall(r"{(\w+)}", path):
            yield PageSlot(path=path, where="path", name=name)
        for name in QUERIES.get(path, ()):
            yield PageSlot(path=path, where="query", name=name)


def _other(place: str) -> str:
    """An id like this one, which nothing has."""
    return place[:-1] + ("0" if place[-1] != "0" else "1")


def slots() -> Iterator[Slot]:
    """Every one that the API's own description knows of."""
    described = openapi_document(application())
    for address, methods in described["paths"].items():
        path = address.removeprefix(PREFIX)
        for method, operation in methods.items():
            name = operation["operationId"]
            bodies = BODIES.get(name, [])
            assert bool(bodies) == ("requestBody" in operation), f"{name} has bodies here if it takes any"
            whole = json.dumps(bodies[0]) if bodies else None
            for parameter in operation.get("parameters", ()):
                yield Slot(method=method.upper(), path=path, where=parameter["in"], name=parameter["name"], body=whole)
            for header in HEADERS if name in OF_ALL else ():
                yield Slot(method=method.upper(), path=path, where="header", name=header, body=whole)
            yield from _of_bodies(method.upper(), path, bodies)
            if bodies:
                _must_be_whole(name, described, operation, bodies)


def _of_bodies(method: str, path: str, bodies: list[dict[str, Any]]) -> Iterator[Slot]:
    seen = set()
    for body in bodies:
        for where, pointer, marked in [("body", "", MARK), *_marked(body, "")]:
            if (where, pointer) not in seen:
                seen.add((where, pointer))
                yield Slot(method=method, path=path, where=where, name=pointer, body=json.dumps(marked))


def _marked(value: Any, pointer: str) -> Iterator[tuple[str, str, Any]]:
    """The value with the mark in each of its places in turn, and as the name of one more field in each object."""
    if isinstance(value, dict):
        yield "key", pointer, value | {MARK: ["x"]}
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return
    for name, inner in items:
        inside = f"{pointer}/{name}"
        for where, place, marked in [("field", inside, MARK), *_marked(inner, inside)]:
            copy = value.copy()
            copy[name] = marked
            yield where, place, copy


def _must_be_whole(name: str, described: Any, operation: Any, bodies: list[dict[str, Any]]) -> None:
    """A field that is new must be here too, or nobody tries strange values of it."""
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    (reference,) = [each["$ref"] for each in (schema, *schema.get("anyOf", ())) if "$ref" in each]
    fields = set(described["components"]["schemas"][reference.rpartition("/")[2]]["properties"])
    known = {field for body in bodies for field in body}
    assert fields == known, f"{name} takes {sorted(fields)}, and here are {sorted(known)}"
