"""Turn the bytes of definition files into definitions, or into a list of problems. Pure.

Some checks of a file are made only when its other problems are corrected.

A file can contain what the API accepts, under the keys of definition files. Everything else is refused at its line and
column. Only the plan can check what depends on the factory: whether a secret, a runner or a webhook exists.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from hookmill.definitions.folder import Files, stem_of
from hookmill.definitions.keys import (
    AUTOMATION_KEYS,
    REFERENCE,
    WEBHOOK_FIELDS,
    fault_in_file,
    is_new,
    key_of,
    new_uid,
)
from hookmill.definitions.mapping import MappingReader, ProblemReporter, mapping_reader
from hookmill.definitions.nodes import ListNode, MappingNode, Node, ScalarNode, compose, node_at, place_at, to_json
from hookmill.definitions.problem import START, Place, Problem
from hookmill.definitions.text import has_only_visible_characters, has_unresolved_merge, split_front_matter, text_of
from hookmill.domain.automation import AutomationSpec, DeliveryFilter, ScheduleTrigger, WebhookTrigger
from hookmill.domain.errors import Fault, Invalid
from hookmill.domain.filters import CONTRACT_OPERATORS
from hookmill.domain.json_pointer import steps_of
from hookmill.domain.name import usable_name
from hookmill.domain.payload import Json
from hookmill.domain.payload_pointer import value_at
from hookmill.domain.run_options import OPTION_FIELDS
from hookmill.domain.run_policy import RunPolicy
from hookmill.domain.schedule import ambiguity_of
from hookmill.domain.signatures.generic import GenericHmac
from hookmill.domain.signatures.rule import allowed_names
from hookmill.domain.spec import alternatives, read
from hookmill.domain.text import closest_name
from hookmill.domain.webhook import WebhookSpec


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
    spec: WebhookSpec


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
    name_by_stem = {
        stem_of(file): webhook.name if webhook is not None else stem_of(file)
        for file, webhook in zip(files.webhook_contents, webhooks, strict=True)
    }
    names = _WebhookNames(name_by_stem, uid_by_name or {})
    automations = [
        _automation(content, ProblemReporter(file, problems, warnings), file, names)
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
            problems += [
                automation.problem(f"{filter_pointer}/webhook_ids/{number}", _NO_NAMES)
                for number, uid in enumerate(conditions.webhook_ids)
                if is_new(uid)
            ]
            if conditions.payload is not None:
                problems += [
                    automation.problem(f"{filter_pointer}/payload{pointer}", f"{pointer}: {_BEYOND_CONTRACT}")
                    for pointer in conditions.payload.pointers_beyond_contract
                ]
    return problems


_NO_POLICIES: Final = "The contract has no run policies. Remove this key."
_NO_OPTIONS: Final = "The contract has no run options. Remove this key."
_NO_SCHEDULE_OPTIONS: Final = "Other implementations have schedules without this key. Remove it."
_NO_NAMES: Final = "The contract has only uids here. Write the webhook's uid."
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
        reporter.report(START, "The file is empty. A webhook needs at least a line secretName: NAME.")
    mapping = mapping_reader(node, "A webhook", tuple(WEBHOOK_FIELDS), reporter, hint_by_wrong_key=_WRONG_WEBHOOK_KEYS)
    if mapping is None:
        return None
    if mapping.value_node("secretName") is None:
        mapping.report_missing("secretName", "Name the team secret that holds the webhook's secret")
    spec = _webhook_spec(mapping, file)
    if reporter.count or spec is None:
        return None
    enabled = mapping.boolean("enabled")
    return WebhookDefinition(file=file, name=spec.name, enabled=enabled, node=mapping.node, spec=spec)


def _webhook_spec(mapping: MappingReader, file: str) -> WebhookSpec | None:
    """The spec; None after reporting its faults."""
    source: dict[str, Any] = {"name": stem_of(file)}
    # The faults of these keys are already reported. They keep the spec's reader from checking rules about several
    # fields.
    reported_keys = set(mapping.already_reported_keys)
    source |= {WEBHOOK_FIELDS[key]: _UNREADABLE for key in reported_keys}
    for spec_field in msgspec.structs.fields(WebhookSpec):
        key = key_of(spec_field.name)
        if (node := mapping.value_node(key)) is None:
            continue
        before = mapping.reporter.count
        source[spec_field.name] = to_json(node)
        match next(alternatives(msgspec.inspect.type_info(spec_field.type))):
            case msgspec.inspect.StrType() | msgspec.inspect.EnumType():
                mapping.text(key)
            case msgspec.inspect.BoolType():
                mapping.boolean(key)
            case msgspec.inspect.DictType() if isinstance(node, MappingNode):
                # The reader is not needed here, but creating it reports unknown keys.
                mapping_reader(node, key, GenericHmac.__struct_fields__, mapping.reporter)
                source[spec_field.name] = _without_null(to_json(node))
        if mapping.reporter.count > before:
            reported_keys.add(key)
            source[spec_field.name] = _UNREADABLE
    try:
        return read(WebhookSpec, source)
    except Invalid as error:
        for fault in map(fault_in_file, error.faults):
            if steps_of(fault.pointer)[0] not in reported_keys:
                mapping.reporter.report(place_at(mapping.node, fault.pointer), fault.message)
        return None


_UNREADABLE: Final = object()


def _automation(
    content: bytes, reporter: ProblemReporter, file: str, names: "_WebhookNames"
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
    source["triggers"] = _with_defaults_of_files(source.get("triggers"), name, names)
    try:
        spec = read(AutomationSpec, source)
    except Invalid as error:
        for fault in error.faults:
            # If the author misspelt a key, this is already a problem.
            if fault.pointer == "/prompt":
                reporter.report(Place(prompt_line, 1), fault.message)
            elif fault.pointer[1:] not in mapping.already_reported_keys:
                pointer, message = _pointer_and_message(fault, source, names)
                reporter.report(place_at(mapping.node, pointer), message)
        return None
    if reporter.count:
        return None
    _warn_about_triggers(mapping.node, spec, reporter)
    return AutomationDefinition(file=file, name=name, enabled=enabled, node=mapping.node, spec=spec)


# Webhooks

_SECRET_IN_A_FILE: Final = (
    "A file must not contain a secret's value. Store it with `hookmill secret create`, and write secretName."
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


# Automations


@dataclass(frozen=True, slots=True)
class _WebhookNames:
    """The webhooks that an automation can name."""

    name_by_stem: Mapping[str, str]
    """The names that files define, by their files' names. That of an unusable file stands for its webhook's."""
    uid_by_name: Mapping[str, str]
    """The uids of the factory's webhooks; empty without a factory."""

    def resolved(self, item: Any) -> Any:
        """The uid, if the item is `webhook:NAME` with a known name. Every other item stays."""
        if not isinstance(item, str) or not item.startswith(REFERENCE):
            return item
        name = item.removeprefix(REFERENCE)
        return self.uid_by_name.get(name) or (new_uid(name) if name in self.name_by_stem.values() else item)

    def message_for(self, text: str) -> str:
        """Why the text selects no webhook."""
        known = {*self.name_by_stem.values(), *self.uid_by_name}
        if text.startswith(REFERENCE):
            name = text.removeprefix(REFERENCE)
            closest = self.name_by_stem.get(name) or closest_name(name, known)
            hint = f"Did you mean {REFERENCE}{closest}?" if closest is not None else "Add a file for it."
            return f"There is no webhook named {name[:100]!r}. {hint}"
        hint = f"Write {REFERENCE}{text}." if text in known else f"Write {REFERENCE} and its name."
        return f"{text[:40]!r} is not a webhook's uid (wh_…). {hint}"


def _with_defaults_of_files(triggers: Any, automation_name: str, names: _WebhookNames) -> Any:
    """The triggers as in the API. In files, null counts as an absent key, a schedule without a name has that of the
    automation, webhooks can be named, and `in` is allowed before their uids, as in payload filters."""
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
            match parts.get("filter"):
                case {"webhook_ids": [*items], **conditions}:
                    parts["filter"] = conditions | {"webhook_ids": [names.resolved(item) for item in items]}
            triggers[number] = parts
    return triggers


def _without_null(part: Any) -> Any:
    return {key: value for key, value in part.items() if value is not None} if isinstance(part, dict) else part


def _pointer_and_message(fault: Fault, source: Json, names: _WebhookNames) -> tuple[str, str]:
    """What an author of files learns about a fault."""
    steps = steps_of(fault.pointer)
    match steps, value_at(source, steps):
        case [["triggers", _, "filter", "webhook_ids", _], str(text)]:
            return fault.pointer, names.message_for(text)
        case [["triggers", _], {"provider": str(provider)}]:
            return f"{fault.pointer}/provider", _unsupported_provider_message(provider)
    return fault.pointer, fault.message


def _unsupported_provider_message(provider: str) -> str:
    if (closest := closest_name(provider, ("webhook", "schedule"))) is not None:
        return f"{provider[:40]!r} is not a provider. Did you mean {closest}?"
    scheme = f" with signatureScheme: {provider}" if provider in allowed_names() else ""
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
