"""The filter editor's reasoning: what was typed, what a stored payload offers, and what the two make of each other.

The text that a person sees is the filter. Clicking a field rewrites that text, here, so that it works alike with and
without scripts, and every number stays what it is.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, NoReturn

from hookmill.domain import ids, payload, text
from hookmill.domain.automation import Trigger, triggers_from_json
from hookmill.domain.delivery import Delivery, Label
from hookmill.domain.errors import Fault, Invalid, NotFound
from hookmill.domain.filters import OPERATORS, CompiledFilter, compile_filter, filter_to_json
from hookmill.domain.ids import WebhookUid
from hookmill.domain.payload import Json
from hookmill.domain.permission import MayView
from hookmill.management import Backtest, FilterTest, Management, judge_filter

FIELDS_MAX: Final = 500
"""How many fields of a payload are shown to be clicked."""
LEVELS_MAX: Final = 12
"""How deep they are shown: filters reach less deep."""
OPEN_UP_TO: Final = 12
"""A branch with more fields is folded, unless the filter asks for one of them."""
VALUE_SHOWN_MAX: Final = 120
DELIVERIES_OFFERED: Final = 20
BACKTESTED: Final = 50
SUMMARY_BYTES_MAX: Final = 16_384
"""Payloads that are longer are listed by time and size alone, so that the list stays quick."""
LINE_SHOWN_MAX: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """Where a text stops being JSON. `line` is 0 where no place can be told; around the place stands `before|after`."""

    message: str
    line: int = 0
    column: int = 0
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a typed filter, or list of triggers, comes to. Without a fault there are triggers."""

    triggers: tuple[Trigger, ...] = ()
    faults: tuple[Fault, ...] = ()
    syntax: Syntax | None = None

    @property
    def is_usable(self) -> bool:
        return self.syntax is None and not self.faults


def read_filter(typed: str, webhook_ids: Sequence[str]) -> Reading:
    """One trigger with these webhooks and this filter. Nothing typed is no filter: every payload passes."""
    uids = tuple(dict.fromkeys(WebhookUid(uid) for uid in webhook_ids))
    if not typed.strip():
        return Reading(triggers=(Trigger(webhook_ids=uids),))
    source = _json_in(typed)
    if isinstance(source, Reading):
        return source
    compiled = compile_filter(source)
    if isinstance(compiled, CompiledFilter):
        return Reading(triggers=(Trigger(webhook_ids=uids, payload=compiled),))
    return Reading(faults=tuple(compiled))


def read_triggers(typed: str) -> Reading:
    """All triggers, from the list as the API and the command line write it."""
    source = _json_in(typed)
    if isinstance(source, Reading):
        return source
    try:
        return Reading(triggers=triggers_from_json(source))
    except Invalid as error:
        return Reading(faults=tuple(_in_the_list(fault) for fault in error.faults))


def _in_the_list(fault: Fault) -> Fault:
    # The list is all there is to see here: places are told from its top.
    message = fault.message.removeprefix(f"{fault.pointer}: ")
    return Fault(fault.pointer.removeprefix("/triggers"), message)


class _Repeated(ValueError):
    pass


def _json_in(typed: str) -> Json:
    """The value, with numbers as they can be stored; a `Reading` that says why there is none."""
    body = typed.encode("utf-8", "surrogatepass")
    parsed = payload.parse(body)
    if isinstance(parsed, payload.NotJson):
        return Reading(syntax=_syntax(typed, parsed.reason))
    try:
        _SYNTAX.decode(typed)
    except _Repeated as repeated:
        return Reading(syntax=Syntax(message=str(repeated)))
    faults: list[Fault] = []
    value = _storable(parsed.value, "", faults)
    return Reading(faults=tuple(faults)) if faults else value


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
    return Syntax(message=f"It can't be read: {reason}.")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _once_each(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            said = text.shown(json.dumps(name, ensure_ascii=False)[:VALUE_SHOWN_MAX])
            raise _Repeated(f"The field {said} stands twice in one object, and only one would count. Make them one.")
        seen.add(name)


_SYNTAX: Final = json.JSONDecoder(
    parse_float=str, parse_int=str, parse_constant=_no_constant, object_pairs_hook=_once_each
)


def _storable(value: Json, at: str, faults: list[Fault], level: int = 0) -> Json:
    """The value with plain numbers, as triggers are stored. One that would change by that is a fault."""
    if level > _DEEPER_THAN_ANY_FILTER:
        return value
    if type(value) is dict:
        return {name: _storable(of, f"{at}/{_step(name)}", faults, level + 1) for name, of in value.items()}
    if type(value) is list:
        return [_storable(of, f"{at}/{index}", faults, level + 1) for index, of in enumerate(value)]
    kept = _plain_number(value)
    if kept is None and value is not None:
        faults.append(Fault(at, "This number has more digits than a filter can keep. Choose another field."))
    return kept


_DEEPER_THAN_ANY_FILTER: Final = 30
"""What nests further is refused for that."""


def _step(name: str) -> str:
    """A field's name as a step of a JSON pointer, fit to be shown."""
    return text.shown(name.replace("~", "~0").replace("/", "~1"))


def _plain_number(value: Json) -> Json:
    """A scalar as it can be stored; None for a number that can't be, without becoming another."""
    if type(value) is payload.VastNumber:
        return None
    if type(value) is Decimal:
        if not -400 < value.adjusted() < 400:
            return None
        near = float(value)
        return near if Decimal(repr(near)) == value else None
    return value


# What a payload offers


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A field of a payload, as it stands in the tree. `number` is what a click on it sends; None: no filter reaches it,
    for what `why_not` says."""

    name: str
    shown: str
    number: int | None = None
    is_chosen: bool = False
    why_not: str = ""
    children: tuple["Node", ...] = ()
    is_branch: bool = False
    is_open: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    root: Node
    is_whole: bool
    chosen: tuple[int, ...]
    """The numbers of the fields whose values the filter asks for."""


@dataclass(slots=True)
class _Planter:
    """Makes a tree of a payload. Fields are numbered as they are met, so that the same payload has the same numbers."""

    source: Json
    fields: list[tuple[tuple[str, ...], Json]] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)
    room: int = FIELDS_MAX
    is_whole: bool = True

    def node(self, name: str, value: Json, steps: tuple[str, ...] | None, level: int, why_not: str = "") -> Node:
        self.room -= 1
        if type(value) not in (dict, list):
            return self._leaf(name, value, steps)
        many, one = ("fields", "field") if type(value) is dict else ("elements", "element")
        shown = f"{len(value)} {one if len(value) == 1 else many}"
        children: tuple[Node, ...] = ()
        chosen_before = len(self.chosen)
        if level < LEVELS_MAX:
            children = tuple(self._children(value, steps, level))
        elif value:
            self.is_whole = False
        is_open = level == 0 or len(children) <= OPEN_UP_TO or len(self.chosen) > chosen_before
        return Node(name=name, shown=shown, children=children, is_branch=True, is_open=is_open, why_not=why_not)

    def _children(
        self, value: dict[str, Json] | list[Json], steps: tuple[str, ...] | None, level: int
    ) -> Iterator[Node]:
        inside: Iterator[tuple[str, Json]]
        if type(value) is dict:
            inside = iter(value.items())
        else:
            inside = ((str(index), element) for index, element in enumerate(value))
        for name, of in inside:
            if self.room <= 0:
                self.is_whole = False
                return
            if type(value) is dict:
                below = (*steps, name) if steps is not None else None
                yield self.node(_name_shown(name), of, below, level + 1)
            elif type(of) is list:
                yield self.node(f"[{name}]", of, None, level + 1, "an array inside an array is closed to filters")
            else:
                # A filter goes through an array to its elements, and names none of them.
                yield self.node(f"[{name}]", of, steps, level + 1)

    def _leaf(self, name: str, value: Json, steps: tuple[str, ...] | None) -> Node:
        shown = _value_shown(value)
        if steps is None:
            return Node(name=name, shown=shown)
        if why_not := _why_not(steps, value):
            return Node(name=name, shown=shown, why_not=why_not)
        number = len(self.fields)
        self.fields.append((steps, value))
        is_chosen = _is_asked_for(self.source, steps, value)
        if is_chosen:
            self.chosen.append(number)
        return Node(name=name, shown=shown, number=number, is_chosen=is_chosen)


def tree(body: Json, reading: Reading) -> Tree:
    """The payload to be clicked at, with what the filter asks for already."""
    planter = _planted(body, _source(reading))
    return Tree(root=planter[1], is_whole=planter[0].is_whole, chosen=tuple(planter[0].chosen))


def _planted(body: Json, source: Json) -> tuple[_Planter, Node]:
    planter = _Planter(source)
    return planter, planter.node("", body, (), 0)


def _source(reading: Reading) -> Json:
    if not reading.is_usable or len(reading.triggers) != 1 or reading.triggers[0].payload is None:
        return {}
    return reading.triggers[0].payload.source


def _why_not(steps: tuple[str, ...], value: Json) -> str:
    """Why no filter can ask for this value there; empty when one can. The filter's own rules decide."""
    if not steps:
        return "a value without a name: filters ask for named fields"
    kept = _plain_number(value)
    if kept is None and value is not None:
        return "the number has more digits than a filter can keep"
    wanted: Json = [kept]
    for name in reversed(steps):
        wanted = {name: wanted}
    compiled = compile_filter(wanted)
    if isinstance(compiled, CompiledFilter):
        is_read_as_operator = any(name in OPERATORS for name in steps[1:])
        return "below the top, a field that is named like an operator can't be reached" if is_read_as_operator else ""
    return compiled[0].message


def _name_shown(name: str) -> str:
    shown = text.shown(name[:VALUE_SHOWN_MAX]) + ("…" if len(name) > VALUE_SHOWN_MAX else "")
    return shown if shown.strip() else f'"{shown}"'


def _value_shown(value: Json) -> str:
    if type(value) is str:
        is_cut = len(value) > VALUE_SHOWN_MAX
        return text.shown(json.dumps(value[:VALUE_SHOWN_MAX], ensure_ascii=False)) + ("…" if is_cut else "")
    said = filter_to_json(value)
    return said if len(said) <= VALUE_SHOWN_MAX else said[:VALUE_SHOWN_MAX] + "…"


# What a click does


class CannotAdd(Exception):
    """The field can't be put into the filter as it stands. The text says why."""


def with_field(typed: str, body: Json, number: str) -> str:
    """The filter's text once the payload's field with this number is clicked: its value is asked for, or, if it was,
    it is no longer. Raises `CannotAdd`."""
    reading = read_filter(typed, ())
    if not reading.is_usable:
        raise CannotAdd("The filter has a problem. Mend it first; then fields can be added. Nothing was changed.")
    planter, _ = _planted(body, {})
    if not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) < len(planter.fields)):
        raise CannotAdd("The payload has no such field. Nothing was changed.")
    steps, value = planter.fields[int(number)]
    changed = _toggled_in(_source(reading), steps, _plain_number(value))
    return written(changed) if changed else ""


def _toggled_in(source: dict[str, Json], steps: tuple[str, ...], value: Json, at: str = "") -> dict[str, Json]:
    name, *rest = steps
    place = f"{at}/{_step(name)}"
    if not rest:
        wanted = _toggled(source.get(name), value, place)
    else:
        inside = source.get(name, {})
        if type(inside) is not dict or inside.keys() & OPERATORS.keys():
            raise CannotAdd(
                f"The filter asks for values of {place}, so it can't ask for fields in it. Change that first."
            )
        wanted = _toggled_in(inside, tuple(rest), value, place)
    if wanted:
        return {**source, name: wanted}
    return {key: of for key, of in source.items() if key != name}


def _toggled(wanted: Json, value: Json, place: str) -> Json:
    """What is asked of one field, with the value in its set if it was not, and out of it if it was."""
    if wanted is None:
        return [value]
    if type(wanted) is list:
        return _in_or_out(wanted, value)
    if not wanted.keys() & OPERATORS.keys():
        raise CannotAdd(f"The filter asks for fields in {place}, not for values of it. Change that first.")
    changed = _in_or_out(wanted.get("in", []), value)
    if changed:
        return {**wanted, "in": changed}
    return {name: given for name, given in wanted.items() if name != "in"}


def _in_or_out(values: list[Json], value: Json) -> list[Json]:
    kept = [each for each in values if _kind_and_value(each) != _kind_and_value(value)]
    return kept if len(kept) < len(values) else [*values, value]


def _is_asked_for(source: Json, steps: tuple[str, ...], value: Json) -> bool:
    wanted = source
    for name in steps:
        if type(wanted) is not dict or name not in wanted:
            return False
        wanted = wanted[name]
    values = wanted.get("in", []) if type(wanted) is dict else wanted
    return type(values) is list and _kind_and_value(value) in map(_kind_and_value, values)


def _kind_and_value(value: Json) -> tuple[str, Json]:
    if type(value) in (int, float, Decimal):
        return "number", Decimal(repr(value)) if type(value) is float else value
    return type(value).__name__, value


def written(source: Json) -> str:
    """JSON as people like to read it, short objects in one line. What can't be seen, or turns a line, is escaped."""
    return _written(source, "", at_top=True)


def _written(source: Json, margin: str, *, at_top: bool = False) -> str:
    if type(source) not in (dict, list):
        return _scalar_written(source)
    flat = _flat(source)
    if not source or (not at_top and len(margin) + len(flat) <= 72):
        return flat
    deeper = margin + "  "
    if type(source) is dict:
        lines = [f"{deeper}{_scalar_written(name)}: {_written(of, deeper)}" for name, of in source.items()]
        return "{\n" + ",\n".join(lines) + f"\n{margin}}}"
    return "[\n" + ",\n".join(deeper + _written(of, deeper) for of in source) + f"\n{margin}]"


def _flat(source: Json) -> str:
    if type(source) is dict:
        return "{" + ", ".join(f"{_scalar_written(name)}: {_flat(of)}" for name, of in source.items()) + "}"
    if type(source) is list:
        return "[" + ", ".join(map(_flat, source)) + "]"
    return _scalar_written(source)


def _scalar_written(value: Json) -> str:
    if type(value) is not str:
        return filter_to_json(value)
    plain = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in plain)


# What a draft would do


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The stored delivery that a draft is tried on."""

    delivery: Delivery
    raw: bytes
    body: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerOutcome:
    """What one trigger makes of the sample, and of the deliveries before. None: there is nothing to judge."""

    test: FilterTest | None
    backtest: Backtest | None

    @property
    def tested(self) -> int:
        return len(self.backtest.matching) + len(self.backtest.others) if self.backtest is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    triggers: tuple[TriggerOutcome, ...]

    @property
    def would_trigger(self) -> bool | None:
        tests = [each.test for each in self.triggers if each.test is not None]
        return any(test.would_trigger for test in tests) if tests else None

    @property
    def webhook_check(self) -> bool:
        return any(each.test is not None and each.test.webhook_check for each in self.triggers)

    @property
    def payload_check(self) -> bool:
        return any(each.test is not None and each.test.payload_check for each in self.triggers)


def outcome(
    management: Management, may: MayView, reading: Reading, sample: Sample | None, known: Mapping[WebhookUid, Any]
) -> Outcome | None:
    """What the draft would do, by the evaluator that triggers use. None while it can't be read."""
    if not reading.is_usable:
        return None
    judged = []
    for trigger in reading.triggers:
        test = None
        if sample is not None:
            chosen = sample.delivery.webhook_uid in trigger.webhook_ids
            test = judge_filter(trigger.payload, sample.raw, webhook_check=chosen)
        uids = [uid for uid in trigger.webhook_ids if uid in known]
        backtest = _backtest(management, may, trigger, uids) if uids else None
        judged.append(TriggerOutcome(test=test, backtest=backtest))
    return Outcome(triggers=tuple(judged))


def would_trigger(triggers: Sequence[Trigger], sample: Sample) -> bool:
    """Whether one of these triggers matches the sample."""
    uid = sample.delivery.webhook_uid
    tests = (judge_filter(each.payload, sample.raw, webhook_check=uid in each.webhook_ids) for each in triggers)
    return any(test.would_trigger for test in tests)


def _backtest(management: Management, may: MayView, trigger: Trigger, uids: Sequence[str]) -> Backtest:
    if trigger.payload is None:
        # Every payload passes: there is no need to read them.
        return Backtest(matching=tuple(_newest(management, may, uids, BACKTESTED)), others=())
    return management.filters.backtest(may, given=trigger.payload.source, webhook_ids=uids, last=BACKTESTED)


def _newest(management: Management, may: MayView, uids: Sequence[str], limit: int) -> list[Delivery]:
    """The newest deliveries with a payload, of these webhooks or, when there are none, of all."""
    found: dict[bytes, Delivery] = {}
    for uid in uids or (None,):
        newest = management.log.newest(may, webhook=uid, label=Label.ACCEPTED, limit=limit)
        found.update((each.key, each) for each in newest)
    return [found[key] for key in sorted(found, reverse=True)[:limit]]


def sample(management: Management, may: MayView, shown_id: str) -> Sample | None:
    """The delivery with this id; None where the log keeps no payload of it."""
    try:
        delivery = management.log.get(may, shown_id)
        raw = management.log.payload(may, shown_id)
    except (NotFound, Invalid):
        return None
    parsed = payload.parse(raw)
    return None if isinstance(parsed, payload.NotJson) else Sample(delivery=delivery, raw=raw, body=parsed.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A stored delivery to pick, and what its payload is about."""

    id: str
    delivery: Delivery
    about: str


def offers(management: Management, may: MayView, webhook_ids: Sequence[str], also: str = "") -> list[Offer]:
    """The newest deliveries with a payload: of these webhooks, or of all when there are none; and the one picked."""
    newest = _newest(management, may, webhook_ids, DELIVERIES_OFFERED)
    offered = [
        Offer(id=ids.delivery_id(each.key), delivery=each, about=_about(management, may, each)) for each in newest
    ]
    if also and also not in {each.id for each in offered}:
        picked = sample(management, may, also)
        if picked is not None:
            offered.append(Offer(id=also, delivery=picked.delivery, about=_about(management, may, picked.delivery)))
    return offered


_TELLING: Final = ("type", "event", "event_type", "eventType", "action", "kind", "state", "status", "name", "id")


def _about(management: Management, may: MayView, delivery: Delivery) -> str:
    """A few of the payload's own words, cut short."""
    if delivery.size > SUMMARY_BYTES_MAX:
        return ""
    found = sample(management, may, ids.delivery_id(delivery.key))
    if found is None:
        return ""
    body = found.body
    if type(body) is not dict:
        return "" if type(body) is list else _value_shown(body)[:60]
    telling = [name for name in _TELLING if type(body.get(name)) not in (dict, list, type(None))]
    names = telling[:2] or [name for name, of in body.items() if type(of) not in (dict, list)][:1]
    return ", ".join(f"{_name_shown(name)[:30]}: {_value_shown(body[name])[:40]}" for name in names)
