"""What the API answers with, field by field. No answer can hold a secret but the three that are made to show one."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from hookmill.domain.automation import Automation
from hookmill.domain.delivery import Delivery, Label, Refusals
from hookmill.domain.factory import Factory
from hookmill.domain.filters import filter_to_json
from hookmill.domain.ids import delivery_id, run_id
from hookmill.domain.moment import iso
from hookmill.domain.permission import ActorKind, Caller, Door, Role
from hookmill.domain.run import Run, RunState
from hookmill.domain.signatures.scheme import Scheme
from hookmill.domain.webhook import AuthMode, Webhook, WebhookState
from hookmill.management import (
    ApiKey,
    AuditEntry,
    AutomationVerdict,
    Backtest,
    FilterTest,
    KeyWithToken,
    Management,
    Member,
    TeamSecret,
    WebhookWithSecret,
)
from hookmill.web.api.fields import Shown, iso_or_none

T = TypeVar("T")

Generated = Annotated[
    str | None, Field(description="Shown now and never again. Null where you gave it, or where it existed before.")
]


class Answer(BaseModel):
    """A JSON object. Its fields always come in the same order, so that equal things have equal bytes."""

    model_config = ConfigDict(extra="forbid")

    def as_json(self) -> bytes:
        return self.model_dump_json().encode()


class Exact(Answer):
    """An answer with a payload filter in it, whose numbers are written without rounding."""

    def as_json(self) -> bytes:
        return filter_to_json(self.model_dump()).encode()


class Page(Answer, Generic[T]):
    items: list[T]
    next_cursor: str | None = Field(description="The `cursor` of the next page. Null on the last one.")


# Who is asking


class FactoryRoleAnswer(Answer):
    name: str
    role: Role


class CallerAnswer(Answer):
    kind: ActorKind
    id: str
    name: str
    is_admin: bool = Field(description="Whether the role is admin, over the whole team.")
    factories: list[FactoryRoleAnswer] = Field(description="The factories that you can see, and as what.")

    @classmethod
    def of(cls, caller: Caller, factories: Sequence[Factory]) -> Self:
        return cls(
            kind=caller.actor.kind,
            id=caller.actor.id,
            name=caller.actor.name,
            is_admin=caller.is_admin,
            factories=[
                FactoryRoleAnswer(name=factory.name, role=Role.ADMIN if caller.is_admin else caller.roles[factory.id])
                for factory in factories
            ],
        )


# Factories


class FactoryAnswer(Answer):
    name: str
    defined_by_files: bool = Field(description="Whether its webhooks and automations change through files alone.")

    @classmethod
    def of(cls, factory: Factory) -> Self:
        return cls(name=factory.name, defined_by_files=factory.defined_by_files)


class FactoryPage(Page[FactoryAnswer]):
    """Factories, by name."""


# Webhooks


class WebhookAnswer(Answer):
    uid: str
    name: str
    auth_mode: AuthMode
    secret_name: str = Field(description="The team secret that holds its secret.")
    signature_scheme: str | None
    signature_options: dict[str, Any] | None
    answers_handshakes: bool
    delivery_id_header: str | None
    enabled: bool
    state: WebhookState
    url: str = Field(description="Where senders post. Of a `url_token` webhook the token is left out: `{token}`.")
    has_secret: bool = Field(description="False until the provider's secret was supplied.")
    secret_is_current: bool = Field(description="False when the team secret has a newer value: sync to use it.")
    created_at: Shown

    @classmethod
    def of(cls, management: Management, webhook: Webhook) -> Self:
        return cls(**_webhook_fields(webhook, management.webhooks.url(webhook)))


class WebhookWithSecretAnswer(WebhookAnswer):
    """A webhook at the one moment when a secret that was generated for it is shown, and its complete URL."""

    secret: Generated

    @classmethod
    def made(cls, management: Management, made: WebhookWithSecret, *, generated: bool) -> Self:
        if not generated or made.secret is None:
            return cls(**_webhook_fields(made.webhook, management.webhooks.url(made.webhook)), secret=None)
        return cls(**_webhook_fields(made.webhook, made.url), secret=made.reveal())


class WebhookPage(Page[WebhookAnswer]):
    """Webhooks, by name."""


def _webhook_fields(webhook: Webhook, url: str) -> dict[str, Any]:
    return {
        "uid": webhook.uid,
        "name": webhook.name,
        "auth_mode": webhook.auth_mode,
        "secret_name": webhook.secret_name,
        "signature_scheme": webhook.signature_scheme,
        "signature_options": webhook.signature_options,
        "answers_handshakes": webhook.answers_handshakes,
        "delivery_id_header": webhook.delivery_id_header,
        "enabled": webhook.state is WebhookState.ENABLED,
        "state": webhook.state,
        "url": url,
        "has_secret": webhook.has_secret,
        "secret_is_current": webhook.secret_is_current,
        "created_at": iso(webhook.created_at),
    }


# Team secrets


class SecretAnswer(Answer):
    """A team secret without its value, which is never shown again."""

    name: str
    created_at: Shown
    changed_at: Shown | None
    has_value: bool
    used_by: list[str] = Field(description="The names of this factory's webhooks that use it.")
    used_elsewhere: bool = Field(description="Whether webhooks of other factories use it too.")

    @classmethod
    def of(cls, secret: TeamSecret) -> Self:
        return cls(**_secret_fields(secret))


class SecretWithValueAnswer(SecretAnswer):
    """A team secret at the one moment when a value that was generated is shown."""

    value: Generated

    @classmethod
    def made(cls, secret: TeamSecret, value: str | None) -> Self:
        return cls(**_secret_fields(secret), value=value)


class SecretPage(Page[SecretAnswer]):
    """Team secrets, by name."""


def _secret_fields(secret: TeamSecret) -> dict[str, Any]:
    return {
        "name": secret.name,
        "created_at": iso(secret.created_at),
        "changed_at": iso_or_none(secret.changed_at),
        "has_value": secret.has_value,
        "used_by": list(secret.used_by),
        "used_elsewhere": secret.used_elsewhere,
    }


# Automations


class TriggerFilterAnswer(Exact):
    webhook_ids: list[str]
    payload: dict[str, Any] | None = Field(default=None, description="The payload filter. Left out: every payload.")


class TriggerAnswer(Exact):
    provider: str
    event: str
    filter: TriggerFilterAnswer


class AutomationInListAnswer(Exact):
    """An automation without its prompt, which may be long."""

    automation_id: str
    name: str
    enabled: bool
    version: int
    runner: str
    triggers: list[Any] = Field(json_schema_extra={"items": {"$ref": "#/components/schemas/TriggerAnswer"}})
    created_at: Shown
    updated_at: Shown
    warnings: list[str] = Field(description="What keeps it from firing although it is enabled.")

    @classmethod
    def of(cls, automation: Automation, warnings: Sequence[str]) -> Self:
        return cls(**_automation_fields(automation, warnings))


class AutomationAnswer(AutomationInListAnswer):
    prompt: str

    @classmethod
    def of(cls, automation: Automation, warnings: Sequence[str]) -> Self:
        return cls(**_automation_fields(automation, warnings), prompt=automation.prompt)


class AutomationPage(Page[AutomationInListAnswer], Exact):
    """Automations, by name, without their prompts."""


def _automation_fields(automation: Automation, warnings: Sequence[str]) -> dict[str, Any]:
    return {
        "automation_id": automation.id,
        "name": automation.name,
        "enabled": automation.enabled,
        "version": automation.version,
        "runner": automation.runner,
        "triggers": [trigger.as_json() for trigger in automation.every_trigger],
        "created_at": iso(automation.created_at),
        "updated_at": iso(automation.updated_at),
        "warnings": list(warnings),
    }


# Runs


class RunAnswer(Answer):
    run_id: str
    delivery_id: str
    webhook_uid: str
    automation: str
    automation_version: int
    replay: int = Field(description="0 for the run that the delivery started; 1, 2 and so on for its replays.")
    runner: str
    state: RunState
    attempt: int
    created_at: Shown
    handed_at: Shown | None
    started_at: Shown | None
    finished_at: Shown | None
    cancel_requested_at: Shown | None
    exit_status: int | None
    reason: str | None

    @classmethod
    def of(cls, run: Run) -> Self:
        return cls(**_run_fields(run))


class RunWithOutputAnswer(RunAnswer):
    output_tail: str | None = Field(description="The last part of what its command printed.")

    @classmethod
    def of(cls, run: Run) -> Self:
        return cls(**_run_fields(run), output_tail=run.output_tail)


class RunPage(Page[RunAnswer]):
    """Runs, newest first."""


class ReplayAnswer(Answer):
    runs: list[RunAnswer] = Field(description="The new runs, one for each automation.")


def _run_fields(run: Run) -> dict[str, Any]:
    return {
        "run_id": run_id(run.id),
        "delivery_id": delivery_id(run.delivery_id),
        "webhook_uid": run.webhook_uid,
        "automation": run.automation_name,
        "automation_version": run.automation_version,
        "replay": run.replay,
        "runner": run.runner,
        "state": run.state,
        "attempt": run.attempt,
        "created_at": iso(run.created_at),
        "handed_at": iso_or_none(run.handed_at),
        "started_at": iso_or_none(run.started_at),
        "finished_at": iso_or_none(run.finished_at),
        "cancel_requested_at": iso_or_none(run.cancel_requested_at),
        "exit_status": run.exit_status,
        "reason": run.reason,
    }


# The log

LABELS: Mapping[str, Label] = {label.shown: label for label in Label} | {label.name.lower(): label for label in Label}
"""The contract's words, and a form of them that needs no escaping in an address."""


class DeliveryAnswer(Answer):
    delivery_id: str
    webhook_uid: str
    label: str = Field(json_schema_extra={"enum": [label.shown for label in Label]})
    size: int
    received_at: Shown
    identity_kind: str | None = Field(description="Where its identity was found.")
    identity: str | None = Field(
        description="Its identity as the sender or provider gave it. Null where the body's hash is the identity."
    )
    duplicate_of: str | None
    reason: str | None = Field(description="Why it was refused, for the webhook's owner.")
    client: str | None = Field(description="The address that a refused attempt came from.")

    @classmethod
    def of(cls, delivery: Delivery) -> Self:
        return cls(**_delivery_fields(delivery))


class DeliveryWithRunsAnswer(DeliveryAnswer):
    runs: list[RunAnswer] = Field(description="What it started, replays too.")

    @classmethod
    def with_runs(cls, delivery: Delivery, runs: Sequence[Run]) -> Self:
        return cls(**_delivery_fields(delivery), runs=[RunAnswer.of(run) for run in runs])


class DeliveryPage(Page[DeliveryAnswer]):
    """Deliveries, newest first."""


class RefusalAnswer(Answer):
    """Attempts of one minute that have no entry in the log."""

    webhook_uid: str
    kind: str = Field(examples=["rate_limited"])
    since: Shown
    until: Shown
    refused: int

    @classmethod
    def of(cls, refusals: Refusals) -> Self:
        return cls(
            webhook_uid=refusals.webhook_uid,
            kind=refusals.kind,
            since=iso(refusals.since),
            until=iso(refusals.until),
            refused=refusals.count,
        )


class RefusalPage(Page[RefusalAnswer]):
    """Minutes with refusals, newest first."""


def _delivery_fields(delivery: Delivery) -> dict[str, Any]:
    return {
        "delivery_id": delivery_id(delivery.key),
        "webhook_uid": delivery.webhook_uid,
        "label": delivery.label.shown,
        "size": delivery.size,
        "received_at": iso(delivery.received_at),
        "identity_kind": delivery.identity_kind.shown if delivery.identity_kind is not None else None,
        "identity": delivery.identity,
        "duplicate_of": delivery_id(delivery.duplicate_of) if delivery.duplicate_of is not None else None,
        "reason": delivery.reason,
        "client": delivery.client,
    }


# Filters


class ConditionAnswer(Answer):
    """One condition of a payload filter. `expected` and `found` are JSON for people, cut when long."""

    pointer: str
    operator: str
    expected: str
    found: str
    held: bool
    no_object_at: str | None


class FilterTestAnswer(Answer):
    would_trigger: bool
    webhook_check: bool
    payload_check: bool
    conditions: list[ConditionAnswer]

    @classmethod
    def of(cls, test: FilterTest) -> Self:
        explained = test.explanation.conditions if test.explanation is not None else ()
        return cls(
            would_trigger=test.would_trigger,
            webhook_check=test.webhook_check,
            payload_check=test.payload_check,
            conditions=[
                ConditionAnswer(
                    pointer=condition.pointer,
                    operator=condition.operator,
                    expected=condition.expected,
                    found=condition.found,
                    held=condition.held,
                    no_object_at=condition.no_object_at,
                )
                for condition in explained
            ],
        )


class VerdictAnswer(Answer):
    """What one automation, as it is now, makes of a delivery."""

    automation_id: str
    automation: str
    enabled: bool
    would_trigger: bool
    triggers: list[FilterTestAnswer]
    runs: list[RunAnswer]

    @classmethod
    def of(cls, verdict: AutomationVerdict) -> Self:
        return cls(
            automation_id=verdict.automation.id,
            automation=verdict.automation.name,
            enabled=verdict.automation.enabled,
            would_trigger=verdict.would_trigger,
            triggers=[FilterTestAnswer.of(test) for test in verdict.triggers],
            runs=[RunAnswer.of(run) for run in verdict.runs],
        )


class ExplanationAnswer(Answer):
    automations: list[VerdictAnswer]

    def as_json(self) -> bytes:
        # Piece by piece: of hundreds of automations it is long, and no delivery is served while a piece is written.
        return b'{"automations":[' + b",".join(each.as_json() for each in self.automations) + b"]}"


class BacktestAnswer(Answer):
    matching: list[DeliveryAnswer]
    others: list[DeliveryAnswer]

    @classmethod
    def of(cls, backtest: Backtest) -> Self:
        return cls(
            matching=[DeliveryAnswer.of(delivery) for delivery in backtest.matching],
            others=[DeliveryAnswer.of(delivery) for delivery in backtest.others],
        )


# The team


class MemberAnswer(Answer):
    member_id: str
    email: str
    name: str
    is_admin: bool
    roles: dict[str, Role] = Field(description="The role in each factory, by its name.")
    created_at: Shown

    @classmethod
    def of(cls, member: Member) -> Self:
        return cls(
            member_id=member.id,
            email=member.email,
            name=member.name,
            is_admin=member.is_admin,
            roles=dict(sorted(member.roles.items())),
            created_at=iso(member.created_at),
        )


class MemberPage(Page[MemberAnswer]):
    """Members, by address."""


class KeyAnswer(Answer):
    """An API key without its token, which is never shown again."""

    key_id: str
    name: str
    role: Role
    factory: str | None = Field(description="Null for an admin's key, which is good for the whole team.")
    created_at: Shown
    expires_at: Shown | None
    revoked_at: Shown | None
    last_used_at: Shown | None = Field(description="To the minute.")

    @classmethod
    def of(cls, key: ApiKey) -> Self:
        return cls(**_key_fields(key))


class KeyWithTokenAnswer(KeyAnswer):
    """An API key at the one moment when its token is shown."""

    token: str

    @classmethod
    def made(cls, made: KeyWithToken) -> Self:
        return cls(**_key_fields(made.key), token=made.token.reveal())


class KeyPage(Page[KeyAnswer]):
    """API keys, newest first."""


def _key_fields(key: ApiKey) -> dict[str, Any]:
    return {
        "key_id": key.id,
        "name": key.name,
        "role": key.role,
        "factory": key.factory_name,
        "created_at": iso(key.created_at),
        "expires_at": iso_or_none(key.expires_at),
        "revoked_at": iso_or_none(key.revoked_at),
        "last_used_at": iso_or_none(key.last_used_at),
    }


class ActorAnswer(Answer):
    kind: ActorKind
    id: str
    name: str


class SubjectAnswer(Answer):
    kind: str
    id: str
    name: str


class AuditAnswer(Answer):
    """One act of management."""

    entry_id: str = Field(examples=["aud_0192f0c1aabbccddeeff001122334455"])
    at: Shown
    action: str = Field(examples=["webhook.rotate"])
    actor: ActorAnswer
    door: Door
    client: str | None = Field(description="The address it came from.")
    factory: str | None = Field(description="Null for what concerns the whole team.")
    subject: SubjectAnswer
    details: dict[str, Any]

    @classmethod
    def of(cls, entry: AuditEntry) -> Self:
        return cls(
            entry_id=f"aud_{entry.key.hex()}",
            at=iso(entry.at),
            action=entry.action,
            actor=ActorAnswer(kind=ActorKind(entry.actor_kind), id=entry.actor_id, name=entry.actor_name),
            door=Door(entry.door),
            client=entry.client,
            factory=entry.factory_name,
            subject=SubjectAnswer(kind=entry.subject_kind, id=entry.subject_id, name=entry.subject_name),
            details=dict(entry.details),
        )


class AuditPage(Page[AuditAnswer]):
    """Acts of management, newest first."""


# Reference


class SchemeAnswer(Answer):
    """A provider whose signatures can be verified."""

    name: str
    aliases: list[str]
    title: str
    docs: str
    algorithm: str
    covers_body: bool
    covers_time: bool
    covers_id: bool
    proof: str
    proven_by: str
    experimental: bool
    setup: list[str]

    @classmethod
    def of(cls, scheme: Scheme) -> Self:
        return cls(
            name=scheme.name,
            aliases=list(scheme.aliases),
            title=scheme.title,
            docs=scheme.docs,
            algorithm=scheme.algorithm.value,
            covers_body=scheme.covers_body,
            covers_time=scheme.covers_time,
            covers_id=scheme.covers_id,
            proof=scheme.proof.kind.value,
            proven_by=scheme.proof.source,
            experimental=scheme.experimental,
            setup=list(scheme.setup),
        )


class SchemePage(Page[SchemeAnswer]):
    """Signature schemes, by name."""
