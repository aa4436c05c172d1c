"""Every provider whose signatures are known, read from `catalogue.toml` when first asked for.

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
    """An entry of the catalogue that can't be used: a mistake in this package, not in what a caller gave."""


def names() -> tuple[str, ...]:
    """Every name that `find` knows, the aliases too, in order."""
    return tuple(sorted(_by_name()))


def schemes() -> tuple[Scheme, ...]:
    """Every scheme once, in order of its name."""
    return tuple(sorted({scheme.name: scheme for scheme in _by_name().values()}.values(), key=lambda one: one.name))


def find(name: str, *, also: tuple[str, ...] = ()) -> Scheme:
    """The scheme of this name or alias. Raises `Invalid` that lists the allowed names, with those in `also`."""
    scheme = _by_name().get(name)
    if scheme is None:
        close = difflib.get_close_matches(name.lower().replace("-", "_")[:100], names(), n=1)
        meant = f" Did you mean {close[0]}?" if close else ""
        allowed = ", ".join(sorted((*names(), *also)))
        raise Invalid(f"{name[:80]!r} is no signature scheme.{meant} Allowed are: {allowed}.")
    return scheme


@cache
def _by_name() -> Mapping[str, Scheme]:
    return read(resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8"))


def read(text: str) -> Mapping[str, Scheme]:
    """A catalogue's schemes by name and by alias. Raises `BrokenCatalogue` that names the scheme and the field."""
    found: dict[str, Scheme] = {}
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise BrokenCatalogue(f"{_FILE}: {fault}") from fault
    for name, table in tables.items():
        scheme = _entry(name, table)
        for known_as in (name, *scheme.aliases):
            if known_as in found:
                raise BrokenCatalogue(f"{_FILE}, {name}: {known_as} is already a name of {found[known_as].name}")
            found[known_as] = scheme
    return found


def _entry(name: str, table: Any) -> Scheme:
    try:
        return msgspec.convert({**table, "name": name}, Scheme)
    except (msgspec.ValidationError, TypeError) as fault:
        raise BrokenCatalogue(f"{_FILE}, {name}: {_in_plain_words(str(fault))}") from fault


def _in_plain_words(said: str) -> str:
    """msgspec ends its message with the place, such as `$.signature.encoding`, and names no allowed values."""
    what, _, place = said.partition(" - at `$.")
    field = place.rstrip("`")
    choices = _CHOICES.get(field.rpartition(".")[2]) if "enum" in what else None
    allowed = f"; write one of {', '.join(choices)}" if choices else ""
    return f"{field}: {what}{allowed}" if field else said


_CHOICES: Final[Mapping[str, type[StrEnum]]] = {
    "algorithm": Algorithm,
    "encoding": Encoding,
    "claim_encoding": Encoding,
    "unit": TimeUnit,
    "decode": SecretDecoding,
    "kind": ProofKind,
}
