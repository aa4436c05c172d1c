"""/factories/{factory}/alarm-destinations and /alarm-destinations: where alarms are sent."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.management import Management
from hookmill.presentation.alarm_destination import (
    AlarmDestinationView,
    AlarmDestinationWithSecretView,
    DestinationTestView,
)
from hookmill.web.api.access import ManagementDependency
from hookmill.web.api.alarm_owners import FACTORY, INSTALLATION, AlarmOwner
from hookmill.web.api.bodies import AlarmDestinationCreation
from hookmill.web.api.expensive import expensive
from hookmill.web.api.fields import DESTINATION_ID_PATTERN, PAGE_SIZE, Cursor, Limit
from hookmill.web.api.idempotency import Idempotency
from hookmill.web.api.paging import ResultPage, paginate
from hookmill.web.api.representation import json_response
from hookmill.web.api.route import Route

routes = APIRouter(route_class=Route, tags=["Alarm destinations"])


class AlarmDestinationPage(ResultPage[AlarmDestinationView], frozen=True):
    """Destinations of alarms, oldest first."""


def _add_routes(owner: AlarmOwner) -> None:
    """Add the routes for the destinations of one owner."""
    requirement = Depends(owner.administer)
    list_path = f"{owner.path}/alarm-destinations"
    parameter = f"{owner.prefix}destination"
    destination_path = f"{list_path}/{{{parameter}}}"
    destination_in_path = Path(
        alias=parameter,
        pattern=DESTINATION_ID_PATTERN,
        description="The alarm destination's id.",
        examples=["ald_0123456789abcdefghjkmnpqrst"],
    )

    @routes.post(
        list_path,
        operation_id=f"create_{owner.prefix}alarm_destination",
        summary=f"Create an alarm destination of {owner.name}",
        description="Creates a destination of alarms. Only this response has the signing secret of a webhook.",
        response_model=AlarmDestinationWithSecretView,
        status_code=201,
    )
    def create_alarm_destination(
        permission: Annotated[MayManage | MayAdminister, requirement],
        management: ManagementDependency,
        body: AlarmDestinationCreation,
        idempotency: Idempotency,
    ) -> Response:
        return idempotency.respond(permission, lambda: _create(permission, management, body))

    @routes.get(
        list_path,
        operation_id=f"list_{owner.prefix}alarm_destinations",
        summary=f"List the alarm destinations of {owner.name}",
        description="Lists the destinations of alarms, oldest first, without their URLs and secrets.",
        response_model=AlarmDestinationPage,
    )
    def list_alarm_destinations(
        permission: Annotated[MayManage | MayAdminister, requirement],
        management: ManagementDependency,
        limit: Limit = PAGE_SIZE,
        cursor: Cursor = None,
    ) -> Response:
        return _page(permission, management, limit, cursor)

    @routes.delete(
        destination_path,
        operation_id=f"delete_{owner.prefix}alarm_destination",
        summary=f"Delete an alarm destination of {owner.name}",
        description="Deletes a destination, with the messages that wait for it.",
        response_class=Response,
        status_code=204,
    )
    def delete_alarm_destination(
        destination: Annotated[str, destination_in_path],
        permission: Annotated[MayManage | MayAdminister, requirement],
        management: ManagementDependency,
    ) -> Response:
        management.alarm_destinations.delete(permission, destination)
        return Response(status_code=204)

    @routes.post(
        f"{destination_path}/test",
        operation_id=f"test_{owner.prefix}alarm_destination",
        summary=f"Send a test to a destination of {owner.name}",
        description="Sends a test to the destination, and waits for the result.",
        response_model=DestinationTestView,
    )
    @expensive
    def test_alarm_destination(
        destination: Annotated[str, destination_in_path],
        permission: Annotated[MayManage | MayAdminister, requirement],
        management: ManagementDependency,
    ) -> Response:
        return json_response(DestinationTestView.of(management.alarm_destinations.test(permission, destination)))


def _page(permission: MayManage | MayAdminister, management: Management, limit: int, cursor: str | None) -> Response:
    items, next_cursor = paginate(
        management.alarm_destinations.all(permission),
        lambda destination: (destination.created_at, destination.id),
        limit=limit,
        cursor=cursor,
    )
    views = [AlarmDestinationView.of(destination) for destination in items]
    return json_response(AlarmDestinationPage(items=views, next_cursor=next_cursor))


def _create(permission: MayManage | MayAdminister, management: Management, body: AlarmDestinationCreation) -> Response:
    created = management.alarm_destinations.create(
        permission,
        body.kind,
        to=body.to,
        url=body.url,
        alarm_kinds=[kind.value for kind in body.alarm_kinds],
        includes_factories=body.includes_factories,
    )
    return json_response(AlarmDestinationWithSecretView.showing_secret(created), 201)


for _owner in (FACTORY, INSTALLATION):
    _add_routes(_owner)
