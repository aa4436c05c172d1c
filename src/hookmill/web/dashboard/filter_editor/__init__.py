"""The filter editor's logic: parses the typed filter, shows a stored payload's fields, and tests the filter.

The browser sends the filter's text with each request. A click on a field changes this text on the server, so it works
without scripts too, and numbers stay exact.
"""

from hookmill.web.dashboard.filter_editor.clicks import CannotToggle, toggle_event, toggle_field
from hookmill.web.dashboard.filter_editor.evaluation import (
    Sample,
    SampleChoice,
    evaluate_draft,
    load_sample,
    sample_choices,
    would_trigger,
)
from hookmill.web.dashboard.filter_editor.field_tree import FIELDS_MAX, Node, tree
from hookmill.web.dashboard.filter_editor.formatting import format_filter
from hookmill.web.dashboard.filter_editor.parsing import (
    ParsedTriggers,
    lines_in,
    read_filter,
    read_triggers,
)

__all__ = [
    "FIELDS_MAX",
    "CannotToggle",
    "Node",
    "ParsedTriggers",
    "Sample",
    "SampleChoice",
    "evaluate_draft",
    "format_filter",
    "lines_in",
    "load_sample",
    "read_filter",
    "read_triggers",
    "sample_choices",
    "toggle_event",
    "toggle_field",
    "tree",
    "would_trigger",
]
