"""/factories/{factory}/filter-tests and /backtests: evaluate a filter on recorded deliveries. Nothing is stored."""

from fastapi import APIRouter, Response

from hookmill.domain.run_policy import RunPolicy
from hookmill.domain.spec import read
from hookmill.management import draft_filter
from hookmill.presentation.filter import BacktestView, FilterTestView
from hookmill.web.api.access import ManagementDependency, ViewerAccess
from hookmill.web.api.bodies import BacktestRequest, FilterTestRequest
from hookmill.web.api.expensive import expensive
from hookmill.web.api.representation import json_response
from hookmill.web.api.route import Route

routes = APIRouter(prefix="/factories/{factory}", route_class=Route, tags=["Filters"])


@routes.post(
    "/filter-tests",
    operation_id="test_filter",
    summary="Test a filter on a delivery",
    response_model=FilterTestView,
)
@expensive
def test_filter(permission: ViewerAccess, management: ManagementDependency, body: FilterTestRequest) -> Response:
    """Evaluates a trigger on a recorded delivery, with every check and condition. Starts no run."""
    test = management.filters.test(
        permission, body.delivery_id, draft_filter(body.filter, body.event), webhooks=body.webhook_ids
    )
    return json_response(FilterTestView.of(test))


@routes.post(
    "/backtests",
    operation_id="backtest_filter",
    summary="Backtest a filter",
    response_model=BacktestView,
)
@expensive
def backtest_filter(permission: ViewerAccess, management: ManagementDependency, body: BacktestRequest) -> Response:
    """Evaluates a trigger on the last recorded deliveries. Starts no run."""
    backtest = management.filters.backtest(
        permission,
        draft_filter(body.filter, body.event),
        webhooks=body.webhook_ids,
        last=body.last,
        policy=read(RunPolicy, {"concurrency": body.concurrency, "debounce": body.debounce}),
    )
    return json_response(BacktestView.of(backtest))
