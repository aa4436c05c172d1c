"""A mapping whose keys are known: its values by kind, and every problem with them at its place."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hookmill.definitions.nodes import MappingNode, Node, ScalarNode
from hookmill.definitions.problem import Place, Problem
from hookmill.domain.errors import Invalid


class Notes:
    """The problems of one file."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self._file = file
        self._problems = problems
        self.count = 0

    def refuse(self, place: Place, message: str) -> None:
        self.count += 1
        self._problems.append(Problem(self._file, place, message))


@dataclass(frozen=True, slots=True)
class Form:
    """A mapping whose keys are known, and where to note what is wrong with them."""

    node: MappingNode
    notes: Notes
    meant: frozenset[str] = frozenset()
    """Keys that somebody tried to write: what was written instead is noted."""

    def refuse(self, key: str, message: str) -> None:
        entry = self.node.entries.get(key)
        self.notes.refuse(entry.value.place if entry is not None else self.node.place, message)

    def given(self, key: str) -> Node | None:
        entry = self.node.entries.get(key)
        return entry.value if entry is not None else None

    def text(self, key: str) -> str | None:
        node = self.given(key)
        if node is None:
            return None
        if isinstance(node, ScalarNode):
            if type(node.value) is str and node.value:
                return node.value
            if node.value is None or node.value == "":
                self.refuse(key, f"{key} has no value. Write one, or drop the line.")
                return None
            self.refuse(key, f"{key} is text, and this is not. Put it in quotes.")
            return None
        self.refuse(key, f"{key} is text, not a list or a mapping.")
        return None

    def required(self, key: str, what: str) -> str | None:
        if self.given(key) is None:
            self.lacks(key, what)
            return None
        return self.text(key)

    def lacks(self, key: str, what: str) -> None:
        """Note that the key is missing, unless what was meant to be it is noted already."""
        if key not in self.meant:
            self.notes.refuse(self.node.place, f"{key} is missing. {what}.")

    def flag(self, key: str) -> bool | None:
        node = self.given(key)
        if node is None:
            return None
        if isinstance(node, ScalarNode) and type(node.value) is bool:
            return node.value
        said = node.spelled[:40] if isinstance(node, ScalarNode) else ""
        remark = f" ({said} is text.)" if said.lower() in _YES_AND_NO else ""
        self.refuse(key, f"{key} is true or false.{remark}")
        return None

    def attempt(self, key: str, check: Callable[[], object]) -> bool:
        """Whether the domain takes the value; what it says against it is noted."""
        try:
            check()
        except Invalid as error:
            self.refuse(key, str(error))
            return False
        return True


_YES_AND_NO: Final = {"yes", "no", "on", "off", "y", "n"}


def form_of(
    node: Node | None,
    what: str,
    known: Sequence[str],
    notes: Notes,
    *,
    misplaced: Mapping[str, str] | None = None,
) -> Form | None:
    """The mapping, its unknown keys noted; None where there is no mapping."""
    if node is None:
        return None
    if not isinstance(node, MappingNode):
        notes.refuse(node.place, f"{what} is a mapping with the keys {', '.join(known)}.")
        return None
    meant: set[str] = set()
    for key, entry in node.entries.items():
        if key in known:
            continue
        if (said := (misplaced or {}).get(key)) is not None:
            meant.update(re.findall(r"\w+", said))
            notes.refuse(entry.place, said)
        elif (close := _like(key, known)) is not None:
            meant.add(close)
            notes.refuse(entry.place, f"Unknown key {key[:40]!r}. Did you mean {close}?")
        else:
            notes.refuse(entry.place, f"Unknown key {key[:40]!r}. Known here: {', '.join(known)}.")
    return Form(node, notes, frozenset(meant.intersection(known)))


def _like(key: str, known: Sequence[str]) -> str | None:
    plain = {one.lower().replace("_", ""): one for one in known}
    close = difflib.get_close_matches(key.lower().replace("_", "").replace("-", "")[:40], plain, n=1)
    return plain[close[0]] if close else None
