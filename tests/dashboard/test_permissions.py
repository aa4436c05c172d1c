"""The permissions of every page: a table names the role that each page requires, and it has a row for every page."""

import re
from typing import Final

import pytest

from hookmill.web.dashboard import PAGES
from hookmill.web.dashboard.access import MINIMUM_ROLES
from hookmill.web.routes import DASHBOARD_SEGMENTS
from tests.dashboard.client import Elements, redirects_to_sign_in
from tests.dashboard.scene import VISITORS, Scene, scene_for_test

ROLES: Final[dict[str, tuple[str, ...]]] = {
    "none": (
        "GET /static/{digest}/{name}",
        "GET /sign-in",
        "POST /sign-in",
        "GET /sign-in/oidc",
        "GET /sign-in/oidc/callback",
        "GET /welcome/{token}",
        "POST /welcome/{token}",
        "POST /welcome/{token}/oidc",
    ),
    "any": (
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
        "GET /f/{factory}/alarms",
        "GET /f/{factory}/alarms/{alarm}",
    ),
    "manager": (
        "GET /f/{factory}/webhooks/new",
        "POST /f/{factory}/webhooks/new",
        "POST /f/{factory}/webhooks/{uid}/enable",
        "POST /f/{factory}/webhooks/{uid}/disable",
        "POST /f/{factory}/webhooks/{uid}/change",
        "POST /f/{factory}/webhooks/{uid}/sync",
        "POST /f/{factory}/alarms/{alarm}/snooze",
        "POST /f/{factory}/alarms/{alarm}/wake",
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
        "GET /f/{factory}/alarm-destinations",
        "POST /f/{factory}/alarm-destinations",
        "POST /f/{factory}/alarm-destinations/{destination}/test",
        "POST /f/{factory}/alarm-destinations/{destination}/remove",
        "GET /team/alarm-destinations",
        "POST /team/alarm-destinations",
        "POST /team/alarm-destinations/{installation_destination}/test",
        "POST /team/alarm-destinations/{installation_destination}/remove",
        "GET /settings",
        "GET /team/alarms",
        "GET /team/alarms/{installation_alarm}",
        "POST /team/alarms/{installation_alarm}/snooze",
        "POST /team/alarms/{installation_alarm}/wake",
    ),
}  # fmt: skip
"""The lowest role that each page requires. `none`: no sign-in is required; `any`: any member."""

ROLE_OF: Final = {page: role for role, pages in ROLES.items() for page in pages}
PAGES_BY_NAME: Final = {f"{page.method} {page.path}": page for page in PAGES}
RANKS: Final = {"any": 0, "viewer": 1, "manager": 2, "admin": 3}
ALLOWED, SIGN_IN, FORBIDDEN, NOT_FOUND = "allowed", "redirected to sign in", "403", "404"


def expected_decision(page: str, visitor: str) -> str:
    """The decision for this visitor of the page, according to the table."""
    role = ROLE_OF[page]
    if role == "none":
        return ALLOWED
    if visitor == "unauthenticated client":
        return SIGN_IN
    if visitor == "other factory's manager":
        return ALLOWED if role == "any" else FORBIDDEN if role == "admin" else NOT_FOUND
    return ALLOWED if RANKS[visitor] >= RANKS[role] else FORBIDDEN


def expected_decisions(visitor: str, *, allowed: bool) -> dict[str, str]:
    """The decisions of the table for this visitor, by page: those that allow the page, or the others."""
    decisions = {page: expected_decision(page, visitor) for page in PAGES_BY_NAME if page in ROLE_OF}
    return {page: decision for page, decision in decisions.items() if (decision == ALLOWED) == allowed}


@pytest.fixture(scope="module")
def scene(migrated_sqlite):
    yield from scene_for_test(migrated_sqlite)


def request(scene: Scene, page: str, visitor: str) -> str:
    """Request a page. Returns the decision of the service."""
    method = page.partition(" ")[0]
    path = scene.path_of(PAGES_BY_NAME[page])
    client = scene.visitors[visitor]
    answer = client.post(path) if method == "POST" else client.get(path)
    if redirects_to_sign_in(answer):
        return SIGN_IN
    # The callback gets 400, because it has no code.
    if answer.status == 400 and page == "GET /sign-in/oidc/callback":
        return ALLOWED
    # The form for signing in gets 401, because it has no password.
    if answer.status == 303 or answer.status in {200, 401, 409, 422} or answer.status < 300:
        return ALLOWED
    return str(answer.status)


def test_every_page_has_one_row_in_the_table():
    rows = [page for pages in ROLES.values() for page in pages]

    assert sorted(f"{page.method} {page.path}" for page in PAGES) == sorted(rows)


def test_paths_that_load_the_dashboard_are_those_of_its_pages():
    segments = {page.path.split("/")[1].encode() for page in PAGES}

    assert segments - {b""} == DASHBOARD_SEGMENTS


def test_every_page_requires_the_role_of_its_row():
    assert {name: MINIMUM_ROLES[page.requirement] or "none" for name, page in PAGES_BY_NAME.items()} == ROLE_OF


@pytest.mark.parametrize("visitor", VISITORS)
def test_visitor_without_permission_is_refused_and_changes_nothing(scene, visitor):
    entries_before = scene.dashboard.audit_entry_count()
    expected = expected_decisions(visitor, allowed=False)

    decisions = {page: request(scene, page, visitor) for page in expected}

    assert decisions == expected
    assert scene.dashboard.audit_entry_count() == entries_before


@pytest.mark.parametrize("visitor", VISITORS)
def test_visitor_with_permission_sees_the_page(scene, visitor):
    expected = {
        page: decision
        for page, decision in expected_decisions(visitor, allowed=True).items()
        if page.startswith("GET ")
    }

    decisions = {page: request(scene, page, visitor) for page in expected}

    assert decisions == expected


@pytest.mark.parametrize("visitor", VISITORS)
def test_visitor_is_offered_no_form_and_no_link_that_is_refused(scene, visitor):
    refused = [
        re.compile(re.sub(r"{\w+}", "[^/?#]+", page.partition(" ")[2]))
        for page in expected_decisions(visitor, allowed=False)
    ]
    forms = 0
    for page in (page for page in expected_decisions(visitor, allowed=True) if page.startswith("GET ")):
        elements = Elements(scene.visitors[visitor].get(scene.path_of(PAGES_BY_NAME[page])).body)
        targets = [form.attributes.get("action", "") for form in elements.with_tag("form")]
        targets += [link.attributes.get("href", "") for link in elements.with_tag("a")]
        forms += len(elements.with_tag("form"))

        paths = [target.partition("?")[0].partition("#")[0] for target in targets]
        assert [path for path in paths if any(pattern.fullmatch(path) for pattern in refused)] == [], page
    assert forms > 0


def test_visitor_with_permission_can_submit_the_form(migrated_sqlite):
    for scene in scene_for_test(migrated_sqlite):
        for visitor in ("viewer", "manager", "admin"):
            for page in expected_decisions(visitor, allowed=True):
                if page.startswith("POST ") and page != "POST /sign-out":
                    # 404 is no refusal: an earlier form may have deleted the object.
                    assert request(scene, page, visitor) in {ALLOWED, NOT_FOUND}, (page, visitor)
