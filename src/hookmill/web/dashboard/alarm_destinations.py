"""The pages of alarm destinations, of a factory and of the installation. A signing secret is shown only once."""

from typing import Final

from starlette.responses import Response

from hookmill.domain.alarm import ALARM_RULES
from hookmill.domain.alarm_destination import DestinationKind, kinds_within_reach
from hookmill.domain.errors import Conflict, Invalid
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.management import DestinationTest
from hookmill.web.dashboard import pages
from hookmill.web.dashboard.access import require_admin, require_factory_admin
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext
from hookmill.web.dashboard.urls import url

KIND_NAMES: Final = {
    DestinationKind.EMAIL: "E-mail",
    DestinationKind.SLACK: "Slack or a compatible chat",
    DestinationKind.WEBHOOK: "Signed webhook",
}

pages.FLASH_MESSAGES.update({"alarm-destination-removed": "Alarm destination removed."})


def show(context: PageContext, may: MayManage | MayAdminister) -> Response:
    return _page(context, may)


def create(context: PageContext, may: MayManage | MayAdminister) -> Response:
    form = context.form
    try:
        created = context.management.alarm_destinations.create(
            may,
            _kind_named(form["kind"]),
            to=form.optional("to"),
            url=form.optional("destination_url"),
            alarm_kinds=form.all("alarm"),
            includes_factories=form.is_checked("includes_factories"),
        )
    except (Invalid, Conflict) as error:
        return _page(context, may, status=422, problem=str(error))
    secret = created.signing_secret
    return _page(
        context,
        may,
        new_destination=created.destination,
        signing_secret=secret.reveal() if secret is not None else None,
    )


async def send_test(context: PageContext, may: MayManage | MayAdminister) -> Response:
    test = await context.in_thread(
        context.management.alarm_destinations.test,
        may,
        _requested_id(context),
        limiter=context.service.alarm_test_limiter,
    )
    return await context.in_thread(_page, context, may, test=test)


def remove(context: PageContext, may: MayManage | MayAdminister) -> Response:
    context.management.alarm_destinations.delete(may, _requested_id(context))
    return context.redirect(*_path(may), flash="alarm-destination-removed")


def _requested_id(context: PageContext) -> str:
    parameters = context.parameters
    return parameters["destination"] if "destination" in parameters else parameters["installation_destination"]


def _kind_named(name: str) -> DestinationKind:
    try:
        return DestinationKind(name)
    except ValueError:
        raise Invalid("Choose a kind of destination from the list.") from None


def _path(may: MayManage | MayAdminister) -> tuple[str, ...]:
    return (
        ("f", may.factory.name, "alarm-destinations") if isinstance(may, MayManage) else ("team", "alarm-destinations")
    )


def _page(
    context: PageContext,
    may: MayManage | MayAdminister,
    *,
    status: int = 200,
    problem: str = "",
    new_destination: object = None,
    signing_secret: str | None = None,
    test: DestinationTest | None = None,
) -> Response:
    is_of_installation = isinstance(may, MayAdminister)
    return context.page(
        "alarm-destinations.html",
        status=status,
        url_of=lambda destination, action: url(*_path(may), destination.id, action),
        page_url=url(*_path(may)),
        alarms_url=url(*_path(may)[:-1], "alarms"),
        is_of_installation=is_of_installation,
        destinations=context.management.alarm_destinations.all(may),
        factories=context.management.factories.all(may) if isinstance(may, MayAdminister) else [],
        kind_names=KIND_NAMES,
        offered_kinds=kinds_within_reach(of_factory=not is_of_installation, includes_factories=is_of_installation),
        alarm_titles={kind: rule.title for kind, rule in ALARM_RULES.items()},
        problem=problem,
        new_destination=new_destination,
        signing_secret=signing_secret,
        test=test,
    )


_OF_FACTORY: Final = "/f/{factory}/alarm-destinations"
_OF_INSTALLATION: Final = "/team/alarm-destinations"
PAGES: Final = (
    Page("GET", _OF_FACTORY, show, require_factory_admin),
    Page("POST", _OF_FACTORY, create, require_factory_admin),
    Page("POST", f"{_OF_FACTORY}/{{destination}}/test", send_test, require_factory_admin),
    Page("POST", f"{_OF_FACTORY}/{{destination}}/remove", remove, require_factory_admin),
    Page("GET", _OF_INSTALLATION, show, require_admin),
    Page("POST", _OF_INSTALLATION, create, require_admin),
    Page("POST", f"{_OF_INSTALLATION}/{{installation_destination}}/test", send_test, require_admin),
    Page("POST", f"{_OF_INSTALLATION}/{{installation_destination}}/remove", remove, require_admin),
)
