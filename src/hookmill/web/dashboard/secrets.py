"""The pages of team secrets. A generated value is shown only in the response to the request that created it."""

from typing import Final

from starlette.responses import Response

from hookmill.domain.errors import Conflict, Forbidden, Invalid
from hookmill.domain.permission import MayManage
from hookmill.domain.webhook import Webhook
from hookmill.management import TeamSecret
from hookmill.web.dashboard import pages
from hookmill.web.dashboard.access import managing
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext

pages.FLASH_MESSAGES.update({"secret-deleted": "Team secret deleted with all its values."})


def secrets(context: PageContext, may: MayManage) -> Response:
    return _list(context, may)


def create(context: PageContext, may: MayManage) -> Response:
    name, own_value = context.form["name"].strip(), _own_value(context)
    try:
        value = context.management.secrets.create(may, name, own_value)
    except (Invalid, Conflict) as error:
        return _list(context, may, problem=str(error))
    shown = value.reveal() if own_value is None else None
    return context.page("secret-once.html", name=name, secret=shown, is_new=True, unsynced=[])


def show(context: PageContext, may: MayManage) -> Response:
    return _show(context, may, context.management.secrets.get(may, context.parameters["name"]))


def replace(context: PageContext, may: MayManage) -> Response:
    secret, own_value = context.management.secrets.get(may, context.parameters["name"]), _own_value(context)
    try:
        value = context.management.secrets.replace(may, secret.name, own_value)
    except (Invalid, Conflict, Forbidden) as error:
        return _show(context, may, secret, problem=str(error), at="replace")
    unsynced = [webhook for webhook in _users(context, may, secret) if not webhook.secret_is_current]
    shown = value.reveal() if own_value is None else None
    return context.page("secret-once.html", name=secret.name, secret=shown, is_new=False, unsynced=unsynced)


def delete(context: PageContext, may: MayManage) -> Response:
    secret = context.management.secrets.get(may, context.parameters["name"])
    try:
        context.management.secrets.delete(may, secret.name)
    except (Conflict, Forbidden) as error:
        return _show(context, may, secret, problem=str(error), at="delete")
    return context.redirect("f", may.factory.name, "secrets", flash="secret-deleted")


def _list(context: PageContext, may: MayManage, problem: str = "") -> Response:
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


def _show(context: PageContext, may: MayManage, secret: TeamSecret, *, problem: str = "", at: str = "") -> Response:
    return context.page(
        "secret.html",
        status=422 if problem else 200,
        may=may,
        secret=secret,
        users=_users(context, may, secret),
        problem=problem,
        at=at,
    )


def _users(context: PageContext, may: MayManage, secret: TeamSecret) -> list[Webhook]:
    return [webhook for webhook in context.management.webhooks.all(may) if webhook.secret_name == secret.name]


def _own_value(context: PageContext) -> str | None:
    """The value that the member typed; None if Hookmill generates one."""
    return context.form["secret"] if context.form["secret_from"] == "own" else None


PAGES: Final = (
    Page("GET", "/f/{factory}/secrets", secrets, managing),
    Page("POST", "/f/{factory}/secrets", create, managing),
    Page("GET", "/f/{factory}/secrets/{name}", show, managing),
    Page("POST", "/f/{factory}/secrets/{name}/replace", replace, managing),
    Page("POST", "/f/{factory}/secrets/{name}/delete", delete, managing),
)
