"""What is wrong with a field or parameter, in our words: what to give instead. What was sent is not said."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo

from hookmill.domain.text import snake_case
from hookmill.web.api.fields import FORMS

OTHERWISE: Final = "It is not as the API's document says."


class Wording:
    """The words for one route's request: for the fields of its body and its query parameters."""

    def __init__(self, body: Mapping[str, FieldInfo], query: Mapping[str, FieldInfo]) -> None:
        self._known = sorted(body)
        self._ranges = {
            (where, name): said
            for where, fields in (("body", body), ("query", query))
            for name, field in fields.items()
            if (said := _range(field.metadata)) is not None
        }

    def __call__(self, problem: Mapping[str, Any]) -> str:
        """What to say of one of the framework's findings."""
        kind = str(problem["type"])
        if kind == "extra_forbidden":
            return f"There is no such field here. {self._instead_of(str(problem['loc'][-1]))}"
        if kind == "value_error":
            # Said by us, in `fields`.
            return _sentence(str(problem["msg"]).removeprefix("Value error, "))
        where, *place = problem["loc"]
        ranged = self._ranges.get((where, str(place[0]) if place else ""))
        if ranged is not None and kind in _NUMBERS:
            return ranged
        said = _WORDS.get(kind)
        return said(problem.get("ctx") or {}) if said is not None else OTHERWISE

    def _instead_of(self, unknown: str) -> str:
        """Which field to write in place of an unknown one. Definition files have some of them in camelCase."""
        if (likely := snake_case(unknown)) in self._known:
            return f"Did you mean {likely}?"
        return f"Known: {', '.join(self._known)}." if self._known else "None is known."


def _range(metadata: Sequence[Any]) -> str | None:
    low = next((each.ge for each in metadata if isinstance(each, Ge)), None)
    high = next((each.le for each in metadata if isinstance(each, Le)), None)
    return f"Give a number from {low} to {high}." if low is not None and high is not None else None


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _as_it_is(text: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda _: text


def _form(context: Mapping[str, Any]) -> str:
    return FORMS.get(str(context.get("pattern")), OTHERWISE)


_NUMBERS: Final = {
    "greater_than_equal",
    "less_than_equal",
    "int_type",
    "int_parsing",
    "int_parsing_size",
    "int_from_float",
}
_OBJECT: Final = _as_it_is("Give an object.")
_TRUTH: Final = _as_it_is("Give true or false.")
_WHOLE: Final = _as_it_is("Give a whole number.")
_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "missing": _as_it_is("It is missing."),
    "string_type": _as_it_is("Give a text."),
    "string_too_short": lambda told: f"Give at least {_count(told['min_length'], 'character')}.",
    "string_too_long": lambda told: f"Give at most {_count(told['max_length'], 'character')}.",
    "string_pattern_mismatch": _form,
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "list_type": _as_it_is("Give a list."),
    "too_short": lambda told: f"Give at least {told['min_length']:,} of them.",
    "too_long": lambda told: f"Give at most {told['max_length']:,} of them.",
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "enum": lambda told: f"Choose one of: {told['expected']}.",
    "literal_error": lambda told: f"Choose one of: {told['expected']}.",
}


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
