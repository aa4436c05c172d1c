"""/members and /keys: the team's people with their roles, and the keys of its programs."""

from fastapi import APIRouter, Response

from hookmill.domain.permission import MayAdminister
from hookmill.management import Management
from hookmill.presentation.key import KeyView, KeyWithTokenView
from hookmill.presentation.member import MemberView
from hookmill.web.api.access import Administering, Operations
from hookmill.web.api.bodies import FactoryRole, MemberChanges, NewKey, NewMember
from hookmill.web.api.fields import LIMIT, Cursor, FactoryInPath, KeyInPath, Limit, MemberInPath
from hookmill.web.api.idempotency import OnlyOnce
from hookmill.web.api.paging import Page, page
from hookmill.web.api.representation import IfMatch, shown, tagged
from hookmill.web.api.route import Route
from hookmill.web.api.where import at

routes = APIRouter(route_class=Route, tags=["Team"])


class MemberPage(Page[MemberView], frozen=True):
    """Members, by address."""


class KeyPage(Page[KeyView], frozen=True):
    """API keys, newest first."""


@routes.get("/members", operation_id="list_members", summary="List members", response_model=MemberPage)
def list_members(may: Administering, management: Operations, limit: Limit = LIMIT, cursor: Cursor = None) -> Response:
    """The team's people, by address."""
    items, further = page(management.members.all(may), lambda member: (member.email,), limit=limit, cursor=cursor)
    return shown(MemberPage(items=[MemberView.of(member) for member in items], next_cursor=further))


@routes.post("/members", operation_id="add_member", summary="Add a member", response_model=MemberView, status_code=201)
def add_member(may: Administering, management: Operations, given: NewMember, once: OnlyOnce) -> Response:
    """Somebody new in the team, with no role in any factory yet."""

    def make() -> Response:
        member = management.members.add(may, given.email, given.name, is_admin=given.is_admin)
        return shown(MemberView.of(member), 201, location=at("members", member.id))

    return once.answer(may, make)


@routes.get("/members/{member}", operation_id="show_member", summary="Show a member", response_model=MemberView)
def show_member(member: MemberInPath, may: Administering, management: Operations) -> Response:
    """One member, and their role in each factory."""
    return tagged(MemberView.of(management.members.get(may, member)))


@routes.patch("/members/{member}", operation_id="change_member", summary="Change a member", response_model=MemberView)
def change_member(
    member: MemberInPath, may: Administering, management: Operations, given: MemberChanges, if_match: IfMatch
) -> Response:
    """Make them an admin of the team, or no longer one. The last admin stays."""
    asked = given.given()
    with management.together(may):
        _must_still_be(member, may, management, if_match)
        if "is_admin" in asked:
            changed = management.members.set_admin(may, member, asked["is_admin"])
        else:
            changed = management.members.get(may, member)
    return tagged(MemberView.of(changed))


@routes.delete(
    "/members/{member}",
    operation_id="remove_member",
    summary="Remove a member",
    response_class=Response,
    status_code=204,
)
def remove_member(member: MemberInPath, may: Administering, management: Operations, if_match: IfMatch) -> Response:
    """They may do nothing from the moment that this is answered. The last admin stays."""
    with management.together(may):
        _must_still_be(member, may, management, if_match)
        management.members.remove(may, member)
    return Response(status_code=204)


@routes.put(
    "/members/{member}/roles/{factory}",
    operation_id="give_role",
    summary="Give a role in a factory",
    response_model=MemberView,
)
def give_role(
    member: MemberInPath,
    factory: FactoryInPath,
    may: Administering,
    management: Operations,
    given: FactoryRole,
    if_match: IfMatch,
) -> Response:
    """Their role in one factory from now on, in place of the one before."""
    with management.together(may):
        _must_still_be(member, may, management, if_match)
        changed = management.members.set_role(may, member, factory, given.role)
    return tagged(MemberView.of(changed))


@routes.delete(
    "/members/{member}/roles/{factory}",
    operation_id="take_role",
    summary="Take a role in a factory away",
    response_model=MemberView,
)
def take_role(
    member: MemberInPath, factory: FactoryInPath, may: Administering, management: Operations, if_match: IfMatch
) -> Response:
    """They no longer see the factory, unless they are an admin."""
    with management.together(may):
        _must_still_be(member, may, management, if_match)
        changed = management.members.set_role(may, member, factory, None)
    return tagged(MemberView.of(changed))


@routes.get("/keys", operation_id="list_keys", summary="List API keys", response_model=KeyPage)
def list_keys(may: Administering, management: Operations, limit: Limit = LIMIT, cursor: Cursor = None) -> Response:
    """The team's API keys without their tokens, revoked and expired ones too, newest first."""
    items, further = page(
        management.keys.all(may), lambda key: (key.created_at, key.id), limit=limit, cursor=cursor, newest_first=True
    )
    return shown(KeyPage(items=[KeyView.of(key) for key in items], next_cursor=further))


@routes.post(
    "/keys", operation_id="create_key", summary="Create an API key", response_model=KeyWithTokenView, status_code=201
)
def create_key(may: Administering, management: Operations, given: NewKey, once: OnlyOnce) -> Response:
    """A new key. Its token is in the answer, and never again."""

    def make() -> Response:
        made = management.keys.create(may, given.name, given.role, factory=given.factory, expires_at=given.expires_at)
        return shown(KeyWithTokenView.once(made), 201)

    return once.answer(may, make)


@routes.delete("/keys/{key}", operation_id="revoke_key", summary="Revoke an API key", response_model=KeyView)
def revoke_key(key: KeyInPath, may: Administering, management: Operations) -> Response:
    """It opens nothing from the moment that this is answered. It stays in the list, as revoked."""
    return shown(KeyView.of(management.keys.revoke(may, key)))


def _must_still_be(member: str, may: MayAdminister, management: Management, if_match: IfMatch) -> None:
    if if_match.is_given:
        if_match.must_hold(MemberView.of(management.members.get(may, member)))
