"""Turn the bytes of definition files into definitions, or into a list of problems. Pure.

Some checks of a file are made only when its other problems are corrected.

A file can contain what the API accepts, under the keys of definition files. Everything else is refused at its line and
column. Only the plan can check what depends on the factory: whether a secret, a runner or a webhook exists.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from hookmill.definitions.folder import Files, stem_of
from hookmill.definitions.keys import AUTOMATION_KEYS, WebhookKey
from hookmill.definitions.mapping import MappingReader, ProblemReporter, mapping_reader
from hookmill.definitions.nodes import ListNode, MappingNode, Node, ScalarNode, compose, node_at, place_at, to_json
from hookmill.definitions.problem import START, Place, Problem
from hookmill.definitions.text import has_only_visible_characters, has_unresolved_merge, split_front_matter, text_of
from hookmill.domain.automation import AutomationSpec, DeliveryFilter, ScheduleTrigger, WebhookTrigger
from hookmill.domain.errors import Fault, Invalid
from hookmill.domain.expect_every import usable_expect_every
from hookmill.domain.filters import CONTRACT_OPERATORS
from hookmill.domain.json_pointer import steps_of
from hookmill.domain.name import usable_name
from hookmill.domain.networks import usable_networks
from hookmill.domain.payload import Json
from hookmill.domain.payload_pointer import value_at
from hookmill.domain.run_options import OPTION_FIELDS
from hookmill.domain.run_policy import RunPolicy
from hookmill.domain.schedule import ambiguity_of
from hookmill.domain.secret import usable_secret_name
from hookmill.domain.signatures.generic import GENERIC_SCHEME, GenericHmac
from hookmill.domain.signatures.rule import allowed_names, scheme_named
from hookmill.domain.signatures.scheme import Scheme
from hookmill.domain.spec import read
from hookmill.domain.text import closest_name
from hookmill.domain.webhook import AuthMode
from hookmill.management.compatibility import compatible_delivery_id_header, compatible_event_header


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
    spec: AutomationSpec

    def filters(self) -> Iterator[tuple[int, DeliveryFilter]]:
        """The filters of the triggers that select deliveries, each with its index in the file's list of triggers."""
        for index, trigger in enumerate(self.spec.triggers):
            if isinstance(trigger, WebhookTrigger):
                yield index, trigger.filter


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
            if automation.spec.runner
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
        fields = automation.spec.as_json()
        problems += [
            automation.problem(f"/{key}", _NO_POLICIES) for key in RunPolicy.__struct_fields__ if key in fields
        ]
        problems += [
            automation.problem(f"/{key}", _NO_OPTIONS) for key in OPTION_FIELDS if key in fields and key != "secrets"
        ]
        problems += [
            automation.problem(f"/triggers/{index}/schedule/{key}", _NO_SCHEDULE_OPTIONS)
            for index, trigger in enumerate(fields["triggers"])
            for key in ("timezone", "catch_up")
            if key in trigger.get("schedule", ())
        ]
        for index, conditions in automation.filters():
            filter_pointer = f"/triggers/{index}/filter"
            if conditions.event:
                problems.append(automation.problem(f"{filter_pointer}/event", _NO_EVENT_TYPES))
            if conditions.payload is not None:
                problems += [
                    automation.problem(f"{filter_pointer}/payload{pointer}", f"{pointer}: {_BEYOND_CONTRACT}")
                    for pointer in conditions.payload.pointers_beyond_contract
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
    name, enabled = _name(mapping, "automation", file), mapping.boolean("enabled")
    source = {key: to_json(node) for key in AUTOMATION_KEYS if (node := mapping.value_node(key)) is not None}
    source |= {"name": name, "enabled": enabled, "prompt": normalized_prompt(prompt_text)}
    source["triggers"] = _with_defaults_of_files(source.get("triggers"), name)
    try:
        spec = read(AutomationSpec, source)
    except Invalid as error:
        for fault in error.faults:
            # If the author misspelt a key, this is already a problem.
            if fault.pointer == "/prompt":
                reporter.report(Place(prompt_line, 1), fault.message)
            elif fault.pointer[1:] not in mapping.already_reported_keys:
                pointer, message = _pointer_and_message(fault, source, hints)
                reporter.report(place_at(mapping.node, pointer), message)
        return None
    if reporter.count:
        return None
    _warn_about_triggers(mapping.node, spec, reporter)
    return AutomationDefinition(file=file, name=name, enabled=enabled, node=mapping.node, spec=spec)


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


def _without_nulls(node: Node) -> dict[str, Any]:
    """The values of a mapping's keys, without those that are `null`."""
    without_null: dict[str, Any] = _without_null(to_json(node))
    return without_null


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


def _with_defaults_of_files(triggers: Any, automation_name: str) -> Any:
    """The triggers as in the API. In files, null counts as an absent key, a schedule without a name has that of the
    automation, and `in` is allowed before the uids of webhooks, as in payload filters."""
    if not isinstance(triggers, list):
        return triggers
    for number, trigger in enumerate(triggers):
        if isinstance(trigger, dict):
            parts = {key: _without_null(part) for key, part in trigger.items() if part is not None}
            if isinstance(schedule := parts.get("schedule"), dict):
                parts["schedule"] = {"name": automation_name} | schedule
            match parts.get("filter"):
                case {"webhook_ids": {"in": uids, **others}, **conditions} if not others:
                    parts["filter"] = conditions | {"webhook_ids": uids}
            triggers[number] = parts
    return triggers


def _without_null(part: Any) -> Any:
    return {key: value for key, value in part.items() if value is not None} if isinstance(part, dict) else part


def _pointer_and_message(fault: Fault, source: Json, hints: _UidHints) -> tuple[str, str]:
    """What an author of files learns about a fault."""
    steps = steps_of(fault.pointer)
    match steps, value_at(source, steps):
        case [["triggers", _, "filter", "webhook_ids", _], str(text)]:
            return fault.pointer, f"{text[:40]!r} is not a webhook's uid (wh_…). {hints.hint_for(text)}"
        case [["triggers", _], {"provider": str(provider)}]:
            return f"{fault.pointer}/provider", _unsupported_provider_message(provider)
    return fault.pointer, fault.message


def _unsupported_provider_message(provider: str) -> str:
    if (closest := closest_name(provider, ("webhook", "schedule"))) is not None:
        return f"{provider[:40]!r} is not a provider. Did you mean {closest}?"
    scheme = f" with {WebhookKey.SIGNATURE_SCHEME}: {provider}" if provider in allowed_names() else ""
    return (
        f"There are no triggers of {provider[:40]!r} here. Create a webhook{scheme} to which it sends its events, and "
        "select it with provider: webhook, filter.webhook_ids, filter.event and filter.payload "
        "(docs/definition-files.md#triggers-of-other-providers)."
    )


def _warn_about_triggers(node: Node, spec: AutomationSpec, reporter: ProblemReporter) -> None:
    for index, trigger in enumerate(spec.triggers):
        pointer = f"/triggers/{index}"
        if isinstance(trigger, ScheduleTrigger):
            if (warning := ambiguity_of(trigger.schedule.cron)) is not None:
                reporter.warn(place_at(node, f"{pointer}/schedule/cron"), warning)
            continue
        payload = node_at(node, f"{pointer}/filter/payload")
        if isinstance(payload, ScalarNode):
            message = "payload has no value, so every delivery of these webhooks starts a run. Write a filter, or {}."
            reporter.warn(payload.place, message)
        elif payload is not None:
            for empty_set in _empty_sets(payload):
                reporter.warn(empty_set.place, "An empty array matches no value. List the values, or remove it.")


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
