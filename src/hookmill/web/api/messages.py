"""The error texts for invalid fields and parameters. A text describes valid values, and never quotes the sent one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from hookmill.domain.text import snake_case
from hookmill.web.api.fields import PATTERN_HINTS

INVALID_VALUE: Final = "The value does not match the OpenAPI document."


class ErrorMessages:
    """The error texts for one route: for the fields of its body and its query parameters."""

    def __init__(self, body: Mapping[str, FieldInfo], query: Mapping[str, FieldInfo]) -> None:
        self._body_fields = sorted(body)
        self._ranges = {
            (part, name): text
            for part, fields in (("body", body), ("query", query))
            for name, field in fields.items()
            if (text := _range_text(field.metadata)) is not None
        }

    def __call__(self, error: Mapping[str, Any]) -> str:
        """The text for one error of the validation framework."""
        error_type = str(error["type"])
        if error_type == "extra_forbidden":
            return f"Unknown field. {self._suggestion(str(error['loc'][-1]))}"
        if error_type == "value_error":
            # The validators in `fields` wrote the message.
            return _sentence(str(error["msg"]).removeprefix("Value error, "))
        part, *path = error["loc"]
        range_text = self._ranges.get((part, str(path[0]) if path else ""))
        if range_text is not None and error_type in _NUMBER_ERRORS:
            return range_text
        text = _TEXTS.get(error_type)
        return text(error.get("ctx") or {}) if text is not None else INVALID_VALUE

    def _suggestion(self, unknown: str) -> str:
        """The field to use in place of an unknown one. Definition files name some fields in camelCase."""
        if (likely := snake_case(unknown)) in self._body_fields:
            return f"Did you mean {likely}?"
        return f"Allowed fields: {', '.join(self._body_fields)}." if self._body_fields else "The body has no fields."


def _range_text(metadata: Sequence[Any]) -> str | None:
    minimum = next((constraint.ge for constraint in metadata if isinstance(constraint, Ge)), None)
    maximum = next((constraint.le for constraint in metadata if isinstance(constraint, Le)), None)
    return f"Use a number from {minimum} to {maximum}." if minimum is not None and maximum is not None else None


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _constant(text: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda _: text


def _pattern_hint(context: Mapping[str, Any]) -> str:
    return PATTERN_HINTS.get(str(context.get("pattern")), INVALID_VALUE)


_NUMBER_ERRORS: Final = {
    "greater_than_equal",
    "less_than_equal",
    "int_type",
    "int_parsing",
    "int_parsing_size",
    "int_from_float",
}
_OBJECT: Final = _constant("Use an object.")
_BOOLEAN: Final = _constant("Use true or false.")
_INTEGER: Final = _constant("Use a whole number.")
_TEXTS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "missing": _constant("This field is required."),
    "string_type": _constant("Use a string."),
    "string_too_short": lambda context: f"Use at least {_count(context['min_length'], 'character')}.",
    "string_too_long": lambda context: f"Use at most {_count(context['max_length'], 'character')}.",
    "string_pattern_mismatch": _pattern_hint,
    "bool_type": _BOOLEAN,
    "bool_parsing": _BOOLEAN,
    "int_type": _INTEGER,
    "int_parsing": _INTEGER,
    "int_parsing_size": _INTEGER,
    "int_from_float": _INTEGER,
    "list_type": _constant("Use a list."),
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
