"""The run options of an automation: what its runs get in addition to the prompt and the payload.

Each option is one field of the automation's JSON, and one attribute of `RunOptions`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from hookmill.domain import json_pointer
from hookmill.domain.errors import Invalid
from hookmill.domain.filters.values import KINDS_BY_TYPE, MISSING
from hookmill.domain.payload import Json, Parsed, VastNumber
from hookmill.domain.payload_pointer import usable_pointer, value_at
from hookmill.domain.results import DeclaredResult, results_from_json
from hookmill.domain.run_policy import read_stored, refuse_unreadable, unreadable_text
from hookmill.domain.run_secrets import RunSecret, run_secrets_from_json
from hookmill.domain.workspace import Workspace, workspace_from_json

FIELDS_MAX: Final = 32
FIELD_NAME_PATTERN: Final = "[a-z][a-z0-9_]{0,31}"
FIELD_CHARACTERS: Final = 200
"""The default of `RunField.max_characters`."""
FIELD_CHARACTERS_MAX: Final = 2_000
NUMBER_CHARACTERS_MAX: Final = 1_000
"""The longest number that a run gets. A number can't be cut without becoming another one."""
_FIELD_NAME: Final = re.compile(rf"{FIELD_NAME_PATTERN}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunField:
    """A value of the payload that programs find in `envelope.json` under a name of the automation's choice."""

    name: str
    pointer: str
    """The JSON pointer of the value."""
    max_characters: int = FIELD_CHARACTERS
    """A longer string is cut after this many characters."""

    def as_json(self) -> str | dict[str, Any]:
        if self.max_characters == FIELD_CHARACTERS:
            return self.pointer
        return {"pointer": self.pointer, "max_characters": self.max_characters}

    def value_in(self, payload: Parsed | None) -> "FieldValue":
        """The field's value. Without a payload it is missing."""
        value = value_at(payload.value if payload is not None else MISSING, json_pointer.steps_of(self.pointer))
        return _field_value(value, self.max_characters)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldValue:
    """The value of a field in one payload. It is untrusted: the sender of the payload wrote it."""

    type: str
    """The JSON type (`string`, `number`, `boolean`, `null`, `object` or `array`), or `missing`."""
    value: str | int | Decimal | bool | None
    """None for null, and for what a field can't hold: missing values, objects, arrays and numbers that are too long."""
    is_cut: bool = False
    """Whether the value is the beginning of a longer string, or left out because the number is too long."""

    def as_json(self) -> dict[str, Json]:
        """The value in `envelope.json`. Numbers are exact, so the result is for `exact_json`."""
        return {"value": self.value, "type": self.type, "cut": self.is_cut, "trust": "untrusted"}


NO_FIELD_VALUES: Final[Mapping[str, FieldValue]] = {}


def _field_value(value: Json, max_characters: int) -> FieldValue:
    if value is MISSING:
        return FieldValue(type="missing", value=None)
    kind = KINDS_BY_TYPE.get(type(value))
    match kind:
        case None:
            return FieldValue(type="object" if type(value) is dict else "array", value=None)
        case "string":
            return FieldValue(type=kind, value=value[:max_characters], is_cut=len(value) > max_characters)
        case "number" if type(value) is VastNumber or len(str(value)) > NUMBER_CHARACTERS_MAX:
            return FieldValue(type=kind, value=None, is_cut=True)
        case _:
            return FieldValue(type=kind, value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The parts that the runs of an automation get."""

    fields: tuple[RunField, ...] = ()
    secrets: tuple[RunSecret, ...] = ()
    """The secrets that the command gets as environment variables."""
    workspace: Workspace | None = None
    """The checkout that each run gets; None: none."""
    results: tuple[DeclaredResult, ...] = ()
    unreadable: str | None = None
    """Why the stored options can't be read. Then all other attributes have their defaults, and no run may start."""

    @property
    def reason_against_runs(self) -> str | None:
        """Why a run ends as interrupted instead of starting; None if runs may start."""
        if self.unreadable is None:
            return None
        return f"The run did not start, because {unreadable_text('run options', self.unreadable)}"

    def as_json(self) -> dict[str, Any]:
        """The options' fields of the automation, without those that have their default."""
        options: dict[str, Any] = {}
        if self.fields:
            options["fields"] = {field.name: field.as_json() for field in self.fields}
        if self.secrets:
            options["secrets"] = [secret.as_json() for secret in self.secrets]
        if self.workspace is not None:
            options["workspace"] = self.workspace.as_json()
        if self.results:
            options["results"] = [result.as_json() for result in self.results]
        return options

    def field_values(self, payload: Parsed | None) -> dict[str, FieldValue]:
        """The values of the fields, by name."""
        return {field.name: field.value_in(payload) for field in self.fields}


NO_OPTIONS: Final = RunOptions()
OPTION_FIELDS: Final = ("fields", "secrets", "workspace", "results")


def changed_options(options: RunOptions, changes: Mapping[str, Any]) -> RunOptions:
    """The options with some of their `OPTION_FIELDS` replaced. None resets a field to its default.

    Raises `Invalid` with a JSON pointer, also if the options can't be read and not all are replaced.
    """
    refuse_unreadable("run options", options.unreadable, changes, OPTION_FIELDS)
    return options_from_json({**options.as_json(), **changes}) if changes else options


def options_from_json(source: Mapping[str, Any]) -> RunOptions:
    """The options with these `OPTION_FIELDS`; other keys are ignored. Raises `Invalid` with a JSON pointer."""
    fields, secrets, workspace, results = (source.get(name) for name in OPTION_FIELDS)
    return RunOptions(
        fields=_fields(fields) if fields is not None else (),
        secrets=run_secrets_from_json(secrets) if secrets is not None else (),
        workspace=workspace_from_json(workspace) if workspace is not None else None,
        results=results_from_json(results) if results is not None else (),
    )


def options_from_stored(stored_json: str) -> RunOptions:
    """The options of a stored automation. Never raises."""
    return read_stored(stored_json, OPTION_FIELDS, options_from_json, lambda reason: RunOptions(unreadable=reason))


def _fields(source: Any) -> tuple[RunField, ...]:
    if not isinstance(source, dict):
        raise Invalid(
            "fields must be an object of names with JSON pointers, such as {pr: /pull_request/number}.",
            pointer="/fields",
        )
    if len(source) > FIELDS_MAX:
        raise Invalid(f"An automation has at most {FIELDS_MAX} fields; got {len(source)}.", pointer="/fields")
    return tuple(_field(name, field_source) for name, field_source in source.items())


def _field(name: Any, source: Any) -> RunField:
    if not isinstance(name, str) or not _FIELD_NAME.match(name):
        raise Invalid(
            f"{str(name)[:40]!r} can't name a field: use up to 32 lower-case letters, digits and _, and begin with a "
            "letter.",
            pointer="/fields",
        )
    place = f"/fields/{name}"
    if not isinstance(source, dict):
        return RunField(name=name, pointer=usable_pointer(source, place, f"The field {name}"))
    for key in source:
        if key not in ("pointer", "max_characters"):
            raise Invalid(
                f"Unknown key {str(key)[:40]!r} of the field {name}. Known keys: pointer, max_characters.",
                pointer=place,
            )
    max_characters = source.get("max_characters", FIELD_CHARACTERS)
    if type(max_characters) is not int or not 1 <= max_characters <= FIELD_CHARACTERS_MAX:
        raise Invalid(
            f"max_characters of the field {name} must be a whole number from 1 to {FIELD_CHARACTERS_MAX:,}.",
            pointer=f"{place}/max_characters",
        )
    pointer = usable_pointer(source.get("pointer"), f"{place}/pointer", f"The pointer of the field {name}")
    return RunField(name=name, pointer=pointer, max_characters=max_characters)
