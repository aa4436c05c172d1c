"""From the bytes of definition files to definitions, or to everything that is wrong with them. Pure.

A file may contain what the API accepts, under the definition files' names; what it may not say is refused at its line
and column. Only what needs the factory is left for the plan: whether a secret, a runner or a webhook exists.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hookmill.definitions.folder import Files, stem_of
from hookmill.definitions.form import Form, Notes, form_of
from hookmill.definitions.keys import AUTOMATION_KEYS, WebhookKey
from hookmill.definitions.nodes import ListNode, Node, ScalarNode, compose, place_at, to_json
from hookmill.definitions.problem import START, Place, Problem
from hookmill.definitions.text import is_visible, parts_of, refuse_conflict, text_of
from hookmill.domain.automation import (
    EVENT,
    PROMPT_CHARACTERS_MAX,
    PROVIDER,
    TRIGGERS_MAX,
    WEBHOOKS_PER_TRIGGER_MAX,
    Trigger,
    read_event_types,
)
from hookmill.domain.errors import Invalid
from hookmill.domain.filters import CONTRACT, CompiledFilter, compile_filter
from hookmill.domain.ids import WebhookUid
from hookmill.domain.secret import usable_secret_name
from hookmill.domain.signatures.generic import GENERIC, GenericHmac
from hookmill.domain.signatures.rule import scheme_named
from hookmill.domain.signatures.rule import usable_event_header as event_header_of
from hookmill.domain.signatures.scheme import Scheme, signing_headers
from hookmill.domain.webhook import AuthMode, usable_delivery_id_header, usable_event_header, usable_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What one file says. Its name is what the thing is known by, in the file and in the factory."""

    file: str
    name: str
    enabled: bool | None
    """None leaves the toggle to people, and enables what is new."""
    node: Node = field(compare=False, repr=False)

    def place(self, pointer: str = "") -> Place:
        """Where the value at this JSON pointer stands."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomationDefinition(Definition):
    prompt: str
    runner: str | None
    """None for the runner that the installation gives to those that name none."""
    triggers: tuple[Trigger, ...]


@dataclass(frozen=True, slots=True)
class Definitions:
    """What a folder says, in order of the files, and all that is wrong with it."""

    webhooks: tuple[WebhookDefinition, ...]
    automations: tuple[AutomationDefinition, ...]
    problems: tuple[Problem, ...]


def read(files: Files, uids: Mapping[str, str] | None = None) -> Definitions:
    """The definitions in the files. `uids` are those of the factory's webhooks by name, if the factory is known."""
    problems = list(files.problems)
    webhooks = [_webhook(file, content, problems) for file, content in files.webhooks.items()]
    hints = _UidHints({stem_of(file) for file in files.webhooks}, uids)
    automations = [_automation(file, content, hints, problems) for file, content in files.automations.items()]
    known_webhooks = tuple(webhook for webhook in webhooks if webhook is not None)
    known_automations = tuple(automation for automation in automations if automation is not None)
    _refuse_same_names("webhook", known_webhooks, problems)
    _refuse_same_names("automation", known_automations, problems)
    return Definitions(known_webhooks, known_automations, tuple(sorted(problems)))


def beyond_contract(definitions: Definitions) -> list[Problem]:
    """Every condition of a trigger that the contract does not have: event types, and operators of payload filters."""
    problems: list[Problem] = []
    for automation in definitions.automations:
        for number, trigger in enumerate(automation.triggers):
            place = f"/triggers/{number}/filter"
            if trigger.event_types:
                problems.append(automation.problem(f"{place}/event", _NO_EVENT_TYPES))
            if trigger.payload is not None:
                problems += [
                    automation.problem(f"{place}/payload{pointer}", f"{pointer}: {_BEYOND_CONTRACT}")
                    for pointer in trigger.payload.beyond_contract
                ]
    return problems


_NO_EVENT_TYPES: Final = "The contract has no event types in a filter. Ask for a field of the payload instead."
_BEYOND_CONTRACT: Final = f"This operator is not one of the contract's, which are {', '.join(CONTRACT)}."


def prompt_of(text: str) -> str:
    """The prompt that a text is: line ends are line feeds, and blank lines around it don't count."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip("\n")


# One file


def _webhook(file: str, content: bytes, problems: list[Problem]) -> WebhookDefinition | None:
    notes = Notes(file, problems)
    text = text_of(content, notes)
    if text is None or refuse_conflict(text, notes) or not is_visible(text, notes):
        return None
    node = compose(text, notes.refuse)
    if node is None and not notes.count:
        notes.refuse(START, f"The file is empty. A webhook needs at least a line {WebhookKey.SECRET_NAME}: NAME.")
    form = form_of(node, "A webhook", tuple(WebhookKey), notes, misplaced=_MISPLACED_IN_WEBHOOKS)
    if form is None:
        return None
    mode = _auth_mode(form)
    scheme_name, options, handshakes = _signing(form, mode)
    scheme = _scheme(form, scheme_name, options) if mode is AuthMode.SIGNATURE else None
    if handshakes and scheme is not None and scheme.handshake is None:
        form.refuse(WebhookKey.ANSWERS_HANDSHAKES, f"{scheme.title} sends no signed challenge. Drop this line.")
    secret_name = form.required(WebhookKey.SECRET_NAME, "Name the team secret that holds the webhook's secret")
    if secret_name is not None and not _names_a_secret(secret_name):
        form.refuse(WebhookKey.SECRET_NAME, _NO_SECRET_NAME)
    header = form.text(WebhookKey.DELIVERY_ID_HEADER)
    if header is not None:
        form.attempt(WebhookKey.DELIVERY_ID_HEADER, lambda: usable_delivery_id_header(header))
        if scheme is not None and header.lower().encode() in signing_headers(scheme):
            message = (
                f"{header} contains {scheme.title}'s proof, but delivery ids are stored and shown. Choose another."
            )
            form.refuse(WebhookKey.DELIVERY_ID_HEADER, message)
    event_header = form.text(WebhookKey.EVENT_HEADER)
    if event_header is not None:
        form.attempt(WebhookKey.EVENT_HEADER, lambda: usable_event_header(event_header))
        if scheme is not None:
            form.attempt(WebhookKey.EVENT_HEADER, lambda: event_header_of(scheme, scheme_name, event_header))
    name, enabled = _name(form, "webhook", file), form.flag("enabled")
    if notes.count or secret_name is None:
        return None
    return WebhookDefinition(
        file=file,
        name=name,
        enabled=enabled,
        node=form.node,
        auth_mode=mode,
        signature_scheme=scheme_name,
        signature_options=options,
        answers_handshakes=handshakes,
        secret_name=secret_name,
        delivery_id_header=header,
        event_header=event_header,
    )


def _automation(file: str, content: bytes, hints: "_UidHints", problems: list[Problem]) -> AutomationDefinition | None:
    notes = Notes(file, problems)
    text = text_of(content, notes)
    parts = parts_of(text, notes) if text is not None else None
    if parts is None:
        return None
    front, body, body_line = parts
    if refuse_conflict(front, notes, first_line=2) or not is_visible(front, notes, first_line=2):
        return None
    if refuse_conflict(body, notes, first_line=body_line, only_whole=True):
        return None
    node = compose(front, notes.refuse, first_line=2)
    if node is None and not notes.count:
        notes.refuse(Place(2, 1), "The front matter is empty. An automation needs at least triggers.")
    prompt = _prompt(body, body_line, notes)
    form = form_of(node, "The front matter", AUTOMATION_KEYS, notes, misplaced=_MISPLACED_IN_AUTOMATIONS)
    if form is None:
        return None
    name, enabled, runner = _name(form, "automation", file), form.flag("enabled"), form.text("runner")
    triggers = _triggers(form, hints)
    if notes.count:
        return None
    return AutomationDefinition(
        file=file, name=name, enabled=enabled, node=form.node, prompt=prompt, runner=runner, triggers=triggers
    )


def _prompt(body: str, line: int, notes: Notes) -> str:
    prompt = prompt_of(body)
    if not prompt.strip():
        notes.refuse(Place(line - 1, 1), "No prompt follows. Say below this line what a run should do.")
    elif len(prompt) > PROMPT_CHARACTERS_MAX:
        notes.refuse(Place(line, 1), f"The prompt is longer than {PROMPT_CHARACTERS_MAX:,} characters. Shorten it.")
    return prompt


# Webhooks

_SECRET_IN_A_FILE: Final = (
    "A secret's value has no place in a file. "
    f"Store it with `hookmill secret create`, and write {WebhookKey.SECRET_NAME}."
)
# It is not repeated: it may be the secret itself.
_NO_SECRET_NAME: Final = (
    "This can't name a team secret: those have a letter, then letters, digits and _ (64 at most). "
    "The secret's value has no place in a file."
)
_ASSIGNED: Final = "The service assigns this. Drop the line."
_MISPLACED_IN_WEBHOOKS: Final = {
    "secret": _SECRET_IN_A_FILE,
    "token": _SECRET_IN_A_FILE,
    "uid": _ASSIGNED,
    "url": _ASSIGNED,
}
_MISPLACED_IN_AUTOMATIONS: Final = {
    "prompt": "The prompt stands below the front matter. Move it there.",
    "trigger": "Write triggers: and a list, even of one.",
}


def _name(form: Form, kind: str, file: str) -> str:
    stem = stem_of(file)
    given = form.text("name")
    if given is not None and form.attempt("name", lambda: usable_name(kind, given)):
        return usable_name(kind, given)
    return stem


def _refuse_same_names(kind: str, definitions: Sequence[Definition], problems: list[Problem]) -> None:
    first: dict[str, Definition] = {}
    for one in definitions:
        if (other := first.setdefault(one.name, one)) is not one:
            problems.append(
                one.problem("/name", f"{other.file} is a {kind} of the same name, {one.name!r}. Rename one.")
            )


def _names_a_secret(given: str) -> bool:
    try:
        usable_secret_name(given)
    except Invalid:
        return False
    return True


def _auth_mode(form: Form) -> AuthMode:
    given = form.text(WebhookKey.AUTH_MODE)
    if given in {mode.value for mode in AuthMode}:
        return AuthMode(given)
    if given is None and WebhookKey.AUTH_MODE not in form.meant:
        return AuthMode.TOKEN
    if given is not None:
        form.refuse(WebhookKey.AUTH_MODE, f"{given[:40]!r} is none of {', '.join(AuthMode)}.")
    # The mode that was meant is not known, and the other keys may well belong to it.
    return AuthMode.SIGNATURE if form.given(WebhookKey.SIGNATURE_SCHEME) is not None else AuthMode.TOKEN


_OF_SIGNATURES: Final = (WebhookKey.SIGNATURE_SCHEME, WebhookKey.SIGNATURE_OPTIONS, WebhookKey.ANSWERS_HANDSHAKES)


def _signing(form: Form, mode: AuthMode) -> tuple[str | None, dict[str, Any] | None, bool]:
    """The scheme's name and options, and whether handshakes are answered."""
    if mode is not AuthMode.SIGNATURE:
        for key in _OF_SIGNATURES:
            if form.given(key) is not None:
                mode_line = f"{WebhookKey.AUTH_MODE}: {AuthMode.SIGNATURE}"
                form.refuse(key, f"{key} goes with {mode_line}. Drop the line, or choose that mode.")
        return None, None, False
    if form.given(WebhookKey.SIGNATURE_SCHEME) is None:
        form.lacks(WebhookKey.SIGNATURE_SCHEME, "`hookmill scheme list` shows the providers")
    options = form.given(WebhookKey.SIGNATURE_OPTIONS)
    if options is not None:
        keys = GenericHmac.__struct_fields__
        form_of(options, WebhookKey.SIGNATURE_OPTIONS, keys, form.notes)
    answers_handshakes = bool(form.flag(WebhookKey.ANSWERS_HANDSHAKES))
    return form.text(WebhookKey.SIGNATURE_SCHEME), to_json(options) if options else None, answers_handshakes


def _scheme(form: Form, name: str | None, options: dict[str, Any] | None) -> Scheme | None:
    """The scheme, None once what is wrong with it is noted."""
    if name is None or form.notes.count:
        return None
    try:
        return scheme_named(name, options)
    except Invalid as error:
        message = str(error)
        # What is wrong with an option begins with the option's name, or ends with the path to it.
        path = re.search(r"`\$\.(\w+)`", message)
        option = path[1] if path else message.partition(" ")[0]
        if name == GENERIC:
            place = place_at(form.node, f"/{WebhookKey.SIGNATURE_OPTIONS}/{option}")
        else:
            key = WebhookKey.SIGNATURE_OPTIONS if options is not None else WebhookKey.SIGNATURE_SCHEME
            place = place_at(form.node, f"/{key}")
        form.notes.refuse(place, message)
        return None


# Automations


@dataclass(frozen=True, slots=True)
class _UidHints:
    """What to say to somebody who wrote a webhook's name where its uid belongs."""

    files: set[str]
    uids: Mapping[str, str] | None

    def instead_of(self, given: str) -> str:
        if self.uids is not None and given in self.uids:
            return f"Write its uid: {self.uids[given]}."
        if given in self.files:
            return (
                "A webhook gets its uid when it is first applied. Apply it, and write here the uid that apply prints."
            )
        return "`hookmill webhook list` shows the uids."


def _triggers(form: Form, hints: _UidHints) -> tuple[Trigger, ...]:
    node = form.given("triggers")
    if node is None:
        form.lacks("triggers", "List at least one")
        return ()
    if not isinstance(node, ListNode) or not node.items:
        form.refuse("triggers", "triggers is a list of one or more. Begin each with a dash and provider: webhook.")
        return ()
    if len(node.items) > TRIGGERS_MAX:
        form.refuse("triggers", f"{len(node.items)} triggers; an automation has at most {TRIGGERS_MAX}.")
        return ()
    read = [_trigger(item, hints, form.notes) for item in node.items]
    return tuple(trigger for trigger in read if trigger is not None)


def _trigger(node: Node, hints: _UidHints, notes: Notes) -> Trigger | None:
    form = form_of(node, "A trigger", ("provider", "event", "filter"), notes)
    if form is None:
        return None
    for key, only in (("provider", PROVIDER), ("event", EVENT)):
        given = form.required(key, f"Write {key}: {only}")
        if given is not None and given != only:
            form.refuse(key, f"{given[:40]!r} is not known. The one {key} there is: {only}.")
    chosen = form.given("filter")
    if chosen is None:
        form.lacks("filter", "Write filter: and in it webhook_ids")
        return None
    selection = form_of(chosen, "filter", ("webhook_ids", "event", "payload"), notes)
    if selection is None:
        return None
    return Trigger(
        webhook_ids=_webhook_ids(selection, hints), event_types=_event_types(selection), payload=_payload(selection)
    )


def _webhook_ids(form: Form, hints: _UidHints) -> tuple[WebhookUid, ...]:
    node = form.given("webhook_ids")
    if node is None:
        form.lacks("webhook_ids", "List the uids of the webhooks that start a run")
        return ()
    if not isinstance(node, ListNode) or not node.items:
        form.refuse("webhook_ids", "webhook_ids is a list of one or more uids, such as [wh_…].")
        return ()
    if len(node.items) > WEBHOOKS_PER_TRIGGER_MAX:
        form.refuse("webhook_ids", f"{len(node.items)} webhooks; a trigger selects at most {WEBHOOKS_PER_TRIGGER_MAX}.")
        return ()
    uids: dict[WebhookUid, None] = {}
    for item in node.items:
        given = item.value if isinstance(item, ScalarNode) else None
        if type(given) is str and given.startswith("wh_") and len(given) <= 100:
            uids[WebhookUid(given)] = None
        else:
            said = f"{item.spelled[:40]!r} is" if isinstance(item, ScalarNode) else "This is"
            hint = hints.instead_of(given) if type(given) is str else hints.instead_of("")
            form.notes.refuse(item.place, f"{said} not a webhook's uid (wh_…). {hint}")
    return tuple(uids)


def _event_types(form: Form) -> tuple[str, ...]:
    node = form.given("event")
    if node is None:
        return ()
    read = read_event_types(to_json(node))
    if isinstance(read, tuple):
        return read
    for fault in read:
        form.notes.refuse(place_at(node, fault.pointer), fault.message)
    return ()


def _payload(form: Form) -> CompiledFilter | None:
    node = form.given("payload")
    if node is None:
        return None
    compiled = compile_filter(to_json(node))
    if isinstance(compiled, CompiledFilter):
        return compiled
    for fault in compiled:
        place = place_at(node, fault.pointer)
        form.notes.refuse(place, f"{fault.pointer}: {fault.message}" if fault.pointer else fault.message)
    return None
