"""The pages of webhooks: creating, viewing and changing them.

A secret is shown only in the response to the request that created it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from markupsafe import Markup, escape
from starlette.responses import Response

from hookmill.domain import spec
from hookmill.domain.activity import RATE_LIMIT_ADVICE, RATE_LIMITED
from hookmill.domain.errors import Changed, Conflict, Fault, Forbidden, HookmillError, Invalid, NotFound
from hookmill.domain.json_pointer import pointer_to, steps_of
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.sample import curl_line
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.description import covered_parts, event_in_words, properties_in_words
from hookmill.domain.signatures.generic import GENERIC_SCHEME, GenericHmac
from hookmill.domain.signatures.key import service_makes_secrets
from hookmill.domain.signatures.scheme import Scheme
from hookmill.domain.webhook import (
    AUTHENTICATION_FIELDS,
    SIGNATURE_FIELDS,
    AuthMode,
    Webhook,
    WebhookSpec,
    WebhookState,
)
from hookmill.management import WebhookWithSecret
from hookmill.management.webhooks import Webhooks
from hookmill.web.dashboard import pages
from hookmill.web.dashboard.access import require_manager, require_viewer
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.chart import SERIES, chart
from hookmill.web.dashboard.home import dropped_by_reason
from hookmill.web.dashboard.page_context import PageContext, SubmittedForm
from hookmill.web.dashboard.spec_form import json_of, texts_of

RECENT_DELIVERIES: Final = 10
_SETTINGS: Final = [
    name
    for name in WebhookSpec.__struct_fields__
    if name != "enabled" and name not in AUTHENTICATION_FIELDS and name not in SIGNATURE_FIELDS
]
"""The fields of `WebhookSpec` with a control in the form that creates a webhook and in the one that changes it."""

pages.FLASH_MESSAGES.update(
    {
        "webhook-enabled": "Webhook enabled. It accepts deliveries now.",
        "webhook-disabled": "Webhook disabled. Senders receive 404.",
        "webhook-changed": "Webhook changed. The changes apply immediately, to new deliveries.",
        "webhook-synced": "Webhook synced. Only the newest value of its secret works.",
        "webhook-supplied": "The provider's secret is saved.",
        "webhook-deleted": "Webhook deleted. Its URL permanently returns 404. "
        "Its deliveries remain until retention deletes them.",
    }
)


@dataclass(frozen=True, slots=True)
class SchemeChoice:
    """An option of the form's list of signature schemes."""

    name: str
    title: str
    answers_handshakes: bool


@dataclass(frozen=True, slots=True)
class SchemeHelp:
    """The properties of a provider's signatures, and how to set the provider up."""

    name: str
    title: str
    docs: str
    covers: str
    is_experimental: bool
    hookmill_generates_secret: bool
    properties: tuple[Markup, ...]
    setup: tuple[Markup, ...]


# Creating


def new(context: PageContext, may: MayManage) -> Response:
    return _form_page(context, may, SubmittedForm((("/auth_mode", "token"), ("secret_from", "generate"))))


def create(context: PageContext, may: MayManage) -> Response:
    form = context.form
    if form.is_checked("help"):
        # Without scripts, a button requests the provider's help.
        return _form_page(context, may, form)
    try:
        webhook_with_secret = _create_from_form(context, may)
    except (Invalid, Conflict, NotFound, Forbidden) as error:
        problems = _problems_by_control(error)
        if form["secret_from"] == "team" and "/secret_name" in problems:
            problems["team_secret"] = problems.pop("/secret_name")
        return _form_page(context, may, form, problems)
    return _page_with_new_secret(
        context, webhook_with_secret, is_new=True, is_supplied=form["secret_from"] in ("own", "team")
    )


def scheme_help(context: PageContext, _may: MayView) -> Response:
    return context.page("parts/scheme-help.html", help=_scheme_help(context.query.get("/signature_scheme", "")))


def _create_from_form(context: PageContext, may: MayManage) -> WebhookWithSecret:
    form, management = context.form, context.management
    source = json_of(WebhookSpec, form)
    # Fields that the mode does not use may be filled in, because the script only hides them.
    if source["auth_mode"] != AuthMode.SIGNATURE:
        source |= dict.fromkeys(SIGNATURE_FIELDS)
    elif source["signature_scheme"] != GENERIC_SCHEME:
        source["signature_options"] = None
    name = source["secret_name"]
    if form["secret_from"] == "team":
        source["secret_name"] = form["team_secret"]
        if all(existing.name != form["team_secret"] for existing in management.secrets.all(may)):
            raise Conflict("Select a team secret.", pointer="/secret_name")
    elif any(existing.name == name for existing in management.secrets.all(may)):
        raise Conflict(f"Team secret {name} already exists. Select it, or choose another name.", pointer="/secret_name")
    return management.webhooks.create(may, source, form["/secret"] if form["secret_from"] == "own" else None)


def _problems_by_control(error: HookmillError) -> dict[str, str]:
    """The error texts by the names of the controls, which are pointers; "" for the form as a whole."""
    problems: dict[str, str] = {}
    faults = error.faults if isinstance(error, Invalid) else ()
    for fault in faults or (Fault(error.pointer if isinstance(error, Conflict) else "", str(error)),):
        control = pointer_to(steps_of(fault.pointer)[:1])
        problems[control] = f"{problems[control]}\n{fault.message}" if control in problems else fault.message
    return problems


def _form_page(
    context: PageContext, may: MayManage, form: SubmittedForm, problems: Mapping[str, str] | None = None
) -> Response:
    management = context.management
    return context.page(
        "webhook-new.html",
        status=422 if problems else 200,
        may=may,
        form=form,
        fields=_fields(),
        settings=_SETTINGS,
        problems=problems or {},
        schemes=_scheme_choices(),
        help=_scheme_help(form["/signature_scheme"]),
        generic=GENERIC_SCHEME,
        generic_options=GenericHmac.__struct_fields__,
        secrets=[secret for secret in management.secrets.all(may) if secret.has_value and not secret.for_runs],
        webhook_count=len(management.webhooks.all(may)),
        limit=management.config.webhooks_per_factory,
    )


@cache
def _fields() -> Mapping[str, Mapping[str, Any]]:
    """The fields of `WebhookSpec` for templates: their schemas, and what these don't say for a control."""
    schemas, _ = spec.schemas(WebhookSpec, ref_template="{name}")
    return {
        name: schema
        | {
            "title": spec.title(schemas, name),
            "is_required": "default" not in schema,
            "is_list": schema.get("type") == "array",
        }
        for name, schema in schemas.items()
    }


def _page_with_new_secret(
    context: PageContext, webhook_with_secret: WebhookWithSecret, *, is_new: bool, is_supplied: bool
) -> Response:
    """The page after a webhook is created or rotated. Only a secret that the service generated is shown.

    `is_supplied`: whether the member typed the secret, or selected an existing team secret.
    """
    webhook = webhook_with_secret.webhook
    shows_secret = webhook_with_secret.secret is not None and not is_supplied
    return context.page(
        "webhook-once.html",
        webhook=webhook,
        is_new=is_new,
        url_text=webhook_with_secret.url if shows_secret else context.management.webhooks.url(webhook),
        secret=webhook_with_secret.reveal() if shows_secret else None,
        curl=curl_line(webhook.auth_mode, webhook_with_secret.url, webhook_with_secret.reveal())
        if shows_secret
        else None,
        help=_scheme_help(webhook.signature_scheme or ""),
    )


# Viewing


def show(context: PageContext, may: MayView) -> Response:
    return _webhook_page(context, may, context.management.webhooks.get(may, context.parameters["uid"]))


def _webhook_page(
    context: PageContext,
    may: MayView,
    webhook: Webhook,
    section: str = "",
    error: HookmillError | None = None,
) -> Response:
    """The page of a webhook. The error is shown in this section, and at the controls of its form."""
    management = context.management
    try:
        scheme = webhook.scheme
    except Invalid:
        # One of the warnings says so.
        scheme = None
    activity = management.log.activity(may).get(webhook.uid)
    return context.page(
        "webhook.html",
        status=422 if section else 200,
        may=may,
        webhook=webhook,
        is_deleted=webhook.state is WebhookState.DELETED,
        url_text=management.webhooks.url(webhook),
        automations=[
            automation
            for automation in management.automations.all(may)
            if webhook.uid in automation.selected_webhook_uids()
        ],
        recent_deliveries=management.log.newest(may, webhook=webhook.uid, limit=RECENT_DELIVERIES),
        activity=activity,
        chart=chart(activity.hours) if activity is not None else None,
        series=[name for _, name, _ in SERIES],
        dropped=dropped_by_reason(activity) if activity is not None else (),
        rate_limit_advice=RATE_LIMIT_ADVICE if activity is not None and activity.dropped_count(RATE_LIMITED) else "",
        help=_scheme_help(webhook.signature_scheme or ""),
        event_source=_backticks_to_markup(event_in_words(scheme, webhook.signature_scheme) or "")
        if scheme is not None
        else "",
        hookmill_generates_secret=scheme is None or service_makes_secrets(scheme, webhook.signature_scheme),
        options=json.dumps(webhook.signature_options) if webhook.signature_options is not None else None,
        warnings=management.webhooks.warnings(webhook),
        form=context.form if section == "change" else texts_of(webhook.spec),
        fields=_fields(),
        settings=_SETTINGS,
        section=section,
        problem=str(error or ""),
        problems=_problems_by_control(error) if error is not None else {},
    )


# Changing


def enable(context: PageContext, may: MayManage) -> Response:
    return _change_and_redirect(
        context, may, "state", "webhook-enabled", lambda uid: _webhooks(context).set_enabled(may, uid, True)
    )


def disable(context: PageContext, may: MayManage) -> Response:
    return _change_and_redirect(
        context, may, "state", "webhook-disabled", lambda uid: _webhooks(context).set_enabled(may, uid, False)
    )


def change(context: PageContext, may: MayManage) -> Response:
    """Change the fields that the form has, unless the webhook was changed since the form was loaded."""
    fields = json_of(WebhookSpec, context.form)
    changes = {name: value for name, value in fields.items() if context.form.is_checked(f"/{name}")}

    def change(uid: str) -> Webhook:
        with context.management.one_transaction(may):
            webhook = _webhooks(context).get(may, uid)
            if context.form["revision"] != str(webhook.revision):
                raise Changed(
                    f"{webhook.name!r} was changed while you were editing. Your changes are not saved. Compare them "
                    "with the present values above, then save again."
                )
            return _webhooks(context).change(may, uid, changes)

    return _change_and_redirect(context, may, "change", "webhook-changed", change)


def sync(context: PageContext, may: MayManage) -> Response:
    return _change_and_redirect(context, may, "secret", "webhook-synced", lambda uid: _webhooks(context).sync(may, uid))


def supply(context: PageContext, may: MayManage) -> Response:
    """Set the provider's secret of a webhook without a secret, and enable the webhook if the form requests it."""

    def change(uid: str) -> Webhook:
        with context.management.one_transaction(may):
            webhook = _webhooks(context).rotate(may, uid, context.form["secret"]).webhook
            return _webhooks(context).set_enabled(may, uid, True) if context.form.is_checked("enable") else webhook

    return _change_and_redirect(context, may, "secret", "webhook-supplied", change)


def rotate(context: PageContext, may: MayManage) -> Response:
    webhook = _webhooks(context).get(may, context.parameters["uid"])
    supplied_secret = context.form["secret"] if context.form["secret_from"] == "own" else None
    try:
        webhook_with_secret = _webhooks(context).rotate(may, webhook.uid, supplied_secret)
    except (Invalid, Conflict, Forbidden) as error:
        return _webhook_page(context, may, webhook, "rotate", error)
    return _page_with_new_secret(context, webhook_with_secret, is_new=False, is_supplied=supplied_secret is not None)


def delete(context: PageContext, may: MayManage) -> Response:
    webhook = _webhooks(context).get(may, context.parameters["uid"])
    try:
        _webhooks(context).delete(may, webhook.uid)
    except Conflict as error:
        return _webhook_page(context, may, webhook, "delete", error)
    return context.redirect("f", may.factory.name, flash="webhook-deleted")


def _change_and_redirect(
    context: PageContext, may: MayManage, section: str, flash: str, change: Callable[[str], Webhook]
) -> Response:
    """Make the change, and redirect to the webhook's page. An error is shown in `section` of this page."""
    webhook = _webhooks(context).get(may, context.parameters["uid"])
    try:
        change(webhook.uid)
    except (Invalid, Conflict, Forbidden) as error:
        return _webhook_page(context, may, webhook, section, error)
    return context.redirect("f", may.factory.name, "webhooks", webhook.uid, flash=flash)


def _webhooks(context: PageContext) -> Webhooks:
    return context.management.webhooks


# Providers


@cache
def _scheme_choices() -> Sequence[SchemeChoice]:
    """An option for each name and alias of a scheme, ordered by title."""
    choices = []
    for name in catalogue.names():
        scheme = catalogue.find(name)
        title = scheme.title if name == scheme.name else f"{name}: same signatures as {scheme.title}"
        choices.append(SchemeChoice(name, title, scheme.handshake is not None))
    return sorted(choices, key=lambda choice: choice.title.lower())


def _scheme_help(name: str) -> SchemeHelp | None:
    """The help for a provider's scheme; None if the name is not in the catalogue."""
    if name not in catalogue.names():
        return None
    scheme = catalogue.find(name)
    return SchemeHelp(
        name=name,
        title=scheme.title,
        docs=scheme.docs,
        covers=covered_parts(scheme),
        is_experimental=scheme.experimental,
        hookmill_generates_secret=service_makes_secrets(scheme, name),
        properties=tuple(map(_backticks_to_markup, _properties(scheme, name))),
        setup=tuple(map(_backticks_to_markup, scheme.setup)),
    )


def _properties(scheme: Scheme, name: str) -> list[str]:
    """The properties of the scheme. The sentence about --handshakes is replaced, because the form has a checkbox."""
    sentences = [sentence for sentence in properties_in_words(scheme, name) if "--handshakes" not in sentence]
    if scheme.handshake is not None:
        sentences.append("It sends signed challenges. Hookmill answers them if you enable this for the webhook.")
    return sentences


def _backticks_to_markup(text: str) -> Markup:
    """The text as markup. The catalogue marks code with backticks."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else escape(part) for index, part in enumerate(parts)
    )


PAGES: Final = (
    Page("GET", "/f/{factory}/webhooks/new", new, require_manager),
    Page("POST", "/f/{factory}/webhooks/new", create, require_manager),
    Page("GET", "/f/{factory}/webhooks/scheme", scheme_help, require_viewer),
    Page("GET", "/f/{factory}/webhooks/{uid}", show, require_viewer),
    Page("POST", "/f/{factory}/webhooks/{uid}/enable", enable, require_manager),
    Page("POST", "/f/{factory}/webhooks/{uid}/disable", disable, require_manager),
    Page("POST", "/f/{factory}/webhooks/{uid}/change", change, require_manager),
    Page("POST", "/f/{factory}/webhooks/{uid}/sync", sync, require_manager),
    Page("POST", "/f/{factory}/webhooks/{uid}/supply", supply, require_manager),
    Page("POST", "/f/{factory}/webhooks/{uid}/rotate", rotate, require_manager),
    Page("POST", "/f/{factory}/webhooks/{uid}/delete", delete, require_manager),
)
