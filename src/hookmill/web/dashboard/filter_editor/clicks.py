"""Changes the text of the filter or of the event types after a click. A second click undoes the change."""

from collections.abc import Mapping
from typing import Final

from hookmill.domain.filters import fields_in, pointer_step, with_fields
from hookmill.domain.payload import Json
from hookmill.web.dashboard.filter_editor.field_tree import build_tree, comparable, source_of
from hookmill.web.dashboard.filter_editor.formatting import format_filter
from hookmill.web.dashboard.filter_editor.parsing import lines_in, read_filter, storable_scalar


class CannotToggle(Exception):
    """The field's value can't be added to the current filter, or removed from it. The message is the reason."""


def toggle_field(filter_text: str, body: Json, number: str) -> str:
    """The filter's text after a click on the field with this number. The click adds or removes the field's value.

    `number`: the `number` of the field's `Node`, as the form sent it. Raises `CannotToggle`.
    """
    parsed = read_filter(filter_text, ())
    if not parsed.is_usable:
        raise CannotToggle("The filter has errors. Correct them before you add fields. Nothing was changed.")
    builder, _ = build_tree(body, {})
    if not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) < len(builder.fields)):
        raise CannotToggle("The payload has no such field. Nothing was changed.")
    steps, value = builder.fields[int(number)]
    changed_source = _toggle_at(source_of(parsed), steps, storable_scalar(value))
    return format_filter(changed_source) if changed_source else ""


def toggle_event(events_text: str, event: str) -> str:
    """The text of the event types after a click on an event type. The click adds or removes this event type."""
    events = lines_in(events_text)
    return "\n".join([other for other in events if other != event] if event in events else [*events, event])


def _toggle_at(
    source: Mapping[str, Json], steps: tuple[str, ...], value: Json, at: str = "", *, is_body: bool = True
) -> dict[str, Json]:
    """The filter's source with the condition at these steps toggled. `at` is the JSON pointer of `source`.

    `is_body`: whether `source` is the filter's top level, where `in`, `not_in` and `exists` are names of fields.
    """
    name, *rest = steps
    fields = fields_in(source, is_body=is_body)
    # At the top level, fields can be added beside operators. Below it, operators are conditions on the field's value.
    if fields is None and not is_body:
        raise CannotToggle(_HAS_VALUE_CONDITION.format(at))
    conditions = {} if fields is None else fields
    pointer = f"{at}/{pointer_step(name)}"
    condition = conditions.get(name, {} if rest else None)
    if not rest:
        changed = _toggle_condition(condition, value, pointer)
    elif type(condition) is dict:
        changed = _toggle_at(condition, tuple(rest), value, pointer, is_body=False)
    else:
        raise CannotToggle(_HAS_VALUE_CONDITION.format(pointer))
    others = {key: other for key, other in conditions.items() if key != name}
    return with_fields(source, {**conditions, name: changed} if changed else others, is_body=is_body)


_HAS_VALUE_CONDITION: Final = (
    "The filter has a condition on the value of {}, so it can't match fields inside it. Change that condition first."
)


def _toggle_condition(condition: Json, value: Json, pointer: str) -> Json:
    """The condition on a field, with the value added if it was missing, and removed if it was present."""
    if condition is None:
        return [value]
    if type(condition) is list:
        return _toggle_value(condition, value)
    operators = with_fields(condition, {}, is_body=False)
    if not operators:
        raise CannotToggle(
            f"The filter has conditions on fields inside {pointer}, so it can't match its value. Change them first."
        )
    values = _toggle_value(condition.get("in", []), value)
    if values:
        return {**condition, "in": values}
    return {name: operand for name, operand in condition.items() if name != "in"}


def _toggle_value(values: list[Json], value: Json) -> list[Json]:
    """The values without this value if it was among them, else with it."""
    others = [other for other in values if comparable(other) != comparable(value)]
    return others if len(others) < len(values) else [*values, value]
