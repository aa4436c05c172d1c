"""What a click on a payload's field makes of the filter."""

from collections.abc import Mapping
from typing import Final

from hookmill.domain.filters import fields_in, pointer_step, with_fields
from hookmill.domain.payload import Json
from hookmill.web.dashboard.filter_editor.field_tree import kind_and_value, planted, source_of
from hookmill.web.dashboard.filter_editor.typed import lines_in, plain_number, read_filter
from hookmill.web.dashboard.filter_editor.writing import written


class CannotAdd(Exception):
    """The field can't be put into the filter as it stands. The text says why."""


def with_field(typed: str, body: Json, number: str) -> str:
    """The filter's text once the payload's field with this number is clicked: its value is asked for, or, if it was,
    it is no longer. Raises `CannotAdd`."""
    reading = read_filter(typed, ())
    if not reading.is_usable:
        raise CannotAdd("The filter has errors. Correct them before you add fields. Nothing was changed.")
    planter, _ = planted(body, {})
    if not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) < len(planter.fields)):
        raise CannotAdd("The payload has no such field. Nothing was changed.")
    steps, value = planter.fields[int(number)]
    changed = _toggled_in(source_of(reading), steps, plain_number(value))
    return written(changed) if changed else ""


def with_event(typed: str, event: str) -> str:
    """The event types' text once that of a delivery is clicked: it is asked for, or, if it was, it is no longer."""
    events = lines_in(typed)
    return "\n".join([each for each in events if each != event] if event in events else [*events, event])


def _toggled_in(
    source: Mapping[str, Json], steps: tuple[str, ...], value: Json, at: str = "", *, at_top: bool = True
) -> dict[str, Json]:
    name, *rest = steps
    fields = fields_in(source, at_top=at_top)
    if fields is None and not at_top:
        raise CannotAdd(_ASKS_FOR_VALUES.format(at))
    wanted = {} if fields is None else fields
    place = f"{at}/{pointer_step(name)}"
    inside = wanted.get(name, {} if rest else None)
    if not rest:
        changed = _toggled(inside, value, place)
    elif type(inside) is dict:
        changed = _toggled_in(inside, tuple(rest), value, place, at_top=False)
    else:
        raise CannotAdd(_ASKS_FOR_VALUES.format(place))
    others = {key: of for key, of in wanted.items() if key != name}
    return with_fields(source, {**wanted, name: changed} if changed else others, at_top=at_top)


_ASKS_FOR_VALUES: Final = (
    "The filter has a condition on the value of {}, so it can't match fields inside it. Change that condition first."
)


def _toggled(wanted: Json, value: Json, place: str) -> Json:
    """What is asked of one field, with the value in its set if it was not, and out of it if it was."""
    if wanted is None:
        return [value]
    if type(wanted) is list:
        return _in_or_out(wanted, value)
    if not with_fields(wanted, {}, at_top=False):
        raise CannotAdd(
            f"The filter has conditions on fields inside {place}, so it can't match its value. Change them first."
        )
    changed = _in_or_out(wanted.get("in", []), value)
    if changed:
        return {**wanted, "in": changed}
    return {name: operand for name, operand in wanted.items() if name != "in"}


def _in_or_out(values: list[Json], value: Json) -> list[Json]:
    kept = [each for each in values if kind_and_value(each) != kind_and_value(value)]
    return kept if len(kept) < len(values) else [*values, value]
