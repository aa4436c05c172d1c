"""What the API takes, field by field. A field that is not here can't be set: it is refused, not ignored."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StringConstraints

from hookmill.domain.automation import EVENT_TYPES_MAX, PROMPT_CHARACTERS_MAX, TRIGGERS_MAX
from hookmill.domain.filters import CONDITIONS_MAX
from hookmill.domain.limits import BACKTEST_MAX
from hookmill.domain.permission import Role
from hookmill.domain.webhook import AuthMode
from hookmill.web.api.fields import NO_NUL, DeliveryId, HeaderName, Moment, Name, SecretName, SecretText, Text, Uid

PayloadFilter = Annotated[
    dict[str, Any],
    Field(
        description="A payload filter.",
        max_length=CONDITIONS_MAX,
        examples=[{"action": ["opened"], "repository": {"private": [False]}}],
    ),
]
Prompt = Annotated[str, StringConstraints(min_length=1, max_length=PROMPT_CHARACTERS_MAX, pattern=NO_NUL)]
_TRIGGER: Final = {
    "provider": "webhook",
    "event": "received",
    "filter": {"webhook_ids": ["wh_0123456789abcdefghjkmnpqrst"], "payload": {"action": ["created"]}},
}
Triggers = Annotated[
    list[Any],
    Field(
        min_length=1,
        max_length=TRIGGERS_MAX,
        json_schema_extra={"items": {"$ref": "#/components/schemas/TriggerView"}},
        description="Which deliveries start it. Any of them that matches starts one run.",
        examples=[[_TRIGGER]],
    ),
]


class Given(BaseModel):
    """A body. Its fields are listed here one by one."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


def _example(body: dict[str, Any]) -> ConfigDict:
    """One body as somebody would send it."""
    return ConfigDict(json_schema_extra={"examples": [body]})


def _left_out() -> Any:
    """The value of a field that is not in the body, which nobody looks at: `Changes` goes by what was given."""
    return None


class Changes(Given):
    """What to change. What is left out stays."""

    def given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.model_fields_set}


class NewFactory(Given):
    model_config = _example({"name": "platform"})

    name: Name


class NewWebhook(Given):
    model_config = _example({"name": "github orders", "auth_mode": "signature", "signature_scheme": "github"})

    name: Name
    auth_mode: AuthMode = Field(default=AuthMode.TOKEN, description="How senders prove themselves.")
    signature_scheme: Text | None = Field(
        default=None, description="With auth_mode signature: the provider.", examples=["github"]
    )
    signature_options: dict[str, Any] | None = Field(
        default=None, description="With signature_scheme hmac: how the sender signs."
    )
    answers_handshakes: StrictBool = Field(default=False, description="Answer the provider's signed challenges.")
    secret: SecretText | None = Field(default=None, description="Left out: it is generated, where that can be.")
    secret_name: SecretName | None = Field(
        default=None, description="The team secret that holds it: an existing one, or a new name."
    )
    delivery_id_header: HeaderName | None = Field(
        default=None, description="The request header that carries the sender's event id."
    )
    event_header: HeaderName | None = Field(
        default=None,
        description="The request header that carries the event's type. Of most schemes it is known without.",
        examples=["X-Event-Type"],
    )
    enabled: StrictBool = True


class WebhookChanges(Changes):
    model_config = _example({"name": "orders", "enabled": False, "delivery_id_header": "X-Event-Id"})

    name: Name = Field(default_factory=_left_out)
    enabled: StrictBool = Field(default_factory=_left_out)
    delivery_id_header: HeaderName | None = Field(default=None, description="Null: the sender sets none.")
    event_header: HeaderName | None = Field(default=None, description="Null: the sender sets none.")


class Rotation(Given):
    model_config = _example({"secret": "3qv8pZ-the-new-one-of-the-provider"})

    secret: SecretText | None = Field(default=None, description="Left out: it is generated, where that can be.")


class NewSecret(Given):
    model_config = _example({"name": "STRIPE_LIVE", "value": "whsec_of-the-provider"})

    name: SecretName
    value: SecretText | None = Field(default=None, description="Left out: it is generated.")


class SecretReplacement(Given):
    model_config = _example({"value": "whsec_the-new-one-of-the-provider"})

    value: SecretText | None = Field(default=None, description="Left out: it is generated.")


class NewAutomation(Given):
    model_config = _example({"name": "triage", "prompt": "Look at the order.", "triggers": [_TRIGGER]})

    name: Name
    prompt: Prompt
    triggers: Triggers
    runner: Text | None = Field(default=None, description="Left out: the operator's default.")
    enabled: StrictBool = True


class AutomationChanges(Changes):
    model_config = _example({"prompt": "Look at the order twice.", "enabled": True})

    name: Name = Field(default_factory=_left_out)
    prompt: Prompt = Field(default_factory=_left_out)
    triggers: Triggers = Field(default_factory=_left_out)
    runner: Text = Field(default_factory=_left_out)
    enabled: StrictBool = Field(default_factory=_left_out)


class Replay(Given):
    model_config = _example({"automation": "triage"})

    automation: Text | None = Field(
        default=None, description="The one automation to start, by name or id. Left out: all that match."
    )


EventTypes = Annotated[
    list[Text],
    Field(
        min_length=1, max_length=EVENT_TYPES_MAX, description="Event types, any of these.", examples=[["push", "ping"]]
    ),
]


class NewFilterTest(Given):
    model_config = _example({"delivery_id": "dlv_0192f0c1aabbccddeeff001122334455", "filter": {"action": ["created"]}})

    delivery_id: DeliveryId
    filter: PayloadFilter | None = Field(default=None, description="Left out: every payload passes.")
    event: EventTypes | None = Field(default=None, description="Left out: every event type passes.")
    webhook_ids: list[Uid] | None = Field(
        default=None, max_length=100, description="The webhooks that the trigger selects. Left out: all."
    )


class NewBacktest(Given):
    model_config = _example(
        {"filter": {"action": ["created"]}, "webhook_ids": ["wh_0123456789abcdefghjkmnpqrst"], "last": 50}
    )

    filter: PayloadFilter | None = Field(default=None, description="Left out: every payload passes.")
    event: EventTypes | None = Field(default=None, description="Left out: every event type passes.")
    webhook_ids: list[Uid] | None = Field(
        default=None, max_length=100, description="The webhooks that the trigger selects. Left out: all."
    )
    last: StrictInt = Field(
        default=50, ge=1, le=BACKTEST_MAX, description="How many deliveries to judge, newest first."
    )


class NewMember(Given):
    model_config = _example({"email": "ada@example.com", "name": "Ada", "is_admin": False})

    email: Annotated[str, StringConstraints(pattern=NO_NUL, min_length=3, max_length=254)] = Field(
        examples=["ada@example.com"]
    )
    name: Name
    is_admin: StrictBool = False


class MemberChanges(Changes):
    model_config = _example({"is_admin": True})

    is_admin: StrictBool = Field(default_factory=_left_out)


class FactoryRole(Given):
    model_config = _example({"role": "manager"})

    role: Role = Field(description="viewer or manager: admin is no role in one factory.")


class NewKey(Given):
    model_config = _example(
        {"name": "ci", "role": "manager", "factory": "default", "expires_at": "2035-01-01T00:00:00Z"}
    )

    name: Name
    role: Role
    factory: Name | None = Field(default=None, description="For a viewer's or manager's key: its factory.")
    expires_at: Moment | None = Field(default=None, description="Left out: it does not expire.")
