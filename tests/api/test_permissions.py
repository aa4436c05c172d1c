"""Every route, for everybody: what each caller is answered. One table decides, and a route without a row is red."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hookmill.domain.permission import MayManage, Role
from hookmill.web.api import application, operations
from hookmill.web.api.access import MINIMUM_ROLES
from tests.api.client import PROMPT, Api, Stocked

Body = Callable[[dict[str, str]], Any]


@dataclass(frozen=True)
class Row:
    """What a route asks for, and what it answers to whoever may."""

    role: str
    """The least role: none, any, viewer, manager or admin."""
    status: int = 200
    body: Body | None = None


def _trigger(places: dict[str, str]) -> dict[str, Any]:
    return {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [places["uid"]]}}


FACTORY = "/api/v1/factories/{factory}"
TABLE: dict[tuple[str, str], Row] = {
    ("GET", "/api/v1/me"): Row("any"),
    ("GET", "/api/v1/factories"): Row("any"),
    ("POST", "/api/v1/factories"): Row("admin", 201, lambda at: {"name": f"new {at['uid']}"}),
    ("PATCH", FACTORY): Row("admin", 200, lambda _: {"max_running": 4}),
    ("GET", FACTORY): Row("viewer"),
    ("GET", f"{FACTORY}/webhooks"): Row("viewer"),
    ("POST", f"{FACTORY}/webhooks"): Row("manager", 201, lambda at: {"name": "new"}),
    ("GET", f"{FACTORY}/webhooks/{{uid}}"): Row("viewer"),
    ("PATCH", f"{FACTORY}/webhooks/{{uid}}"): Row("manager", 200, lambda at: {"enabled": False}),
    ("DELETE", f"{FACTORY}/webhooks/{{uid}}"): Row("manager", 204),
    ("POST", f"{FACTORY}/webhooks/{{uid}}/rotate"): Row("manager"),
    ("POST", f"{FACTORY}/webhooks/{{uid}}/sync"): Row("manager"),
    ("GET", f"{FACTORY}/secrets"): Row("manager"),
    ("POST", f"{FACTORY}/secrets"): Row("manager", 201, lambda at: {"name": f"NEW_{at['uid']}"}),
    ("GET", f"{FACTORY}/secrets/{{name}}"): Row("manager"),
    ("PUT", f"{FACTORY}/secrets/{{name}}"): Row("manager"),
    ("DELETE", f"{FACTORY}/secrets/{{name}}"): Row("manager", 204),
    ("GET", f"{FACTORY}/automations"): Row("viewer"),
    ("POST", f"{FACTORY}/automations"): Row(
        "manager", 201, lambda at: {"name": "new", "prompt": PROMPT, "triggers": [_trigger(at)]}
    ),
    ("GET", f"{FACTORY}/automations/{{automation}}"): Row("viewer"),
    ("PATCH", f"{FACTORY}/automations/{{automation}}"): Row("manager", 200, lambda at: {"prompt": "Something else."}),
    ("DELETE", f"{FACTORY}/automations/{{automation}}"): Row("manager", 204),
    ("POST", f"{FACTORY}/automations/{{automation}}/runs"): Row("manager", 201),
    ("GET", f"{FACTORY}/deliveries"): Row("viewer"),
    ("GET", f"{FACTORY}/deliveries/{{delivery}}"): Row("viewer"),
    ("GET", f"{FACTORY}/deliveries/{{delivery}}/payload"): Row("viewer"),
    ("GET", f"{FACTORY}/deliveries/{{delivery}}/explanation"): Row("viewer"),
    ("POST", f"{FACTORY}/deliveries/{{delivery}}/replay"): Row("manager", 201),
    ("GET", f"{FACTORY}/dropped-attempts"): Row("viewer"),
    ("POST", f"{FACTORY}/filter-tests"): Row("viewer", 200, lambda at: {"delivery_id": at["delivery"]}),
    ("POST", f"{FACTORY}/backtests"): Row("viewer", 200, lambda at: {"filter": {"action": ["opened"]}}),
    ("GET", f"{FACTORY}/runs"): Row("viewer"),
    ("GET", f"{FACTORY}/runs/{{run}}"): Row("viewer"),
    ("GET", f"{FACTORY}/runs/{{run}}/output"): Row("viewer"),
    ("GET", f"{FACTORY}/runs/{{run}}/files"): Row("viewer"),
    ("GET", f"{FACTORY}/runs/{{run}}/files/{{file}}"): Row("viewer"),
    ("GET", f"{FACTORY}/queue"): Row("viewer"),
    ("POST", f"{FACTORY}/runs/cancel"): Row("manager", 200, lambda _: {"all": True}),
    ("POST", f"{FACTORY}/runs/{{run}}/cancel"): Row("manager"),
    ("GET", f"{FACTORY}/audit-log"): Row("manager"),
    ("GET", "/api/v1/audit-log"): Row("admin"),
    ("GET", "/api/v1/members"): Row("admin"),
    ("POST", "/api/v1/members"): Row("admin", 201, lambda at: {"email": f"{at['uid']}@example.com", "name": "New"}),
    ("GET", "/api/v1/members/{member}"): Row("admin"),
    ("PATCH", "/api/v1/members/{member}"): Row("admin", 200, lambda at: {"is_admin": True}),
    ("DELETE", "/api/v1/members/{member}"): Row("admin", 204),
    ("PUT", "/api/v1/members/{member}/roles/{factory}"): Row("admin", 200, lambda at: {"role": "viewer"}),
    ("DELETE", "/api/v1/members/{member}/roles/{factory}"): Row("admin"),
    ("GET", "/api/v1/keys"): Row("admin"),
    ("POST", "/api/v1/keys"): Row("admin", 201, lambda at: {"name": "new", "role": "viewer", "factory": at["factory"]}),
    ("DELETE", "/api/v1/keys/{key}"): Row("admin"),
    ("GET", "/api/v1/schemes"): Row("none"),
    ("GET", "/api/v1/schemas/{kind}.schema.json"): Row("none"),
    ("GET", "/api/v1/openapi.json"): Row("none"),
    ("GET", "/api/v1/docs"): Row("none"),
    ("GET", "/api/v1/docs/style.css"): Row("none"),
}
"""The decisions."""

CALLERS = ("viewer", "manager", "admin", "other manager", "nobody", "unknown key", "revoked key", "expired key")
RANKS = {"any": 0, "viewer": 1, "manager": 2, "admin": 3}
EVERY_ROUTE = pytest.mark.parametrize("route", TABLE, ids=lambda route: " ".join(route))


def decided(route: tuple[str, str], caller: str) -> int:
    """The status that the table decides on."""
    row = TABLE[route]
    if row.role == "none":
        return row.status
    if caller in ("nobody", "unknown key", "revoked key", "expired key"):
        return 401
    if caller == "other manager":
        return 403 if row.role == "admin" else row.status if row.role == "any" else 404
    return row.status if RANKS[caller] >= RANKS[row.role] else 403


_NUMBERS = itertools.count()


class Scene:
    """A factory of its own, stocked, and a key for every caller."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.name = f"F{next(_NUMBERS)}"
        self.may: MayManage = api.factory(self.name)
        self.stock = Stocked(api, self.may)

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
                made = api.management.keys.create(api.team, "revoked", Role.ADMIN)
                api.management.keys.revoke(api.team, made.key.id)
                return made.token.reveal()
            case "expired key":
                expired = api.key("expired", Role.ADMIN, expires_at=api.world.clock() + 1_000_000)
                api.world.clock.advance(seconds=2)
                return expired
            case _:
                return ""

    def ask(self, route: tuple[str, str], key: str, **other: str) -> Any:
        method, path = route
        places = self.stock.places | other
        row = TABLE[route]
        body = row.body(places) if row.body is not None else None
        return self.api.ask(method, path.removeprefix("/api/v1").format(**places), body, key=key)


def test_every_route_has_a_row_with_the_role_that_it_asks_for():
    routes = {(each.method, each.path): MINIMUM_ROLES[each.requirement] or "none" for each in operations(application())}

    assert {route: row.role for route, row in TABLE.items()} == routes


@EVERY_ROUTE
def test_everybody_is_answered_as_decided(shared_api: Api, route):
    answered, untouched = {}, Scene(shared_api)
    # Those who are refused come first, so that what they must not touch is there for those who may.
    for caller in sorted(CALLERS, key=lambda caller: decided(route, caller), reverse=True):
        changes = route[0] != "GET" and decided(route, caller) < 400
        scene = Scene(shared_api) if changes else untouched
        answered[caller] = scene.ask(route, scene.key(caller)).status

    assert answered == {caller: decided(route, caller) for caller in CALLERS}


@pytest.mark.parametrize(
    "route",
    [
        route
        for route in TABLE
        if any(place in route[1] for place in ("{uid}", "{automation}", "{delivery}", "{run}"))
        or route[1].endswith("filter-tests")
    ],
    ids=lambda route: " ".join(route),
)
def test_what_another_factory_has_is_as_unknown_as_what_nobody_has(shared_api: Api, route):
    mine, other = Scene(shared_api), Scene(shared_api)
    key = mine.key("manager")
    theirs = {name: other.stock.places[name] for name in ("uid", "automation", "delivery", "run")}
    unknown = {name: value[:-4] + "0000" for name, value in theirs.items()}

    of_the_other = mine.ask(route, key, **theirs)
    of_nobody = mine.ask(route, key, **unknown)

    assert of_the_other.status == of_nobody.status == 404
    told = of_the_other.body.decode()
    for name, value in theirs.items():
        told = told.replace(value, unknown[name])
    assert told == of_nobody.body.decode()


def test_another_factory_is_as_unknown_as_one_that_is_not_there(shared_api: Api):
    other = Scene(shared_api)

    of_the_other = shared_api.get(f"/factories/{other.name}")
    of_nobody = shared_api.get("/factories/nowhere")

    assert of_the_other.status == of_nobody.status == 404
    assert of_the_other.body.replace(other.name.encode(), b"nowhere") == of_nobody.body


def test_a_refusal_for_too_low_a_role_names_the_role_that_it_takes(shared_api: Api):
    scene = Scene(shared_api)

    by_viewer = scene.ask(("POST", f"{FACTORY}/webhooks"), scene.key("viewer")).json
    by_manager = scene.ask(("GET", "/api/v1/members"), scene.key("manager")).json

    assert (by_viewer["code"], by_manager["code"]) == ("forbidden", "forbidden")
    assert "manager" in by_viewer["detail"]
    assert "admin" in by_manager["detail"]


@pytest.mark.parametrize(
    "given",
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
    ids=lambda given: " and ".join(f"{name}: {value}" for name, value in given),
)
def test_a_key_counts_as_one_bearer_token_and_in_no_other_form(shared_api: Api, given):
    headers = [(name, value.format(key=shared_api.admin)) for name, value in given]

    answer = shared_api.get("/me", key="", headers=headers)

    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_key_in_the_address_opens_nothing(shared_api: Api):
    assert shared_api.get(f"/me?access_token={shared_api.admin}", key="").status == 401


def test_the_word_bearer_may_be_written_in_any_case(shared_api: Api):
    assert shared_api.get("/me", key="", headers={"Authorization": f"bearer {shared_api.admin}"}).status == 200


def test_an_invalid_body_reveals_nothing_of_a_hidden_factory(shared_api: Api):
    other = Scene(shared_api)

    of_the_other = shared_api.post(f"/factories/{other.name}/webhooks", {"nothing": "right"})
    of_nobody = shared_api.post("/factories/nowhere/webhooks", {"nothing": "right"})

    assert of_the_other.status == of_nobody.status == 404
