"""What a click on a payload's field makes of the filter."""

from hookmill.domain.filters import OPERATORS
from hookmill.domain.payload import Json
from hookmill.web.dashboard.filter_editor.field_tree import kind_and_value, planted, source_of
from hookmill.web.dashboard.filter_editor.typed import plain_number, read_filter, step_of
from hookmill.web.dashboard.filter_editor.writing import written


class CannotAdd(Exception):
    """The field can't be put into the filter as it stands. The text says why."""


def with_field(typed: str, body: Json, number: str) -> str:
    """The filter's text once the payload's field with this number is clicked: its value is asked for, or, if it was,
    it is no longer. Raises `CannotAdd`."""
    reading = read_filter(typed, ())
    if not reading.is_usable:
        raise CannotAdd("The filter has a problem. Fix it first; then fields can be added. Nothing was changed.")
    planter, _ = planted(body, {})
    if not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) < len(planter.fields)):
        raise CannotAdd("The payload has no such field. Nothing was changed.")
    steps, value = planter.fields[int(number)]
    changed = _toggled_in(source_of(reading), steps, plain_number(value))
    return written(changed) if changed else ""


def _toggled_in(source: dict[str, Json], steps: tuple[str, ...], value: Json, at: str = "") -> dict[str, Json]:
    name, *rest = steps
    place = f"{at}/{step_of(name)}"
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
    kept = [each for each in values if kind_and_value(each) != kind_and_value(value)]
    return kept if len(kept) < len(values) else [*values, value]
