"""/factories/{factory}/alarm-destinations and /alarm-destinations: where alarms are sent."""

from fastapi import APIRouter, Response

from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.management import Management
from hookmill.presentation.alarm_destination import (
    AlarmDestinationView,
    AlarmDestinationWithSecretView,
    DestinationTestView,
)
from hookmill.web.api.access import AdminAccess, FactoryAdminAccess, ManagementDependency
from hookmill.web.api.bodies import AlarmDestinationCreation, InstallationAlarmDestinationCreation
from hookmill.web.api.expensive import expensive
from hookmill.web.api.fields import PAGE_SIZE, Cursor, DestinationInPath, Limit
from hookmill.web.api.idempotency import Idempotency
from hookmill.web.api.paging import ResultPage, paginate
from hookmill.web.api.representation import json_response
from hookmill.web.api.route import Route

routes = APIRouter(route_class=Route, tags=["Alarm destinations"])


class AlarmDestinationPage(ResultPage[AlarmDestinationView], frozen=True):
    """Destinations of alarms, oldest first."""


@routes.get(
    "/factories/{factory}/alarm-destinations",
    operation_id="list_alarm_destinations",
    summary="List alarm destinations",
    response_model=AlarmDestinationPage,
)
def list_alarm_destinations(
    permission: FactoryAdminAccess, management: ManagementDependency, limit: Limit = PAGE_SIZE, cursor: Cursor = None
) -> Response:
    """Lists the factory's destinations of alarms, without their URLs and secrets."""
    return _page(permission, management, limit, cursor)


@routes.post(
    "/factories/{factory}/alarm-destinations",
    operation_id="create_alarm_destination",
    summary="Create an alarm destination",
    response_model=AlarmDestinationWithSecretView,
    status_code=201,
)
def create_alarm_destination(
    permission: FactoryAdminAccess,
    management: ManagementDependency,
    body: AlarmDestinationCreation,
    idempotency: Idempotency,
) -> Response:
    """Creates a destination of the factory's alarms. Only this response has the signing secret of a webhook."""

    def create() -> Response:
        return _create(permission, management, body, includes_factories=False)

    return idempotency.respond(permission, create)


@routes.delete(
    "/factories/{factory}/alarm-destinations/{destination}",
    operation_id="delete_alarm_destination",
    summary="Delete an alarm destination",
    response_class=Response,
    status_code=204,
)
def delete_alarm_destination(
    destination: DestinationInPath, permission: FactoryAdminAccess, management: ManagementDependency
) -> Response:
    """Deletes a destination, with the messages that wait for it."""
    management.alarm_destinations.delete(permission, destination)
    return Response(status_code=204)


@routes.post(
    "/factories/{factory}/alarm-destinations/{destination}/test",
    operation_id="test_alarm_destination",
    summary="Send a test",
    response_model=DestinationTestView,
)
@expensive
def test_alarm_destination(
    destination: DestinationInPath, permission: FactoryAdminAccess, management: ManagementDependency
) -> Response:
    """Sends a test to the destination, and waits for the result."""
    return json_response(DestinationTestView.of(management.alarm_destinations.test(permission, destination)))


@routes.get(
    "/alarm-destinations",
    operation_id="list_installation_alarm_destinations",
    summary="List alarm destinations of the installation",
    response_model=AlarmDestinationPage,
)
def list_installation_alarm_destinations(
    permission: AdminAccess, management: ManagementDependency, limit: Limit = PAGE_SIZE, cursor: Cursor = None
) -> Response:
    """Lists the installation's destinations of alarms, without their URLs and secrets."""
    return _page(permission, management, limit, cursor)


@routes.post(
    "/alarm-destinations",
    operation_id="create_installation_alarm_destination",
    summary="Create an alarm destination of the installation",
    response_model=AlarmDestinationWithSecretView,
    status_code=201,
)
def create_installation_alarm_destination(
    permission: AdminAccess,
    management: ManagementDependency,
    body: InstallationAlarmDestinationCreation,
    idempotency: Idempotency,
) -> Response:
    """Creates a destination of the installation's alarms. Only this response has the signing secret of a webhook."""

    def create() -> Response:
        return _create(permission, management, body, includes_factories=body.includes_factories)

    return idempotency.respond(permission, create)


@routes.delete(
    "/alarm-destinations/{installation_destination}",
    operation_id="delete_installation_alarm_destination",
    summary="Delete an alarm destination of the installation",
    response_class=Response,
    status_code=204,
)
def delete_installation_alarm_destination(
    installation_destination: DestinationInPath, permission: AdminAccess, management: ManagementDependency
) -> Response:
    """Deletes a destination, with the messages that wait for it."""
    management.alarm_destinations.delete(permission, installation_destination)
    return Response(status_code=204)


@routes.post(
    "/alarm-destinations/{installation_destination}/test",
    operation_id="test_installation_alarm_destination",
    summary="Send a test to a destination of the installation",
    response_model=DestinationTestView,
)
@expensive
def test_installation_alarm_destination(
    installation_destination: DestinationInPath, permission: AdminAccess, management: ManagementDependency
) -> Response:
    """Sends a test to the destination, and waits for the result."""
    return json_response(
        DestinationTestView.of(management.alarm_destinations.test(permission, installation_destination))
    )


def _page(permission: MayManage | MayAdminister, management: Management, limit: int, cursor: str | None) -> Response:
    items, next_cursor = paginate(
        management.alarm_destinations.all(permission),
        lambda destination: (destination.created_at, destination.id),
        limit=limit,
        cursor=cursor,
    )
    views = [AlarmDestinationView.of(destination) for destination in items]
    return json_response(AlarmDestinationPage(items=views, next_cursor=next_cursor))


def _create(
    permission: MayManage | MayAdminister,
    management: Management,
    body: AlarmDestinationCreation | InstallationAlarmDestinationCreation,
    *,
    includes_factories: bool,
) -> Response:
    created = management.alarm_destinations.create(
        permission,
        body.kind,
        to=body.to,
        url=body.url,
        alarm_kinds=[kind.value for kind in body.alarm_kinds],
        includes_factories=includes_factories,
    )
    return json_response(AlarmDestinationWithSecretView.showing_secret(created), 201)
