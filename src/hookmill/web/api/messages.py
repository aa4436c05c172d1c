"""The error texts for invalid fields and parameters. A text describes valid values, and never quotes the value that
the client sent.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from hookmill.domain.text import snake_case
from hookmill.web.api.fields import PATTERN_HINTS

INVALID_VALUE: Final = "The value does not match the OpenAPI document."


class ErrorMessages:
    """The error texts for one route, about the fields of its body and about its query parameters."""

    def __init__(self, body_fields: Mapping[str, FieldInfo], query_parameters: Mapping[str, FieldInfo]) -> None:
        self._body_fields = sorted(body_fields)
        self._range_texts = {
            (part, name): text
            for part, fields in (("body", body_fields), ("query", query_parameters))
            for name, field in fields.items()
            if (text := _range_text(field.metadata)) is not None
        }

    def __call__(self, error: Mapping[str, Any]) -> str:
        """The text for one error of the validation framework."""
        error_type = str(error["type"])
        if error_type == "extra_forbidden":
            return f"Unknown field. {self._suggestion(str(error['loc'][-1]))}"
        if error_type == "value_error":
            # The message comes from a validator in `fields`.
            return _sentence(str(error["msg"]).removeprefix("Value error, "))
        part, *path = error["loc"]
        range_text = self._range_texts.get((part, str(path[0]) if path else ""))
        if range_text is not None and error_type in _NUMBER_ERROR_TYPES:
            return range_text
        text_for = _TEXT_FUNCTIONS.get(error_type)
        return text_for(error.get("ctx") or {}) if text_for is not None else INVALID_VALUE

    def _suggestion(self, unknown_field: str) -> str:
        """A sentence with the field to use instead of an unknown field, or with all fields.

        A client may use the camelCase names of definition files, so the snake_case name is tried.
        """
        if (candidate := snake_case(unknown_field)) in self._body_fields:
            return f"Did you mean {candidate}?"
        return f"Allowed fields: {', '.join(self._body_fields)}." if self._body_fields else "The body has no fields."


def _range_text(metadata: Sequence[Any]) -> str | None:
    """The text for a field with a minimum and a maximum; None for other fields."""
    minimum = next((constraint.ge for constraint in metadata if isinstance(constraint, Ge)), None)
    maximum = next((constraint.le for constraint in metadata if isinstance(constraint, Le)), None)
    return f"Use a number from {minimum} to {maximum}." if minimum is not None and maximum is not None else None


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _always(text: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda _: text


def _pattern_hint(context: Mapping[str, Any]) -> str:
    return PATTERN_HINTS.get(str(context.get("pattern")), INVALID_VALUE)


_NUMBER_ERROR_TYPES: Final = {
    "greater_than_equal",
    "less_than_equal",
    "int_type",
    "int_parsing",
    "int_parsing_size",
    "int_from_float",
}
_OBJECT: Final = _always("Use an object.")
_BOOLEAN: Final = _always("Use true or false.")
_INTEGER: Final = _always("Use a whole number.")
_TEXT_FUNCTIONS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "greater_than_equal": lambda context: f"Use a number of at least {context['ge']:,}.",
    "less_than_equal": lambda context: f"Use a number of at most {context['le']:,}.",
    "missing": _always("This field is required."),
    "string_type": _always("Use a string."),
    "string_too_short": lambda context: f"Use at least {_count(context['min_length'], 'character')}.",
    "string_too_long": lambda context: f"Use at most {_count(context['max_length'], 'character')}.",
    "string_pattern_mismatch": _pattern_hint,
    "bool_type": _BOOLEAN,
    "bool_parsing": _BOOLEAN,
    "int_type": _INTEGER,
    "int_parsing": _INTEGER,
    "int_parsing_size": _INTEGER,
    "int_from_float": _INTEGER,
    "list_type": _always("Use a list."),
    "too_short": lambda context: f"Use at least {_count(context['min_length'], 'item')}.",
    "too_long": lambda context: f"Use at most {_count(context['max_length'], 'item')}.",
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "enum": lambda context: f"Choose one of: {context['expected']}.",
    "literal_error": lambda context: f"Choose one of: {context['expected']}.",
}


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
