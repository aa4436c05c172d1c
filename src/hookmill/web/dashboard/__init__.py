"""The dashboard: pages for people, over the same operations as the API. It is loaded with its first request.

A request passes the application (who, from where, which page, which role), one handler, and a template.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hookmill.domain.client import Network
from hookmill.management import Management
from hookmill.web.dashboard import (
    account,
    audit,
    automation_editor,
    automations,
    definitions,
    deliveries,
    files,
    home,
    runs,
    secrets,
    settings,
    sign_in,
    start,
    team,
    webhooks,
)
from hookmill.web.dashboard.application import DashboardApplication, Page
from hookmill.web.dashboard.page_context import Service
from hookmill.web.routes import Application

PAGES: Sequence[Page] = (
    *files.PAGES,
    *sign_in.PAGES,
    *account.PAGES,
    *start.PAGES,
    *home.PAGES,
    *webhooks.PAGES,
    *secrets.PAGES,
    *deliveries.PAGES,
    *runs.PAGES,
    *automation_editor.PAGES,
    *automations.PAGES,
    *definitions.PAGES,
    *audit.PAGES,
    *team.PAGES,
    *settings.PAGES,
)


def build(
    management: Management,
    *,
    trusted_proxies: Sequence[Network],
    now_us: Callable[[], int],
    failed: Callable[[str, BaseException], None],
    is_https: bool,
    facts: Mapping[str, Any] | None = None,
) -> Application:
    """The whole dashboard as one ASGI application. `failed` hears of what nobody foresaw."""
    service = Service(
        management=management, now_us=now_us, failed=failed, is_https=is_https, facts=facts if facts is not None else {}
    )
    return DashboardApplication(PAGES, service, trusted_proxies=trusted_proxies)
