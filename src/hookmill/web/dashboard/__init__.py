"""The dashboard: pages for people, with operations like those of the API. The first request loads it.

For each request, the application authenticates, selects the page and checks the role. Then a handler renders the page.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from hookmill.domain.errors import ReportFailure
from hookmill.domain.networks import Network
from hookmill.management import Management
from hookmill.web.dashboard import (
    account,
    alarm_destinations,
    alarms,
    audit,
    automation_editor,
    automations,
    definitions,
    deliveries,
    external_sign_in,
    files,
    home,
    queue,
    runs,
    secrets,
    settings,
    sign_in,
    start,
    team,
    webhooks,
)
from hookmill.web.dashboard.application import DashboardApplication, Page
from hookmill.web.dashboard.effective_setting import EffectiveSetting
from hookmill.web.dashboard.page_context import Service
from hookmill.web.routes import Application

if TYPE_CHECKING:
    from hookmill.oidc.provider import Provider

PAGES: Sequence[Page] = (
    *files.PAGES,
    *sign_in.PAGES,
    *external_sign_in.PAGES,
    *account.PAGES,
    *start.PAGES,
    *home.PAGES,
    *webhooks.PAGES,
    *secrets.PAGES,
    *deliveries.PAGES,
    *queue.PAGES,
    *alarms.PAGES,
    *runs.PAGES,
    *automation_editor.PAGES,
    *automations.PAGES,
    *definitions.PAGES,
    *audit.PAGES,
    *team.PAGES,
    *alarm_destinations.PAGES,
    *settings.PAGES,
)


def build(
    management: Management,
    *,
    trusted_proxies: Sequence[Network],
    now_us: Callable[[], int],
    report_failure: ReportFailure,
    is_https: bool,
    settings: Mapping[str, EffectiveSetting] | None = None,
    has_room: Callable[[], bool] = lambda: True,
    provider: "Provider | None" = None,
) -> Application:
    """The dashboard as an ASGI application. `report_failure` is called for unexpected errors.

    `settings`: the effective settings, for admins. `has_room`: whether the disk has room for another delivery.
    `provider`: the OpenID Connect provider of the management's `external_sign_in`.
    """
    service = Service(
        management=management,
        now_us=now_us,
        report_failure=report_failure,
        is_https=is_https,
        settings=settings if settings is not None else {},
        has_room=has_room,
        provider=provider,
    )
    return DashboardApplication(PAGES, service, trusted_proxies=trusted_proxies)
