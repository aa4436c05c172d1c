"""Every page, for everybody: one table decides who may, and a page without a row is red."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from hookmill.web.dashboard import PAGES
from hookmill.web.dashboard.access import MINIMUM_ROLES
from hookmill.web.dashboard.application import Page
from tests.dashboard.client import redirects_to_sign_in
from tests.dashboard.scene import VISITORS, Scene, scene_for_test

ROLES: Final[dict[str, tuple[str, ...]]] = {
    "nobody": (
        "GET /static/{digest}/{name}",
        "GET /sign-in",
        "POST /sign-in",
        "GET /welcome/{token}",
        "POST /welcome/{token}",
    ),
    "anybody": (
        "GET /",
        "GET /account",
        "POST /account",
        "POST /sign-out",
    ),
    "viewer": (
        "GET /f/{factory}",
        "GET /f/{factory}/first-steps",
        "GET /f/{factory}/webhooks",
        "GET /f/{factory}/webhooks/scheme",
        "GET /f/{factory}/webhooks/{uid}",
        "GET /f/{factory}/deliveries",
        "GET /f/{factory}/deliveries/live",
        "GET /f/{factory}/deliveries/{delivery}",
        "GET /f/{factory}/deliveries/{delivery}/payload",
        "GET /f/{factory}/automations",
        "GET /f/{factory}/automations/{automation}",
        "GET /f/{factory}/automations/{automation}/runs",
        "GET /f/{factory}/runs",
        "GET /f/{factory}/runs/rows",
        "GET /f/{factory}/runs/queue",
        "GET /f/{factory}/runs/queue/rows",
        "GET /f/{factory}/runs/{run}",
        "GET /f/{factory}/runs/{run}/progress",
        "GET /f/{factory}/runs/{run}/files/{file}",
        "GET /f/{factory}/definitions",
    ),
    "manager": (
        "GET /f/{factory}/webhooks/new",
        "POST /f/{factory}/webhooks/new",
        "POST /f/{factory}/webhooks/{uid}/enable",
        "POST /f/{factory}/webhooks/{uid}/disable",
        "POST /f/{factory}/webhooks/{uid}/rename",
        "POST /f/{factory}/webhooks/{uid}/delivery-id-header",
        "POST /f/{factory}/webhooks/{uid}/event-header",
        "POST /f/{factory}/webhooks/{uid}/sync",
        "POST /f/{factory}/webhooks/{uid}/supply",
        "POST /f/{factory}/webhooks/{uid}/rotate",
        "POST /f/{factory}/webhooks/{uid}/delete",
        "POST /f/{factory}/deliveries/{delivery}/replay",
        "GET /f/{factory}/automations/new",
        "POST /f/{factory}/automations/new",
        "GET /f/{factory}/automations/{automation}/edit",
        "POST /f/{factory}/automations/{automation}/edit",
        "GET /f/{factory}/automations/{automation}/run",
        "POST /f/{factory}/automations/{automation}/run",
        "POST /f/{factory}/automations/{automation}/runs",
        "POST /f/{factory}/automations/{automation}/enable",
        "POST /f/{factory}/automations/{automation}/disable",
        "GET /f/{factory}/automations/{automation}/delete",
        "POST /f/{factory}/automations/{automation}/delete",
        "POST /f/{factory}/runs/{run}/cancel",
        "GET /f/{factory}/runs/queue/cancel",
        "POST /f/{factory}/runs/queue/cancel",
        "GET /f/{factory}/secrets",
        "POST /f/{factory}/secrets",
        "GET /f/{factory}/secrets/{name}",
        "POST /f/{factory}/secrets/{name}/replace",
        "POST /f/{factory}/secrets/{name}/delete",
        "GET /f/{factory}/audit",
    ),
    "admin": (
        "GET /team",
        "POST /team",
        "GET /team/members/{member}",
        "POST /team/members/{member}/roles",
        "POST /team/members/{member}/admin",
        "POST /team/members/{member}/link",
        "GET /team/members/{member}/remove",
        "POST /team/members/{member}/remove",
        "GET /team/keys",
        "POST /team/keys",
        "GET /team/keys/{key}/revoke",
        "POST /team/keys/{key}/revoke",
        "GET /team/factories",
        "POST /team/factories",
        "GET /team/audit",
        "GET /settings",
    ),
}  # fmt: skip
"""The decisions: the least role that a page takes. `nobody` need not be signed in, `anybody` needs no role."""

ROLE_OF: Final = {page: role for role, pages in ROLES.items() for page in pages}
RANKS: Final = {"anybody": 0, "viewer": 1, "manager": 2, "admin": 3}
MAY, SIGN_IN, FORBIDDEN, NOT_THERE = "may", "signs in first", "403", "404"


def decided(page: str, visitor: str) -> str:
    """What the table says of a visitor to a page."""
    role = ROLE_OF[page]
    if role == "nobody":
        return MAY
    if visitor == "unauthenticated client":
        return SIGN_IN
    if visitor == "other factory's manager":
        return MAY if role == "anybody" else FORBIDDEN if role == "admin" else NOT_THERE
    return MAY if RANKS[visitor] >= RANKS[role] else FORBIDDEN


def named(page: Page) -> str:
    return f"{page.method} {page.path}"


def those(visitor: str, decision: Callable[[str], bool]) -> list[Page]:
    """The pages of which the table decides so for the visitor."""
    return [page for page in PAGES if named(page) in ROLE_OF and decision(decided(named(page), visitor))]


@pytest.fixture(scope="module")
def scene(migrated_sqlite: Path) -> Iterator[Scene]:
    yield from scene_for_test(migrated_sqlite)


def asked(scene: Scene, page: Page, visitor: str) -> str:
    """How the service decides, in the table's words."""
    somebody = scene.visitors[visitor]
    address = scene.path_of(page)
    answer: Any = somebody.post(address) if page.method == "POST" else somebody.get(address)
    if redirects_to_sign_in(answer):
        return SIGN_IN
    if answer.status == 303 or answer.status in {200, 401, 409, 422} or answer.status < 300:
        return MAY
    return str(answer.status)


def test_every_page_has_one_row_and_every_row_its_page():
    rows = [page for pages in ROLES.values() for page in pages]

    assert sorted(map(named, PAGES)) == sorted(rows)


def test_every_page_asks_for_the_role_of_its_row():
    words = {None: "nobody", "any": "anybody"}
    asked_for = {named(page): MINIMUM_ROLES[page.requirement] for page in PAGES}

    assert {page: words.get(role, role) for page, role in asked_for.items()} == ROLE_OF


@pytest.mark.parametrize("visitor", VISITORS)
def test_whoever_may_not_is_refused_and_changes_nothing(scene: Scene, visitor: str):
    before = scene.dashboard.audit_entry_count()
    refused = those(visitor, lambda decision: decision != MAY)

    answered = {named(page): asked(scene, page, visitor) for page in refused}

    assert answered == {named(page): decided(named(page), visitor) for page in refused}
    assert scene.dashboard.audit_entry_count() == before


@pytest.mark.parametrize("visitor", VISITORS)
def test_whoever_may_look_sees_the_page(scene: Scene, visitor: str):
    allowed = [page for page in those(visitor, lambda decision: decision == MAY) if page.method == "GET"]

    answered = {named(page): asked(scene, page, visitor) for page in allowed}

    assert answered == dict.fromkeys(map(named, allowed), MAY)


def test_whoever_may_act_is_let_through_to_the_page(migrated_sqlite: Path):
    # What is deleted on the way makes later pages of the same thing a 404: that is no refusal.
    for scene in scene_for_test(migrated_sqlite):
        for visitor in ("viewer", "manager", "admin"):
            for page in those(visitor, lambda decision: decision == MAY):
                if page.method == "POST" and page.path != "/sign-out":
                    assert asked(scene, page, visitor) in {MAY, NOT_THERE}, (named(page), visitor)
