"""Read mappings with a fixed set of keys: typed values, and every problem at its line and column."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hookmill.definitions.nodes import MappingNode, Node, ScalarNode
from hookmill.definitions.problem import Place, Problem
from hookmill.domain.errors import Invalid
from hookmill.domain.text import closest_name


class ProblemReporter:
    """Collects the problems and warnings of one file."""

    def __init__(self, file: str, problems: list[Problem], warnings: list[Problem]) -> None:
        self._file = file
        self._problems = problems
        self._warnings = warnings
        self.count = 0

    def report(self, place: Place, message: str) -> None:
        self.count += 1
        self._problems.append(Problem(self._file, place, message))

    def warn(self, place: Place, message: str) -> None:
        self._warnings.append(Problem(self._file, place, message))


@dataclass(frozen=True, slots=True)
class MappingReader:
    """Reads the values of one mapping, and reports problems with these values. A key with `null` counts as absent.

    `text` and `boolean` return None if the key is absent, and after reporting a value of another type.
    """

    node: MappingNode
    reporter: ProblemReporter
    already_reported_keys: frozenset[str] = frozenset()
    """Keys that the author misspelt, or wrote at a wrong place. A problem is already reported for each."""

    def report(self, key: str, message: str) -> None:
        entry = self.node.entries.get(key)
        self.reporter.report(entry.value.place if entry is not None else self.node.place, message)

    def value_node(self, key: str) -> Node | None:
        entry = self.node.entries.get(key)
        return entry.value if entry is not None and not _is_null(entry.value) else None

    def text(self, key: str) -> str | None:
        node = self.value_node(key)
        if node is None:
            return None
        if isinstance(node, ScalarNode):
            if type(node.value) is str and node.value:
                return node.value
            if node.value == "":
                self.report(key, f"{key} has no value. Write one, or remove the line.")
                return None
            self.report(key, f"{key} must be text. Put it in quotes.")
            return None
        self.report(key, f"{key} must be text, not a list or a mapping.")
        return None

    def required_text(self, key: str, advice: str) -> str | None:
        if self.value_node(key) is None:
            self.report_missing(key, advice)
            return None
        return self.text(key)

    def report_missing(self, key: str, advice: str) -> None:
        """Report the missing key, unless a misspelling of it is already reported. `advice` says what to write."""
        if key not in self.already_reported_keys:
            self.report(key, f"{key} is missing. {advice}.")

    def boolean(self, key: str) -> bool | None:
        node = self.value_node(key)
        if node is None:
            return None
        if isinstance(node, ScalarNode) and type(node.value) is bool:
            return node.value
        spelling = node.spelling[:40] if isinstance(node, ScalarNode) else ""
        remark = f" ({spelling} is text.)" if spelling.lower() in _YES_AND_NO else ""
        self.report(key, f"{key} must be true or false.{remark}")
        return None

    def check_value(self, key: str, check: Callable[[], object]) -> bool:
        """Call a check of the domain. If it raises `Invalid`, report the error at the key, and return False."""
        try:
            check()
        except Invalid as error:
            self.report(key, str(error))
            return False
        return True


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value is None


_YES_AND_NO: Final = {"yes", "no", "on", "off", "y", "n"}


def mapping_reader(
    node: Node | None,
    subject: str,
    keys: Sequence[str],
    reporter: ProblemReporter,
    *,
    hint_by_wrong_key: Mapping[str, str] | None = None,
    meaning_by_foreign_key: Mapping[str, str] | None = None,
) -> MappingReader | None:
    """A reader of this mapping. Reports unknown keys. None without a node, or after reporting another kind of node.

    `subject` begins the error text for a node that is not a mapping. `hint_by_wrong_key` has an error text for each key
    that authors write by mistake. `meaning_by_foreign_key` has keys of other implementations, which get a warning.
    """
    if node is None:
        return None
    if not isinstance(node, MappingNode):
        reporter.report(node.place, f"{subject} must be a mapping with the keys {', '.join(keys)}.")
        return None
    reported_keys: set[str] = set()
    for key, entry in node.entries.items():
        if key in keys or _is_null(entry.value):
            continue
        if (meaning := (meaning_by_foreign_key or {}).get(key)) is not None:
            reporter.warn(entry.place, f"{key} has no effect here. {meaning}")
        elif (hint := (hint_by_wrong_key or {}).get(key)) is not None:
            # The hint may name the right key, whose absence is then no further problem.
            reported_keys.update(re.findall(r"\w+", hint))
            reporter.report(entry.place, hint)
        elif (suggestion := closest_name(key, keys)) is not None:
            reported_keys.add(suggestion)
            reporter.report(entry.place, f"Unknown key {key[:40]!r}. Did you mean {suggestion}?")
        else:
            reporter.report(entry.place, f"Unknown key {key[:40]!r}. Known keys: {', '.join(keys)}.")
    return MappingReader(node, reporter, frozenset(reported_keys.intersection(keys)))
