"""Positions in the source of a filter, at which problems are reported."""

from dataclasses import dataclass, replace

from hookmill.domain.filters.rendering import pointer_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A position in the filter."""

    pointer: str = ""
    depth: int = 0
    field_path: tuple[str, ...] = ()
    """The field to which the conditions at this position apply. Empty for the whole body."""

    @property
    def is_body(self) -> bool:
        return not self.field_path

    def operand(self, operator: str) -> "Position":
        """The operand of an operator at this position, on the same level."""
        return replace(self, pointer=f"{self.pointer}/{operator}")

    def element(self, index: int) -> "Position":
        """An element of the array at this position, on the same level."""
        return replace(self, pointer=f"{self.pointer}/{index}")

    def nested(self, index: int | None = None) -> "Position":
        """A position one level deeper, for the same field: the content of `$any` or `$not`."""
        pointer = self.pointer if index is None else f"{self.pointer}/{index}"
        return replace(self, pointer=pointer, depth=self.depth + 1)

    def nested_field(self, name: str) -> "Position":
        """A position one level deeper, for a nested field."""
        return Position(
            pointer=f"{self.pointer}/{pointer_step(name)}", depth=self.depth + 1, field_path=(*self.field_path, name)
        )
