"""The page of definition files: whether they define the factory, and the last `plan` and `apply` of them."""

import shlex
from typing import Final

from starlette.responses import Response

from hookmill.domain import text
from hookmill.domain.permission import MayView
from hookmill.management import DefinitionAct, DefinitionOutcome
from hookmill.web.dashboard.access import require_viewer
from hookmill.web.dashboard.application import Page
from hookmill.web.dashboard.page_context import PageContext


def show(context: PageContext, may: MayView) -> Response:
    definition_runs = context.management.definition_runs.last(may)
    last_successes = {
        act: next((run for run in definition_runs if (run.act, run.outcome) == (act, DefinitionOutcome.DONE)), None)
        for act in DefinitionAct
    }
    newest = definition_runs[0] if definition_runs else None
    return context.page(
        "definitions.html",
        may=may,
        factory_argument=text.shown(shlex.quote(may.factory.name)),
        last_refusal=newest if newest is not None and newest.outcome is DefinitionOutcome.REFUSED else None,
        last_plan=last_successes[DefinitionAct.PLAN],
        last_apply=last_successes[DefinitionAct.APPLY],
    )


PAGES: Final = (Page("GET", "/f/{factory}/definitions", show, require_viewer),)
