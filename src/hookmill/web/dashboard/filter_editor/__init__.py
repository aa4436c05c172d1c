"""The filter editor's reasoning: what was typed, what a stored payload offers, and what the two make of each other.

The text that a person sees is the filter. Clicking a field rewrites that text, here, so that it works alike with and
without scripts, and every number stays what it is.
"""

from hookmill.web.dashboard.filter_editor.clicks import CannotAdd, with_event, with_field
from hookmill.web.dashboard.filter_editor.draft import Offer, Outcome, Sample, offers, outcome, sample, would_trigger
from hookmill.web.dashboard.filter_editor.field_tree import FIELDS_MAX, Node, Tree, tree
from hookmill.web.dashboard.filter_editor.typed import Reading, Syntax, lines_in, read_filter, read_triggers
from hookmill.web.dashboard.filter_editor.writing import written

__all__ = [
    "FIELDS_MAX",
    "CannotAdd",
    "Node",
    "Offer",
    "Outcome",
    "Reading",
    "Sample",
    "Syntax",
    "Tree",
    "lines_in",
    "offers",
    "outcome",
    "read_filter",
    "read_triggers",
    "sample",
    "tree",
    "with_event",
    "with_field",
    "would_trigger",
    "written",
]
