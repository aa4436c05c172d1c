"""Parses the text of a filter or of a list of triggers, and reports its errors."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, NoReturn

from hookmill.domain import payload, text
from hookmill.domain.automation import ScheduleTrigger, Trigger, read_event_types, triggers_from_json
from hookmill.domain.errors import Fault, Invalid
from hookmill.domain.filters import CompiledFilter, compile_filter, pointer_step
from hookmill.domain.ids import WebhookUid
from hookmill.domain.payload import Json

LINE_CHARACTERS_MAX: Final = 60
NAME_CHARACTERS_MAX: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSyntaxError:
    """A JSON syntax error."""

    message: str
    line: int = 0
    """From 1; 0 if the position is unknown."""
    column: int = 0
    """From 1."""
    before: str = ""
    """The part of the line before the error, cut to its end."""
    after: str = ""
    """The part of the line from the error on, cut to its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTriggers:
    """The result of parsing: the triggers, or the errors. If it is usable, it has no errors."""

    triggers: tuple[Trigger, ...] = ()
    schedules: tuple[ScheduleTrigger, ...] = ()
    """Only in a list of triggers."""
    faults: tuple[Fault, ...] = ()
    syntax_error: JsonSyntaxError | None = None
    event_fault: str | None = None
    """The error of the event types, if any."""

    @property
    def is_usable(self) -> bool:
        return self.syntax_error is None and not self.faults and self.event_fault is None


def read_filter(filter_text: str, webhook_ids: Sequence[str], events_text: str = "") -> ParsedTriggers:
    """One trigger with these webhooks, filter and event types. An empty text matches everything.

    `events_text`: the event types, one on each line.
    """
    uids = tuple(dict.fromkeys(WebhookUid(uid) for uid in webhook_ids))
    events = lines_in(events_text)
    event_types = read_event_types(events) if events else ()
    if isinstance(event_types, list):
        return replace(
            _read_payload(filter_text, Trigger(webhook_ids=uids)), event_fault=_with_line(event_types[0], events)
        )
    return _read_payload(filter_text, Trigger(webhook_ids=uids, event_types=event_types))


def _read_payload(filter_text: str, trigger: Trigger) -> ParsedTriggers:
    """The trigger, with the payload filter of this text added."""
    if not filter_text.strip():
        return ParsedTriggers(triggers=(trigger,))
    source = _json_in(filter_text)
    if isinstance(source, ParsedTriggers):
        return source
    compiled = compile_filter(source)
    if isinstance(compiled, CompiledFilter):
        return ParsedTriggers(triggers=(replace(trigger, payload=compiled),))
    return ParsedTriggers(faults=tuple(compiled))


def lines_in(input_text: str) -> list[str]:
    """The lines that are not blank, without surrounding whitespace."""
    return [line.strip() for line in input_text.split("\n") if line.strip()]


def _with_line(fault: Fault, lines: Sequence[str]) -> str:
    """The fault's message, preceded by the line that it is about, if it is about one line."""
    line_index = fault.pointer.removeprefix("/")
    return (
        f"{text.shown(lines[int(line_index)][:LINE_CHARACTERS_MAX])}: {fault.message}" if line_index else fault.message
    )


def read_triggers(triggers_text: str) -> ParsedTriggers:
    """All triggers, from a JSON list as in the API."""
    source = _json_in(triggers_text)
    if isinstance(source, ParsedTriggers):
        return source
    try:
        triggers = triggers_from_json(source)
        return ParsedTriggers(triggers=triggers.delivery_triggers, schedules=triggers.schedules)
    except Invalid as error:
        return ParsedTriggers(faults=tuple(_relative_to_list(fault) for fault in error.faults))


def _relative_to_list(fault: Fault) -> Fault:
    # Pointers are relative to the list, because the editor shows only the list.
    message = fault.message.removeprefix(f"{fault.pointer}: ")
    return Fault(fault.pointer.removeprefix("/triggers"), message)


class _DuplicateName(ValueError):
    """An object has two fields with the same name."""


def _json_in(json_text: str) -> Json:
    """The value, with numbers as triggers store them; or a `ParsedTriggers` with the errors."""
    body = json_text.encode("utf-8", "surrogatepass")
    parsed = payload.parse(body)
    if isinstance(parsed, payload.NotJson):
        return ParsedTriggers(syntax_error=_syntax_error(json_text, parsed.reason))
    try:
        _SYNTAX_DECODER.decode(json_text)
    except _DuplicateName as error:
        return ParsedTriggers(syntax_error=JsonSyntaxError(message=str(error)))
    faults: list[Fault] = []
    value = _storable(parsed.value, "", faults)
    return ParsedTriggers(faults=tuple(faults)) if faults else value


def _syntax_error(json_text: str, reason: str) -> JsonSyntaxError:
    """The syntax error of the text, with its position if Python's decoder finds an error, too."""
    try:
        _SYNTAX_DECODER.decode(json_text)
    except json.JSONDecodeError as error:
        lines = json_text.split("\n")
        line = lines[error.lineno - 1] if error.lineno <= len(lines) else ""
        column_index = error.colno - 1
        return JsonSyntaxError(
            message=f"{error.msg.removesuffix(' at').removesuffix(' starting')}.",
            line=error.lineno,
            column=error.colno,
            before=text.shown(line[max(0, column_index - LINE_CHARACTERS_MAX) : column_index]),
            after=text.shown(line[column_index : column_index + LINE_CHARACTERS_MAX]),
        )
    except (ValueError, RecursionError):
        pass
    return JsonSyntaxError(message=f"The JSON can't be read: {reason}.")


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _reject_duplicate_names(pairs: list[tuple[str, Any]]) -> None:
    earlier_names: set[str] = set()
    for name, _ in pairs:
        if name in earlier_names:
            visible_name = text.shown(json.dumps(name, ensure_ascii=False)[:NAME_CHARACTERS_MAX])
            raise _DuplicateName(f"The field {visible_name} appears twice in one object. Remove one of them.")
        earlier_names.add(name)


_SYNTAX_DECODER: Final = json.JSONDecoder(
    parse_float=str, parse_int=str, parse_constant=_reject_constant, object_pairs_hook=_reject_duplicate_names
)


def _storable(value: Json, at: str, faults: list[Fault], level: int = 0) -> Json:
    """The value with numbers as triggers store them. A number that would change is added to `faults`."""
    if level > _DEEPER_THAN_ANY_FILTER:
        return value
    if type(value) is dict:
        return {
            name: _storable(child, f"{at}/{pointer_step(name)}", faults, level + 1) for name, child in value.items()
        }
    if type(value) is list:
        return [_storable(child, f"{at}/{index}", faults, level + 1) for index, child in enumerate(value)]
    stored_value = storable_scalar(value)
    if stored_value is None and value is not None:
        faults.append(Fault(at, "This number has too many digits for a filter. Use another field."))
    return stored_value


_DEEPER_THAN_ANY_FILTER: Final = 30
"""Deeper filters are rejected for their depth."""


def storable_scalar(value: Json) -> Json:
    """The scalar as triggers store it; None for a number that they can't store exactly."""
    if type(value) is payload.VastNumber:
        return None
    if type(value) is Decimal:
        if not -400 < value.adjusted() < 400:
            return None
        nearest_float = float(value)
        return nearest_float if Decimal(repr(nearest_float)) == value else None
    return value
