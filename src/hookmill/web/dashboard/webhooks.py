"""The pages of webhooks: creating, viewing and changing them.

A secret is shown only in the response to the request that created it.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from markupsafe import Markup, escape
from starlette.responses import Response

from hookmill.domain.activity import RATE_LIMIT_ADVICE, RATE_LIMITED
from hookmill.domain.errors import Conflict, Forbidden, Invalid, LimitReached, NotFound
from hookmill.domain.expect_every import usable_expect_every
from hookmill.domain.name import usable_name
from hookmill.domain.networks import EVERY_CLIENT_IS_THE_PROXY, usable_networks
from hookmill.domain.permission import MayManage, MayView
from hookmill.domain.sample import curl_line
from hookmill.domain.secret import usable_secret, usable_secret_name
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.description import covered_parts, event_in_words, properties_in_words
from hookmill.domain.signatures.generic import GENERIC_SCHEME, GenericHmac
from hookmill.domain.signatures.key import service_makes_secrets
from hookmill.domain.signatures.scheme import Scheme
from hookmill.domain.webhook import AuthMode, Webhook, WebhookState
from hookmill.management import WebhookWithSecret, compatibility
from hookmill.management.webhooks import Webhooks
from hookmill.web.dashboard import pages
from hookmill.web.dashboard.access import require_manager, require_viewer
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.chart import SERIES, chart
from hookmill.web.dashboard.home import dropped_by_reason
from hookmill.web.dashboard.page_context import PageContext, SubmittedForm

RECENT_DELIVERIES: Final = 10

pages.FLASH_MESSAGES.update(
    {
        "webhook-enabled": "Webhook enabled. It accepts deliveries now.",
        "webhook-disabled": "Webhook disabled. Senders receive 404.",
        "webhook-renamed": "Webhook renamed. Its URL, secret and log are unchanged.",
        "webhook-header": "Delivery id header changed for new deliveries.",
        "webhook-event-header": "Event type header changed for new deliveries.",
        "webhook-networks": "Allowed networks changed. The change applies immediately.",
        "webhook-expected": "Expected time changed. It counts from now on.",
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


class FieldError(Exception):
    """The input of a field is invalid. `field` is "" for the form as a whole."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


# Creating


def new(context: PageContext, may: MayManage) -> Response:
    return _form_page(context, may, SubmittedForm((("mode", "token"), ("secret_from", "generate"))))


def create(context: PageContext, may: MayManage) -> Response:
    if context.form.is_checked("help"):
        # Without scripts, a button requests the provider's help.
        return _form_page(context, may, context.form)
    try:
        webhook_with_secret = _create_from_form(context, may)
    except FieldError as error:
        return _form_page(context, may, context.form, problem=str(error), field=error.field)
    return _page_with_new_secret(
        context, webhook_with_secret, is_new=True, is_supplied=context.form["secret_from"] in ("own", "team")
    )


def scheme_help(context: PageContext, _may: MayView) -> Response:
    return context.page("parts/scheme-help.html", help=_scheme_help(context.query.get("scheme", "")))


def _create_from_form(context: PageContext, may: MayManage) -> WebhookWithSecret:
    form, management = context.form, context.management
    with _field_errors("name"):
        name = usable_name("webhook", form["name"])
        if any(webhook.name == name for webhook in management.webhooks.all(may)):
            raise Conflict(f"Factory {may.factory.name!r} already has a webhook named {name!r}. Choose another name.")
    with _field_errors("mode"):
        mode = _mode(form["mode"])
    # Fields that the mode does not use may be filled in, because the script only hides them.
    is_signed = mode is AuthMode.SIGNATURE
    scheme_name = form.optional("scheme") if is_signed else None
    is_generic = scheme_name == GENERIC_SCHEME
    with _field_errors("options"):
        options = _options(form["options"]) if is_generic else None
    with _field_errors("options" if is_generic else "scheme"):
        # The function is called twice. The first call finds the problems of the scheme, and the second call finds those
        # of the handshakes. So the page shows each problem at its own field.
        compatibility.compatible_scheme(mode, scheme_name, options, answers_handshakes=False)
    with _field_errors("handshakes"):
        handshakes = form.is_checked("handshakes") and is_signed
        scheme = compatibility.compatible_scheme(mode, scheme_name, options, answers_handshakes=handshakes)
    with _field_errors("delivery_id_header"):
        header = compatibility.compatible_delivery_id_header(scheme, form.optional("delivery_id_header"))
    with _field_errors("event_header"):
        event_header = compatibility.compatible_event_header(scheme, scheme_name, form.optional("event_header"))
    with _field_errors("allowed_networks"):
        networks = usable_networks(_networks(form))
    with _field_errors("expect_every"):
        expect_every = usable_expect_every(form.optional("expect_every"))
    secret, secret_name = None, form.optional("secret_name")
    if form["secret_from"] == "own":
        with _field_errors("secret"):
            secret = form["secret"]
            compatibility.refuse_unfit_secret(mode, scheme, usable_secret(secret))
    if form["secret_from"] == "team":
        with _field_errors("team_secret"):
            secret_name = management.secrets.get(may, form["team_secret"]).name
    elif secret_name is not None:
        with _field_errors("secret_name"):
            usable_secret_name(secret_name)
            if any(existing.name == secret_name for existing in management.secrets.all(may)):
                raise Conflict(f"Team secret {secret_name} already exists. Select it, or choose another name.")
    with _field_errors("team_secret" if form["secret_from"] == "team" else ""):
        return management.webhooks.create(
            may,
            name,
            auth_mode=mode,
            signature_scheme=scheme_name,
            signature_options=options,
            answers_handshakes=handshakes,
            secret=secret,
            secret_name=secret_name,
            delivery_id_header=header,
            event_header=event_header,
            allowed_networks=networks,
            expect_every=expect_every,
        )


def _form_page(
    context: PageContext, may: MayManage, form: SubmittedForm, *, problem: str = "", field: str = ""
) -> Response:
    management = context.management
    return context.page(
        "webhook-new.html",
        status=422 if problem else 200,
        may=may,
        form=form,
        problem=problem,
        field=field,
        schemes=_scheme_choices(),
        help=_scheme_help(form["scheme"]),
        generic=GENERIC_SCHEME,
        generic_options=GenericHmac.__struct_fields__,
        secrets=[secret for secret in management.secrets.all(may) if secret.has_value and not secret.for_runs],
        webhook_count=len(management.webhooks.all(may)),
        limit=management.config.webhooks_per_factory,
    )


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
    context: PageContext, may: MayView, webhook: Webhook, *, problem: str = "", section: str = ""
) -> Response:
    management = context.management
    activity = management.log.activity(may).get(webhook.uid)
    return context.page(
        "webhook.html",
        status=422 if problem else 200,
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
        event_source=_event_source_in_words(webhook),
        hookmill_generates_secret=_hookmill_generates_secret(webhook),
        options=json.dumps(webhook.signature_options) if webhook.signature_options is not None else None,
        hidden_clients_warning=EVERY_CLIENT_IS_THE_PROXY
        if webhook.allowed_networks and management.config.lacks_trusted_proxies
        else None,
        form=context.form,
        problem=problem,
        section=section,
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


def rename(context: PageContext, may: MayManage) -> Response:
    return _change(context, may, "rename", "webhook-renamed", name=context.form["name"])


def change_header(context: PageContext, may: MayManage) -> Response:
    return _change(
        context, may, "delivery-id", "webhook-header", delivery_id_header=context.form.optional("delivery_id_header")
    )


def change_event_header(context: PageContext, may: MayManage) -> Response:
    return _change(
        context, may, "event-type", "webhook-event-header", event_header=context.form.optional("event_header")
    )


def change_networks(context: PageContext, may: MayManage) -> Response:
    return _change(context, may, "networks", "webhook-networks", allowed_networks=_networks(context.form))


def change_expected_time(context: PageContext, may: MayManage) -> Response:
    return _change(context, may, "expected", "webhook-expected", expect_every=context.form.optional("expect_every"))


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
        return _webhook_page(context, may, webhook, problem=str(error), section="rotate")
    return _page_with_new_secret(context, webhook_with_secret, is_new=False, is_supplied=supplied_secret is not None)


def delete(context: PageContext, may: MayManage) -> Response:
    webhook = _webhooks(context).get(may, context.parameters["uid"])
    try:
        _webhooks(context).delete(may, webhook.uid)
    except Conflict as error:
        return _webhook_page(context, may, webhook, problem=str(error), section="delete")
    return context.redirect("f", may.factory.name, flash="webhook-deleted")


def _change(context: PageContext, may: MayManage, section: str, flash: str, **changes: Any) -> Response:
    return _change_and_redirect(
        context, may, section, flash, lambda uid: _webhooks(context).change(may, uid, **changes)
    )


def _change_and_redirect(
    context: PageContext, may: MayManage, section: str, flash: str, change: Callable[[str], Webhook]
) -> Response:
    """Make the change, and redirect to the webhook's page. An error is shown in `section` of this page."""
    webhook = _webhooks(context).get(may, context.parameters["uid"])
    try:
        change(webhook.uid)
    except (Invalid, Conflict, Forbidden) as error:
        return _webhook_page(context, may, webhook, problem=str(error), section=section)
    return context.redirect("f", may.factory.name, "webhooks", webhook.uid, flash=flash)


def _webhooks(context: PageContext) -> Webhooks:
    return context.management.webhooks


# Reading forms


@contextmanager
def _field_errors(field: str) -> Iterator[None]:
    """Convert an error inside the block to a `FieldError` of this field."""
    try:
        yield
    except (Invalid, Conflict, NotFound, Forbidden) as error:
        raise FieldError("" if isinstance(error, LimitReached) else field, str(error)) from error


def _mode(mode: str) -> AuthMode:
    try:
        return AuthMode(mode)
    except ValueError:
        raise Invalid("Choose an authentication mode: token, url_token or signature.") from None


def _networks(form: SubmittedForm) -> list[str]:
    """The networks in the form's text field, separated by white space or commas."""
    return form["allowed_networks"].replace(",", " ").split()


def _options(options_text: str) -> dict[str, Any]:
    try:
        options = json.loads(options_text or "null")
    except (ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        raise Invalid('Enter the HMAC options as a JSON object, such as {"header": "X-Signature", "encoding": "hex"}.')
    return options


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
        hookmill_generates_secret=_scheme_lets_hookmill_generate(scheme, name),
        properties=tuple(map(_backticks_to_markup, _properties(scheme, name))),
        setup=tuple(map(_backticks_to_markup, scheme.setup)),
    )


def _properties(scheme: Scheme, name: str) -> list[str]:
    """The properties of the scheme. The sentence about --handshakes is replaced, because the form has a checkbox."""
    sentences = [sentence for sentence in properties_in_words(scheme, name) if "--handshakes" not in sentence]
    if scheme.handshake is not None:
        sentences.append("It sends signed challenges. Hookmill answers them if you enable this for the webhook.")
    return sentences


def _scheme_lets_hookmill_generate(scheme: Scheme, name: str) -> bool:
    # An alias is another provider, which generates its own secrets.
    return service_makes_secrets(scheme) and name == scheme.name


def _event_source_in_words(webhook: Webhook) -> Markup | None:
    """Where the event type is, as the webhook's scheme defines it; None if the scheme defines no event type."""
    scheme = compatibility.scheme_of(webhook)
    phrase = event_in_words(scheme, webhook.signature_scheme) if scheme is not None else None
    return _backticks_to_markup(phrase) if phrase is not None else None


def _hookmill_generates_secret(webhook: Webhook) -> bool:
    """Whether Hookmill generates the secret, instead of the provider."""
    scheme = compatibility.scheme_of(webhook)
    return scheme is None or _scheme_lets_hookmill_generate(scheme, webhook.signature_scheme or "")


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
    Page("POST", "/f/{factory}/webhooks/{uid}/rename", rename, require_manager),
    Page("POST", "/f/{factory}/webhooks/{uid}/delivery-id-header", change_header, require_manager),
    Page("POST", "/f/{factory}/webhooks/{uid}/event-header", change_event_header, require_manager),
    Page("POST", "/f/{factory}/webhooks/{uid}/networks", change_networks, require_manager),
    Page("POST", "/f/{factory}/webhooks/{uid}/expected", change_expected_time, require_manager),
    Page("POST", "/f/{factory}/webhooks/{uid}/sync", sync, require_manager),
    Page("POST", "/f/{factory}/webhooks/{uid}/supply", supply, require_manager),
    Page("POST", "/f/{factory}/webhooks/{uid}/rotate", rotate, require_manager),
    Page("POST", "/f/{factory}/webhooks/{uid}/delete", delete, require_manager),
)
