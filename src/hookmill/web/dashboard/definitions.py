"""The page of definition files: whether they define the factory, and the last plan and apply."""

import shlex
from typing import Final

from starlette.responses import Response

from hookmill.domain import text
from hookmill.domain.permission import MayView
from hookmill.management import DefinitionAct, DefinitionOutcome
from hookmill.web.dashboard.access import viewing
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext


def show(context: PageContext, may: MayView) -> Response:
    runs = context.management.definition_runs.last(may)
    done = {act: next((run for run in runs if (run.act, run.outcome) == (act, _DONE)), None) for act in DefinitionAct}
    newest = runs[0] if runs else None
    return context.page(
        "definitions.html",
        may=may,
        factory_word=text.shown(shlex.quote(may.factory.name)),
        refused=newest if newest is not None and newest.outcome is DefinitionOutcome.REFUSED else None,
        planned=done[DefinitionAct.PLAN],
        applied=done[DefinitionAct.APPLY],
    )


_DONE: Final = DefinitionOutcome.DONE

PAGES: Final = (Page("GET", "/f/{factory}/definitions", show, viewing),)
