"""Team secrets: who uses them, new ones, new values. A value that is made here is shown once, in the answer."""

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

pages.SAID.update({"secret-deleted": "Team secret deleted with all its values."})


def secrets(context: PageContext, may: MayManage) -> Response:
    return _list(context, may)


def create(context: PageContext, may: MayManage) -> Response:
    name, given = context.form["name"].strip(), _given(context)
    try:
        value = context.management.secrets.create(may, name, given)
    except (Invalid, Conflict) as error:
        return _list(context, may, problem=str(error))
    shown = value.reveal() if given is None else None
    return context.page("secret-once.html", name=name, secret=shown, is_new=True, unsynced=[])


def show(context: PageContext, may: MayManage) -> Response:
    return _show(context, may, context.management.secrets.get(may, context.parameters["name"]))


def replace(context: PageContext, may: MayManage) -> Response:
    secret, given = context.management.secrets.get(may, context.parameters["name"]), _given(context)
    try:
        value = context.management.secrets.replace(may, secret.name, given)
    except (Invalid, Conflict, Forbidden) as error:
        return _show(context, may, secret, problem=str(error), at="replace")
    unsynced = [webhook for webhook in _users(context, may, secret) if not webhook.secret_is_current]
    shown = value.reveal() if given is None else None
    return context.page("secret-once.html", name=secret.name, secret=shown, is_new=False, unsynced=unsynced)


def delete(context: PageContext, may: MayManage) -> Response:
    secret = context.management.secrets.get(may, context.parameters["name"])
    try:
        context.management.secrets.delete(may, secret.name)
    except (Conflict, Forbidden) as error:
        return _show(context, may, secret, problem=str(error), at="delete")
    return context.go("f", may.factory.name, "secrets", said="secret-deleted")


def _list(context: PageContext, may: MayManage, problem: str = "") -> Response:
    known = {webhook.name: webhook for webhook in context.management.webhooks.all(may)}
    return context.page(
        "secrets.html",
        status=422 if problem else 200,
        may=may,
        secrets=context.management.secrets.all(may),
        known=known,
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


def _given(context: PageContext) -> str | None:
    """What was typed, where it is to be used; None where the value is to be made here."""
    return context.form["secret"] if context.form["secret_from"] == "given" else None


PAGES: Final = (
    Page("GET", "/f/{factory}/secrets", secrets, managing),
    Page("POST", "/f/{factory}/secrets", create, managing),
    Page("GET", "/f/{factory}/secrets/{name}", show, managing),
    Page("POST", "/f/{factory}/secrets/{name}/replace", replace, managing),
    Page("POST", "/f/{factory}/secrets/{name}/delete", delete, managing),
)
