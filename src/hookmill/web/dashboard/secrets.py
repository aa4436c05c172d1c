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
from hookmill.web.dashboard.visit import Visit

pages.SAID.update({"secret-deleted": "The team secret is deleted, with all its values."})


def secrets(visit: Visit, may: MayManage) -> Response:
    return _list(visit, may)


def create(visit: Visit, may: MayManage) -> Response:
    name, given = visit.form["name"].strip(), _given(visit)
    try:
        value = visit.management.secrets.create(may, name, given)
    except (Invalid, Conflict) as error:
        return _list(visit, may, problem=str(error))
    shown = value.reveal() if given is None else None
    return visit.page("secret-once.html", name=name, secret=shown, is_new=True, unsynced=[])


def show(visit: Visit, may: MayManage) -> Response:
    return _show(visit, may, visit.management.secrets.get(may, visit.parameters["name"]))


def replace(visit: Visit, may: MayManage) -> Response:
    secret, given = visit.management.secrets.get(may, visit.parameters["name"]), _given(visit)
    try:
        value = visit.management.secrets.replace(may, secret.name, given)
    except (Invalid, Conflict, Forbidden) as error:
        return _show(visit, may, secret, problem=str(error), at="replace")
    unsynced = [webhook for webhook in _users(visit, may, secret) if not webhook.secret_is_current]
    shown = value.reveal() if given is None else None
    return visit.page("secret-once.html", name=secret.name, secret=shown, is_new=False, unsynced=unsynced)


def delete(visit: Visit, may: MayManage) -> Response:
    secret = visit.management.secrets.get(may, visit.parameters["name"])
    try:
        visit.management.secrets.delete(may, secret.name)
    except (Conflict, Forbidden) as error:
        return _show(visit, may, secret, problem=str(error), at="delete")
    return visit.go("f", may.factory.name, "secrets", said="secret-deleted")


def _list(visit: Visit, may: MayManage, problem: str = "") -> Response:
    known = {webhook.name: webhook for webhook in visit.management.webhooks.all(may)}
    return visit.page(
        "secrets.html",
        status=422 if problem else 200,
        may=may,
        secrets=visit.management.secrets.all(may),
        known=known,
        form=visit.form,
        problem=problem,
    )


def _show(visit: Visit, may: MayManage, secret: TeamSecret, *, problem: str = "", at: str = "") -> Response:
    return visit.page(
        "secret.html",
        status=422 if problem else 200,
        may=may,
        secret=secret,
        users=_users(visit, may, secret),
        problem=problem,
        at=at,
    )


def _users(visit: Visit, may: MayManage, secret: TeamSecret) -> list[Webhook]:
    return [webhook for webhook in visit.management.webhooks.all(may) if webhook.secret_name == secret.name]


def _given(visit: Visit) -> str | None:
    """What was typed, where it is to be used; None where the value is to be made here."""
    return visit.form["secret"] if visit.form["secret_from"] == "given" else None


PAGES: Final = (
    Page("GET", "/f/{factory}/secrets", secrets, managing),
    Page("POST", "/f/{factory}/secrets", create, managing),
    Page("GET", "/f/{factory}/secrets/{name}", show, managing),
    Page("POST", "/f/{factory}/secrets/{name}/replace", replace, managing),
    Page("POST", "/f/{factory}/secrets/{name}/delete", delete, managing),
)
