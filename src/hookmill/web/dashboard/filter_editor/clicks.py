"""Changes the filter's text after a click on a field of a payload."""

from collections.abc import Mapping
from typing import Final

from hookmill.domain.filters import fields_in, pointer_step, with_fields
from hookmill.domain.payload import Json
from hookmill.web.dashboard.filter_editor.field_tree import build_tree, comparable, source_of
from hookmill.web.dashboard.filter_editor.typed import lines_in, plain_number, read_filter
from hookmill.web.dashboard.filter_editor.writing import format_filter


class CannotAdd(Exception):
    """The field can't be added to the current filter. The message is the reason."""


def with_field(typed: str, body: Json, number: str) -> str:
    """The filter's text after a click on the field with this number, which adds or removes a condition on its value.

    Raises `CannotAdd`.
    """
    parsed = read_filter(typed, ())
    if not parsed.is_usable:
        raise CannotAdd("The filter has errors. Correct them before you add fields. Nothing was changed.")
    builder, _ = build_tree(body, {})
    if not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) < len(builder.fields)):
        raise CannotAdd("The payload has no such field. Nothing was changed.")
    steps, value = builder.fields[int(number)]
    changed = _toggled_in(source_of(parsed), steps, plain_number(value))
    return format_filter(changed) if changed else ""


def with_event(typed: str, event: str) -> str:
    """The text of the event types after a click on one, which adds or removes it."""
    events = lines_in(typed)
    return "\n".join([other for other in events if other != event] if event in events else [*events, event])


def _toggled_in(
    source: Mapping[str, Json], steps: tuple[str, ...], value: Json, at: str = "", *, is_body: bool = True
) -> dict[str, Json]:
    name, *rest = steps
    fields = fields_in(source, is_body=is_body)
    if fields is None and not is_body:
        raise CannotAdd(_ASKS_FOR_VALUES.format(at))
    wanted = {} if fields is None else fields
    place = f"{at}/{pointer_step(name)}"
    inside = wanted.get(name, {} if rest else None)
    if not rest:
        changed = _toggled(inside, value, place)
    elif type(inside) is dict:
        changed = _toggled_in(inside, tuple(rest), value, place, is_body=False)
    else:
        raise CannotAdd(_ASKS_FOR_VALUES.format(place))
    others = {key: of for key, of in wanted.items() if key != name}
    return with_fields(source, {**wanted, name: changed} if changed else others, is_body=is_body)


_ASKS_FOR_VALUES: Final = (
    "The filter has a condition on the value of {}, so it can't match fields inside it. Change that condition first."
)


def _toggled(wanted: Json, value: Json, place: str) -> Json:
    """The condition on a field, with the value added if it was missing, and removed if it was present."""
    if wanted is None:
        return [value]
    if type(wanted) is list:
        return _in_or_out(wanted, value)
    if not with_fields(wanted, {}, is_body=False):
        raise CannotAdd(
            f"The filter has conditions on fields inside {place}, so it can't match its value. Change them first."
        )
    changed = _in_or_out(wanted.get("in", []), value)
    if changed:
        return {**wanted, "in": changed}
    return {name: operand for name, operand in wanted.items() if name != "in"}


def _in_or_out(values: list[Json], value: Json) -> list[Json]:
    others = [other for other in values if comparable(other) != comparable(value)]
    return others if len(others) < len(values) else [*values, value]
