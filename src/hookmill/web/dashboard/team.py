"""The pages of the team: its members and their roles, its API keys, and its factories."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import Response

from hookmill.domain.errors import Conflict, HookmillError, Invalid, NotFound
from hookmill.domain.factory import Factory
from hookmill.domain.permission import MayAdminister, Role, role_named
from hookmill.domain.secret import SecretValue
from hookmill.management import ApiKey, Member
from hookmill.management.sessions import LINK_HOURS
from hookmill.presentation.member import sign_in_url
from hookmill.web.dashboard import pages
from hookmill.web.dashboard.access import require_admin
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext

DAY_US: Final = 86_400_000_000
_EPOCH: Final = date(1970, 1, 1)
_EXPIRY_YEAR_MAX: Final = 2999

pages.FLASH_MESSAGES.update(
    {
        "member-roles": "Roles saved. They apply immediately.",
        "member-admin": "Admin role saved. The change applies immediately.",
        "member-removed": "Member removed.",
        "key-revoked": "API key revoked.",
        "factory-created": "Factory created.",
    }
)


@dataclass(frozen=True, slots=True)
class Grant:
    """An option of the role list: a role in a factory, or admin of the team."""

    role: Role
    factory: str | None
    """The factory's name; None for admin."""

    @property
    def value(self) -> str:
        return f"{self.role.value} in {self.factory}" if self.factory is not None else self.role.value


# Members


def members(context: PageContext, may: MayAdminister) -> Response:
    return _members_page(context, may)


def add_member(context: PageContext, may: MayAdminister) -> Response:
    """Add a member, with a role if the form selects one, and create a sign-in link, in one transaction."""
    management = context.management
    try:
        grant = _selected_grant(context, may)
        with management.one_transaction(may):
            new_member = management.members.add(
                may, context.form["email"], context.form["name"], is_admin=grant is not None and grant.factory is None
            )
            if grant is not None and grant.factory is not None:
                new_member = management.members.set_role(may, new_member.id, grant.factory, grant.role)
            token = management.sessions.create_link(may, new_member.id)
    except (Invalid, Conflict) as error:
        invalid_field = "email" if isinstance(error, Conflict) else _field_of(error, otherwise="name")
        return _members_page(context, may, status=422, problem=str(error), invalid_field=invalid_field)
    return _link_page(context, new_member, token, is_new=True)


def _selected_grant(context: PageContext, may: MayAdminister) -> Grant | None:
    """The selected role; None for no role. Raises `Invalid` for a role that the form does not offer."""
    role_value = context.form["role"]
    if not role_value:
        return None
    for grant in _grants(context.management.factories.all(may)):
        if grant.value == role_value:
            return grant
    raise Invalid(f"Unknown role {role_value[:100]!r}. Choose one from the list.", pointer="/role")


def _members_page(
    context: PageContext, may: MayAdminister, *, status: int = 200, problem: str = "", invalid_field: str = ""
) -> Response:
    return context.page(
        "team.html",
        status=status,
        members=context.management.members.all(may),
        grants=_grants(context.management.factories.all(may)),
        problem=problem,
        invalid_field=invalid_field,
    )


def member(context: PageContext, may: MayAdminister) -> Response:
    return _member_page(context, may)


def set_roles(context: PageContext, may: MayAdminister) -> Response:
    """Set the roles in the factories that the form contains. Other roles stay unchanged."""
    target_member = context.management.members.get(may, context.parameters["member"])
    with context.management.one_transaction(may):
        for factory in context.management.factories.all(may):
            field = f"role.{factory.id}"
            if not context.form.is_checked(field):
                continue
            role = role_named(context.form[field]) if context.form[field] else None
            if role is not target_member.roles.get(factory.name):
                context.management.members.set_role(may, target_member.id, factory.name, role)
    return context.redirect("team", "members", target_member.id, flash="member-roles")


def set_admin(context: PageContext, may: MayAdminister) -> Response:
    try:
        updated_member = context.management.members.set_admin(
            may, context.parameters["member"], context.form["is_admin"] == "yes"
        )
    except Conflict as error:
        return _member_page(context, may, status=409, problem=str(error))
    return context.redirect("team", "members", updated_member.id, flash="member-admin")


def create_link(context: PageContext, may: MayAdminister) -> Response:
    target_member = context.management.members.get(may, context.parameters["member"])
    return _link_page(context, target_member, context.management.sessions.create_link(may, target_member.id))


def _link_page(context: PageContext, target_member: Member, token: SecretValue, *, is_new: bool = False) -> Response:
    public_url = context.management.config.public_url
    return context.page(
        "team-link.html",
        member=target_member,
        link=sign_in_url(public_url, token),
        public_url=public_url,
        works_on_other_machines=not is_local_url(public_url),
        hours=LINK_HOURS,
        is_new=is_new,
    )


def is_local_url(url: str) -> bool:
    """Whether the URL's host is a loopback or unspecified address, which other machines can't reach."""
    host = urlsplit(url).hostname or ""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def confirm_remove(context: PageContext, may: MayAdminister) -> Response:
    return _removal_page(context, may)


def remove(context: PageContext, may: MayAdminister) -> Response:
    try:
        context.management.members.remove(may, context.parameters["member"])
    except Conflict as error:
        return _removal_page(context, may, status=409, problem=str(error))
    return context.redirect("team", flash="member-removed")


def _member_page(context: PageContext, may: MayAdminister, *, status: int = 200, problem: str = "") -> Response:
    return context.page(
        "team-member.html",
        status=status,
        member=context.management.members.get(may, context.parameters["member"]),
        factories=context.management.factories.all(may),
        hours=LINK_HOURS,
        problem=problem,
    )


def _removal_page(context: PageContext, may: MayAdminister, *, status: int = 200, problem: str = "") -> Response:
    target_member = context.management.members.get(may, context.parameters["member"])
    return context.page("team-remove.html", status=status, member=target_member, problem=problem)


# Keys


def keys(context: PageContext, may: MayAdminister) -> Response:
    return _keys_page(context, may)


def create_key(context: PageContext, may: MayAdminister) -> Response:
    role, _, factory = context.form["role"].partition(" in ")
    try:
        key_with_token = context.management.keys.create(
            may,
            context.form["name"],
            role_named(role),
            factory=factory or None,
            expires_at=_end_of_day(context.form.optional("expires")),
        )
    except (Invalid, NotFound) as error:
        invalid_field = "factory" if isinstance(error, NotFound) else _field_of(error, otherwise="name")
        # One field contains both the role and the factory.
        return _keys_page(
            context,
            may,
            status=422,
            problem=str(error),
            invalid_field="role" if invalid_field == "factory" else invalid_field,
        )
    token = key_with_token.token.reveal()
    curl = f"curl -H {shlex.quote(f'Authorization: Bearer {token}')} {context.management.config.public_url}/api/v1/me"
    return context.page("team-key.html", key=key_with_token.key, token=token, curl=curl)


def confirm_revoke(context: PageContext, may: MayAdminister) -> Response:
    return context.page("team-revoke.html", key=_requested_key(context, may))


def revoke(context: PageContext, may: MayAdminister) -> Response:
    context.management.keys.revoke(may, context.parameters["key"])
    return context.redirect("team", "keys", flash="key-revoked")


def _keys_page(
    context: PageContext, may: MayAdminister, *, status: int = 200, problem: str = "", invalid_field: str = ""
) -> Response:
    all_keys = context.management.keys.all(may)
    now = context.service.now_us()
    return context.page(
        "team-keys.html",
        status=status,
        valid_keys=[key for key in all_keys if key.is_valid(now)],
        ended_keys=[key for key in all_keys if not key.is_valid(now)],
        grants=_grants(context.management.factories.all(may)),
        problem=problem,
        invalid_field=invalid_field,
    )


def _grants(factories: Sequence[Factory]) -> list[Grant]:
    factory_grants = [Grant(role, factory.name) for factory in factories for role in (Role.VIEWER, Role.MANAGER)]
    return [*factory_grants, Grant(Role.ADMIN, None)]


def _requested_key(context: PageContext, may: MayAdminister) -> ApiKey:
    key_id = context.parameters["key"]
    for key in context.management.keys.all(may):
        if key.id == key_id:
            return key
    raise NotFound(f"There is no API key {key_id[:100]!r}.")


def _end_of_day(iso_day: str | None) -> int | None:
    """The end of the day in UTC, in µs since 1970. Raises `Invalid` for an invalid date."""
    if iso_day is None:
        return None
    try:
        day = date.fromisoformat(iso_day)
    except ValueError:
        raise Invalid("The last valid day must be a date such as 2030-12-31.", pointer="/expires_at") from None
    if day.year > _EXPIRY_YEAR_MAX:
        raise Invalid(
            f"The last valid day is after the year {_EXPIRY_YEAR_MAX}. Leave it empty for none.", pointer="/expires_at"
        )
    return ((day + timedelta(days=1)) - _EPOCH).days * DAY_US


# Factories


def factories(context: PageContext, may: MayAdminister) -> Response:
    return _factories_page(context, may)


def create_factory(context: PageContext, may: MayAdminister) -> Response:
    try:
        context.management.factories.create(may, context.form["name"])
    except (Invalid, Conflict) as error:
        return _factories_page(context, may, status=422, problem=str(error))
    return context.redirect("team", "factories", flash="factory-created")


def _factories_page(context: PageContext, may: MayAdminister, *, status: int = 200, problem: str = "") -> Response:
    factories = context.management.factories.all(may)
    return context.page("team-factories.html", status=status, factories=factories, problem=problem)


def _field_of(error: HookmillError, *, otherwise: str) -> str:
    """The field that the error is about. Errors about names have no pointer: their field is `otherwise`."""
    faults = error.faults if isinstance(error, Invalid) else ()
    return faults[0].pointer.removeprefix("/") if faults else otherwise


PAGES: Final = (
    Page("GET", "/team", members, require_admin),
    Page("POST", "/team", add_member, require_admin),
    Page("GET", "/team/members/{member}", member, require_admin),
    Page("POST", "/team/members/{member}/roles", set_roles, require_admin),
    Page("POST", "/team/members/{member}/admin", set_admin, require_admin),
    Page("POST", "/team/members/{member}/link", create_link, require_admin),
    Page("GET", "/team/members/{member}/remove", confirm_remove, require_admin),
    Page("POST", "/team/members/{member}/remove", remove, require_admin),
    Page("GET", "/team/keys", keys, require_admin),
    Page("POST", "/team/keys", create_key, require_admin),
    Page("GET", "/team/keys/{key}/revoke", confirm_revoke, require_admin),
    Page("POST", "/team/keys/{key}/revoke", revoke, require_admin),
    Page("GET", "/team/factories", factories, require_admin),
    Page("POST", "/team/factories", create_factory, require_admin),
)
