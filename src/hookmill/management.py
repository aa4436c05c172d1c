"""What people do with factories, webhooks, automations, the log and runs. Every door goes through here.

Each operation is one transaction. What changes what a delivery would meet holds, in every process, before the call
returns.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hookmill.domain import ids, payload
from hookmill.domain.automation import PROMPT_CHARACTERS_MAX, Automation, triggers_from_json
from hookmill.domain.delivery import Label
from hookmill.domain.errors import Conflict, Invalid, InvalidFilter, LimitReached, NotFound
from hookmill.domain.filters import CompiledFilter, Explanation, compile_filter
from hookmill.domain.ids import AutomationId, DeliveryKey, FactoryId, RunKey, SecretId, TeamId, WebhookUid
from hookmill.domain.run import Run, RunState
from hookmill.domain.secret import (
    GENERATED_BYTES,
    SecretValue,
    generated,
    suggested_secret_name,
    url_safe,
    usable_secret,
    usable_secret_name,
)
from hookmill.domain.webhook import (
    AuthMode,
    Webhook,
    WebhookState,
    usable_delivery_id_header,
    usable_name,
)
from hookmill.store import automations, deliveries, factories, runs, secrets, webhooks
from hookmill.store.database import Database, Transaction
from hookmill.store.deliveries import Delivery, Refusals
from hookmill.store.factories import Factory
from hookmill.store.sealing import MasterKey

if TYPE_CHECKING:
    from hookmill.domain.signatures.scheme import Scheme

DEFAULT_FACTORY = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """What an installation decides for everybody in it."""

    public_url: str
    webhooks_per_factory: int
    runner_names: tuple[str, ...]
    default_runner: str


@dataclass(frozen=True, slots=True)
class WebhookWithSecret:
    """A webhook at the one moment when its secret and complete URL are shown."""

    webhook: Webhook
    url: str
    secret: SecretValue | None
    """None while the provider has yet to give its own."""

    def reveal(self) -> str:
        """The secret's text, where there is one."""
        assert self.secret is not None, "asked of a webhook that has a secret"
        return self.secret.reveal()


@dataclass(frozen=True, slots=True)
class FilterTest:
    """Would this delivery trigger? With the outcome of both checks, and why."""

    would_trigger: bool
    webhook_check: bool
    payload_check: bool
    explanation: Explanation | None


class Management:
    """The operations, for one installation."""

    def __init__(self, database: Database, key: MasterKey, house: House, now_us: Callable[[], int]) -> None:
        self._database = database
        self._key = key
        self._house = house
        self._now = now_us

    # Factories

    def set_up(self) -> tuple[Factory, bool]:
        """The factory `default`, and whether this call made it, with its team."""
        with self._database.write() as tx:
            factories.hold_all(tx)
            if (known := factories.factory_named(tx, DEFAULT_FACTORY)) is not None:
                return known, False
            team = TeamId(_random("team"))
            factories.add_team(tx, team, "team", self._now())
            factory = Factory(FactoryId(_random("fac")), team, DEFAULT_FACTORY)
            factories.add_factory(tx, factory, self._now())
            return factory, True

    def factory(self, name: str) -> Factory:
        with self._database.read() as tx:
            found = factories.factory_named(tx, name)
            if found is None:
                known = ", ".join(factory.name for factory in factories.all_factories(tx)) or "none yet"
                raise NotFound(f"No factory is named {name[:100]!r}. There are: {known}.")
            return found

    # Webhooks

    def create_webhook(
        self,
        factory: Factory,
        name: str,
        *,
        auth_mode: AuthMode = AuthMode.TOKEN,
        signature_scheme: str | None = None,
        signature_options: dict[str, Any] | None = None,
        answers_handshakes: bool = False,
        secret: str | None = None,
        secret_name: str | None = None,
        delivery_id_header: str | None = None,
    ) -> WebhookWithSecret:
        """A new webhook, enabled. Its secret and URL are in the answer, and nowhere afterwards.

        `secret_name` may name an existing team secret, whose value is then used. Where only the provider can make the
        secret and none is given, the webhook is disabled until it is supplied. Raises `LimitReached` at the factory's
        limit.
        """
        name = usable_name("webhook", name)
        scheme = _usable_scheme(auth_mode, signature_scheme, signature_options, answers_handshakes)
        if delivery_id_header is not None:
            delivery_id_header = usable_delivery_id_header(delivery_id_header)
            _refuse_signing_header(scheme, delivery_id_header)
        given = usable_secret(secret) if secret is not None else None
        if given is not None:
            _refuse_unfit_secret(auth_mode, scheme, given)
        now = self._now()
        with self._changing(factory) as tx:
            limit = self._house.webhooks_per_factory
            if webhooks.count_live(tx, factory.id) >= limit:
                raise LimitReached(
                    f"Factory {factory.name!r} has {limit} webhooks, the most it may have. Delete one first."
                )
            if webhooks.live_by_name(tx, factory.id, name) is not None:
                raise Conflict(f"Factory {factory.name!r} already has a webhook named {name!r}. Choose another name.")
            blank = None if given is not None else _generated(scheme, signature_scheme)
            secret_id, version, value = self._secret_for(
                tx, factory, name, auth_mode, scheme, given, blank, secret_name
            )
            uid = WebhookUid(_random("wh"))
            webhooks.add(
                tx,
                webhooks.NewWebhook(
                    uid=uid,
                    factory_id=factory.id,
                    name=name,
                    auth_mode=auth_mode,
                    state=WebhookState.ENABLED if version is not None else WebhookState.DISABLED,
                    secret_id=secret_id,
                    secret_version_id=version,
                    signature_scheme=signature_scheme,
                    signature_options=signature_options,
                    answers_handshakes=answers_handshakes,
                    delivery_id_header=delivery_id_header,
                ),
                now,
            )
            webhook = _found(webhooks.by_uid(tx, uid), uid)
        return WebhookWithSecret(webhook, self._complete_url(webhook, value), value)

    def webhooks(self, factory: Factory, *, with_deleted: bool = False) -> Sequence[Webhook]:
        with self._database.read() as tx:
            return webhooks.in_factory(tx, factory.id, with_deleted=with_deleted)

    def webhook(self, factory: Factory, named: str) -> Webhook:
        """The webhook with this uid, or the live one with this name. Raises `NotFound`."""
        with self._database.read() as tx:
            return self._webhook(tx, factory, named)

    def set_webhook_enabled(self, factory: Factory, named: str, enabled: bool) -> Webhook:
        """Deliveries resume, or stop: senders get 404 from the moment this returns. Deleted webhooks stay deleted."""
        state = WebhookState.ENABLED if enabled else WebhookState.DISABLED
        with self._changing(factory) as tx:
            webhook = self._not_deleted(tx, factory, named)
            if enabled and not webhook.has_secret:
                raise Conflict(
                    f"Webhook {webhook.name!r} has no secret yet. Supply the provider's first: "
                    f"hookmill webhook rotate {webhook.uid} --secret-from-stdin"
                )
            if webhook.state is not state:
                webhooks.set_state(tx, webhook.uid, state, self._now())
            return _found(webhooks.by_uid(tx, webhook.uid), named)

    def rotate_webhook(self, factory: Factory, named: str, secret: str | None = None) -> WebhookWithSecret:
        """A new secret, generated or given. The old one stops working everywhere before this returns; the state
        stays.

        Raises `Invalid` where only the provider can make the secret and none is given.
        """
        given = usable_secret(secret) if secret is not None else None
        with self._changing(factory) as tx:
            webhook = self._not_deleted(tx, factory, named)
            scheme = _scheme_of(webhook)
            if given is not None:
                _refuse_unfit_secret(webhook.auth_mode, scheme, given)
            value = given or _generated(scheme, webhook.signature_scheme)
            if value is None:
                raise Invalid(
                    f"The secret of {webhook.name!r} is agreed on with its provider. Give it over: "
                    f"hookmill webhook rotate {webhook.uid} --secret-from-stdin"
                )
            secret_id, _ = webhooks.secret_of(tx, webhook.uid)
            version = secrets.add_version(tx, secret_id, value, self._key, self._now())
            webhooks.use_secret_version(tx, webhook.uid, version)
            webhook = _found(webhooks.by_uid(tx, webhook.uid), named)
        return WebhookWithSecret(webhook, self._complete_url(webhook, value), value)

    def delete_webhook(self, factory: Factory, named: str) -> Webhook:
        """Senders get 404 from the moment this returns. The log stays until retention takes it."""
        with self._changing(factory) as tx:
            webhook = self._not_deleted(tx, factory, named)
            webhooks.set_state(tx, webhook.uid, WebhookState.DELETED, self._now())
            return _found(webhooks.by_uid(tx, webhook.uid), named)

    def url(self, webhook: Webhook) -> str:
        """The URL to show: a URL token is a placeholder in it."""
        return self._house.public_url + webhook.ingress_path()

    def secret_for_sending(self, factory: Factory, named: str) -> WebhookWithSecret:
        """The secret in use, for the operator's own sample deliveries. No page or API answer may carry it."""
        with self._database.read() as tx:
            webhook = self._not_deleted(tx, factory, named)
            _, version = webhooks.secret_of(tx, webhook.uid)
            if version is None:
                raise Conflict(f"Webhook {webhook.name!r} has no secret yet: supply the provider's first.")
            value = secrets.reveal(tx, version, self._key)
        return WebhookWithSecret(webhook, self._complete_url(webhook, value), value)

    # Automations

    def create_automation(
        self,
        factory: Factory,
        name: str,
        *,
        prompt: str,
        triggers: Any,
        runner: str | None = None,
        enabled: bool = True,
    ) -> Automation:
        """A new automation. `triggers` is the list as people write it; its filters are compiled here, once."""
        now = self._now()
        automation = Automation(
            id=AutomationId(_random("aut")),
            factory_id=factory.id,
            name=usable_name("automation", name),
            enabled=enabled,
            version=1,
            prompt=_usable_prompt(prompt),
            runner=self._usable_runner(runner),
            triggers=triggers_from_json(triggers),
            created_at=now,
            updated_at=now,
        )
        with self._changing(factory) as tx:
            _refuse_taken_name(tx, factory, automation.name)
            automations.add(tx, automation)
        return automation

    def change_automation(
        self,
        factory: Factory,
        named: str,
        *,
        prompt: str | None = None,
        triggers: Any = None,
        runner: str | None = None,
        new_name: str | None = None,
    ) -> Automation:
        """The automation's next version. What is None stays."""
        with self._changing(factory) as tx:
            before = self._automation(tx, factory, named)
            after = replace(
                before,
                version=before.version + 1,
                updated_at=self._now(),
                name=usable_name("automation", new_name) if new_name is not None else before.name,
                prompt=_usable_prompt(prompt) if prompt is not None else before.prompt,
                runner=self._usable_runner(runner) if runner is not None else before.runner,
                triggers=triggers_from_json(triggers) if triggers is not None else before.triggers,
            )
            if after.name != before.name:
                _refuse_taken_name(tx, factory, after.name)
            automations.save(tx, before, after)
        return after

    def automations(self, factory: Factory) -> Sequence[Automation]:
        with self._database.read() as tx:
            return automations.in_factory(tx, factory.id)

    def automation(self, factory: Factory, named: str) -> Automation:
        with self._database.read() as tx:
            return self._automation(tx, factory, named)

    def set_automation_enabled(self, factory: Factory, named: str, enabled: bool) -> Automation:
        with self._changing(factory) as tx:
            automation = self._automation(tx, factory, named)
            automations.set_enabled(tx, automation, enabled, self._now())
            return self._automation(tx, factory, automation.id)

    def delete_automation(self, factory: Factory, named: str) -> Automation:
        """It starts nothing from the moment this returns. Its runs stay, and those under way go on."""
        with self._changing(factory) as tx:
            automation = self._automation(tx, factory, named)
            automations.delete(tx, automation, self._now())
        return automation

    def warnings(self, factory: Factory, automation: Automation) -> list[str]:
        """What keeps the automation from firing although it is enabled: webhooks that are unknown, deleted or
        disabled."""
        with self._database.read() as tx:
            return [
                warning
                for uid in sorted(automation.selected_webhooks())
                if (warning := _warning(factory, uid, webhooks.by_uid(tx, uid))) is not None
            ]

    # The log

    def deliveries(
        self,
        factory: Factory,
        *,
        webhook: str | None = None,
        label: Label | None = None,
        before: DeliveryKey | None = None,
        limit: int = 50,
    ) -> Sequence[Delivery]:
        """Newest first; `before` is the last one of the page before."""
        with self._database.read() as tx:
            uid = self._webhook(tx, factory, webhook).uid if webhook is not None else None
            return deliveries.newest(tx, factory.id, webhook=uid, label=label, before=before, limit=limit)

    def export_deliveries(
        self, factory: Factory, *, webhook: str | None = None, after: DeliveryKey | None = None, limit: int = 1000
    ) -> Sequence[Delivery]:
        """Oldest first; `after` is the last one of the page before."""
        with self._database.read() as tx:
            uid = self._webhook(tx, factory, webhook).uid if webhook is not None else None
            return deliveries.oldest(tx, factory.id, webhook=uid, after=after, limit=limit)

    def delivery(self, factory: Factory, shown_id: str) -> Delivery:
        with self._database.read() as tx:
            return self._delivery(tx, factory, shown_id)

    def payload(self, factory: Factory, shown_id: str) -> bytes:
        """The body, byte for byte. Raises `NotFound` where only metadata is kept."""
        with self._database.read() as tx:
            delivery = self._delivery(tx, factory, shown_id)
            body = deliveries.payload(tx, delivery.key)
        if body is None:
            raise NotFound(
                f"Delivery {shown_id} is {delivery.label.shown}: payloads are kept for Accepted deliveries only."
            )
        return body

    def refusals(self, factory: Factory, webhook: str | None = None) -> Sequence[Refusals]:
        with self._database.read() as tx:
            uid = self._webhook(tx, factory, webhook).uid if webhook is not None else None
            return deliveries.refusals(tx, factory.id, uid)

    def test_filter(
        self, factory: Factory, shown_id: str, *, given: Any = None, webhook_ids: Sequence[str] | None = None
    ) -> FilterTest:
        """Would this filter, with this selection of webhooks, trigger on a stored delivery? `None` selects every
        webhook."""
        chosen = compiled_filter(given) if given is not None else None
        with self._database.read() as tx:
            delivery = self._delivery(tx, factory, shown_id)
        return judge_filter(
            chosen,
            self.payload(factory, shown_id),
            webhook_check=webhook_ids is None or delivery.webhook_uid in webhook_ids,
        )

    # Runs

    def runs(
        self,
        factory: Factory,
        *,
        webhook: str | None = None,
        state: RunState | None = None,
        before: RunKey | None = None,
        limit: int = 50,
    ) -> Sequence[Run]:
        """Newest first; `before` is the last one of the page before."""
        with self._database.read() as tx:
            uid = self._webhook(tx, factory, webhook).uid if webhook is not None else None
            return runs.page_of_runs(tx, factory=factory.id, webhook=uid, state=state, before=before, limit=limit)

    def export_runs(
        self, factory: Factory, *, webhook: str | None = None, after: RunKey | None = None, limit: int = 1000
    ) -> Sequence[Run]:
        """Oldest first; `after` is the last one of the page before."""
        with self._database.read() as tx:
            uid = self._webhook(tx, factory, webhook).uid if webhook is not None else None
            return runs.oldest_runs(tx, factory=factory.id, webhook=uid, after=after, limit=limit)

    def run(self, factory: Factory, shown_id: str) -> Run:
        with self._database.read() as tx:
            return self._run(tx, factory, shown_id)

    def runs_of(self, factory: Factory, shown_delivery_id: str) -> Sequence[Run]:
        with self._database.read() as tx:
            delivery = self._delivery(tx, factory, shown_delivery_id)
            return runs.page_of_runs(tx, factory=factory.id, delivery=delivery.key)

    def cancel_run(self, factory: Factory, shown_id: str) -> Run:
        """A queued run is cancelled when this returns; a running one is told to stop. Raises `Conflict` for a
        finished one."""
        with self._database.write() as tx:
            run = self._run(tx, factory, shown_id)
            if run.state.is_final:
                raise Conflict(f"Run {shown_id} is already {run.state.value}.")
            runs.request_cancel(tx, run.id, factory=factory.id, now=self._now())
            return self._run(tx, factory, shown_id)

    @contextmanager
    def _changing(self, factory: Factory) -> Iterator[Transaction]:
        """A transaction between whose looks and writes no other change to the factory can come."""
        with self._database.write() as tx:
            factories.hold(tx, factory.id)
            yield tx

    # Looking things up

    def _webhook(self, tx: Transaction, factory: Factory, named: str) -> Webhook:
        webhook = webhooks.by_uid(tx, WebhookUid(named)) if named.startswith("wh_") else None
        webhook = webhook or webhooks.live_by_name(tx, factory.id, named)
        if webhook is None or webhook.factory_id != factory.id:
            raise NotFound(
                f"Factory {factory.name!r} has no webhook {named[:100]!r}. `hookmill webhook list` shows them."
            )
        return webhook

    def _not_deleted(self, tx: Transaction, factory: Factory, named: str) -> Webhook:
        webhook = self._webhook(tx, factory, named)
        if webhook.state is WebhookState.DELETED:
            raise Conflict(f"Webhook {webhook.name!r} ({webhook.uid}) is deleted, and stays so. Create a new one.")
        return webhook

    def _automation(self, tx: Transaction, factory: Factory, named: str) -> Automation:
        automation = automations.live_by_id(tx, AutomationId(named)) if named.startswith("aut_") else None
        automation = automation or automations.live_by_name(tx, factory.id, named)
        if automation is None or automation.factory_id != factory.id:
            raise NotFound(
                f"Factory {factory.name!r} has no automation {named[:100]!r}. `hookmill automation list` shows them."
            )
        return automation

    def _delivery(self, tx: Transaction, factory: Factory, shown_id: str) -> Delivery:
        delivery = deliveries.by_key(tx, factory.id, ids.delivery_key(shown_id))
        if delivery is None:
            raise NotFound(
                f"There is no delivery {shown_id} in factory {factory.name!r}, or the log no longer keeps it."
            )
        return delivery

    def _run(self, tx: Transaction, factory: Factory, shown_id: str) -> Run:
        run = runs.run_of(tx, ids.run_key(shown_id), factory=factory.id)
        if run is None:
            raise NotFound(f"There is no run {shown_id} in factory {factory.name!r}, or the log no longer keeps it.")
        return run

    # Secrets

    def _secret_for(
        self,
        tx: Transaction,
        factory: Factory,
        webhook_name: str,
        mode: AuthMode,
        scheme: "Scheme | None",
        given: SecretValue | None,
        blank: SecretValue | None,
        secret_name: str | None,
    ) -> tuple[SecretId, str | None, SecretValue | None]:
        """The team secret that a new webhook names: an existing one, or a new one with a value given, generated, or
        still to come."""
        if secret_name is not None:
            existing = secrets.secret_named(tx, factory.team_id, usable_secret_name(secret_name))
            if existing is not None:
                if given is not None:
                    raise Conflict(
                        f"Team secret {secret_name} exists and has its own value. Leave the value out, or rename."
                    )
                version = secrets.newest_version(tx, existing)
                if version is None:
                    raise Conflict(f"Team secret {secret_name} has no value yet. Set it first.")
                stored = secrets.reveal(tx, version, self._key)
                _refuse_unfit_secret(mode, scheme, stored, f"Team secret {secret_name}: ")
                return existing, version, stored
        name = secret_name or self._free_secret_name(tx, factory, webhook_name)
        value = given or blank
        secret_id = SecretId(_random("sec"))
        secrets.add_secret(tx, secret_id, factory.team_id, name, self._now())
        if value is None:
            return secret_id, None, None
        return secret_id, secrets.add_version(tx, secret_id, value, self._key, self._now()), value

    def _free_secret_name(self, tx: Transaction, factory: Factory, webhook_name: str) -> str:
        suggested = suggested_secret_name(webhook_name)
        name, count = suggested, 1
        while secrets.secret_named(tx, factory.team_id, name) is not None:
            count += 1
            name = f"{suggested.removesuffix('_SECRET')}_{count}_SECRET"
        return name

    def _complete_url(self, webhook: Webhook, secret: SecretValue | None) -> str:
        shown = self.url(webhook)
        if secret is None or webhook.auth_mode is not AuthMode.URL_TOKEN:
            return shown
        return shown.replace("{token}", secret.reveal())

    def _usable_runner(self, runner: str | None) -> str:
        chosen = runner or self._house.default_runner
        if chosen in self._house.runner_names:
            return chosen
        raise Invalid(
            f"No runner is named {chosen[:80]!r}. The operator configured: {', '.join(self._house.runner_names)}."
        )


def _usable_scheme(
    mode: AuthMode, name: str | None, options: dict[str, Any] | None, answers_handshakes: bool
) -> "Scheme | None":
    """What a new webhook's deliveries are signed with. Raises `Invalid` where mode, scheme and options don't agree."""
    if mode is not AuthMode.SIGNATURE:
        for what, given in (
            ("signatureScheme", name is not None),
            ("Signature options", options is not None),
            ("Answering handshakes", answers_handshakes),
        ):
            if given:
                raise Invalid(f"{what} goes with authMode signature alone. Leave it out, or choose that mode.")
        return None
    scheme = _scheme_named(name, options)
    if answers_handshakes and scheme.handshake is None:
        raise Invalid(f"{scheme.title} sends no signed challenge that could be answered. Leave handshakes off.")
    return scheme


def _scheme_of(webhook: Webhook) -> "Scheme | None":
    if webhook.auth_mode is not AuthMode.SIGNATURE:
        return None
    return _scheme_named(webhook.signature_scheme, webhook.signature_options)


def _scheme_named(name: str | None, options: dict[str, Any] | None) -> "Scheme":
    # Most commands have nothing to do with providers, and start faster without them.
    from hookmill.domain.signatures.rule import scheme_named

    return scheme_named(name, options)


def _generated(scheme: "Scheme | None", name: str | None) -> SecretValue | None:
    """A new secret; None where only the provider can make one. `name` is what the webhook calls its scheme."""
    entropy = os.urandom(GENERATED_BYTES)
    if scheme is None:
        return generated(entropy)
    from hookmill.domain.signatures.key import generated_secret, generates_secret

    # Another provider that signs in the same way has a secret of its own making.
    makes_its_own = name != scheme.name
    return generated_secret(scheme, entropy) if generates_secret(scheme) and not makes_its_own else None


def _refuse_unfit_secret(mode: AuthMode, scheme: "Scheme | None", value: SecretValue, whose: str = "") -> None:
    """Raises `Invalid` for a secret that could never authenticate a delivery."""
    if mode is AuthMode.URL_TOKEN and not url_safe(value):
        raise Invalid(f"{whose}A url_token secret stands in the URL: use letters, digits and - . _ ~ only.")
    if scheme is not None:
        from hookmill.domain.signatures.key import prepare_key

        prepare_key(scheme, value.reveal())


def _refuse_signing_header(scheme: "Scheme | None", header: str) -> None:
    if scheme is None:
        return
    from hookmill.domain.signatures.scheme import signing_headers

    if header.lower().encode() in signing_headers(scheme):
        raise Invalid(f"{header} holds {scheme.title}'s proof, and delivery ids are stored and shown. Choose another.")


def judge_filter(chosen: CompiledFilter | None, body: bytes, *, webhook_check: bool = True) -> FilterTest:
    """The verdict that a trigger would reach on this body, by the evaluator that triggers use. Raises `Invalid` for
    no JSON."""
    parsed = payload.parse(body)
    if isinstance(parsed, payload.NotJson):
        raise Invalid(f"The body is not JSON: {parsed.reason}.")
    explanation = chosen.explain(parsed) if chosen is not None else None
    payload_check = chosen is None or chosen.matches(parsed)
    return FilterTest(webhook_check and payload_check, webhook_check, payload_check, explanation)


def compiled_filter(given: Any) -> CompiledFilter:
    """The filter, ready to be evaluated. Raises `InvalidFilter` with every problem."""
    compiled = compile_filter(given)
    if isinstance(compiled, CompiledFilter):
        return compiled
    raise InvalidFilter([f"{problem.pointer or '/'}: {problem.message}" for problem in compiled])


def _refuse_taken_name(tx: Transaction, factory: Factory, name: str) -> None:
    if automations.live_by_name(tx, factory.id, name) is not None:
        raise Conflict(f"Factory {factory.name!r} already has an automation named {name!r}. Choose another name.")


def _usable_prompt(prompt: str) -> str:
    if not prompt.strip():
        raise Invalid("The prompt is empty. Say what the run should do.")
    if len(prompt) > PROMPT_CHARACTERS_MAX or "\x00" in prompt:
        raise Invalid(f"The prompt is longer than {PROMPT_CHARACTERS_MAX:,} characters, or holds a NUL.")
    return prompt


def _warning(factory: Factory, uid: WebhookUid, webhook: Webhook | None) -> str | None:
    if webhook is None or webhook.factory_id != factory.id:
        return f"{uid} is not a webhook of factory {factory.name!r}: nothing will come from it."
    if webhook.state is WebhookState.DELETED:
        return f"{webhook.name!r} ({uid}) is deleted: nothing will come from it."
    if webhook.state is WebhookState.DISABLED:
        return f"{webhook.name!r} ({uid}) is disabled: nothing comes from it until it is enabled."
    return None


def _found(webhook: Webhook | None, named: str) -> Webhook:
    if webhook is None:
        raise NotFound(f"Webhook {named} is gone.")
    return webhook


def _random(prefix: str) -> str:
    return ids.random_name(prefix, os.urandom(ids.RANDOM_BYTES))
