"""The request bodies of the API, field by field. The API rejects unknown fields."""

from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel, StrictBool, StrictInt, StringConstraints

from hookmill.domain import spec
from hookmill.domain.alarm import AlarmKind
from hookmill.domain.alarm_destination import EMAIL_CHARACTERS_MAX, URL_CHARACTERS_MAX, DestinationKind
from hookmill.domain.automation import EVENT_TYPES_MAX, AutomationSpec
from hookmill.domain.filters import CONDITIONS_MAX
from hookmill.domain.limits import BACKTEST_DELIVERIES_MAX
from hookmill.domain.permission import Role
from hookmill.domain.run import RunState
from hookmill.domain.webhook import WebhookSpec
from hookmill.management.alarms import SNOOZE_HOURS_MAX
from hookmill.web.api.fields import (
    DIGEST_PATTERN,
    NO_NUL,
    REF_TEMPLATE,
    DeliveryId,
    Moment,
    Name,
    SecretName,
    SecretText,
    Text,
    Uid,
)

FILES_MAX: Final = 2_000
PayloadFilter = Annotated[
    dict[str, Any],
    Field(
        description="A payload filter.",
        max_length=CONDITIONS_MAX,
        examples=[{"action": ["opened"], "repository": {"private": [False]}}],
    ),
]
_TRIGGER_EXAMPLE: Final = {
    "provider": "webhook",
    "event": "received",
    "filter": {"webhook_ids": ["wh_0123456789abcdefghjkmnpqrst"], "payload": {"action": ["created"]}},
}
TokenCount = Annotated[StrictInt, Field(ge=0, le=10**15)]


class RequestBody(BaseModel):
    """The base class of request bodies."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


def _example(body: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [body]})


def _unset() -> Any:
    """A default that the OpenAPI document does not show. `Changes.changes` omits the field if the body does."""
    return None


_PROPERTIES, _ = spec.schemas(AutomationSpec, ref_template=REF_TEMPLATE)
_WEBHOOK_PROPERTIES, _ = spec.schemas(WebhookSpec, ref_template=REF_TEMPLATE)


def _part(name: str) -> Any:
    """A field of the run policy, whose reader checks it. Null resets it."""
    return Field(default_factory=_unset, json_schema_extra=_nullable(_PROPERTIES[name]))


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field that null resets."""
    schema = {key: value for key, value in schema.items() if key != "default"}
    if "anyOf" not in schema:
        kind = {key: schema.pop(key) for key in list(schema) if key != "description"}
        schema["anyOf"] = [kind, {"type": "null"}]
    return schema


class SpecBody(RootModel[dict[str, Any]]):
    """The base class of bodies that the reader of a spec reads."""

    field_names: ClassVar[tuple[str, ...]]


def _spec_schema(required: list[str], properties: dict[str, Any], example: dict[str, Any]) -> ConfigDict:
    schema = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
        "examples": [example],
    }
    return ConfigDict(json_schema_extra=lambda generated: generated.update(schema))


class Changes(RequestBody):
    """The base class of the bodies of PATCH requests. A field that the body omits keeps its value."""

    def changes(self) -> dict[str, Any]:
        """The values of the fields that the body contains, by field name."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class FactoryCreation(RequestBody):
    model_config = _example({"name": "platform"})

    name: Name


class FactoryChanges(Changes):
    model_config = _example({"max_running": 4})

    max_running: Any = _part("max_running")


# The reader of `WebhookSpec` checks the fields of the next two bodies.


class WebhookCreation(BaseModel):
    """A new webhook."""

    model_config = ConfigDict(
        extra="allow",
        hide_input_in_errors=True,
        json_schema_extra=lambda schema: schema.update(
            properties=_WEBHOOK_PROPERTIES | schema["properties"],
            required=["name"],
            additionalProperties=False,
            examples=[{"name": "github orders", "auth_mode": "signature", "signature_scheme": "github"}],
        ),
    )

    secret: SecretText | None = Field(
        default=None, description="The secret. If omitted, the service generates it where the scheme allows."
    )


class WebhookChanges(BaseModel):
    """The new values of fields. Null resets a field to its default."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra=lambda schema: schema.update(
            properties={name: _nullable(field) for name, field in _WEBHOOK_PROPERTIES.items()}
            | {"name": _WEBHOOK_PROPERTIES["name"]},
            additionalProperties=False,
            examples=[{"name": "orders", "enabled": False, "delivery_id_header": "X-Event-Id"}],
        ),
    )


class RotationRequest(RequestBody):
    model_config = _example({"secret": "3qv8pZ-the-new-one-of-the-provider"})

    secret: SecretText | None = Field(
        default=None, description="The new secret. If omitted, the service generates it where the scheme allows."
    )


class SecretCreation(RequestBody):
    model_config = _example({"name": "STRIPE_LIVE", "value": "whsec_of-the-provider"})

    name: SecretName
    value: SecretText | None = Field(default=None, description="The value. If omitted, the service generates it.")
    for_runs: StrictBool = Field(
        default=False,
        description="Whether it is for runs of this factory, and not for webhooks. This can't be changed later.",
    )


class SecretReplacement(RequestBody):
    model_config = _example({"value": "whsec_the-new-one-of-the-provider"})

    value: SecretText | None = Field(default=None, description="The new value. If omitted, the service generates it.")


class AutomationCreation(SpecBody):
    """What a person may set of an automation."""

    model_config = _spec_schema(
        ["name", "triggers", "prompt"],
        _PROPERTIES,
        {"name": "triage", "prompt": "Look at the order.", "triggers": [_TRIGGER_EXAMPLE]},
    )
    field_names = AutomationSpec.__struct_fields__


class AutomationChanges(SpecBody):
    """A JSON merge patch (RFC 7396): an object changes the fields that it has, a list replaces the whole list, and null
    resets a field."""

    model_config = _spec_schema(
        [],
        {name: _nullable(schema) for name, schema in _PROPERTIES.items()},
        {"prompt": "Look at the order twice.", "enabled": True},
    )
    field_names = AutomationSpec.__struct_fields__


class RunRequest(RequestBody):
    model_config = _example({"payload": {"order": 17}})

    payload: Any = Field(
        default=None,
        description="The run's payload: any JSON value, at most 262,144 bytes. If it is omitted or null, the run has "
        "no payload.",
    )


class ReplayRequest(RequestBody):
    model_config = _example({"automation": "triage"})

    automation: Text | None = Field(
        default=None,
        description="The only automation to start, by name or id. Defaults to all enabled ones that match.",
    )


class RunCancellation(RequestBody):
    model_config = _example({"automation": "triage", "state": "queued"})

    automation: Text | None = Field(default=None, description="Only runs of this automation, by name or id.")
    webhook: Text | None = Field(default=None, description="Only runs for this webhook, by name or uid.")
    state: Literal[RunState.QUEUED, RunState.RUNNING] | None = Field(
        default=None, description="Only runs in this state."
    )
    all: StrictBool = Field(
        default=False, description="All unfinished runs. Required if no other field is set, and not allowed otherwise."
    )


class AlarmSnooze(RequestBody):
    model_config = _example({"hours": 24})

    hours: Annotated[StrictInt, Field(ge=1, le=SNOOZE_HOURS_MAX)] | None = Field(
        default=None, description="For how many hours. Required unless `until` is set, and not allowed otherwise."
    )
    until: Moment | None = Field(
        default=None, description=f"When the snooze ends, within the next {SNOOZE_HOURS_MAX} hours."
    )


EventTypes = Annotated[
    list[Text],
    Field(
        min_length=1,
        max_length=EVENT_TYPES_MAX,
        description="Event types, any of which matches.",
        examples=[["push", "ping"]],
    ),
]


class FilterDraft(RequestBody):
    """A trigger that is not part of an automation."""

    filter: PayloadFilter | None = Field(
        default=None, description="The payload filter. If omitted, every payload matches."
    )
    event: EventTypes | None = Field(default=None, description="The event types. If omitted, every event type matches.")
    webhook_ids: list[Uid] | None = Field(
        default=None, max_length=100, description="The webhooks that the trigger selects. Defaults to all."
    )


class FilterTestRequest(FilterDraft):
    model_config = _example({"delivery_id": "dlv_0192f0c1aabbccddeeff001122334455", "filter": {"action": ["created"]}})

    delivery_id: DeliveryId


class BacktestRequest(FilterDraft):
    model_config = _example(
        {"filter": {"action": ["created"]}, "webhook_ids": ["wh_0123456789abcdefghjkmnpqrst"], "last": 50}
    )

    last: StrictInt = Field(
        default=50, ge=1, le=BACKTEST_DELIVERIES_MAX, description="The number of deliveries to evaluate, newest first."
    )
    concurrency: Any = _part("concurrency")
    debounce: Any = _part("debounce")


Rounded: Final = BeforeValidator(lambda value: float(value) if isinstance(value, Decimal) else value)
"""For a number that may be rounded. Numbers with more digits than a float has arrive as decimals."""


class AttemptReport(RequestBody):
    model_config = _example({"state": "succeeded", "result": "Two comments.", "cost_usd": 0.25})

    state: Literal["succeeded", "failed"] = Field(description="How the attempt ended.")
    reason: Text | None = Field(default=None, description="Why it failed. The first 500 characters are stored.")
    result: Annotated[str, StringConstraints(pattern=NO_NUL)] | None = Field(
        default=None, description="The agent's last message. The first 16,384 characters are stored."
    )
    cost_usd: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False, strict=True), Rounded] | None = Field(
        default=None, description="The cost in US dollars."
    )
    input_tokens: TokenCount | None = Field(default=None, description="The tokens that the model read.")
    output_tokens: TokenCount | None = Field(default=None, description="The tokens that the model wrote.")


class MemberCreation(RequestBody):
    model_config = _example({"email": "ada@example.com", "name": "Ada", "is_admin": False})

    email: Annotated[str, StringConstraints(pattern=NO_NUL, min_length=3, max_length=254)] = Field(
        examples=["ada@example.com"]
    )
    name: Name
    is_admin: StrictBool = False


class MemberChanges(Changes):
    model_config = _example({"is_admin": True})

    is_admin: StrictBool = Field(default_factory=_unset)


class FactoryRole(RequestBody):
    model_config = _example({"role": "manager"})

    role: Role = Field(description="`viewer` or `manager`. The role `admin` is not limited to one factory.")


DestinationEmail = Annotated[
    Annotated[str, StringConstraints(pattern=NO_NUL, max_length=EMAIL_CHARACTERS_MAX)] | None,
    Field(description="The e-mail address. Required if `kind` is `email`.", examples=["ops@example.com"]),
]
DestinationUrl = Annotated[
    Annotated[str, StringConstraints(pattern=NO_NUL, max_length=URL_CHARACTERS_MAX)] | None,
    Field(
        description="The https URL. Required if `kind` is `slack` or `webhook`. It is a secret, and never shown again.",
        json_schema_extra={"writeOnly": True},
        examples=["https://hooks.example.com/alarms"],
    ),
]
AlarmKinds = Annotated[
    list[AlarmKind],
    Field(
        max_length=len(AlarmKind),
        description="The kinds of alarms that the destination gets. Empty: all that it can get.",
    ),
]


class AlarmDestinationCreation(RequestBody):
    model_config = _example({"kind": "email", "to": "ops@example.com", "alarm_kinds": ["webhook_quiet"]})

    kind: DestinationKind
    to: DestinationEmail = None
    url: DestinationUrl = None
    alarm_kinds: AlarmKinds = Field(default_factory=list)
    includes_factories: StrictBool = Field(
        default=False,
        description="Whether a destination of the installation also gets the alarms of all factories.",
    )


class KeyCreation(RequestBody):
    model_config = _example(
        {"name": "ci", "role": "manager", "factory": "default", "expires_at": "2035-01-01T00:00:00Z"}
    )

    name: Name
    role: Role
    factory: Name | None = Field(
        default=None, description="The key's factory. Required if `role` is `viewer` or `manager`."
    )
    expires_at: Moment | None = Field(default=None, description="When the key expires. If omitted, it does not expire.")


class DefinitionFiles(RequestBody):
    model_config = _example({"files": {"automations/nightly.md": "---\ntriggers: []\n---\nLook at the order.\n"}})

    files: dict[str, str] = Field(
        max_length=FILES_MAX,
        description="The text of each file of `webhooks` and `automations` by its path. What has no file is removed.",
    )


class DefinitionApply(DefinitionFiles):
    allow_deletions: StrictBool = Field(
        default=False,
        description="Whether webhooks without a file may be deleted: their URLs stop working permanently.",
    )
    expected_digest: Annotated[str, StringConstraints(pattern=DIGEST_PATTERN)] | None = Field(
        default=None, description="The `digest` of the plan. With another plan, nothing is applied."
    )
