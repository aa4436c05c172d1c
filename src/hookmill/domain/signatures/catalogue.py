"""The signature schemes of all supported providers, read from `catalogue.toml` on first use.

To add a provider, add its table there and its example to `tests/domain/signatures/vectors`.
"""

import difflib
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any, Final

import msgspec

from hookmill.domain.errors import Invalid
from hookmill.domain.signatures.encoding import Encoding, TimeUnit
from hookmill.domain.signatures.scheme import Algorithm, ProofKind, Scheme, SecretDecoding

_FILE: Final = "catalogue.toml"


class BrokenCatalogue(Exception):
    """An entry of the catalogue is invalid. This is a mistake in this package, not in a caller's arguments."""


def names() -> tuple[str, ...]:
    """The names that `find` accepts, including aliases, sorted."""
    return tuple(sorted(_schemes_by_name()))


def schemes() -> tuple[Scheme, ...]:
    """All schemes, without their aliases, sorted by name."""
    distinct = {scheme.name: scheme for scheme in _schemes_by_name().values()}
    return tuple(sorted(distinct.values(), key=lambda scheme: scheme.name))


def find(name: str, *, further_names: tuple[str, ...] = ()) -> Scheme:
    """The scheme with this name or alias. Raises `Invalid` with the allowed names, including `further_names`."""
    scheme = _schemes_by_name().get(name)
    if scheme is None:
        suggestions = difflib.get_close_matches(name.lower().replace("-", "_")[:100], names(), n=1)
        hint = f" Did you mean {suggestions[0]}?" if suggestions else ""
        allowed = ", ".join(sorted((*names(), *further_names)))
        raise Invalid(f"{name[:80]!r} is not a signature scheme.{hint} Allowed are: {allowed}.")
    return scheme


@cache
def _schemes_by_name() -> Mapping[str, Scheme]:
    return read_catalogue(resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8"))


def read_catalogue(text: str) -> Mapping[str, Scheme]:
    """A catalogue's schemes by name and alias. Raises `BrokenCatalogue` with the name of the scheme and the field."""
    scheme_by_name: dict[str, Scheme] = {}
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise BrokenCatalogue(f"{_FILE}: {fault}") from fault
    for name, table in tables.items():
        scheme = _read_scheme(name, table)
        for name_or_alias in (name, *scheme.aliases):
            if (other := scheme_by_name.get(name_or_alias)) is not None:
                raise BrokenCatalogue(f"{_FILE}, {name}: {name_or_alias} is already a name of {other.name}")
            scheme_by_name[name_or_alias] = scheme
    return scheme_by_name


def _read_scheme(name: str, table: Any) -> Scheme:
    try:
        return msgspec.convert({**table, "name": name}, Scheme)
    except (msgspec.ValidationError, TypeError) as fault:
        raise BrokenCatalogue(f"{_FILE}, {name}: {_message_with_choices(str(fault))}") from fault


def _message_with_choices(message: str) -> str:
    """msgspec's message, changed: it begins with the field, and ends with the field's allowed values.

    msgspec's own message ends with the field, such as `$.signature.encoding`, and does not list allowed values.
    """
    problem, _, path = message.partition(" - at `$.")
    field = path.rstrip("`")
    choices = _CHOICES_BY_FIELD.get(field.rpartition(".")[2]) if "enum" in problem else None
    allowed = f"; write one of {', '.join(choices)}" if choices else ""
    return f"{field}: {problem}{allowed}" if field else message


_CHOICES_BY_FIELD: Final[Mapping[str, type[StrEnum]]] = {
    "algorithm": Algorithm,
    "encoding": Encoding,
    "claim_encoding": Encoding,
    "unit": TimeUnit,
    "decode": SecretDecoding,
    "kind": ProofKind,
}
