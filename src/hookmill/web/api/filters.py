"""/factories/{factory}/filter-tests and /backtests: would this filter trigger, and why? Asking leaves no trace."""

from fastapi import APIRouter, Response

from hookmill.presentation.filter import BacktestView, FilterTestView
from hookmill.web.api.access import Operations, Viewing
from hookmill.web.api.bodies import NewBacktest, NewFilterTest
from hookmill.web.api.costly import costly
from hookmill.web.api.representation import shown
from hookmill.web.api.route import Route

routes = APIRouter(prefix="/factories/{factory}", route_class=Route, tags=["Filters"])


@routes.post(
    "/filter-tests",
    operation_id="test_filter",
    summary="Test a filter on a delivery",
    response_model=FilterTestView,
)
@costly
def test_filter(may: Viewing, management: Operations, given: NewFilterTest) -> Response:
    """Would a trigger with this filter and these webhooks start a run of a stored delivery? With each check."""
    test = management.filters.test(
        may, given.delivery_id, given=given.filter, event_types=given.event, webhook_ids=given.webhook_ids
    )
    return shown(FilterTestView.of(test))


@routes.post(
    "/backtests",
    operation_id="backtest_filter",
    summary="Test a filter on the last deliveries",
    response_model=BacktestView,
)
@costly
def backtest_filter(may: Viewing, management: Operations, given: NewBacktest) -> Response:
    """On which of the last stored deliveries a draft would have triggered, and on which it would not."""
    backtest = management.filters.backtest(
        may, given=given.filter, event_types=given.event, webhook_ids=given.webhook_ids, last=given.last
    )
    return shown(BacktestView.of(backtest))
