"""What the service must do: one sentence for each requirement, with an id that tests, pages and commits can cite.

An id is never reused or renumbered. A new requirement gets the next number of its topic. If a requirement is withdrawn,
its number stays unused.
"""

from collections.abc import Mapping
from typing import Final

TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "Webhooks": {
        "WEBHOOK-1": "A webhook belongs to one factory; no other factory can see or change it.",
        "WEBHOOK-2": "Every webhook has an HTTPS URL that accepts JSON deliveries.",
        "WEBHOOK-3": "The service chooses the `uid`: `wh_` followed by at least 128 random bits, URL-safe and never "
        "reused.",
        "WEBHOOK-4": "A webhook's URL contains its `uid`.",
        "WEBHOOK-5": "The URL of a `url_token` webhook shows the token once, on creation or rotation; later it shows "
        "`{token}` in that place.",
        "WEBHOOK-6": "`authMode` is `token`, `url_token` or `signature`; the default is `token`.",
        "WEBHOOK-7": "The automation editor lists webhooks by `name`.",
        "WEBHOOK-8": "A webhook may name, as `deliveryIdHeader`, the header that carries the sender's event id.",
        "WEBHOOK-9": "`deliveryIdHeader` must be a valid header name, and must not name a header that carries a "
        "credential or a signature.",
    },
    "Secrets": {
        "SECRET-1": "By default the service generates the secret of a `token` or `url_token` webhook, from 256 "
        "random bits.",
        "SECRET-2": "Only the response that creates a generated secret contains it; it cannot be read later.",
        "SECRET-3": "The user supplies the signing secret of a `signature` webhook.",
        "SECRET-4": "Without a supplied secret, a `standard_webhooks` webhook gets a generated one; with other "
        "schemes it stays disabled until the user supplies the secret.",
        "SECRET-5": "The value of an existing team secret that a webhook uses by name is never displayed.",
        "SECRET-6": "`secretName` names the team secret that holds the webhook's credential.",
        "SECRET-7": "On creation the service suggests an unused secret name; the user may choose an existing team "
        "secret.",
        "SECRET-8": "The secret of a `url_token` webhook must be URL-safe: letters, digits, `-`, `.`, `_` and `~` "
        "only.",
    },
    "Authentication": {
        "AUTH-1": "The sender to a `token` webhook presents the secret as `Authorization: Bearer <secret>`.",
        "AUTH-2": "The sender to a `url_token` webhook needs no credential other than the URL.",
        "AUTH-3": "A failed authentication is answered 401 and logged as `Rejected (auth)`.",
        "AUTH-4": "Every 401 of a webhook is identical; the log gives its owner the reason.",
        "AUTH-5": "After a rotation every process immediately refuses the old secret and accepts the new one.",
        "AUTH-6": "A webhook may have allowed networks; a client outside them is answered, logged and limited like a "
        "failed authentication, before the body is read.",
        "AUTH-7": "A change of the allowed networks takes effect in every process before it returns.",
    },
    "Signatures": {
        "SIGNATURE-1": "`signatureScheme` is required with `signature` and refused with the other modes.",
        "SIGNATURE-2": "An unknown scheme is refused with the allowed names, among them `standard_webhooks`, "
        "`github`, `stripe`, `sentry`, `pagerduty`, `vercel` and `hmac`.",
        "SIGNATURE-3": "`standard_webhooks` accepts both the `webhook-*` headers and Svix's `svix-*` headers.",
        "SIGNATURE-4": "A `signature` webhook accepts a request whose signature proves, by the provider's scheme, "
        "that the sender holds the secret.",
        "SIGNATURE-5": "A `signature` webhook answers 401 to a request without a signature.",
        "SIGNATURE-6": "A `standard_webhooks` or `stripe` signature more than 300 seconds old or ahead is refused "
        "with 401.",
        "SIGNATURE-7": "Each scheme fixes its own headers and algorithm; with the scheme `hmac` the user describes "
        "them.",
    },
    "The endpoint": {
        "ENDPOINT-1": "The endpoint accepts `POST`; any other method is answered 405 with `Allow: POST`.",
        "ENDPOINT-2": "Deliveries go to `{base_url}/webhooks/w/<uid>`; any other spelling of the path is answered 404.",
        "ENDPOINT-3": "The URL of a `url_token` webhook has the secret as its last segment, after the uid.",
        "ENDPOINT-4": "The path of the endpoint contains no version and never changes.",
        "ENDPOINT-5": "Any `Content-Type` is accepted, and so is a request without one.",
        "ENDPOINT-6": "The body is any one JSON value: strict RFC 8259 in UTF-8, nested no deeper than 512 levels.",
        "ENDPOINT-7": "An accepted delivery is answered 202 with a JSON object, whose `delivery_id` is a string.",
    },
    "Identity and deduplication": {
        "IDENTITY-1": "The value of the header that `deliveryIdHeader` names is the first choice of identity.",
        "IDENTITY-2": "For a signed delivery, the second choice is the provider's own event id, from a header or the "
        "body.",
        "IDENTITY-3": "The third choice of identity is the sender's `X-Service-Delivery-Id` header.",
        "IDENTITY-4": "A delivery without an id is identified by the SHA-256 of its body, so the same body again is "
        "a duplicate.",
        "IDENTITY-5": "Headers that carry an id are optional; a blank one counts as absent.",
        "IDENTITY-6": "A delivery whose identity has been accepted before is answered 202, is logged as `Duplicate` "
        "and starts nothing.",
        "IDENTITY-7": "Only an accepted delivery claims an identity; a refused one leaves it free.",
        "IDENTITY-8": "Exactly one of several simultaneous copies is accepted, whichever processes receive them.",
        "IDENTITY-9": "Ids are remembered for at least 30 days, and body hashes for as long as the log keeps the "
        "delivery.",
        "IDENTITY-10": "An identity is compared only with those of the same webhook and the same source.",
        "IDENTITY-11": "`X-Warp-Delivery-Id` is another name for `X-Service-Delivery-Id`, and is used if that one is "
        "absent or blank.",
    },
    "The delivery log": {
        "LOG-1": "Every accepted, duplicate or rejected attempt has a row in the log, even if it starts no run.",
        "LOG-2": "Attempts answered 404 or 429 have no row; the log shows their number per webhook and minute.",
        "LOG-3": "A row's label is set on receipt: `Accepted`, `Duplicate`, `Rejected (too large)`, `Rejected "
        "(invalid JSON)` or `Rejected (auth)`.",
        "LOG-4": "The `delivery_id` of a 202 is the id of its row in the log.",
        "LOG-5": "A delivery id consists of `dlv_` and 32 hexadecimal digits, and sorts by time.",
        "LOG-6": "A row states how many bytes the body has.",
        "LOG-7": "A row states when the request began to arrive.",
        "LOG-8": "The payload of an `Accepted` delivery is stored byte for byte and can be read.",
        "LOG-9": "Of a duplicate or rejected delivery, only metadata is stored.",
    },
    "Errors": {
        "ERROR-1": "A body that is not JSON is answered 400 and logged as `Rejected (invalid JSON)`.",
        "ERROR-2": "Unknown, disabled and deleted webhooks get byte-identical 404 answers.",
        "ERROR-3": "A body over 262,144 bytes is answered 413 and logged as `Rejected (too large)`.",
        "ERROR-4": "Every error is `application/problem+json` with `type`, `title`, `status` and a `code` of its own.",
        "ERROR-5": "A fault of the service is answered 503 with `Retry-After`, never with a 4xx.",
        "ERROR-6": "With `token` and `url_token` the checks run in this order: framing, method, webhook, credential, "
        "size, JSON, identity.",
    },
    "Limits": {
        "LIMIT-1": "A body may have up to 262,144 bytes (256 KB).",
        "LIMIT-2": "A webhook may receive 60 deliveries a minute; the next one is answered 429 with `Retry-After`.",
        "LIMIT-3": "The rate limit covers any 60 seconds, exactly, over all processes together.",
        "LIMIT-4": "Every authenticated attempt with a row in the log counts toward the rate limit; no other attempt "
        "does.",
        "LIMIT-5": "After 60 failed authentications at a webhook in a minute, the next is answered 429 with "
        "`Retry-After`.",
        "LIMIT-6": "Failed authentications and deliveries are limited separately; neither can use up the other's "
        "limit.",
        "LIMIT-7": "A factory has at most 20 webhooks; disabled ones count, deleted ones do not.",
        "LIMIT-8": "A row stays in the log while it is younger than 7 days or among its webhook's newest 50.",
        "LIMIT-9": "Rejected attempts never displace the payloads of the newest 50 accepted deliveries.",
    },
    "Automations": {
        "AUTOMATION-1": "A Webhook trigger selects one or more webhooks; deliveries to others do not reach it.",
        "AUTOMATION-2": "An accepted delivery starts exactly one run of each enabled automation with a matching "
        "trigger.",
        "AUTOMATION-3": "A trigger has `provider: webhook` and `event: received`; any other value is refused.",
        "AUTOMATION-4": "`filter.webhook_ids` lists uids; names of webhooks or files are refused.",
        "AUTOMATION-5": "`filter.payload` is optional; a trigger without it matches all deliveries to its webhooks.",
        "AUTOMATION-6": "A delivery without a matching automation is accepted and logged like any other.",
        "AUTOMATION-7": "A 202 means that the delivery was accepted for evaluation, not that a run started.",
        "AUTOMATION-8": "A trigger that selects an unknown, disabled or deleted webhook causes a warning.",
    },
    "Payload filters": {
        "FILTER-1": "A payload filter is a JSON object with the structure of the body.",
        "FILTER-2": "The keys of a filter are fields of the payload, and all of them must hold.",
        "FILTER-3": "The value of a key is an array of allowed values, an object of operators, or an object of "
        "nested keys.",
        "FILTER-4": "`in` and `not_in` take an array, `exists` takes a boolean, and a bare array means `in`.",
        "FILTER-5": "A missing field fails `in` and passes `not_in`; a field that is `null` exists.",
        "FILTER-6": "On an array field, `in` holds if any element is listed, `not_in` if none is; a nested object "
        "needs one element that satisfies all of it.",
        "FILTER-7": "An unusable filter is refused on save, with a pointer to the place.",
        "FILTER-8": "Test filter evaluates a stored delivery and shows `Would trigger` or `Would not trigger`, and "
        "the results of both checks: webhook and payload.",
        "FILTER-9": "Every further operator begins with `$`, and `$fields` reaches a field of any name, so no new "
        "operator changes a stored filter.",
    },
    "Runs": {
        "RUN-1": "A run gets the automation's prompt, followed by the platform envelope.",
        "RUN-2": "The envelope identifies the webhook and the delivery.",
        "RUN-3": "A run gets the body, byte for byte, as the file `event-payload.json`.",
        "RUN-4": "The envelope calls the payload the request to act on, and any text inside it untrusted.",
        "RUN-5": "A delivery starts runs of its own or none; it never continues an earlier run.",
        "RUN-6": "Runs follow no guaranteed order, and the sender gets no reply from them.",
        "RUN-7": "The prompt and the envelope contain no text from the body or the headers.",
    },
    "States of a webhook": {
        "STATE-1": "A webhook is either enabled, disabled or deleted.",
        "STATE-2": "From the moment a webhook is disabled, every process answers its senders 404.",
        "STATE-3": "Disabling a webhook leaves its automations, deliveries and runs unchanged.",
        "STATE-4": "A webhook that is enabled again accepts deliveries again.",
        "STATE-5": "From the moment a webhook is deleted, every process answers its senders 404, permanently.",
        "STATE-6": "An automation that selects a deleted webhook stays visible; that webhook starts no more of "
        "its runs.",
        "STATE-7": "A rotation leaves an enabled webhook enabled and a disabled one disabled.",
    },
    "Definition files": {
        "FILES-1": "Each file `webhooks/<name>.yaml` defines one webhook by `secretName`, `authMode` and "
        "`signatureScheme`.",
        "FILES-2": "The first apply of a file assigns the uid; later applies keep it.",
        "FILES-3": "An apply fails and changes nothing if `secretName` names no team secret, or a secret that the URL "
        "of a `url_token` webhook cannot contain.",
        "FILES-4": "A webhook that a file defines cannot be renamed elsewhere.",
        "FILES-5": "A changed secret value takes effect at the webhook's next sync, and not before.",
    },
    "Management": {
        "MANAGE-1": "Only a manager of the factory can change its webhooks.",
        "MANAGE-2": "The dashboard creates, disables, enables, rotates and deletes webhooks, and shows the log.",
        "MANAGE-3": "The HTTP API under `/api/v1` offers the same operations on webhooks.",
    },
    "Events": {
        "EVENT-1": "The service sends no events or notifications of its own, unless an admin or operator has "
        "configured a destination for them.",
    },
}
"""The requirements of each topic, by id. The ids of a topic share a prefix."""

REQUIREMENTS: Final[Mapping[str, str]] = {id_: sentence for topic in TOPICS.values() for id_, sentence in topic.items()}

NOT_YET_COVERED: Final[Mapping[str, str]] = {"EVENT-1": "no test can show that nothing is ever sent"}
"""The requirements that no test shows yet, and why."""
