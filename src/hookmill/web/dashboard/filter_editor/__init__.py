"""The filter editor's logic: parses the typed filter, shows a stored payload's fields, and tests the filter.

The filter is the visible text. A click on a field changes this text on the server, so it works without scripts too, and
numbers stay exact.
"""

from hookmill.web.dashboard.filter_editor.clicks import CannotAdd, with_event, with_field
from hookmill.web.dashboard.filter_editor.draft import (
    Outcome,
    Sample,
    SampleChoice,
    outcome,
    sample,
    sample_choices,
    would_trigger,
)
from hookmill.web.dashboard.filter_editor.field_tree import FIELDS_MAX, Node, Tree, tree
from hookmill.web.dashboard.filter_editor.typed import ParsedTriggers, Syntax, lines_in, read_filter, read_triggers
from hookmill.web.dashboard.filter_editor.writing import format_filter

__all__ = [
    "FIELDS_MAX",
    "CannotAdd",
    "Node",
    "Outcome",
    "ParsedTriggers",
    "Sample",
    "SampleChoice",
    "Syntax",
    "Tree",
    "format_filter",
    "lines_in",
    "outcome",
    "read_filter",
    "read_triggers",
    "sample",
    "sample_choices",
    "tree",
    "with_event",
    "with_field",
    "would_trigger",
]
