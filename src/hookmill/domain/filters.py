"""Which deliveries start a run? A payload filter mirrors the body's shape and lists what its fields may hold.

`{"action": ["opened"], "repository": {"private": {"not_in": [true]}}}`: every key must match. A key's value
is an array (any of these), operators (`in`, `not_in`, `exists`: all must hold) or an object (nested fields).

- A missing field fails `in` and passes `not_in`. A present `null` exists. A nested object asks for an object
  to be there, so `{"a": {"b": {"exists": false}}}` does not match `{}`.
- A field that holds an array: `in` asks for one element in the set, `not_in` for none, a nested object for
  one element that satisfies all of it. Arrays inside that array stay closed: neither values nor objects.
- The body itself is such a field: an array matches by one of its objects. A scalar, or an array without an
  object, matches only `{}`, which matches everything.
- Values are equal when kind and value are: strings by code point, numbers by exact value, `true` is not `1`.
  An object or an array is in no set.
- The filter's own top level names fields only, so `{"in": ["x"]}` reads a field called `in`. Below it, a
  field named like an operator can't be reached.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from itertools import islice
from typing import Any, Final

from hookmill.domain.errors import Fault
from hookmill.domain.payload import Json, Parsed, VastNumber, plain_spelling

DEPTH_MAX: Final = 10
"""Field names on the way from the top to a condition."""
CONDITIONS_MAX: Final = 64
"""Operators in one filter, a bare array counting as one."""
SET_VALUES_MAX: Final = 32
SOURCE_CHARACTERS_MAX: Final = 65_536
"""Length of the filter as JSON in ASCII."""
SHOWN_CHARACTERS_MAX: Final = 200
"""Length of a value in an explanation; a longer one is cut and ends with an ellipsis."""
CLOSEST_OF: Final = 1_000
"""Objects of an array that an explanation compares when none of them matches."""
TELLING_MAX: Final = 4
"""Groups of strings that are looked for before a body is decoded, and strings in a group."""
_READ_MAX: Final = 1_000
"""Conditions and problems after which the rest of a hopeless filter is left unread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionOutcome:
    """One condition against one payload. `expected` and `found` are JSON for people, cut when long."""

    pointer: str
    """The place in the payload that was judged, as a JSON pointer. What can't be printed is escaped."""
    operator: str
    expected: str
    found: str
    """The value there, or the word `missing`, which is no JSON. What nests further is `{…}` or `[…]`."""
    held: bool
    no_object_at: str | None = None
    """Where an object is wanted and none is, if that is why the condition failed. Empty for the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Matched means that every condition held. Of an array, the matching object is shown, or the closest."""

    matched: bool
    conditions: tuple[ConditionOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFilter:
    """A filter that can be evaluated: in time linear in the payload, on a stack bounded by the filter."""

    source: Json = field(compare=False, repr=False)
    """The filter as it was given."""
    source_json: str
    """The same as JSON in ASCII, every number exact: the form to store."""
    rule: "_ObjectRule" = field(compare=False, repr=False)
    telling: tuple[tuple[bytes, ...], ...] = field(default=(), compare=False, repr=False)
    """Groups of strings, as bodies spell them: of each group one must be in a body that passes."""

    def matches(self, payload: Parsed) -> bool:
        """Whether the payload passes."""
        if not self.rule.fields:
            return True
        # Most deliveries fail on a word that isn't even in them. Seeing that takes no decoding.
        for spellings in self.telling:
            if payload.holds_none_of(spellings):
                return False
        return self.rule.holds(payload.value)

    def explain(self, payload: Parsed) -> Explanation:
        """Whether the payload passes, and why."""
        outcomes = tuple(self.rule.outcomes(payload.value, at="")) if self.rule.fields else ()
        return Explanation(matched=self.matches(payload), conditions=outcomes)


def compile_filter(source: Json) -> CompiledFilter | list[Fault]:
    """The filter, ready to evaluate, or all that is wrong with it. Takes any JSON or YAML value, never raises.

    A Python float stands for its shortest decimal spelling; `payload.parse` keeps longer ones exact.
    """
    if type(source) is not dict:
        return [Fault("", 'A filter is an object such as {"action": ["opened"]}.')]
    reader = _Reader(problems=[], conditions=[])
    top = reader.object_rule(source, at="", depth=0)
    if len(reader.conditions) > CONDITIONS_MAX:
        reader.refuse("", f"The filter has more than {CONDITIONS_MAX} conditions. Drop some.")
    if reader.problems:
        return reader.problems
    source_json = filter_to_json(source)
    if len(source_json) > SOURCE_CHARACTERS_MAX:
        reader.refuse("", f"The filter has more than {SOURCE_CHARACTERS_MAX:,} characters. Shorten it.")
        return reader.problems
    groups = (condition.operator.spellings(condition.operand) for condition in reader.conditions)
    telling = tuple(group for group in groups if group and len(group) <= TELLING_MAX)[:TELLING_MAX]
    return CompiledFilter(source=source, source_json=source_json, rule=top, telling=telling)


def filter_to_json(source: Json) -> str:
    """A compiled filter's source as JSON in ASCII; parsing it again gives an equal filter."""
    if type(source) is dict:
        return "{" + ",".join(f"{json.dumps(name)}:{filter_to_json(of)}" for name, of in source.items()) + "}"
    if type(source) is list:
        return "[" + ",".join(map(filter_to_json, source)) + "]"
    return json.dumps(source) if type(source) is str else _plain_text(source)


class _Missing(Enum):
    MISSING = "missing"


_MISSING: Final = _Missing.MISSING

_ValueSet = frozenset[tuple[str, Json]]

# Python holds True equal to 1; the kind beside the value tells them apart. An int and a Decimal of one value
# are equal and hash alike, so they share a kind.
_KINDS: Final[Mapping[type, str]] = {
    str: "string",
    bool: "boolean",
    type(None): "null",
    int: "number",
    Decimal: "number",
    VastNumber: "number",
}


def _scalar(given: Json) -> tuple[str, Json] | None:
    """A filter's value as its kind and itself, None for what is no JSON scalar."""
    if type(given) is float:
        return ("number", Decimal(repr(given))) if math.isfinite(given) else None
    if type(given) is Decimal and not given.is_finite():
        return None
    kind = _KINDS.get(type(given))
    return (kind, given) if kind else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operator:
    """One line of the operator table."""

    name: str
    read: Callable[["_Reader", Json, str], Any]
    """What was given to the operator, checked: its operand, or None once the problems are noted."""
    holds: Callable[[Any, Json], bool]
    """Whether a field's value, which may be `_MISSING`, satisfies the operand."""
    spellings: Callable[[Any], tuple[bytes, ...]] = lambda _: ()
    """The strings of which a body must hold one for the operator to hold; none where that can't be told."""


def _in_set(expected: _ValueSet, value: Json) -> bool:
    if type(value) is list:
        return any((_KINDS[type(one)], one) in expected for one in value if type(one) in _KINDS)
    kind = _KINDS.get(type(value))
    return kind is not None and (kind, value) in expected


def _spellings(expected: _ValueSet) -> tuple[bytes, ...]:
    found = [plain_spelling(value) if kind == "string" else None for kind, value in expected]
    return () if None in found else tuple(spelling for spelling in found if spelling is not None)


def _not_in_set(expected: _ValueSet, value: Json) -> bool:
    return not _in_set(expected, value)


def _exists(expected: bool, value: Json) -> bool:
    return (value is not _MISSING) is expected


@dataclass(frozen=True, slots=True, kw_only=True)
class _Condition:
    operator: _Operator
    operand: Any
    given: Json

    def holds(self, value: Json) -> bool:
        return self.operator.holds(self.operand, value)


class _ValueRule:
    """The conditions on one field; all must hold."""

    __slots__ = ("conditions",)

    def __init__(self, conditions: Sequence[_Condition]) -> None:
        self.conditions = tuple(conditions)

    def holds(self, value: Json) -> bool:
        # Plain loops here and below: this runs for every delivery, and a generator doubles the time.
        for condition in self.conditions:  # noqa: SIM110
            if not condition.operator.holds(condition.operand, value):
                return False
        return True

    def outcomes(self, value: Json, at: str) -> Iterator[ConditionOutcome]:
        for condition in self.conditions:
            place, judged = _deciding_element(condition, value, at)
            yield ConditionOutcome(
                pointer=place,
                operator=condition.operator.name,
                expected=_shown(condition.given),
                found=_shown(judged),
                held=condition.holds(value),
            )

    def outcomes_without_object(self, at: str, no_object_at: str) -> Iterator[ConditionOutcome]:
        for condition in self.conditions:
            yield ConditionOutcome(
                pointer=at,
                operator=condition.operator.name,
                expected=_shown(condition.given),
                found=_shown(_MISSING),
                held=False,
                no_object_at=no_object_at,
            )


class _ObjectRule:
    """A rule for each named field of one object; all must hold."""

    __slots__ = ("_required", "fields")

    def __init__(self, fields: "Mapping[str, _ValueRule | _ObjectRule]") -> None:
        self.fields = fields
        self._required = frozenset(name for name, rule in fields.items() if not rule.holds(_MISSING))

    def holds(self, value: Json) -> bool:
        if type(value) is dict:
            return self._holds_for(value)
        if type(value) is list:
            return any(self._holds_for(element) for element in value if type(element) is dict)
        return False

    def _holds_for(self, found: dict[str, Json]) -> bool:
        if len(self.fields) <= len(found):
            for name, rule in self.fields.items():  # noqa: SIM110
                if not rule.holds(found.get(name, _MISSING)):
                    return False
            return True
        # More fields than keys: going by the keys keeps the work in proportion to the payload. What absence
        # means for the other fields was judged when the rule was made.
        if not found.keys() >= self._required:
            return False
        for name, value in found.items():  # noqa: SIM110
            if name in self.fields and not self.fields[name].holds(value):
                return False
        return True

    def outcomes(self, value: Json, at: str) -> Iterator[ConditionOutcome]:
        index, found = self._shown_object(value)
        if found is None:
            yield from self.outcomes_without_object(at, no_object_at=at)
            return
        place = at if index is None else f"{at}/{index}"
        for name, rule in self.fields.items():
            yield from rule.outcomes(found.get(name, _MISSING), f"{place}/{_token(name)}")

    def outcomes_without_object(self, at: str, no_object_at: str) -> Iterator[ConditionOutcome]:
        for name, rule in self.fields.items():
            yield from rule.outcomes_without_object(f"{at}/{_token(name)}", no_object_at)

    def _shown_object(self, value: Json) -> tuple[int | None, dict[str, Json] | None]:
        """The object to explain, and its index in an array: the first that holds, or else the closest."""
        if type(value) is dict:
            return None, value
        if type(value) is not list:
            return None, None
        objects = ((index, element) for index, element in enumerate(value) if type(element) is dict)
        first = next(((index, element) for index, element in objects if self._holds_for(element)), None)
        if first is not None:
            return first
        objects = ((index, element) for index, element in enumerate(value) if type(element) is dict)
        return max(islice(objects, CLOSEST_OF), key=lambda one: self._closeness(one[1]), default=(None, None))

    def _closeness(self, found: dict[str, Json]) -> int:
        return sum(rule.holds(found.get(name, _MISSING)) for name, rule in self.fields.items())


def _deciding_element(condition: _Condition, value: Json, at: str) -> tuple[str, Json]:
    """The element that alone turns an array's outcome from an empty one's; without such, the array."""
    if type(value) is not list:
        return at, value
    undecided = condition.holds([])
    if condition.holds(value) != undecided:
        for index, element in enumerate(value):
            if type(element) in _KINDS and condition.holds(element) != undecided:
                return f"{at}/{index}", element
    return at, value


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """Turns a filter's source into rules, and notes every problem on the way."""

    problems: list[Fault]
    conditions: list[_Condition]

    def refuse(self, pointer: str, message: str) -> None:
        self.problems.append(Fault(pointer, message))

    def object_rule(self, source: dict[Any, Json], at: str, depth: int) -> _ObjectRule:
        fields: dict[str, _ValueRule | _ObjectRule] = {}
        for name, wanted in source.items():
            if type(name) is not str:
                self.refuse(at, f"Field names are strings. Put {_shown(name)} in quotes.")
                continue
            place = f"{at}/{_token(name)}"
            if depth > 0 and _is_misspelt_operator(name):
                self.refuse(place, f"Unknown operator. {_OPERATORS_ARE}")
            else:
                fields[name] = self.field_rule(wanted, place, depth + 1)
        return _ObjectRule(fields)

    def field_rule(self, wanted: Json, at: str, depth: int) -> _ValueRule | _ObjectRule:
        if len(self.conditions) + len(self.problems) > _READ_MAX:
            return _NO_CONDITIONS
        if depth > DEPTH_MAX:
            self.refuse(at, f"A filter reaches at most {DEPTH_MAX} fields deep. Choose a field further up.")
            return _NO_CONDITIONS
        if type(wanted) is list:
            return self.value_rule({"in": wanted}, at, lambda _: at)
        if type(wanted) is not dict:
            self.refuse(at, _NOT_AN_ARRAY if depth == 1 else f"{_NOT_AN_ARRAY} {_OPERATORS_ARE}")
            return _NO_CONDITIONS
        if not wanted:
            self.refuse(at, 'An empty object asks for nothing. Name a field, or write {"exists": true}.')
            return _NO_CONDITIONS
        operators = {key: given for key, given in wanted.items() if key in OPERATORS}
        fields = {key: given for key, given in wanted.items() if key not in OPERATORS}
        if operators and fields:
            mixed = f"`{next(iter(operators))}` is an operator and {_shown(next(iter(fields)))} is none."
            self.refuse(at, f"{mixed} An object holds only operators or only fields. {_OPERATORS_ARE}")
        nested = self.object_rule(fields, at, depth) if fields else _NO_CONDITIONS
        return self.value_rule(operators, at, lambda name: f"{at}/{name}") if operators else nested

    def value_rule(self, operators: Mapping[str, Json], at: str, place_of: Callable[[str], str]) -> _ValueRule:
        conditions: list[_Condition] = []
        for name, given in operators.items():
            operand = OPERATORS[name].read(self, given, place_of(name))
            condition = _Condition(operator=OPERATORS[name], operand=operand, given=given)
            self.conditions.append(condition)
            if operand is not None:
                conditions.append(condition)
        self._refuse_contradictions({condition.operator.name: condition for condition in conditions}, at)
        return _ValueRule(conditions)

    def _refuse_contradictions(self, conditions: Mapping[str, _Condition], at: str) -> None:
        wanted, unwanted, exists = (conditions.get(name) for name in ("in", "not_in", "exists"))
        if wanted and exists and exists.operand is False:
            self.refuse(f"{at}/exists", "An absent field is in no set. Drop `exists` or `in`.")
        if wanted and unwanted:
            for index, value in enumerate(unwanted.given):
                if _scalar(value) in wanted.operand:
                    self.refuse(f"{at}/not_in/{index}", "`in` and `not_in` both hold this value. Drop one.")


def _read_set(reader: _Reader, given: Json, at: str) -> _ValueSet | None:
    if type(given) is not list:
        reader.refuse(at, 'Write an array of values, such as ["opened", "closed"].')
        return None
    if not given:
        reader.refuse(at, "An empty array matches no value. List at least one, or leave the field out.")
        return None
    if len(given) > SET_VALUES_MAX:
        reader.refuse(at, f"{len(given)} values in one array. Keep to {SET_VALUES_MAX} or fewer.")
        return None
    values = [_scalar(value) for value in given]
    for index, value in enumerate(values):
        if value is None:
            reader.refuse(f"{at}/{index}", "Write a string, a finite number, true, false or null.")
    return None if None in values else frozenset(value for value in values if value is not None)


def _read_flag(reader: _Reader, given: Json, at: str) -> bool | None:
    if type(given) is not bool:
        reader.refuse(at, "Write true (the field must be present) or false (it must be absent).")
        return None
    return given


OPERATORS: Final[Mapping[str, _Operator]] = {
    operator.name: operator
    for operator in (
        _Operator(name="in", read=_read_set, holds=_in_set, spellings=_spellings),
        _Operator(name="not_in", read=_read_set, holds=_not_in_set),
        _Operator(name="exists", read=_read_flag, holds=_exists),
    )
}
"""The operator table. To add an operator, add a line here and its cases to the tests."""

_OPERATORS_ARE: Final = f"Operators are {', '.join(OPERATORS)}."
_NOT_AN_ARRAY: Final = 'Write the values as an array, such as ["opened"], or an object for nested fields.'
_NO_CONDITIONS: Final = _ValueRule(())

_WITHOUT_PUNCTUATION: Final = str.maketrans("", "", "$_- ")
_OPERATOR_LETTERS: Final = frozenset(name.translate(_WITHOUT_PUNCTUATION) for name in OPERATORS)


def _is_misspelt_operator(key: str) -> bool:
    """`$in`, `not-in`, `notIn`: an operator but for punctuation. `IN` may be a field, such as a state's."""
    lowered = key.lower()
    return lowered not in OPERATORS and lowered.translate(_WITHOUT_PUNCTUATION) in _OPERATOR_LETTERS


def _token(name: str) -> str:
    """A field's name as a step of a JSON pointer, fit to be shown."""
    return _printable(name.replace("~", "~0").replace("/", "~1"))


def _printable(text: str) -> str:
    # Control characters and direction overrides garble pages and terminals; lone surrogates can't be encoded.
    return "".join(one if one.isprintable() else _escape(one) for one in text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 1] + "…"


def _shown(value: Json) -> str:
    """A value for people: JSON, cut; what an inner object or array holds is left out."""
    if value is _MISSING:
        return "missing"
    if type(value) is not list:
        return _cut(_shown_shallow(value))
    # An element and its comma fill two places or more: those after these could not be seen.
    text = ", ".join(_shown_shallow(element) for element in value[:SHOWN_CHARACTERS_MAX])
    return f"[{text}]" if len(text) + 2 <= SHOWN_CHARACTERS_MAX else f"[{text[: SHOWN_CHARACTERS_MAX - 3]}…]"


def _shown_shallow(value: Json) -> str:
    if type(value) is dict:
        return "{…}" if value else "{}"
    if type(value) is list:
        return "[…]" if value else "[]"
    if type(value) is str:
        return _printable(json.dumps(value[:SHOWN_CHARACTERS_MAX], ensure_ascii=False))
    return _plain_text(value)


def _plain_text(value: Json) -> str:
    """A number, true, false or null as JSON."""
    if value is None:
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float:
        return str(Decimal(repr(value)))
    # Through Decimal, because the interpreter may refuse to write out a long int.
    return str(Decimal(value) if type(value) is int else value)
