"""Renders templates. All values are escaped. Only the filters `shown`, `plain` and `lines` also replace invisible
characters by visible text."""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from hookmill.domain import ids, moment, text
from hookmill.domain.delivery import Label
from hookmill.domain.permission import MayManage
from hookmill.presentation.alarm import alarm_state_text
from hookmill.presentation.automation import state_text
from hookmill.presentation.byte_size import size_text
from hookmill.presentation.delivery import details
from hookmill.presentation.member import sign_in_text
from hookmill.presentation.queue import count_text, duration_text, waiting_text, worker_text
from hookmill.presentation.run import (
    active_run_text,
    field_value_text,
    result_details,
    result_state_text,
    run_state_text,
    usage_text,
)
from hookmill.web.dashboard.markdown import inert_markdown
from hookmill.web.dashboard.urls import url

STATIC: Final = resources.files("hookmill.web.dashboard") / "static"

FLASH_MESSAGES: Final = {
    "signed-out": "You are signed out.",
    "session-ended": "Your session had ended, so nothing was changed.",
    "password": "Password changed. Your other sessions have ended.",
}
"""Messages that a page shows after a redirect, by the value of `flash` in the page's URL.

Other modules add their messages.
"""


def render(template: str, values: Mapping[str, Any]) -> str:
    return _environment.get_template(template).render(values)


def time_element(at_us: int | None) -> Markup:
    """A time in UTC for people, with the exact time as attribute and tooltip; a dash for None."""
    if at_us is None:
        return Markup("–")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(moment.iso(at_us), moment.utc(at_us))


def age_element(at_us: int | None, now_us: int) -> Markup:
    """The time since `at_us`, in the largest unit that fits, rounded down; `never` for None."""
    if at_us is None:
        return Markup("never")
    seconds = max(0, (now_us - at_us) // 1_000_000)
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            words = f"{seconds // unit} {name} ago"
            break
    else:
        words = f"{seconds} s ago"
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(moment.iso(at_us), words)


def static_url(name: str) -> str:
    """The URL of a static file. It contains a digest of the content, so browsers may cache it permanently."""
    return f"/static/{_version_of(name)}/{name}"


@cache
def _version_of(name: str) -> str:
    return sha256((STATIC / name).read_bytes()).hexdigest()[:12]


def untrusted_text(value: object) -> Markup:
    """Untrusted text as one escaped line, isolated from the text direction of the page."""
    return Markup("<bdi>{}</bdi>").format(escape(text.shown(str(value))))


LABEL_CLASSES: Final = {
    Label.ACCEPTED: "accepted",
    Label.DUPLICATE: "duplicate",
    Label.REJECTED_AUTH: "auth",
    Label.REJECTED_INVALID_JSON: "json",
    Label.REJECTED_TOO_LARGE: "large",
}
"""The CSS class that colours each delivery label."""


def _build_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("hookmill.web.dashboard", "templates"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        time=time_element,
        ago=age_element,
        size=size_text,
        # `shown` is in a <bdi>; `plain` is the same text without it, for attributes.
        shown=untrusted_text,
        plain=text.shown,
        lines=text.shown_lines,
        inert_markdown=inert_markdown,
        delivery_id=ids.delivery_id,
        run_id=ids.run_id,
        state_text=state_text,
        counted=count_text,
        duration=duration_text,
        run_state_text=run_state_text,
        field_value=field_value_text,
        usage=usage_text,
        result_state_text=result_state_text,
        result_details=result_details,
        waiting_text=waiting_text,
        active_run_text=active_run_text,
        worker=worker_text,
        sign_in_text=sign_in_text,
        alarm_state=alarm_state_text,
        label_class=lambda label: LABEL_CLASSES[label],
        list_details=lambda delivery: details(delivery, for_list=True),
    )
    environment.globals.update(
        url=url, static=static_url, may_manage=lambda may: isinstance(may, MayManage), Label=Label
    )
    return environment


_environment: Final = _build_environment()
