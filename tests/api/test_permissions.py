"""The answer of every route to every kind of caller. A route without a row in the table fails a test."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hookmill.domain.permission import MayManage, Role
from hookmill.web.api import application, operations
from hookmill.web.api.access import MINIMUM_ROLES
from tests.api.client import PROMPT, Api, StockedFactory
from tests.support.triggers import received

Body = Callable[[dict[str, str]], Any]


@dataclass(frozen=True)
class Row:
    """The role that a route requires, and its answer to a caller with this role."""

    role: str
    """The minimum role: none, any, viewer, manager or admin; `attempt` requires the token of an attempt instead."""
    status: int = 200
    body: Body | None = None
    """The request's body, from the path parameters."""


def _trigger(ids: dict[str, str]) -> dict[str, Any]:
    return received(ids["uid"])


FACTORY = "/api/v1/factories/{factory}"
TABLE: dict[tuple[str, str], Row] = {
    ("GET", "/api/v1/me"): Row("any"),
    ("GET", "/api/v1/factories"): Row("any"),
    ("POST", "/api/v1/factories"): Row("admin", 201, lambda ids: {"name": f"new {ids['uid']}"}),
    ("PATCH", FACTORY): Row("admin", 200, lambda _: {"max_running": 4}),
    ("GET", FACTORY): Row("viewer"),
    ("GET", f"{FACTORY}/webhooks"): Row("viewer"),
    ("POST", f"{FACTORY}/webhooks"): Row("manager", 201, lambda ids: {"name": "new"}),
    ("GET", f"{FACTORY}/webhooks/{{uid}}"): Row("viewer"),
    ("PATCH", f"{FACTORY}/webhooks/{{uid}}"): Row("manager", 200, lambda ids: {"enabled": False}),
    ("DELETE", f"{FACTORY}/webhooks/{{uid}}"): Row("manager", 204),
    ("POST", f"{FACTORY}/webhooks/{{uid}}/rotate"): Row("manager"),
    ("POST", f"{FACTORY}/webhooks/{{uid}}/sync"): Row("manager"),
    ("GET", f"{FACTORY}/secrets"): Row("manager"),
    ("POST", f"{FACTORY}/secrets"): Row("manager", 201, lambda ids: {"name": f"NEW_{ids['uid']}"}),
    ("GET", f"{FACTORY}/secrets/{{name}}"): Row("manager"),
    ("PUT", f"{FACTORY}/secrets/{{name}}"): Row("manager"),
    ("DELETE", f"{FACTORY}/secrets/{{name}}"): Row("manager", 204),
    ("GET", f"{FACTORY}/automations"): Row("viewer"),
    ("POST", f"{FACTORY}/automations"): Row(
        "manager", 201, lambda ids: {"name": "new", "prompt": PROMPT, "triggers": [_trigger(ids)]}
    ),
    ("GET", f"{FACTORY}/automations/{{automation}}"): Row("viewer"),
    ("PATCH", f"{FACTORY}/automations/{{automation}}"): Row("manager", 200, lambda ids: {"prompt": "Something else."}),
    ("DELETE", f"{FACTORY}/automations/{{automation}}"): Row("manager", 204),
    ("POST", f"{FACTORY}/automations/{{automation}}/runs"): Row("manager", 201),
    ("GET", f"{FACTORY}/definitions"): Row("manager"),
    ("POST", f"{FACTORY}/definitions/plan"): Row("manager", 200, lambda _: {"files": {}}),
    ("POST", f"{FACTORY}/definitions/apply"): Row("manager", 200, lambda _: {"files": {}, "allow_deletions": True}),
    ("GET", f"{FACTORY}/deliveries"): Row("viewer"),
    ("GET", f"{FACTORY}/deliveries/{{delivery}}"): Row("viewer"),
    ("GET", f"{FACTORY}/deliveries/{{delivery}}/payload"): Row("viewer"),
    ("GET", f"{FACTORY}/deliveries/{{delivery}}/explanation"): Row("viewer"),
    ("POST", f"{FACTORY}/deliveries/{{delivery}}/replay"): Row("manager", 201),
    ("GET", f"{FACTORY}/dropped-attempts"): Row("viewer"),
    ("POST", f"{FACTORY}/filter-tests"): Row("viewer", 200, lambda ids: {"delivery_id": ids["delivery"]}),
    ("POST", f"{FACTORY}/backtests"): Row("viewer", 200, lambda ids: {"filter": {"action": ["opened"]}}),
    ("GET", f"{FACTORY}/runs"): Row("viewer"),
    ("GET", f"{FACTORY}/runs/{{run}}"): Row("viewer"),
    ("GET", f"{FACTORY}/runs/{{run}}/output"): Row("viewer"),
    ("GET", f"{FACTORY}/runs/{{run}}/files"): Row("viewer"),
    ("GET", f"{FACTORY}/runs/{{run}}/files/{{file}}"): Row("viewer"),
    ("GET", f"{FACTORY}/queue"): Row("viewer"),
    ("POST", f"{FACTORY}/runs/cancel"): Row("manager", 200, lambda _: {"all": True}),
    ("POST", f"{FACTORY}/runs/{{run}}/cancel"): Row("manager"),
    ("GET", f"{FACTORY}/alarms"): Row("viewer"),
    ("GET", f"{FACTORY}/alarms/{{alarm}}"): Row("viewer"),
    ("POST", f"{FACTORY}/alarms/{{alarm}}/snooze"): Row("manager", 200, lambda _: {"hours": 1}),
    ("POST", f"{FACTORY}/alarms/{{alarm}}/wake"): Row("manager"),
    ("GET", "/api/v1/alarms"): Row("admin"),
    ("GET", "/api/v1/alarms/{installation_alarm}"): Row("admin"),
    ("POST", "/api/v1/alarms/{installation_alarm}/snooze"): Row("admin", 200, lambda _: {"hours": 1}),
    ("POST", "/api/v1/alarms/{installation_alarm}/wake"): Row("admin"),
    ("POST", "/api/v1/attempts/{attempt}/report"): Row("attempt", 204, lambda _: {"state": "succeeded"}),
    ("GET", f"{FACTORY}/audit-log"): Row("manager"),
    ("GET", "/api/v1/audit-log"): Row("admin"),
    ("GET", "/api/v1/members"): Row("admin"),
    ("POST", "/api/v1/members"): Row("admin", 201, lambda ids: {"email": f"{ids['uid']}@example.com", "name": "New"}),
    ("GET", "/api/v1/members/{member}"): Row("admin"),
    ("PATCH", "/api/v1/members/{member}"): Row("admin", 200, lambda ids: {"is_admin": True}),
    ("DELETE", "/api/v1/members/{member}"): Row("admin", 204),
    ("POST", "/api/v1/members/{member}/sign-in-link"): Row("admin", 201),
    ("PUT", "/api/v1/members/{member}/roles/{factory}"): Row("admin", 200, lambda ids: {"role": "viewer"}),
    ("DELETE", "/api/v1/members/{member}/roles/{factory}"): Row("admin"),
    ("GET", "/api/v1/keys"): Row("admin"),
    ("POST", "/api/v1/keys"): Row(
        "admin", 201, lambda ids: {"name": "new", "role": "viewer", "factory": ids["factory"]}
    ),
    ("DELETE", "/api/v1/keys/{key}"): Row("admin"),
    ("GET", f"{FACTORY}/alarm-destinations"): Row("admin"),
    ("POST", f"{FACTORY}/alarm-destinations"): Row(
        "admin", 201, lambda ids: {"kind": "email", "to": "ops@example.com"}
    ),
    ("DELETE", f"{FACTORY}/alarm-destinations/{{destination}}"): Row("admin", 204),
    ("POST", f"{FACTORY}/alarm-destinations/{{destination}}/test"): Row("admin"),
    ("GET", "/api/v1/alarm-destinations"): Row("admin"),
    ("POST", "/api/v1/alarm-destinations"): Row("admin", 201, lambda ids: {"kind": "email", "to": "ops@example.com"}),
    ("DELETE", "/api/v1/alarm-destinations/{installation_destination}"): Row("admin", 204),
    ("POST", "/api/v1/alarm-destinations/{installation_destination}/test"): Row("admin"),
    ("GET", "/api/v1/schemes"): Row("none"),
    ("GET", "/api/v1/schemas/{kind}.schema.json"): Row("none"),
    ("GET", "/api/v1/openapi.json"): Row("none"),
    ("GET", "/api/v1/docs"): Row("none"),
    ("GET", "/api/v1/docs/style.css"): Row("none"),
}

CALLERS = ("viewer", "manager", "admin", "other manager", "no key", "unknown key", "revoked key", "expired key")
"""The kinds of callers. `other manager` is a manager of another factory."""
RANKS = {"any": 0, "viewer": 1, "manager": 2, "admin": 3}
EVERY_ROUTE = pytest.mark.parametrize("route", TABLE, ids=lambda route: " ".join(route))


def expected_status(route: tuple[str, str], caller: str) -> int:
    """The status of the answer, by the table."""
    row = TABLE[route]
    if row.role == "none":
        return row.status
    if row.role == "attempt":
        # No API key is a token of an attempt. test_attempts.py has the callers with such a token.
        return 401
    if caller in ("no key", "unknown key", "revoked key", "expired key"):
        return 401
    if caller == "other manager":
        return 403 if row.role == "admin" else row.status if row.role == "any" else 404
    return row.status if RANKS[caller] >= RANKS[row.role] else 403


_NUMBERS = itertools.count()


class FactoryWithCallers:
    """A new factory with one resource of each kind, and a key for each kind of caller."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.name = f"F{next(_NUMBERS)}"
        self.may: MayManage = api.factory(self.name)
        self.stock = StockedFactory(api, self.may)

    def key(self, caller: str) -> str:
        api = self.api
        match caller:
            case "admin":
                return api.admin
            case "viewer" | "manager":
                return api.key(f"{caller} of {self.name}", Role(caller), self.name)
            case "other manager":
                return api.manager
            case "unknown key":
                return "hmk_" + "x" * 43
            case "revoked key":
                revoked = api.management.keys.create(api.team, "revoked", Role.ADMIN)
                api.management.keys.revoke(api.team, revoked.key.id)
                return revoked.token.reveal()
            case "expired key":
                expired = api.key("expired", Role.ADMIN, expires_at=api.world.clock() + 1_000_000)
                api.world.clock.advance(seconds=2)
                return expired
            case _:
                return ""

    def request(self, route: tuple[str, str], key: str, **other_parameters: str) -> Any:
        method, path = route
        parameters = self.stock.path_parameters | other_parameters
        row = TABLE[route]
        body = row.body(parameters) if row.body is not None else None
        return self.api.request(method, path.removeprefix("/api/v1").format(**parameters), body, key=key)


def test_every_route_has_a_row_with_its_required_role():
    routes = {(each.method, each.path): MINIMUM_ROLES[each.requirement] or "none" for each in operations(application())}

    assert {route: row.role for route, row in TABLE.items()} == routes


@EVERY_ROUTE
def test_every_kind_of_caller_gets_the_expected_status(shared_api, route):
    statuses, unchanged_factory = {}, FactoryWithCallers(shared_api)
    # The refused callers are first: they must not change what the others then use.
    for caller in sorted(CALLERS, key=lambda caller: expected_status(route, caller), reverse=True):
        changes = route[0] != "GET" and expected_status(route, caller) < 400
        factory = FactoryWithCallers(shared_api) if changes else unchanged_factory
        statuses[caller] = factory.request(route, factory.key(caller)).status

    assert statuses == {caller: expected_status(route, caller) for caller in CALLERS}


@pytest.mark.parametrize(
    "route",
    [
        route
        for route in TABLE
        if any(parameter in route[1] for parameter in ("{uid}", "{automation}", "{delivery}", "{run}"))
        or route[1].endswith("filter-tests")
    ],
    ids=lambda route: " ".join(route),
)
def test_another_factorys_resource_is_answered_like_an_unknown_one(shared_api, route):
    factory, other_factory = FactoryWithCallers(shared_api), FactoryWithCallers(shared_api)
    key = factory.key("manager")
    other_ids = {name: other_factory.stock.path_parameters[name] for name in ("uid", "automation", "delivery", "run")}
    unknown_ids = {name: value[:-4] + "0000" for name, value in other_ids.items()}

    other = factory.request(route, key, **other_ids)
    unknown = factory.request(route, key, **unknown_ids)

    assert other.status == unknown.status == 404
    body = other.body.decode()
    for name, value in other_ids.items():
        body = body.replace(value, unknown_ids[name])
    assert body == unknown.body.decode()


def test_another_factory_is_answered_like_an_unknown_one(shared_api):
    other_factory = FactoryWithCallers(shared_api)

    other = shared_api.get(f"/factories/{other_factory.name}")
    unknown = shared_api.get("/factories/unknown")

    assert other.status == unknown.status == 404
    assert other.body.replace(other_factory.name.encode(), b"unknown") == unknown.body


def test_403_names_the_required_role(shared_api):
    factory = FactoryWithCallers(shared_api)

    to_viewer = factory.request(("POST", f"{FACTORY}/webhooks"), factory.key("viewer")).json
    to_manager = factory.request(("GET", "/api/v1/members"), factory.key("manager")).json

    assert (to_viewer["code"], to_manager["code"]) == ("forbidden", "forbidden")
    assert "manager" in to_viewer["detail"]
    assert "admin" in to_manager["detail"]


@pytest.mark.parametrize(
    "headers",
    [
        [("Authorization", "Basic {key}")],
        [("Authorization", "{key}")],
        [("Authorization", "Bearer {key} {key}")],
        [("Authorization", "Bearer {key}"), ("Authorization", "Bearer {key}")],
        [("Authorization", "Bearer {key}é")],
        [("Authorization", "Bearer ")],
        [("X-Api-Key", "{key}")],
        [("Cookie", "key={key}")],
    ],
    ids=lambda headers: " and ".join(f"{name}: {value}" for name, value in headers),
)
def test_key_is_accepted_only_as_one_bearer_token(shared_api, headers):
    with_key = [(name, value.format(key=shared_api.admin)) for name, value in headers]

    answer = shared_api.get("/me", key="", headers=with_key)

    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/problem+json"


def test_key_in_the_url_is_refused(shared_api):
    assert shared_api.get(f"/me?access_token={shared_api.admin}", key="").status == 401


def test_bearer_is_accepted_in_any_case(shared_api):
    assert shared_api.get("/me", key="", headers={"Authorization": f"bearer {shared_api.admin}"}).status == 200


def test_invalid_body_does_not_reveal_whether_a_factory_exists(shared_api):
    other_factory = FactoryWithCallers(shared_api)

    other = shared_api.post(f"/factories/{other_factory.name}/webhooks", {"unknown": "field"})
    unknown = shared_api.post("/factories/unknown/webhooks", {"unknown": "field"})

    assert other.status == unknown.status == 404
