"""Turn the bytes of definition files into definitions, or into a list of problems. Pure.

Some checks of a file are made only when its other problems are corrected.

A file can contain what the API accepts, under the keys of definition files. Everything else is refused at its line and
column. Only the plan can check what depends on the factory: whether a secret, a runner or a webhook exists.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from msgspec import structs

from hookmill.definitions.folder import Files, stem_of
from hookmill.definitions.keys import AUTOMATION_KEYS, OPTION_KEYS, POLICY_KEYS, WebhookKey
from hookmill.definitions.mapping import MappingReader, ProblemReporter, mapping_reader
from hookmill.definitions.nodes import ListNode, MappingNode, Node, ScalarNode, compose, place_at, to_json
from hookmill.definitions.problem import START, Place, Problem
from hookmill.definitions.text import has_only_visible_characters, has_unresolved_merge, split_front_matter, text_of
from hookmill.domain.automation import (
    PROMPT_CHARACTERS_MAX,
    SCHEDULE_EVENT,
    SCHEDULE_PROVIDER,
    TRIGGER_EVENT,
    TRIGGER_PROVIDER,
    TRIGGERS_MAX,
    WEBHOOKS_PER_TRIGGER_MAX,
    ScheduleTrigger,
    Trigger,
    read_event_types,
    same_schedule_name_message,
    schedule_trigger,
)
from hookmill.domain.errors import Invalid
from hookmill.domain.expect_every import usable_expect_every
from hookmill.domain.filters import CONTRACT_OPERATORS, CompiledFilter, compile_filter
from hookmill.domain.ids import WebhookUid
from hookmill.domain.name import usable_name
from hookmill.domain.networks import usable_networks
from hookmill.domain.run_options import NO_OPTIONS, RunOptions, options_from_json
from hookmill.domain.run_policy import NO_POLICY, RunPolicy, policy_from_json
from hookmill.domain.schedule import SCHEDULE_FIELDS, ambiguity_of
from hookmill.domain.secret import usable_secret_name
from hookmill.domain.signatures.generic import GENERIC_SCHEME, GenericHmac
from hookmill.domain.signatures.rule import allowed_names, scheme_named
from hookmill.domain.signatures.scheme import Scheme
from hookmill.domain.webhook import AuthMode
from hookmill.management.compatibility import compatible_delivery_id_header, compatible_event_header

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The content of one file. The name identifies the webhook or automation in the factory."""

    file: str
    name: str
    enabled: bool | None
    """None: an existing webhook or automation keeps its state, and a new one is enabled."""
    node: Node = field(compare=False, repr=False)

    def place(self, pointer: str = "") -> Place:
        """The place of the value at this JSON pointer."""
        return place_at(self.node, pointer)

    def problem(self, pointer: str, message: str) -> Problem:
        return Problem(self.file, self.place(pointer), message)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDefinition(Definition):
    auth_mode: AuthMode
    signature_scheme: str | None
    signature_options: dict[str, Any] | None
    answers_handshakes: bool
    secret_name: str
    delivery_id_header: str | None
    event_header: str | None
    allowed_networks: tuple[str, ...]
    """Empty: every network."""
    expect_every: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomationDefinition(Definition):
    prompt: str
    runner: str | None
    """None for the installation's default runner."""
    triggers: tuple[Trigger | ScheduleTrigger, ...]
    """In the order of the file."""
    policy: RunPolicy
    options: RunOptions

    def webhook_triggers(self) -> Iterator[tuple[int, Trigger]]:
        """The triggers that select deliveries, each with its index in the file's list of triggers."""
        for index, trigger in enumerate(self.triggers):
            if isinstance(trigger, Trigger):
                yield index, trigger

    @property
    def triggers_in_stored_order(self) -> tuple[Trigger | ScheduleTrigger, ...]:
        """The triggers in the order in which they are stored: schedules follow the triggers on deliveries."""
        return tuple(sorted(self.triggers, key=lambda trigger: isinstance(trigger, ScheduleTrigger)))


@dataclass(frozen=True, slots=True)
class Definitions:
    """The definitions of a folder in the order of the files. An unusable file has problems, and no definition."""

    webhooks: tuple[WebhookDefinition, ...]
    automations: tuple[AutomationDefinition, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()


def read_definitions(files: Files, uid_by_name: Mapping[str, str] | None = None) -> Definitions:
    """The definitions in the files. `uid_by_name` has the uids of the factory's webhooks; None without a factory."""
    problems, warnings = list(files.problems), list[Problem]()
    webhooks = [
        _webhook(content, ProblemReporter(file, problems, warnings), file)
        for file, content in files.webhook_contents.items()
    ]
    hints = _UidHints({stem_of(file) for file in files.webhook_contents}, uid_by_name)
    automations = [
        _automation(content, ProblemReporter(file, problems, warnings), file, hints)
        for file, content in files.automation_contents.items()
    ]
    usable_webhooks = tuple(webhook for webhook in webhooks if webhook is not None)
    usable_automations = tuple(automation for automation in automations if automation is not None)
    _report_same_names("webhook", usable_webhooks, problems)
    _report_same_names("automation", usable_automations, problems)
    if files.belongs_to_another_implementation:
        warnings += [
            automation.problem("/runner", _RUNNER_IS_A_COMMAND)
            for automation in usable_automations
            if automation.runner is not None
        ]
    return Definitions(usable_webhooks, usable_automations, tuple(sorted(problems)), tuple(sorted(warnings)))


_RUNNER_IS_A_COMMAND: Final = (
    "Here, runner names a command that the operator of the service configured, not the compute of a run. "
    "Folders such as runners are not read."
)


def problems_beyond_contract(definitions: Definitions) -> list[Problem]:
    """A problem for each extension of the contract: run policies, run options except secrets, time zones and catch-up
    of schedules, event types, and some operators. Other implementations have schedules and secrets, too."""
    problems: list[Problem] = []
    for automation in definitions.automations:
        problems += [automation.problem(f"/{key}", _NO_POLICIES) for key in automation.policy.as_json()]
        options = structs.replace(automation.options, secrets=()).as_json()
        problems += [automation.problem(f"/{key}", _NO_OPTIONS) for key in options]
        problems += [
            automation.problem(f"/triggers/{index}/schedule/{key}", _NO_SCHEDULE_OPTIONS)
            for index, trigger in enumerate(automation.triggers)
            if isinstance(trigger, ScheduleTrigger)
            for key in trigger.schedule_json()
            if key not in {"name", "cron"}
        ]
        for index, trigger in automation.webhook_triggers():
            filter_pointer = f"/triggers/{index}/filter"
            if trigger.event_types:
                problems.append(automation.problem(f"{filter_pointer}/event", _NO_EVENT_TYPES))
            if trigger.payload is not None:
                problems += [
                    automation.problem(f"{filter_pointer}/payload{pointer}", f"{pointer}: {_BEYOND_CONTRACT}")
                    for pointer in trigger.payload.pointers_beyond_contract
                ]
    return problems


_NO_POLICIES: Final = "The contract has no run policies. Remove this key."
_NO_OPTIONS: Final = "The contract has no run options. Remove this key."
_NO_SCHEDULE_OPTIONS: Final = "Other implementations have schedules without this key. Remove it."
_NO_EVENT_TYPES: Final = "The contract has no event types in filters. Use a condition on the payload instead."
_BEYOND_CONTRACT: Final = f"This operator is not one of the contract's, which are {', '.join(CONTRACT_OPERATORS)}."


def normalized_prompt(text: str) -> str:
    """The text as a prompt: with line feeds as line ends, and without blank lines around it."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")


# One file


def _webhook(content: bytes, reporter: ProblemReporter, file: str) -> WebhookDefinition | None:
    text = text_of(content, reporter)
    if text is None or has_unresolved_merge(text, reporter) or not has_only_visible_characters(text, reporter):
        return None
    node = compose(text, reporter.report)
    if node is None and not reporter.count:
        reporter.report(START, f"The file is empty. A webhook needs at least a line {WebhookKey.SECRET_NAME}: NAME.")
    mapping = mapping_reader(node, "A webhook", tuple(WebhookKey), reporter, hint_by_wrong_key=_WRONG_WEBHOOK_KEYS)
    if mapping is None:
        return None
    mode = _auth_mode(mapping)
    scheme_name, options, handshakes = _signature_settings(mapping, mode)
    scheme = _scheme(mapping, scheme_name, options) if mode is AuthMode.SIGNATURE else None
    if handshakes and scheme is not None and scheme.handshake is None:
        mapping.report(WebhookKey.ANSWERS_HANDSHAKES, f"{scheme.title} sends no signed challenges. Remove this line.")
    secret_name = mapping.required_text(WebhookKey.SECRET_NAME, "Name the team secret that holds the webhook's secret")
    if secret_name is not None and not _is_secret_name(secret_name):
        mapping.report(WebhookKey.SECRET_NAME, _NOT_A_SECRET_NAME)
    header = mapping.text(WebhookKey.DELIVERY_ID_HEADER)
    mapping.check_value(WebhookKey.DELIVERY_ID_HEADER, lambda: compatible_delivery_id_header(scheme, header))
    event_header = mapping.text(WebhookKey.EVENT_HEADER)
    mapping.check_value(WebhookKey.EVENT_HEADER, lambda: compatible_event_header(scheme, scheme_name, event_header))
    networks = _allowed_networks(mapping)
    expect_every = mapping.text(WebhookKey.EXPECT_EVERY)
    mapping.check_value(WebhookKey.EXPECT_EVERY, lambda: usable_expect_every(expect_every))
    name, enabled = _name(mapping, "webhook", file), mapping.boolean("enabled")
    if reporter.count or secret_name is None:
        return None
    return WebhookDefinition(
        file=file,
        name=name,
        enabled=enabled,
        node=mapping.node,
        auth_mode=mode,
        signature_scheme=scheme_name,
        signature_options=options,
        answers_handshakes=handshakes,
        secret_name=secret_name,
        delivery_id_header=header,
        event_header=event_header,
        allowed_networks=networks,
        expect_every=usable_expect_every(expect_every),
    )


def _automation(
    content: bytes, reporter: ProblemReporter, file: str, hints: "_UidHints"
) -> AutomationDefinition | None:
    text = text_of(content, reporter)
    parts = split_front_matter(text, reporter) if text is not None else None
    if parts is None:
        return None
    front_matter, prompt_text, prompt_line = parts
    if has_unresolved_merge(front_matter, reporter, first_line=2):
        return None
    if not has_only_visible_characters(front_matter, reporter, first_line=2):
        return None
    if has_unresolved_merge(prompt_text, reporter, first_line=prompt_line, needs_all_marks=True):
        return None
    node = compose(front_matter, reporter.report, first_line=2)
    if node is None and not reporter.count:
        reporter.report(Place(2, 1), "The front matter is empty. An automation needs at least triggers.")
    prompt = _prompt(prompt_text, prompt_line, reporter)
    mapping = mapping_reader(
        node,
        "The front matter",
        AUTOMATION_KEYS,
        reporter,
        hint_by_wrong_key=_WRONG_AUTOMATION_KEYS,
        meaning_by_foreign_key=_FOREIGN_AUTOMATION_KEYS,
    )
    if mapping is None:
        return None
    name, enabled, runner = _name(mapping, "automation", file), mapping.boolean("enabled"), mapping.text("runner")
    triggers = _triggers(mapping, hints, name)
    policy = _read_keys(mapping, POLICY_KEYS, policy_from_json) or NO_POLICY
    options = _read_keys(mapping, OPTION_KEYS, options_from_json) or NO_OPTIONS
    if reporter.count:
        return None
    return AutomationDefinition(
        file=file,
        name=name,
        enabled=enabled,
        node=mapping.node,
        prompt=prompt,
        runner=runner,
        triggers=triggers,
        policy=policy,
        options=options,
    )


def _read_keys(
    mapping: MappingReader, keys: Sequence[str], parse: Callable[[Mapping[str, Any]], Parsed]
) -> Parsed | None:
    """The result of `parse` for the values of these keys; None after reporting the faults that it raised."""
    source = {key: to_json(node) for key in keys if (node := mapping.value_node(key)) is not None}
    try:
        return parse(source)
    except Invalid as error:
        for fault in error.faults:
            mapping.reporter.report(place_at(mapping.node, fault.pointer), fault.message)
        return None


def _prompt(text: str, first_line: int, reporter: ProblemReporter) -> str:
    prompt = normalized_prompt(text)
    if not prompt.strip():
        reporter.report(Place(first_line - 1, 1), "The prompt is missing. Write below this line what a run should do.")
    elif len(prompt) > PROMPT_CHARACTERS_MAX:
        reporter.report(
            Place(first_line, 1), f"The prompt is longer than {PROMPT_CHARACTERS_MAX:,} characters. Shorten it."
        )
    return prompt


# Webhooks

_SECRET_IN_A_FILE: Final = (
    "A file must not contain a secret's value. "
    f"Store it with `hookmill secret create`, and write {WebhookKey.SECRET_NAME}."
)
# The message does not repeat the value: it may be the secret itself.
_NOT_A_SECRET_NAME: Final = (
    "This can't name a team secret. Use a letter, then letters, digits and _ (64 at most). "
    "A file must not contain the secret's value."
)
_ASSIGNED_BY_SERVICE: Final = "The service assigns this. Remove the line."
_WRONG_WEBHOOK_KEYS: Final = {
    "secret": _SECRET_IN_A_FILE,
    "token": _SECRET_IN_A_FILE,
    "uid": _ASSIGNED_BY_SERVICE,
    "url": _ASSIGNED_BY_SERVICE,
}
_WRONG_AUTOMATION_KEYS: Final = {
    "prompt": "The prompt belongs below the front matter. Move it there.",
    "trigger": "Write `triggers:` and a list, even for one trigger.",
}
_RUNNER_DECIDES: Final = "The operator's runner, which the key runner names, decides this."
_FOREIGN_AUTOMATION_KEYS: Final = {
    "agent": "It names the agent whose instructions a run gets. Write them into the prompt.",
    "model": f"It chooses the agent's model. {_RUNNER_DECIDES}",
    "harness": f"It chooses the agent's program and its model. {_RUNNER_DECIDES}",
    "workerHost": f"It chooses the host that performs a run. {_RUNNER_DECIDES}",
    "environmentId": f"It chooses the environment of a run. {_RUNNER_DECIDES}",
    "mcpServers": f"It chooses the agent's MCP servers. {_RUNNER_DECIDES}",
    "computerUseModel": f"It chooses the agent's model for computer use. {_RUNNER_DECIDES}",
}
"""The keys of other implementations of the contract, with their meaning there."""


def _name(mapping: MappingReader, kind: str, file: str) -> str:
    stem = stem_of(file)
    name = mapping.text("name")
    if name is not None and mapping.check_value("name", lambda: usable_name(kind, name)):
        return usable_name(kind, name)
    return stem


def _report_same_names(kind: str, definitions: Sequence[Definition], problems: list[Problem]) -> None:
    first_by_name: dict[str, Definition] = {}
    for definition in definitions:
        if (other := first_by_name.setdefault(definition.name, definition)) is not definition:
            problems.append(
                definition.problem(
                    "/name", f"{other.file} defines a {kind} of the same name, {definition.name!r}. Rename one."
                )
            )


def _is_secret_name(text: str) -> bool:
    try:
        usable_secret_name(text)
    except Invalid:
        return False
    return True


def _auth_mode(mapping: MappingReader) -> AuthMode:
    mode_name = mapping.text(WebhookKey.AUTH_MODE)
    if mode_name in {mode.value for mode in AuthMode}:
        return AuthMode(mode_name)
    is_absent = mapping.value_node(WebhookKey.AUTH_MODE) is None
    if is_absent and WebhookKey.AUTH_MODE not in mapping.already_reported_keys:
        return AuthMode.TOKEN
    if mode_name is not None:
        mapping.report(WebhookKey.AUTH_MODE, f"{mode_name[:40]!r} is not a mode. Modes are: {', '.join(AuthMode)}.")
    # The mode that the author wants is unknown. Choose the mode that fits the other keys, so that these keys cause no
    # further problems.
    return AuthMode.SIGNATURE if mapping.value_node(WebhookKey.SIGNATURE_SCHEME) is not None else AuthMode.TOKEN


_SIGNATURE_KEYS: Final = (WebhookKey.SIGNATURE_SCHEME, WebhookKey.SIGNATURE_OPTIONS, WebhookKey.ANSWERS_HANDSHAKES)


def _signature_settings(mapping: MappingReader, mode: AuthMode) -> tuple[str | None, dict[str, Any] | None, bool]:
    """The scheme's name and options, and whether handshakes are answered."""
    if mode is not AuthMode.SIGNATURE:
        for key in _SIGNATURE_KEYS:
            if mapping.value_node(key) is not None:
                mode_line = f"{WebhookKey.AUTH_MODE}: {AuthMode.SIGNATURE}"
                mapping.report(key, f"{key} needs {mode_line}. Remove the line, or choose that mode.")
        return None, None, False
    if mapping.value_node(WebhookKey.SIGNATURE_SCHEME) is None:
        mapping.report_missing(WebhookKey.SIGNATURE_SCHEME, "`hookmill scheme list` shows the providers")
    options_node = mapping.value_node(WebhookKey.SIGNATURE_OPTIONS)
    if options_node is not None:
        # The reader is not needed here, but creating it reports unknown keys.
        mapping_reader(options_node, WebhookKey.SIGNATURE_OPTIONS, GenericHmac.__struct_fields__, mapping.reporter)
    options = _without_nulls(options_node) if options_node else None
    answers_handshakes = bool(mapping.boolean(WebhookKey.ANSWERS_HANDSHAKES))
    return mapping.text(WebhookKey.SIGNATURE_SCHEME), options, answers_handshakes


def _scheme(mapping: MappingReader, name: str | None, options: dict[str, Any] | None) -> Scheme | None:
    """The scheme; None without a name, after reporting a problem with the scheme, or if the file has other problems."""
    if name is None or mapping.reporter.count:
        return None
    try:
        return scheme_named(name, options)
    except Invalid as error:
        message = str(error)
        # An error about an option begins with the option's name, or ends with its path.
        path = re.search(r"`\$\.(\w+)`", message)
        option = path[1] if path else message.partition(" ")[0]
        if name == GENERIC_SCHEME:
            place = place_at(mapping.node, f"/{WebhookKey.SIGNATURE_OPTIONS}/{option}")
        else:
            key = WebhookKey.SIGNATURE_OPTIONS if options is not None else WebhookKey.SIGNATURE_SCHEME
            place = place_at(mapping.node, f"/{key}")
        mapping.reporter.report(place, message)
        return None


def _allowed_networks(mapping: MappingReader) -> tuple[str, ...]:
    key = WebhookKey.ALLOWED_NETWORKS
    node = mapping.value_node(key)
    if node is None:
        return ()
    if not isinstance(node, ListNode):
        mapping.report(key, f'{key} must be a list of networks, such as ["192.0.2.0/24"].')
        return ()
    networks = []
    for item in node.items:
        if isinstance(item, ScalarNode) and type(item.value) is str:
            networks.append(item.value)
            with _reporting_at(item, mapping):
                usable_networks([item.value])
        else:
            mapping.reporter.report(item.place, "A network must be text, such as 192.0.2.0/24. Put it in quotes.")
    if mapping.reporter.count:
        return ()
    with _reporting_at(node, mapping):
        return usable_networks(networks)
    return ()


@contextmanager
def _reporting_at(node: Node, mapping: MappingReader) -> Iterator[None]:
    """Report `Invalid` at the place of the node."""
    try:
        yield
    except Invalid as error:
        mapping.reporter.report(node.place, str(error))


# Automations


@dataclass(frozen=True, slots=True)
class _UidHints:
    """Hints for an author who wrote a webhook's name instead of its uid."""

    webhook_stems: set[str]
    """The stems of the webhooks' files: their names, unless the key `name` sets another one."""
    uid_by_name: Mapping[str, str] | None
    """The uids of the factory's webhooks; None if there is no factory."""

    def hint_for(self, text: str) -> str:
        if self.uid_by_name is not None and text in self.uid_by_name:
            return f"Write its uid: {self.uid_by_name[text]}."
        if text in self.webhook_stems:
            return "A webhook gets its uid at the first apply. Apply its file, and write the uid that apply prints."
        return "`hookmill webhook list` shows the uids."


def _triggers(mapping: MappingReader, hints: _UidHints, automation_name: str) -> tuple[Trigger | ScheduleTrigger, ...]:
    node = mapping.value_node("triggers")
    if node is None:
        mapping.report_missing("triggers", "List at least one")
        return ()
    if not isinstance(node, ListNode) or not node.items:
        mapping.report(
            "triggers", "triggers must be a list of one or more. Begin each with a dash and provider: webhook."
        )
        return ()
    if len(node.items) > TRIGGERS_MAX:
        mapping.report("triggers", f"There are {len(node.items)} triggers. The limit is {TRIGGERS_MAX}.")
        return ()
    triggers: list[Trigger | ScheduleTrigger] = []
    schedule_names: set[str] = set()
    for item in node.items:
        trigger = _trigger(item, hints, automation_name, mapping.reporter)
        if trigger is None:
            continue
        if isinstance(trigger, ScheduleTrigger):
            if trigger.name in schedule_names:
                message = same_schedule_name_message(trigger.name)
                mapping.reporter.report(place_at(item, "/schedule/name"), message[0].upper() + message[1:])
            schedule_names.add(trigger.name)
        triggers.append(trigger)
    return tuple(triggers)


def _trigger(
    node: Node, hints: _UidHints, automation_name: str, reporter: ProblemReporter
) -> Trigger | ScheduleTrigger | None:
    provider_entry = node.entries.get("provider") if isinstance(node, MappingNode) else None
    provider_node = provider_entry.value if provider_entry is not None else None
    provider = provider_node.value if isinstance(provider_node, ScalarNode) else None
    if provider == SCHEDULE_PROVIDER:
        return _schedule_trigger(node, automation_name, reporter)
    if provider_node is not None and type(provider) is str and provider != TRIGGER_PROVIDER:
        # The other keys have the meaning that this provider gives them.
        reporter.report(provider_node.place, _unsupported_provider_message(provider))
        return None
    mapping = mapping_reader(node, "A trigger", ("provider", "event", "filter"), reporter)
    if mapping is None:
        return None
    mapping.required_text("provider", f"Write provider: {TRIGGER_PROVIDER}")
    value = mapping.required_text("event", f"Write event: {TRIGGER_EVENT}")
    if value is not None and value != TRIGGER_EVENT:
        mapping.report("event", f"{value[:40]!r} is not supported. The only event is {TRIGGER_EVENT}.")
    filter_node = mapping.value_node("filter")
    if filter_node is None:
        mapping.report_missing("filter", "Write `filter:`, and below it `webhook_ids`")
        return None
    selection = mapping_reader(filter_node, "filter", ("webhook_ids", "event", "payload"), reporter)
    if selection is None:
        return None
    return Trigger(
        webhook_ids=_webhook_ids(selection, hints), event_types=_event_types(selection), payload=_payload(selection)
    )


def _unsupported_provider_message(provider: str) -> str:
    closest = get_close_matches(provider.lower(), (TRIGGER_PROVIDER, SCHEDULE_PROVIDER), n=1, cutoff=0.8)
    if closest:
        return f"{provider[:40]!r} is not a provider. Did you mean {closest[0]}?"
    scheme = f" with {WebhookKey.SIGNATURE_SCHEME}: {provider}" if provider in allowed_names() else ""
    return (
        f"There are no triggers of {provider[:40]!r} here. Create a webhook{scheme} to which it sends its events, and "
        f"select it with provider: {TRIGGER_PROVIDER}, filter.webhook_ids, filter.event and filter.payload "
        "(docs/definition-files.md#triggers-of-other-providers)."
    )


def _schedule_trigger(node: Node, automation_name: str, reporter: ProblemReporter) -> ScheduleTrigger | None:
    mapping = mapping_reader(
        node, "A trigger", ("provider", "event", "schedule"), reporter, hint_by_wrong_key=_WRONG_SCHEDULE_TRIGGER_KEYS
    )
    if mapping is None:
        return None
    value = mapping.required_text("event", f"Write event: {SCHEDULE_EVENT}")
    if value is not None and value != SCHEDULE_EVENT:
        mapping.report("event", f"{value[:40]!r} is not supported. The event of a schedule is {SCHEDULE_EVENT}.")
    schedule_node = mapping.value_node("schedule")
    if schedule_node is None:
        mapping.report_missing("schedule", "Write `schedule:`, and below it `cron`")
        return None
    fields = mapping_reader(schedule_node, "schedule", SCHEDULE_FIELDS, reporter)
    if fields is None:
        return None
    fields.required_text("cron", 'Write cron: "0 3 * * *", for example')
    if reporter.count:
        return None
    try:
        trigger = schedule_trigger({"name": automation_name} | _without_nulls(schedule_node))
    except Invalid as error:
        for fault in error.faults:
            reporter.report(place_at(schedule_node, fault.pointer), fault.message)
        return None
    if (warning := ambiguity_of(trigger.cron)) is not None:
        reporter.warn(place_at(schedule_node, "/cron"), warning)
    return trigger


_WRONG_SCHEDULE_TRIGGER_KEYS: Final = {
    "filter": "A schedule has no filter. Write `schedule:`, and below it `cron`.",
}


def _without_nulls(node: Node) -> dict[str, Any]:
    """The values of a mapping's keys, without those that are `null`."""
    return {key: value for key, value in to_json(node).items() if value is not None}


def _webhook_ids(mapping: MappingReader, hints: _UidHints) -> tuple[WebhookUid, ...]:
    node = mapping.value_node("webhook_ids")
    if isinstance(node, MappingNode) and list(node.entries) == ["in"]:
        # The contract's rule for filters: a list is short for `in`.
        node = node.entries["in"].value
    if node is None:
        mapping.report_missing("webhook_ids", "List the uids of the webhooks that start a run")
        return ()
    if not isinstance(node, ListNode) or not node.items:
        mapping.report("webhook_ids", "webhook_ids must be a list of one or more uids, such as [wh_…].")
        return ()
    if len(node.items) > WEBHOOKS_PER_TRIGGER_MAX:
        mapping.report("webhook_ids", f"There are {len(node.items)} webhooks. The limit is {WEBHOOKS_PER_TRIGGER_MAX}.")
        return ()
    uids: dict[WebhookUid, None] = {}
    for item in node.items:
        uid = item.value if isinstance(item, ScalarNode) else None
        if type(uid) is str and uid.startswith("wh_") and len(uid) <= 100:
            uids[WebhookUid(uid)] = None
        else:
            subject = f"{item.spelling[:40]!r} is" if isinstance(item, ScalarNode) else "This is"
            hint = hints.hint_for(uid) if type(uid) is str else hints.hint_for("")
            mapping.reporter.report(item.place, f"{subject} not a webhook's uid (wh_…). {hint}")
    return tuple(uids)


def _event_types(mapping: MappingReader) -> tuple[str, ...]:
    node = mapping.value_node("event")
    if node is None:
        return ()
    event_types = read_event_types(to_json(node))
    if isinstance(event_types, tuple):
        return event_types
    for fault in event_types:
        mapping.reporter.report(place_at(node, fault.pointer), fault.message)
    return ()


def _payload(mapping: MappingReader) -> CompiledFilter | None:
    node = mapping.value_node("payload")
    if node is None:
        if (entry := mapping.node.entries.get("payload")) is not None:
            message = "payload has no value, so every delivery of these webhooks starts a run. Write a filter, or {}."
            mapping.reporter.warn(entry.value.place, message)
        return None
    compiled = compile_filter(to_json(node))
    if isinstance(compiled, CompiledFilter):
        for empty_set in _empty_sets(node):
            mapping.reporter.warn(empty_set.place, "An empty array matches no value. List the values, or remove it.")
        return compiled
    for fault in compiled:
        place = place_at(node, fault.pointer)
        mapping.reporter.report(place, f"{fault.pointer}: {fault.message}" if fault.pointer else fault.message)
    return None


def _empty_sets(node: Node) -> Iterator[Node]:
    """The empty arrays in a filter that no value of a field can match."""
    if isinstance(node, ListNode):
        if not node.items:
            yield node
        for item in node.items:
            yield from _empty_sets(item)
    elif isinstance(node, MappingNode):
        for key, entry in node.entries.items():
            if key != "not_in":
                yield from _empty_sets(entry.value)
