"""/factories/{factory}/secrets: the team's secrets, whose values go in and never come out."""

from fastapi import APIRouter, Response

from hookmill.presentation.secret import SecretView, SecretWithValueView
from hookmill.web.api.access import Managing, Operations
from hookmill.web.api.bodies import NewSecret, SecretReplacement
from hookmill.web.api.fields import LIMIT, Cursor, Limit, SecretInPath
from hookmill.web.api.idempotency import OnlyOnce
from hookmill.web.api.paging import Page, page
from hookmill.web.api.representation import IfMatch, shown, tagged
from hookmill.web.api.route import Route
from hookmill.web.api.where import at

routes = APIRouter(prefix="/factories/{factory}/secrets", route_class=Route, tags=["Team secrets"])


class SecretPage(Page[SecretView], frozen=True):
    """Team secrets, by name."""


@routes.get("", operation_id="list_secrets", summary="List team secrets", response_model=SecretPage)
def list_secrets(may: Managing, management: Operations, limit: Limit = LIMIT, cursor: Cursor = None) -> Response:
    """The team's secrets, without their values, and who uses them."""
    items, further = page(management.secrets.all(may), lambda secret: (secret.name,), limit=limit, cursor=cursor)
    return shown(SecretPage(items=[SecretView.of(secret) for secret in items], next_cursor=further))


@routes.post(
    "",
    operation_id="create_secret",
    summary="Create a team secret",
    response_model=SecretWithValueView,
    status_code=201,
)
def create_secret(may: Managing, management: Operations, given: NewSecret, once: OnlyOnce) -> Response:
    """A new team secret. A value that is generated is in the answer, and never again."""

    def make() -> Response:
        value = management.secrets.create(may, given.name, given.value)
        made = management.secrets.get(may, given.name)
        answer = SecretWithValueView.once(made, value.reveal() if given.value is None else None)
        return shown(answer, 201, location=at("factories", may.factory.name, "secrets", made.name))

    return once.answer(may, make)


@routes.get("/{name}", operation_id="show_secret", summary="Show a team secret", response_model=SecretView)
def show_secret(name: SecretInPath, may: Managing, management: Operations) -> Response:
    """When it was made and changed, and who uses it. Its value is never shown."""
    return tagged(SecretView.of(management.secrets.get(may, name)))


@routes.put(
    "/{name}", operation_id="replace_secret", summary="Replace a team secret", response_model=SecretWithValueView
)
def replace_secret(
    name: SecretInPath,
    may: Managing,
    management: Operations,
    if_match: IfMatch,
    given: SecretReplacement | None = None,
) -> Response:
    """A new value, given or generated. Webhooks keep to the value before until their next sync."""
    value = given.value if given is not None else None
    with management.together(may):
        _must_still_be(name, may, management, if_match)
        replaced = management.secrets.replace(may, name, value)
        made = management.secrets.get(may, name)
    return shown(SecretWithValueView.once(made, replaced.reveal() if value is None else None))


@routes.delete(
    "/{name}", operation_id="delete_secret", summary="Delete a team secret", response_class=Response, status_code=204
)
def delete_secret(name: SecretInPath, may: Managing, management: Operations, if_match: IfMatch) -> Response:
    """Remove it with all its values. Refused while a webhook uses it."""
    with management.together(may):
        _must_still_be(name, may, management, if_match)
        management.secrets.delete(may, name)
    return Response(status_code=204)


def _must_still_be(name: str, may: Managing, management: Operations, if_match: IfMatch) -> None:
    if if_match.is_given:
        if_match.must_hold(SecretView.of(management.secrets.get(may, name)))
