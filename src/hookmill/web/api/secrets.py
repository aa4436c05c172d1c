"""/factories/{factory}/secrets: the team secrets. Their values are write-only."""

from fastapi import APIRouter, Response

from hookmill.presentation.secret import SecretView, SecretWithValueView
from hookmill.web.api.access import ManagementDependency, ManagerAccess
from hookmill.web.api.bodies import SecretCreation, SecretReplacement
from hookmill.web.api.fields import PAGE_SIZE, Cursor, Limit, SecretInPath
from hookmill.web.api.idempotency import Idempotency
from hookmill.web.api.paging import ResultPage, paginate
from hookmill.web.api.representation import IfMatch, json_response, response_with_etag
from hookmill.web.api.route import Route
from hookmill.web.api.urls import api_path

routes = APIRouter(prefix="/factories/{factory}/secrets", route_class=Route, tags=["Team secrets"])


class SecretPage(ResultPage[SecretView], frozen=True):
    """Team secrets, by name."""


@routes.get("", operation_id="list_secrets", summary="List team secrets", response_model=SecretPage)
def list_secrets(
    permission: ManagerAccess, management: ManagementDependency, limit: Limit = PAGE_SIZE, cursor: Cursor = None
) -> Response:
    """Lists the team secrets without their values, with the factory's webhooks that use them.

    An admin's key gets all team secrets; another key gets those that the factory created or uses.
    """
    items, next_cursor = paginate(
        management.secrets.all(permission), lambda secret: (secret.name,), limit=limit, cursor=cursor
    )
    return json_response(SecretPage(items=[SecretView.of(secret) for secret in items], next_cursor=next_cursor))


@routes.post(
    "",
    operation_id="create_secret",
    summary="Create a team secret",
    response_model=SecretWithValueView,
    status_code=201,
)
def create_secret(
    permission: ManagerAccess, management: ManagementDependency, body: SecretCreation, idempotency: Idempotency
) -> Response:
    """Creates a team secret. Only this response has the value that the service generates."""

    def create() -> Response:
        value = management.secrets.create(permission, body.name, body.value, for_runs=body.for_runs)
        secret = management.secrets.get(permission, body.name)
        view = SecretWithValueView.showing_secret(secret, value.reveal() if body.value is None else None)
        return json_response(view, 201, location=api_path("factories", permission.factory.name, "secrets", secret.name))

    return idempotency.respond(permission, create)


@routes.get("/{name}", operation_id="show_secret", summary="Show a team secret", response_model=SecretView)
def show_secret(name: SecretInPath, permission: ManagerAccess, management: ManagementDependency) -> Response:
    """Returns a team secret without its value, with the factory's webhooks that use it."""
    return response_with_etag(SecretView.of(management.secrets.get(permission, name)))


@routes.put(
    "/{name}", operation_id="replace_secret", summary="Replace a team secret", response_model=SecretWithValueView
)
def replace_secret(
    name: SecretInPath,
    permission: ManagerAccess,
    management: ManagementDependency,
    if_match: IfMatch,
    body: SecretReplacement | None = None,
) -> Response:
    """Replaces a team secret's value. Webhooks use the previous value until their next sync.

    Runs get the new value from their next attempt.

    Only this response has the value that the service generates.
    """
    supplied_value = body.value if body is not None else None
    with management.one_transaction(permission):
        _check_precondition(name, permission, management, if_match)
        new_value = management.secrets.replace(permission, name, supplied_value)
        secret = management.secrets.get(permission, name)
    view = SecretWithValueView.showing_secret(secret, new_value.reveal() if supplied_value is None else None)
    return json_response(view)


@routes.delete(
    "/{name}", operation_id="delete_secret", summary="Delete a team secret", response_class=Response, status_code=204
)
def delete_secret(
    name: SecretInPath, permission: ManagerAccess, management: ManagementDependency, if_match: IfMatch
) -> Response:
    """Deletes a team secret with all its values. Fails while a webhook uses it."""
    with management.one_transaction(permission):
        _check_precondition(name, permission, management, if_match)
        management.secrets.delete(permission, name)
    return Response(status_code=204)


def _check_precondition(
    name: str, permission: ManagerAccess, management: ManagementDependency, if_match: IfMatch
) -> None:
    """Raise `Changed` if the client sent `If-Match`, and it does not match the current version."""
    if if_match.is_set:
        if_match.check(SecretView.of(management.secrets.get(permission, name)))
