"""Shows a form again that was sent after its session had ended, so that the input is not lost.

The page contains the fields of the form. After signing in, the member sees what the form would do, and confirms it. The
form is never submitted automatically. Forms of other sites are rejected before the session is checked.
"""

from typing import Final

from starlette.responses import Response

from hookmill.web.dashboard import pages
from hookmill.web.dashboard.page_context import PageContext
from hookmill.web.dashboard.urls import url

NEVER_SENT_BACK: Final = {
    "secret": "Secret",
    "password": "Password",
    "old": "Old password",
    "new": "New password",
    "again": "Confirm password",
    "destination_url": "URL",
}
"""The labels of fields with passwords and secrets, by field name. The member must type them again."""

ACTIONS: Final = {
    "/sign-out": "Sign out",
    "/account": "Change your password",
    "/f/{factory}/webhooks/new": "Create a webhook",
    "/f/{factory}/webhooks/{uid}/enable": "Enable a webhook",
    "/f/{factory}/webhooks/{uid}/disable": "Disable a webhook",
    "/f/{factory}/webhooks/{uid}/rename": "Rename a webhook",
    "/f/{factory}/webhooks/{uid}/delivery-id-header": "Change a webhook's delivery id header",
    "/f/{factory}/webhooks/{uid}/event-header": "Change a webhook's event type header",
    "/f/{factory}/webhooks/{uid}/networks": "Change a webhook's allowed networks",
    "/f/{factory}/webhooks/{uid}/expected": "Change how often a webhook expects a delivery",
    "/f/{factory}/webhooks/{uid}/sync": "Sync a webhook's secret",
    "/f/{factory}/webhooks/{uid}/supply": "Enter a webhook's secret",
    "/f/{factory}/webhooks/{uid}/rotate": "Rotate a webhook's secret",
    "/f/{factory}/webhooks/{uid}/delete": "Delete a webhook",
    "/f/{factory}/deliveries/{delivery}/replay": "Replay a delivery",
    "/f/{factory}/automations/new": "Create an automation",
    "/f/{factory}/automations/{automation}/edit": "Edit an automation",
    "/f/{factory}/automations/{automation}/enable": "Enable an automation",
    "/f/{factory}/automations/{automation}/disable": "Disable an automation",
    "/f/{factory}/automations/{automation}/delete": "Delete an automation",
    "/f/{factory}/automations/{automation}/run": "Start a run of an automation",
    "/f/{factory}/automations/{automation}/runs": "Replay a delivery for an automation",
    "/f/{factory}/runs/queue/cancel": "Cancel waiting runs",
    "/f/{factory}/runs/{run}/cancel": "Cancel a run",
    "/f/{factory}/alarms/{alarm}/snooze": "Snooze an alarm",
    "/f/{factory}/alarms/{alarm}/wake": "End the snooze of an alarm",
    "/team/alarms/{installation_alarm}/snooze": "Snooze an alarm of the installation",
    "/team/alarms/{installation_alarm}/wake": "End the snooze of an alarm of the installation",
    "/f/{factory}/secrets": "Create a team secret",
    "/f/{factory}/secrets/{name}/replace": "Replace the value of a team secret",
    "/f/{factory}/secrets/{name}/delete": "Delete a team secret",
    "/f/{factory}/alarm-destinations": "Add an alarm destination",
    "/f/{factory}/alarm-destinations/{destination}/test": "Send a test to an alarm destination",
    "/f/{factory}/alarm-destinations/{destination}/remove": "Remove an alarm destination",
    "/team": "Add a member",
    "/team/members/{member}/roles": "Change a member's roles",
    "/team/members/{member}/admin": "Change a member's admin role",
    "/team/members/{member}/link": "Create a sign-in link",
    "/team/members/{member}/remove": "Remove a member",
    "/team/keys": "Create an API key",
    "/team/keys/{key}/revoke": "Revoke an API key",
    "/team/factories": "Create a factory",
    "/team/alarm-destinations": "Add an alarm destination of the installation",
    "/team/alarm-destinations/{installation_destination}/test": "Send a test to an alarm destination",
    "/team/alarm-destinations/{installation_destination}/remove": "Remove an alarm destination",
}
"""The action of each form, by the path pattern that it is posted to. A test checks that every form is in this table."""

_SIGNED_IN_AGAIN: Final = "signed-in-again"
_ADDED_FIELDS: Final = {"csrf", "retype"}
"""Fields that the dashboard adds to forms. `retype` names a secret field that was filled in before."""

pages.FLASH_MESSAGES.update({_SIGNED_IN_AGAIN: "You are signed in again. Close this tab and return to your form."})


def can_be_resubmitted(context: PageContext) -> bool:
    """Whether `resubmission_page` can respond: htmx replaces no part of a page, and the form has a session's token."""
    return context.page_path in ACTIONS and not context.is_htmx and bool(context.form["csrf"])


def resubmission_page(context: PageContext) -> Response:
    """A page with the form's fields, to submit them again after signing in."""
    pairs = [(name, value) for name, value in context.form.pairs() if name not in _ADDED_FIELDS]
    query = context.request.scope["query_string"].decode("latin-1")
    return context.page(
        "form-kept.html",
        # 403: the member is signed in again, but the form has the token of the old session.
        status=401 if context.signed_in is None else 403,
        action=ACTIONS[context.page_path],
        form_url=context.request.scope["path"] + (f"?{query}" if query else ""),
        fields=[(name, value) for name, value in pairs if name not in NEVER_SENT_BACK],
        fields_to_retype=_fields_to_retype(context, pairs),
        labels=NEVER_SENT_BACK,
        sign_in_url=url("sign-in", next=url("account", flash=_SIGNED_IN_AGAIN)),
    )


def _fields_to_retype(context: PageContext, pairs: list[tuple[str, str]]) -> list[str]:
    """The secret fields that were filled in, now or in an earlier submission."""
    filled_in = {name for name, value in pairs if value} | set(context.form.all("retype"))
    return [name for name in NEVER_SENT_BACK if name in filled_in]
