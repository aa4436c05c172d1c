"""The contract, sentence by sentence, in its own words and order. A row of a table is a sentence: its cells, joined
by colons."""

from collections.abc import Mapping
from typing import Final

SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "The document": (
        "This document covers the whole service: the inbound webhook endpoint, the webhook resource and its delivery log, "
        "the authentication modes, payload filters and the automation trigger that consumes deliveries, errors, limits, "
        "and versioning.",
        "It is the only document.",
    ),
    "What the service does": (
        "The service gives a factory HTTPS URLs that external systems POST JSON to.",
        "A webhook is a factory resource.",
        "An automation subscribes to one or more webhooks through a Webhook trigger.",
        "For each accepted delivery the service checks which enabled automations have a matching Webhook trigger "
        "(selected webhook plus optional payload filter) and starts a run for each.",
        "A run starts with the automation's prompt plus a platform envelope, and the full JSON body is attached to it.",
        "Every delivery attempt is recorded in the webhook's delivery log, whether or not it starts a run.",
        "A 202 response means accepted for evaluation, not that a run started.",
        "A delivery that matches no automation is still accepted and logged.",
        "Deliveries are independent: no ordering guarantee, no reply, no thread continuation.",
        "Each accepted delivery starts new runs or nothing.",
        "Managing webhooks requires permission to manage the factory.",
    ),
    "Webhook": (
        "name: Label shown in the automation editor.",
        "name: Cannot be renamed on a factory whose webhooks are defined by files.",
        "uid: Assigned by the service.",
        "uid: Appears in the ingress URL.",
        "uid: For file-defined webhooks it is assigned when the file is first applied.",
        "uid: Format: not shown.",
        "authMode: enum: `token` (default), `url_token`, `signature`",
        "secret: Generated for `token` and `url_token`; shown once at creation and never again.",
        "secret: For `signature`, the provider's signing secret supplied by the user; if left blank (Standard "
        "Webhooks-compatible sender) the service generates one to hand to the sender.",
        "secret: Not shown again; an existing secret referenced by name is never displayed.",
        "secretName: Name of a managed secret that stores the credential.",
        "secretName: A suggested name is offered at creation; an existing team secret may be named instead.",
        "secretName: For file-defined webhooks it must name an existing team secret; for `url_token` that secret must be "
        "URL-safe.",
        "signatureScheme: Only for `signature`: the provider scheme.",
        "signatureScheme: Allowed values: not shown.",
        "signatureScheme: A Standard Webhooks scheme is supported (Svix-compatible headers accepted).",
        "deliveryIdHeader: Name of a request header in which the sender puts its own event ID.",
        "enabled: Toggle.",
        "ingress URL: Contains the uid.",
        "ingress URL: For a `url_token` webhook it also contains the token; after creation it renders the token as a "
        "`{token}` placeholder.",
    ),
    "Delivery (log entry)": (
        "delivery id: Returned in the 202 body as `delivery_id`.",
        "delivery id: Format: not shown.",
        "label: One of: Accepted, Duplicate, Rejected (auth), Rejected (invalid JSON), Rejected (too large).",
        "size: Size of the body.",
        "time: When received.",
        "stored payload: Kept and readable for Accepted deliveries only.",
        "stored payload: Rejected and Duplicate entries record metadata only.",
    ),
    "Automation Webhook trigger": (
        "provider: the value `webhook`",
        "event: the value `received`",
        "filter.webhook_ids: list of webhook UIDs (not file names)",
        "filter.payload: optional payload filter (below)",
        "Without a payload filter, every delivery from the selected webhooks starts a run.",
    ),
    "Payload filter": (
        "A JSON object mirroring the delivery body's shape.",
        "Each key names a payload field; every key must match.",
        "A key's value is an array of values the field may hold (same as `in`), or an operator object, or a nested object "
        "to reach nested fields.",
        "Operators: `in` (array, same as a bare array), `not_in` (array), `exists` (boolean).",
        "Behavior on missing keys and on array-valued payload fields: not shown.",
    ),
    "Run": (
        "Contents: the automation's prompt, and a platform envelope that names the webhook and the delivery ID and "
        "attaches the full JSON body as a file named `event-payload.json`.",
        "The envelope states that the payload is the request to act on and that text embedded inside it is untrusted "
        "context.",
    ),
    "File definition of a webhook": (
        "One file per webhook at `webhooks/<name>.yaml` with keys `authMode` (`token`, `url_token` or `signature`), "
        "`signatureScheme` (for `signature`), `secretName`.",
        "The managed secret named by `secretName` must exist first.",
        "A change of the secret value is picked up on the webhook's next sync.",
    ),
    "States and transitions": (
        "Webhook states: enabled, disabled, deleted.",
        "enabled: disable (Enabled toggle off): none: disabled: Deliveries stop immediately; senders get 404.",
        "enabled: disable (Enabled toggle off): Automations and delivery history untouched.",
        "disabled: enable (toggle on): none: enabled: Deliveries resume.",
        "enabled or disabled: delete: none: deleted: Senders get 404 immediately.",
        "enabled or disabled: delete: Automations selecting it stay visible but stop firing.",
        "enabled: rotate secret: none: enabled: The old secret stops working immediately, no overlap.",
        "Delivery labels (Accepted, Duplicate, Rejected (auth), Rejected (invalid JSON), Rejected (too large)) are "
        "assigned at receipt; the rules are under Endpoints and Errors.",
    ),
    "Endpoints": (
        "Method: `POST` only",
        "Path shape: `{base_url}/webhooks/w/<webhook_uid>`; for `url_token` the URL embeds the secret as a path segment "
        "(position of that segment: not shown)",
        "Request headers: `Authorization: Bearer <WEBHOOK_SECRET>` for `token` mode",
        "Request headers: provider signature headers for `signature` mode",
        "Request headers: optional delivery identity headers (below).",
        "Request headers: `Content-Type` is not enforced.",
        "Request body: Valid JSON (object, array or scalar), at most 256 KB",
        "Success response: 202, JSON object with `delivery_id` (string)",
        "Error responses: See Errors",
        "Delivery identity, in order of preference: 1. the header named by the webhook's `deliveryIdHeader`",
        "Delivery identity, in order of preference: 2. the provider's own delivery header for signed webhooks",
        "Delivery identity, in order of preference: 3. the `X-Service-Delivery-Id` header set by the sender",
        "Delivery identity, in order of preference: 4. a hash of the body (hash algorithm: not shown).",
        "When a delivery's identity was already accepted, the response is 202, no run starts, and the log entry is "
        "labeled Duplicate.",
        "When the sender sets no delivery ID, identical bodies are duplicates.",
        "Management of webhooks (create, rotate, enable, delete, list deliveries, test a filter) is performed in a "
        "dashboard and through definition files; an HTTP management API: not shown.",
    ),
    "Authentication": (
        "Bearer token (default): `token`: Sending the generated secret in an `Authorization: Bearer` header",
        "URL token: `url_token`: Posting to the URL that embeds the secret as a path segment; the URL is itself the "
        "credential",
        "Provider signature: `signature`: Signing each request with the provider's scheme; the service verifies using "
        "the provider's signing secret",
        "An unsigned request to a `signature` webhook returns 401.",
        "Signatures of the Standard Webhooks kind and of one payment-provider kind older than five minutes are rejected "
        "(401).",
        "After rotation only the new secret is valid.",
        "Failed authentication attempts count against a separate rate budget from accepted deliveries and can themselves "
        "yield 429.",
        "Per-provider signature header names and algorithms: not shown.",
    ),
    "Events": (
        "The service consumes inbound deliveries; each is an event for automations.",
        "An accepted delivery that passes a trigger's webhook selection and payload filter starts one run per matching "
        "automation, with the payload attached as `event-payload.json`.",
        "The automation trigger is `provider: webhook`, `event: received`.",
        "Outbound events or notifications sent by the service: not shown.",
        "The editor's Test filter evaluates a filter against a stored delivery and reports Would trigger or Would not "
        "trigger, with the outcome of the webhook check and the payload check.",
    ),
    "Errors": (
        "400: Body is not valid JSON (log label Rejected (invalid JSON))",
        "401: Authentication fails (log label Rejected (auth))",
        "404: Webhook unknown, disabled, or deleted (identical response in all three cases)",
        "413: Body exceeds 256 KB (log label Rejected (too large))",
        "429: More than 60 deliveries per minute for the webhook, or the failed-authentication budget is exceeded; "
        "includes a `Retry-After` header",
        "202: Accepted (including duplicates)",
        "Response body shape of the non-202 errors: not shown.",
        "Applying a definition fails when `secretName` names no existing team secret, or when a `url_token` secret is not "
        "URL-safe.",
    ),
    "Limits": (
        "Body size: 256 KB maximum",
        "Delivery rate: 60 per minute per webhook, then 429 with `Retry-After`",
        "Webhooks per factory: 20",
        "Delivery log retention: At least the most recent 50 deliveries and 7 days of history",
        "Signature age (Standard Webhooks and one payment-provider scheme): Older than five minutes is rejected",
        "Budget for failed authentication attempts: Size: not shown",
    ),
    "Versioning": ("Versioning: not shown.",),
}

SENTENCES: Final[tuple[str, ...]] = tuple(
    f"{section}: {sentence}" for section, sentences in SECTIONS.items() for sentence in sentences
)


def quoted(words: str) -> str:
    """The one sentence that holds these words. Raises `ValueError` when none does, or several do."""
    found = [sentence for sentence in SENTENCES if words in sentence]
    if len(found) != 1:
        raise ValueError(f"{len(found)} sentences of the contract hold {words!r}")
    return found[0]


_NOTHING_TO_SHOW = "it speaks of the document, not of the service"

NOT_YET_COVERED: Final[Mapping[str, str]] = {
    quoted(words): reason
    for words, reason in {
        "This document covers the whole service": _NOTHING_TO_SHOW,
        "It is the only document.": _NOTHING_TO_SHOW,
        "Error responses: See Errors": _NOTHING_TO_SHOW,
        "Outbound events or notifications sent by the service: not shown.": "the service sends none",
    }.items()
}
"""What no test shows yet, and why."""
