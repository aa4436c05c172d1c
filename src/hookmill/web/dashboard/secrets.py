"""The pages of team secrets. A generated value is shown only in the response to the request that created it."""

from typing import Final

from starlette.responses import Response

from hookmill.domain.errors import Conflict, Forbidden, Invalid
from hookmill.domain.permission import MayManage
from hookmill.domain.webhook import Webhook
from hookmill.management import TeamSecret
from hookmill.web.dashboard import pages
from hookmill.web.dashboard.access import require_manager
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext

pages.FLASH_MESSAGES.update({"secret-deleted": "Team secret deleted with all its values."})


def secrets(context: PageContext, may: MayManage) -> Response:
    return _list_page(context, may)


def create(context: PageContext, may: MayManage) -> Response:
    name, supplied_value = context.form["name"].strip(), _supplied_value(context)
    try:
        value = context.management.secrets.create(may, name, supplied_value, for_runs=context.form["use"] == "runs")
    except (Invalid, Conflict) as error:
        return _list_page(context, may, problem=str(error))
    generated_value = value.reveal() if supplied_value is None else None
    return context.page("secret-once.html", name=name, secret=generated_value, is_new=True, unsynced=[])


def show(context: PageContext, may: MayManage) -> Response:
    return _secret_page(context, may, context.management.secrets.get(may, context.parameters["name"]))


def replace(context: PageContext, may: MayManage) -> Response:
    secret, supplied_value = context.management.secrets.get(may, context.parameters["name"]), _supplied_value(context)
    try:
        value = context.management.secrets.replace(may, secret.name, supplied_value)
    except (Invalid, Conflict, Forbidden) as error:
        return _secret_page(context, may, secret, problem=str(error), section="replace")
    unsynced = [webhook for webhook in _webhooks_using(context, may, secret) if not webhook.secret_is_current]
    generated_value = value.reveal() if supplied_value is None else None
    return context.page("secret-once.html", name=secret.name, secret=generated_value, is_new=False, unsynced=unsynced)


def delete(context: PageContext, may: MayManage) -> Response:
    secret = context.management.secrets.get(may, context.parameters["name"])
    try:
        context.management.secrets.delete(may, secret.name)
    except (Conflict, Forbidden) as error:
        return _secret_page(context, may, secret, problem=str(error), section="delete")
    return context.redirect("f", may.factory.name, "secrets", flash="secret-deleted")


def _list_page(context: PageContext, may: MayManage, problem: str = "") -> Response:
    webhooks_by_name = {webhook.name: webhook for webhook in context.management.webhooks.all(may)}
    return context.page(
        "secrets.html",
        status=422 if problem else 200,
        may=may,
        secrets=context.management.secrets.all(may),
        webhooks_by_name=webhooks_by_name,
        form=context.form,
        problem=problem,
    )


def _secret_page(
    context: PageContext, may: MayManage, secret: TeamSecret, *, problem: str = "", section: str = ""
) -> Response:
    return context.page(
        "secret.html",
        status=422 if problem else 200,
        may=may,
        secret=secret,
        webhooks=_webhooks_using(context, may, secret),
        problem=problem,
        section=section,
    )


def _webhooks_using(context: PageContext, may: MayManage, secret: TeamSecret) -> list[Webhook]:
    return [webhook for webhook in context.management.webhooks.all(may) if webhook.secret_name == secret.name]


def _supplied_value(context: PageContext) -> str | None:
    """The value that the member typed; None if Hookmill generates one."""
    return context.form["secret"] if context.form["secret_from"] == "own" else None


PAGES: Final = (
    Page("GET", "/f/{factory}/secrets", secrets, require_manager),
    Page("POST", "/f/{factory}/secrets", create, require_manager),
    Page("GET", "/f/{factory}/secrets/{name}", show, require_manager),
    Page("POST", "/f/{factory}/secrets/{name}/replace", replace, require_manager),
    Page("POST", "/f/{factory}/secrets/{name}/delete", delete, require_manager),
)
