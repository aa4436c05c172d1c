"""Parses the text of a filter or of a list of triggers, and reports its errors."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, NoReturn

from msgspec import structs

from hookmill.domain import payload, text
from hookmill.domain.automation import DeliveryFilter, Trigger, TriggerList, WebhookTrigger, filters_of
from hookmill.domain.errors import Fault, Invalid
from hookmill.domain.filters import CompiledFilter, compile_filter, pointer_step
from hookmill.domain.ids import WebhookUid
from hookmill.domain.payload import Json
from hookmill.domain.spec import read

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
    """Without the schedules of the form, which has those of a list of triggers only in that list."""
    faults: tuple[Fault, ...] = ()
    syntax_error: JsonSyntaxError | None = None
    event_fault: str | None = None
    """The error of the event types, if any."""

    @property
    def is_usable(self) -> bool:
        return self.syntax_error is None and not self.faults and self.event_fault is None

    @property
    def filters(self) -> tuple[DeliveryFilter, ...]:
        return filters_of(self.triggers)


def read_filter(filter_text: str, webhook_ids: Sequence[str], events_text: str = "") -> ParsedTriggers:
    """One trigger with these webhooks, filter and event types. An empty text matches everything.

    `events_text`: the event types, one on each line.
    """
    uids = tuple(dict.fromkeys(WebhookUid(uid) for uid in webhook_ids))
    events = lines_in(events_text)
    without_event = DeliveryFilter(webhook_ids=uids)
    try:
        conditions = read(DeliveryFilter, {"webhook_ids": ["wh_any"], "event": events or None})
    except Invalid as error:
        return replace(_read_payload(filter_text, without_event), event_fault=_with_line(error.faults[0], events))
    return _read_payload(filter_text, structs.replace(without_event, event=conditions.event))


def _read_payload(filter_text: str, conditions: DeliveryFilter) -> ParsedTriggers:
    """A trigger with these conditions, and with the payload filter of this text."""
    if not filter_text.strip():
        return ParsedTriggers(triggers=(WebhookTrigger(event="received", filter=conditions),))
    source = _json_in(filter_text)
    if isinstance(source, ParsedTriggers):
        return source
    compiled = compile_filter(source)
    if isinstance(compiled, CompiledFilter):
        conditions = structs.replace(conditions, payload=compiled)
        return ParsedTriggers(triggers=(WebhookTrigger(event="received", filter=conditions),))
    return ParsedTriggers(faults=tuple(compiled))


def lines_in(input_text: str) -> list[str]:
    """The lines that are not blank, without surrounding whitespace."""
    return [line.strip() for line in input_text.split("\n") if line.strip()]


def _with_line(fault: Fault, lines: Sequence[str]) -> str:
    """The fault's message, preceded by the line that it is about, if it is about one line."""
    line_index = fault.pointer.removeprefix("/event").removeprefix("/")
    return (
        f"{text.shown(lines[int(line_index)][:LINE_CHARACTERS_MAX])}: {fault.message}" if line_index else fault.message
    )


def read_triggers(triggers_text: str) -> ParsedTriggers:
    """All triggers, from a JSON list as in the API."""
    source = _json_in(triggers_text)
    if isinstance(source, ParsedTriggers):
        return source
    try:
        return ParsedTriggers(triggers=read(TriggerList, {"triggers": source}).triggers)
    except Invalid as error:
        # Pointers are relative to the list, because the editor shows only the list.
        faults = (Fault(fault.pointer.removeprefix("/triggers"), fault.message) for fault in error.faults)
        return ParsedTriggers(faults=tuple(faults))


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
