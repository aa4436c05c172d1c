"""Parses the typed filter or list of triggers, and reports its errors."""

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

LINE_SHOWN_MAX: Final = 60
NAME_SHOWN_MAX: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """A JSON syntax error. `line` is 0 if the position is unknown; `before` and `after` are the text around it."""

    message: str
    line: int = 0
    column: int = 0
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTriggers:
    """The result of parsing: the triggers, or the errors."""

    triggers: tuple[Trigger, ...] = ()
    schedules: tuple[ScheduleTrigger, ...] = ()
    """Only in a list of triggers."""
    faults: tuple[Fault, ...] = ()
    syntax: Syntax | None = None
    event_fault: str | None = None
    """The error of the event types, if any."""

    @property
    def is_usable(self) -> bool:
        return self.syntax is None and not self.faults and self.event_fault is None


def read_filter(typed: str, webhook_ids: Sequence[str], typed_events: str = "") -> ParsedTriggers:
    """One trigger with these webhooks, filter and event types, one on each line. An empty text matches everything."""
    uids = tuple(dict.fromkeys(WebhookUid(uid) for uid in webhook_ids))
    events = lines_in(typed_events)
    event_types = read_event_types(events) if events else ()
    if isinstance(event_types, list):
        return replace(_read_payload(typed, Trigger(webhook_ids=uids)), event_fault=_in_lines(event_types[0], events))
    return _read_payload(typed, Trigger(webhook_ids=uids, event_types=event_types))


def _read_payload(typed: str, trigger: Trigger) -> ParsedTriggers:
    if not typed.strip():
        return ParsedTriggers(triggers=(trigger,))
    source = _json_in(typed)
    if isinstance(source, ParsedTriggers):
        return source
    compiled = compile_filter(source)
    if isinstance(compiled, CompiledFilter):
        return ParsedTriggers(triggers=(replace(trigger, payload=compiled),))
    return ParsedTriggers(faults=tuple(compiled))


def lines_in(typed: str) -> list[str]:
    """The lines that are not blank, without surrounding whitespace."""
    return [line.strip() for line in typed.split("\n") if line.strip()]


def _in_lines(fault: Fault, lines: Sequence[str]) -> str:
    place = fault.pointer.removeprefix("/")
    return f"{text.shown(lines[int(place)][:LINE_SHOWN_MAX])}: {fault.message}" if place else fault.message


def read_triggers(typed: str) -> ParsedTriggers:
    """All triggers, from a JSON list as in the API."""
    source = _json_in(typed)
    if isinstance(source, ParsedTriggers):
        return source
    try:
        triggers = triggers_from_json(source)
        return ParsedTriggers(triggers=triggers.delivery_triggers, schedules=triggers.schedules)
    except Invalid as error:
        return ParsedTriggers(faults=tuple(_in_the_list(fault) for fault in error.faults))


def _in_the_list(fault: Fault) -> Fault:
    # Pointers are relative to the list, because the editor shows only the list.
    message = fault.message.removeprefix(f"{fault.pointer}: ")
    return Fault(fault.pointer.removeprefix("/triggers"), message)


class _Repeated(ValueError):
    pass


def _json_in(typed: str) -> Json:
    """The value, with storable numbers; or a `ParsedTriggers` with the errors."""
    body = typed.encode("utf-8", "surrogatepass")
    parsed = payload.parse(body)
    if isinstance(parsed, payload.NotJson):
        return ParsedTriggers(syntax=_syntax(typed, parsed.reason))
    try:
        _SYNTAX.decode(typed)
    except _Repeated as repeated:
        return ParsedTriggers(syntax=Syntax(message=str(repeated)))
    faults: list[Fault] = []
    value = _storable(parsed.value, "", faults)
    return ParsedTriggers(faults=tuple(faults)) if faults else value


def _syntax(typed: str, reason: str) -> Syntax:
    try:
        _SYNTAX.decode(typed)
    except json.JSONDecodeError as error:
        lines = typed.split("\n")
        line = lines[error.lineno - 1] if error.lineno <= len(lines) else ""
        at = error.colno - 1
        return Syntax(
            message=f"{error.msg.removesuffix(' at').removesuffix(' starting')}.",
            line=error.lineno,
            column=error.colno,
            before=text.shown(line[max(0, at - LINE_SHOWN_MAX) : at]),
            after=text.shown(line[at : at + LINE_SHOWN_MAX]),
        )
    except (ValueError, RecursionError):
        pass
    return Syntax(message=f"The JSON can't be read: {reason}.")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _once_each(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            shown = text.shown(json.dumps(name, ensure_ascii=False)[:NAME_SHOWN_MAX])
            raise _Repeated(f"The field {shown} appears twice in one object. Remove one of them.")
        seen.add(name)


_SYNTAX: Final = json.JSONDecoder(
    parse_float=str, parse_int=str, parse_constant=_no_constant, object_pairs_hook=_once_each
)


def _storable(value: Json, at: str, faults: list[Fault], level: int = 0) -> Json:
    """The value with numbers as triggers store them. A number that would change is an error."""
    if level > _DEEPER_THAN_ANY_FILTER:
        return value
    if type(value) is dict:
        return {name: _storable(of, f"{at}/{pointer_step(name)}", faults, level + 1) for name, of in value.items()}
    if type(value) is list:
        return [_storable(of, f"{at}/{index}", faults, level + 1) for index, of in enumerate(value)]
    kept = plain_number(value)
    if kept is None and value is not None:
        faults.append(Fault(at, "This number has too many digits for a filter. Use another field."))
    return kept


_DEEPER_THAN_ANY_FILTER: Final = 30
"""Deeper filters are rejected for their depth."""


def plain_number(value: Json) -> Json:
    """The scalar as stored; None for a number that can't be stored exactly."""
    if type(value) is payload.VastNumber:
        return None
    if type(value) is Decimal:
        if not -400 < value.adjusted() < 400:
            return None
        near = float(value)
        return near if Decimal(repr(near)) == value else None
    return value
