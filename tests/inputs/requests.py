"""The inputs of all requests to the API and of all pages: parts of paths, query parameters, headers and bodies."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from hookmill.web.api import PREFIX, application
from hookmill.web.api.openapi import openapi_document
from hookmill.web.dashboard import PAGES
from tests.inputs.service import EXCLUDED_PAGES, InProcessService
from tests.inputs.values import UnusualValue
from tests.support.service import Answer
from tests.support.triggers import cron_fired, received

PLACEHOLDER: Final = "the tested value"
UNIQUE_NAME: Final = "a name that no other request has"
HEADERS: Final = ("Authorization", "Content-Type", "Accept", "If-None-Match", "X-Forwarded-For", "Cookie", "User-Agent")
"""Headers that every operation accepts in the same way. The OpenAPI document does not name them."""
HEADER_OPERATIONS: Final = {"show_me", "change_member"}
"""The operations that are tested with these headers."""

_FILTER: Final = {"action": ["opened"], "n": {"in": [1], "not_in": [2]}, "deep": {"er": {"exists": True}}}
_POLICY: Final = {
    "concurrency": {"key": ["/n"], "limit": 2, "when_busy": "queue"},
    "debounce": {"seconds": 1, "max_seconds": 2},
    "retry": {"attempts": 2, "backoff_seconds": 1, "max_backoff_seconds": 2, "exit_codes": [3]},
    "priority": "high",
    "max_running": 3,
    "pause_after_failures": 2,
    "fields": {"pr": "/n", "title": {"pointer": "/title", "max_characters": 5}},
    "secrets": ["RUN_TOKEN"],
    "workspace": {"repository": "app", "ref": {"pointer": "/ref"}, "base": {"pointer": "/base"}, "depth": 2},
    "results": [{"kind": "github_status", "destination": "github", "context": "ci", "commit": "/sha"}],
}
_TRIGGER: Final = received("{uid}", event=["push"], payload=_FILTER)
_SCHEDULE: Final = cron_fired("nightly", "0 3 * * *", timezone="Europe/Berlin", catch_up="none")
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
    "create_factory": [{"name": UNIQUE_NAME}],
    "change_factory": [{"max_running": 5}],
    "create_webhook": [
        {
            "name": UNIQUE_NAME,
            "secret": "given-secret",
            "delivery_id_header": "X-Id",
            "event_header": "X-Event-Type",
            "allowed_networks": ["0.0.0.0/0", "2001:db8::/32"],
            "expect_every": "1h",
            "enabled": True,
            "secret_name": UNIQUE_NAME,
        },
        {"name": UNIQUE_NAME, "auth_mode": "signature", "signature_scheme": "github", "answers_handshakes": False},
        {
            "name": UNIQUE_NAME,
            "auth_mode": "signature",
            "signature_scheme": "hmac",
            "signature_options": _HMAC,
            "secret": "given-secret",
        },
        {"name": UNIQUE_NAME, "auth_mode": "url_token", "secret": "given-secret"},
    ],
    "change_webhook": [
        {
            "name": "source of default",
            "enabled": True,
            "delivery_id_header": "X-Id",
            "event_header": "X-Event-Type",
            "allowed_networks": ["0.0.0.0/0", "2001:db8::/32"],
            "expect_every": "1h",
        },
        {"auth_mode": "token", "signature_scheme": None, "signature_options": None, "answers_handshakes": False},
        {"secret_name": "WEBHOOK_SOURCE_OF_DEFAULT_SECRET"},
    ],
    "rotate_webhook": [{"secret": "given-secret"}],
    "create_secret": [{"name": UNIQUE_NAME, "value": "given-secret", "for_runs": True}],
    "replace_secret": [{"value": "given-secret"}],
    "create_automation": [
        {
            "name": UNIQUE_NAME,
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
    "plan_definitions": [{"files": {"webhooks/new.yaml": "secretName: NEW_SECRET"}}],
    "apply_definitions": [
        {
            "files": {"webhooks/new.yaml": "secretName: NEW_SECRET"},
            "allow_deletions": False,
            "expected_digest": "0" * 64,
        }
    ],
    "cancel_runs": [{"automation": "reader of default", "webhook": "{uid}", "state": "running"}, {"all": False}],
    "run_automation": [{"payload": {"n": [1]}}],
    "report_attempt": [
        {
            "state": "failed",
            "reason": "No model.",
            "result": "Two bugs.",
            "cost_usd": 0.5,
            "input_tokens": 1,
            "output_tokens": 1,
        }
    ],
    "replay_delivery": [{"automation": "reader of default"}],
    "test_filter": [{"delivery_id": "{delivery}", "filter": _FILTER, "event": ["push"], "webhook_ids": ["{uid}"]}],
    "backtest_filter": [
        {"filter": _FILTER, "event": ["push"], "webhook_ids": ["{uid}"], "last": 5}
        | {name: _POLICY[name] for name in ("concurrency", "debounce")}
    ],
    "snooze_alarm": [{"hours": 2}, {"until": "2030-03-18T00:00:00Z"}],
    "snooze_installation_alarm": [{"hours": 2}, {"until": "2030-03-18T00:00:00Z"}],
    "create_alarm_destination": [
        {"kind": "email", "to": "ops@example.com", "alarm_kinds": ["runs_failing"]},
        {"kind": "webhook", "url": "https://hooks.example.com/alarms", "includes_factories": False},
    ],
    "create_installation_alarm_destination": [
        {"kind": "email", "to": "ops@example.com", "alarm_kinds": ["disk_low"], "includes_factories": True},
        {"kind": "slack", "url": "https://hooks.example.com/alarms"},
    ],
    "add_member": [{"email": f"{UNIQUE_NAME}@example.com", "name": "Ada", "is_admin": False}],
    "change_member": [{"is_admin": False}],
    "give_role": [{"role": "viewer"}],
    "create_key": [{"name": "ci", "role": "viewer", "factory": "default", "expires_at": "2035-01-01T00:00:00Z"}],
}
"""For each operation with a body: bodies that it accepts. Together they have each field of the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInput:
    """An input of an operation of the API. `location` is path, query, header, field (of a body), key or body."""

    method: str
    path: str
    location: str
    name: str
    body: str | None = field(default=None, repr=False)
    """JSON. It has `PLACEHOLDER` if the value is in the body."""

    def send(self, service: InProcessService, value: UnusualValue, number: int) -> Answer:
        """Send a request with this value. `number` differs from that of every other request."""
        path_values = dict(service.path_values)
        if self.method == "DELETE":
            # Later requests need the existing objects.
            path_values = {name: _unknown_id(text) if name != "factory" else text for name, text in path_values.items()}
        quoted = {name: quote(text, safe="") for name, text in path_values.items()}
        if self.location == "path":
            quoted[self.name] = quote(value.text.encode("utf-8", "surrogatepass"), safe="")
        path = self.path.format(**quoted)
        if self.location == "query":
            path += f"?{self.name}={quote(value.text.encode('utf-8', 'surrogatepass'), safe='')}"
        headers = {}
        if self.location == "header":
            # An HTTP server rejects these characters in headers.
            text = value.text.translate({13: " ", 10: " ", 0: " "})
            headers[self.name] = text.encode("utf-8", "surrogatepass").decode("latin-1")
        raw = None
        if self.body is not None:
            text = self.body.replace(UNIQUE_NAME, f"U{number}")
            for name in ("uid", "delivery"):
                text = text.replace(f'"{{{name}}}"', json.dumps(service.path_values[name]))
            text = text.replace(f'"{PLACEHOLDER}"', value.json if self.location != "key" else json.dumps(value.text))
            raw = text.encode("utf-8", "surrogatepass")
        return service.api.request(
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
    "/f/{factory}/webhooks/scheme": ("/signature_scheme",),
    "/f/{factory}/alarms": ("before",),
    "/team/alarms": ("before",),
    "/f/{factory}/audit": ("before",),
    "/team/audit": ("before",),
    "/sign-in": ("next",),
}
"""The query parameters of the dashboard's pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageInput:
    """A variable part of the path of a page, or a query parameter. `location` is path or query."""

    path: str
    location: str
    name: str

    def send(self, service: InProcessService, value: UnusualValue) -> Answer:
        """Get the page with this value."""
        text = quote(value.text.encode("utf-8", "surrogatepass"), safe="")
        quoted = {name: quote(path_value, safe="") for name, path_value in service.path_values.items()}
        if self.location == "path":
            return service.admin.get(self.path.format(**quoted | {self.name: text}))
        return service.admin.get(f"{self.path.format(**quoted)}?{self.name}={text}")


def page_inputs() -> Iterator[PageInput]:
    """Every input of every page."""
    paths = [page.path for page in PAGES if page.method == "GET" and page.path not in EXCLUDED_PAGES]
    assert set(QUERIES) <= set(paths)
    for path in paths:
        for name in re.findall(r"{(\w+)}", path):
            yield PageInput(path=path, location="path", name=name)
        for name in QUERIES.get(path, ()):
            yield PageInput(path=path, location="query", name=name)


def _unknown_id(identifier: str) -> str:
    """A similar id that no object has."""
    return identifier[:-1] + ("0" if identifier[-1] != "0" else "1")


def request_inputs() -> Iterator[RequestInput]:
    """Every input in the OpenAPI document of the API."""
    document = openapi_document(application())
    for full_path, methods in document["paths"].items():
        path = full_path.removeprefix(PREFIX)
        for method, operation in methods.items():
            name = operation["operationId"]
            bodies = BODIES.get(name, [])
            assert bool(bodies) == ("requestBody" in operation), f"BODIES has {name} only if it has a body"
            body = json.dumps(bodies[0]) if bodies else None
            for parameter in operation.get("parameters", ()):
                yield RequestInput(
                    method=method.upper(), path=path, location=parameter["in"], name=parameter["name"], body=body
                )
            for header in HEADERS if name in HEADER_OPERATIONS else ():
                yield RequestInput(method=method.upper(), path=path, location="header", name=header, body=body)
            yield from _inputs_in_bodies(method.upper(), path, bodies)
            if bodies:
                _require_every_field(name, document, operation, bodies)


def _inputs_in_bodies(method: str, path: str, bodies: list[dict[str, Any]]) -> Iterator[RequestInput]:
    yielded = set()
    for body in bodies:
        for location, pointer, with_placeholder in [("body", "", PLACEHOLDER), *_with_placeholder(body, "")]:
            if (location, pointer) not in yielded:
                yielded.add((location, pointer))
                yield RequestInput(
                    method=method, path=path, location=location, name=pointer, body=json.dumps(with_placeholder)
                )


def _with_placeholder(value: Any, pointer: str) -> Iterator[tuple[str, str, Any]]:
    """Copies of the value. In each, the placeholder replaces one inner value, or is the name of an additional field.

    Yields the location ("field" or "key"), the JSON pointer and the copy.
    """
    if isinstance(value, dict):
        yield "key", pointer, value | {PLACEHOLDER: ["x"]}
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    else:
        return
    for name, inner in items:
        inner_pointer = f"{pointer}/{name}"
        for location, place, changed in [
            ("field", inner_pointer, PLACEHOLDER),
            *_with_placeholder(inner, inner_pointer),
        ]:
            copy = value.copy()
            copy[name] = changed
            yield location, place, copy


def _require_every_field(name: str, document: Any, operation: Any, bodies: list[dict[str, Any]]):
    """Require that `BODIES` has each field of the operation. Otherwise, a new field would not be tested."""
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    (reference,) = [branch["$ref"] for branch in (schema, *schema.get("anyOf", ())) if "$ref" in branch]
    fields = set(document["components"]["schemas"][reference.rpartition("/")[2]]["properties"])
    fields_in_bodies = {field for body in bodies for field in body}
    assert fields == fields_in_bodies, f"{name} has the fields {sorted(fields)}, and BODIES {sorted(fields_in_bodies)}"
