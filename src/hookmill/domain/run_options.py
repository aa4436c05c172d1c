"""The run options of an automation: its run policy, and what its runs get in addition to the prompt and the payload."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Final

from msgspec import Meta, field
from msgspec.structs import force_setattr

from hookmill.domain import json_pointer
from hookmill.domain.errors import Fault
from hookmill.domain.filters.values import KINDS_BY_TYPE, MISSING
from hookmill.domain.payload import Json, Parsed, VastNumber
from hookmill.domain.payload_pointer import Pointer, value_at
from hookmill.domain.results import DeclaredResults
from hookmill.domain.run_policy import RunPolicy, policy_from_stored, read_stored
from hookmill.domain.run_secrets import RunSecret, RunSecretTexts, problems_of_secrets
from hookmill.domain.spec import Spec
from hookmill.domain.workspace import Workspace

FIELDS_MAX: Final = 32
FIELD_CHARACTERS: Final = 200
"""The default of `RunField.max_characters`."""
FIELD_CHARACTERS_MAX: Final = 2_000
NUMBER_CHARACTERS_MAX: Final = 1_000
"""The longest number that a run gets. A number can't be cut without becoming another one."""
FieldName = Annotated[
    str,
    Meta(
        pattern="^[a-z][a-z0-9_]{0,31}$",
        extra={
            "phrase": "the name of a field: up to 32 lower-case letters, digits and _, and the first one is a letter"
        },
    ),
]


class RunField(Spec, frozen=True, kw_only=True):
    """A value of the payload that programs find in `envelope.json` under a name of the automation's choice."""

    pointer: Annotated[Pointer, Meta(description="The JSON pointer of the value.")]
    max_characters: Annotated[
        int, Meta(ge=1, le=FIELD_CHARACTERS_MAX, description="A longer string is cut after this many characters.")
    ] = FIELD_CHARACTERS

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


class RunOptions(RunPolicy, frozen=True, kw_only=True):
    """The policy of an automation, and the parts that its runs get."""

    fields: Annotated[
        dict[FieldName, RunField | Pointer],
        Meta(max_length=FIELDS_MAX, description="Values of the payload for `envelope.json`, by name. Null: none."),
    ] = field(default_factory=dict)
    secrets: RunSecretTexts = ()
    workspace: Annotated[
        Workspace | None, Meta(description="A checkout of a Git repository for each run. Null: none.")
    ] = None
    results: DeclaredResults = ()

    def __post_init__(self) -> None:
        # Equal options have equal values.
        force_setattr(self, "fields", self.run_fields)
        force_setattr(self, "secrets", tuple(secret.text for secret in self.run_secrets))

    def problems(self) -> Iterator[Fault]:
        yield from problems_of_secrets(self.run_secrets)
        if len(set(self.results)) != len(self.results):
            yield Fault("/results", "Two of the results are equal. Remove one of them.")

    @property
    def run_fields(self) -> dict[str, RunField]:
        """The fields by name. A pointer stands for a field with the default length."""
        return {
            name: RunField(pointer=source) if isinstance(source, str) else source
            for name, source in self.fields.items()
        }

    @property
    def run_secrets(self) -> tuple[RunSecret, ...]:
        """The secrets that the command gets as environment variables."""
        return tuple(map(RunSecret.of, self.secrets))

    def field_values(self, payload: Parsed | None) -> dict[str, FieldValue]:
        """The values of the fields, by name."""
        return {name: source.value_in(payload) for name, source in self.run_fields.items()}


class UnreadableOptions(RunOptions, frozen=True, kw_only=True):
    """Stored options of which a part can't be read."""

    unreadable_parts: dict[str, str]


NO_OPTIONS: Final = RunOptions()
OPTIONS_PART: Final = "run options"
"""The name of the stored options in `unreadable_parts`."""
OPTION_FIELDS: Final = tuple(name for name in RunOptions.__struct_fields__ if name not in RunPolicy.__struct_fields__)
"""The fields of the options that the policy does not have. They are stored together."""


def options_from_stored(policy_json: str, options_json: str) -> RunOptions:
    """The policy and the options of a stored automation. Never raises."""
    policy, options = policy_from_stored(policy_json), read_stored(RunOptions, options_json)
    unreadable = dict(policy.unreadable_parts)
    if isinstance(options, str):
        unreadable[OPTIONS_PART] = options
        options = NO_OPTIONS
    fields = {name: getattr(options, name) for name in OPTION_FIELDS}
    fields |= {name: getattr(policy, name) for name in RunPolicy.__struct_fields__}
    return UnreadableOptions(**fields, unreadable_parts=unreadable) if unreadable else RunOptions(**fields)
