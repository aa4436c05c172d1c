"""/attempts/{attempt}/report: the reports of agent platforms about the attempts that they perform."""

from fastapi import APIRouter, Response

from hookmill.domain.platform_report import platform_report
from hookmill.web.api.access import AttemptAccess, ManagementDependency
from hookmill.web.api.bodies import AttemptReport
from hookmill.web.api.route import Route

routes = APIRouter(prefix="/attempts", route_class=Route, tags=["Runs"])


@routes.post(
    "/{attempt}/report", operation_id="report_attempt", summary="Report the end of an attempt", status_code=204
)
def report_attempt(body: AttemptReport, may: AttemptAccess, management: ManagementDependency) -> Response:
    """Ends an attempt that a runner of the kind `http` sent to an agent platform.

    Send the token of this attempt instead of an API key: `Authorization: Bearer hat_…`. The first report counts, and
    the same one may be sent again. If the attempt has ended, or if a later one has begun, the response is 409.
    """
    report = platform_report(
        succeeded=body.state == "succeeded",
        reason=body.reason,
        result=body.result,
        cost_usd=body.cost_usd,
        input_tokens=body.input_tokens,
        output_tokens=body.output_tokens,
    )
    management.platform_reports.receive(may, report)
    return Response(status_code=204)
