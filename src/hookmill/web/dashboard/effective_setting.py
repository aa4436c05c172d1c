"""An effective setting, as the page of settings shows it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSetting:
    """The value of a secret setting only shows whether it is set."""

    name: str
    value: tuple[str, ...]
    """The lines of the value."""
    default: tuple[str, ...]
    meaning: str
    variable: str
    """The name of its environment variable."""
    origin: str
    """The source of the value: `environment`, `file` or `default`."""
