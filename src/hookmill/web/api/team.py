"""/members and /keys: the team's members with their roles, and its API keys."""

from fastapi import APIRouter, Response

from hookmill.domain.permission import MayAdminister
from hookmill.management import Management
from hookmill.presentation.key import KeyView, KeyWithTokenView
from hookmill.presentation.member import MemberView, SignInLinkView, sign_in_url
from hookmill.web.api.access import AdminAccess, ManagementDependency
from hookmill.web.api.bodies import FactoryRole, KeyCreation, MemberChanges, MemberCreation
from hookmill.web.api.fields import PAGE_SIZE, Cursor, FactoryInPath, KeyInPath, Limit, MemberInPath
from hookmill.web.api.idempotency import Idempotency
from hookmill.web.api.paging import ResultPage, paginate
from hookmill.web.api.representation import IfMatch, json_response, response_with_etag
from hookmill.web.api.route import Route
from hookmill.web.api.urls import api_path

routes = APIRouter(route_class=Route, tags=["Team"])


class MemberPage(ResultPage[MemberView], frozen=True):
    """Members, by email address."""


class KeyPage(ResultPage[KeyView], frozen=True):
    """API keys, newest first."""


@routes.get("/members", operation_id="list_members", summary="List members", response_model=MemberPage)
def list_members(
    permission: AdminAccess, management: ManagementDependency, limit: Limit = PAGE_SIZE, cursor: Cursor = None
) -> Response:
    """Lists the team's members by email address."""
    items, next_cursor = paginate(
        management.members.all(permission), lambda member: (member.email,), limit=limit, cursor=cursor
    )
    return json_response(MemberPage(items=[MemberView.of(member) for member in items], next_cursor=next_cursor))


@routes.post("/members", operation_id="add_member", summary="Add a member", response_model=MemberView, status_code=201)
def add_member(
    permission: AdminAccess, management: ManagementDependency, body: MemberCreation, idempotency: Idempotency
) -> Response:
    """Adds a member to the team. The member has no role in any factory yet."""

    def create() -> Response:
        member = management.members.add(permission, body.email, body.name, is_admin=body.is_admin)
        return json_response(MemberView.of(member), 201, location=api_path("members", member.id))

    return idempotency.respond(permission, create)


@routes.get("/members/{member}", operation_id="show_member", summary="Show a member", response_model=MemberView)
def show_member(member: MemberInPath, permission: AdminAccess, management: ManagementDependency) -> Response:
    """Returns a member, with the role in each factory."""
    return response_with_etag(MemberView.of(management.members.get(permission, member)))


@routes.patch("/members/{member}", operation_id="change_member", summary="Change a member", response_model=MemberView)
def change_member(
    member: MemberInPath,
    permission: AdminAccess,
    management: ManagementDependency,
    body: MemberChanges,
    if_match: IfMatch,
) -> Response:
    """Makes a member an admin of the team, or removes that role. A team keeps at least one admin."""
    changes = body.changes()
    with management.one_transaction(permission):
        _check_precondition(member, permission, management, if_match)
        if "is_admin" in changes:
            updated_member = management.members.set_admin(permission, member, changes["is_admin"])
        else:
            updated_member = management.members.get(permission, member)
    return response_with_etag(MemberView.of(updated_member))


@routes.delete(
    "/members/{member}",
    operation_id="remove_member",
    summary="Remove a member",
    response_class=Response,
    status_code=204,
)
def remove_member(
    member: MemberInPath, permission: AdminAccess, management: ManagementDependency, if_match: IfMatch
) -> Response:
    """Removes a member from the team. All access ends immediately. A team keeps at least one admin."""
    with management.one_transaction(permission):
        _check_precondition(member, permission, management, if_match)
        management.members.remove(permission, member)
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
    permission: AdminAccess,
    management: ManagementDependency,
    body: FactoryRole,
    if_match: IfMatch,
) -> Response:
    """Sets a member's role in a factory. It replaces any previous role there."""
    with management.one_transaction(permission):
        _check_precondition(member, permission, management, if_match)
        updated_member = management.members.set_role(permission, member, factory, body.role)
    return response_with_etag(MemberView.of(updated_member))


@routes.delete(
    "/members/{member}/roles/{factory}",
    operation_id="take_role",
    summary="Remove a role in a factory",
    response_model=MemberView,
)
def take_role(
    member: MemberInPath,
    factory: FactoryInPath,
    permission: AdminAccess,
    management: ManagementDependency,
    if_match: IfMatch,
) -> Response:
    """Removes a member's role in a factory. The member no longer sees the factory, unless they are an admin."""
    with management.one_transaction(permission):
        _check_precondition(member, permission, management, if_match)
        updated_member = management.members.set_role(permission, member, factory, None)
    return response_with_etag(MemberView.of(updated_member))


@routes.post(
    "/members/{member}/sign-in-link",
    operation_id="create_sign_in_link",
    summary="Create a sign-in link",
    response_model=SignInLinkView,
    status_code=201,
)
def create_sign_in_link(
    member: MemberInPath, permission: AdminAccess, management: ManagementDependency, idempotency: Idempotency
) -> Response:
    """Creates a link with which the member signs in to the dashboard. It replaces the member's previous link."""

    def create() -> Response:
        token = management.sessions.create_link(permission, member)
        url = sign_in_url(management.config.public_url, token)
        return json_response(SignInLinkView(member_id=member, url=url), 201)

    return idempotency.respond(permission, create)


@routes.get("/keys", operation_id="list_keys", summary="List API keys", response_model=KeyPage)
def list_keys(
    permission: AdminAccess, management: ManagementDependency, limit: Limit = PAGE_SIZE, cursor: Cursor = None
) -> Response:
    """Lists the team's API keys without their tokens, newest first, including revoked and expired keys."""
    items, next_cursor = paginate(
        management.keys.all(permission),
        lambda key: (key.created_at, key.id),
        limit=limit,
        cursor=cursor,
        newest_first=True,
    )
    return json_response(KeyPage(items=[KeyView.of(key) for key in items], next_cursor=next_cursor))


@routes.post(
    "/keys", operation_id="create_key", summary="Create an API key", response_model=KeyWithTokenView, status_code=201
)
def create_key(
    permission: AdminAccess, management: ManagementDependency, body: KeyCreation, idempotency: Idempotency
) -> Response:
    """Creates an API key. Only this response has the key's token."""

    def create() -> Response:
        key_with_token = management.keys.create(
            permission, body.name, body.role, factory=body.factory, expires_at=body.expires_at
        )
        view = KeyWithTokenView.showing_secret(key_with_token, management.config.public_url)
        return json_response(view, 201)

    return idempotency.respond(permission, create)


@routes.delete("/keys/{key}", operation_id="revoke_key", summary="Revoke an API key", response_model=KeyView)
def revoke_key(key: KeyInPath, permission: AdminAccess, management: ManagementDependency) -> Response:
    """Revokes an API key. It stops working immediately, and stays in the list as revoked."""
    return json_response(KeyView.of(management.keys.revoke(permission, key)))


def _check_precondition(member: str, permission: MayAdminister, management: Management, if_match: IfMatch) -> None:
    """Raise `Changed` if the client sent `If-Match`, and it does not match the current version."""
    if if_match.is_set:
        if_match.check(MemberView.of(management.members.get(permission, member)))
