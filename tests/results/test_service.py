"""A pull request arrives, and the service reports the run to GitHub, also after kill -9. See also test_review.py."""

import json
from pathlib import Path
from typing import Any

import pytest

from hookmill.domain.run import RunState
from hookmill.management import Management
from tests.results.github import TOKEN, GitHub, github_server
from tests.results.scene import COMMENT, PULL_REQUEST, STATUS
from tests.support.service import Service, operator, serving
from tests.support.waiting import until


def settings(github: GitHub, script: str) -> dict[str, Any]:
    command = {"kind": "command", "argv": ["sh", "-c", script]}
    destination = {
        "kind": "github",
        "url": github.url,
        "allow_http": True,
        "secret_from": "GITHUB_TOKEN",
        "repositories": ["acme/*"],
    }
    return {"runners": json.dumps({"review": command}), "destinations": json.dumps({"github": destination})}


def deliver(management: Management, service: Service) -> Any:
    """Create a webhook and an automation with results, and send the payload of a pull request."""
    may = operator(management)
    webhook = management.webhooks.create(may, "github")
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [webhook.webhook.uid]}}
    management.automations.create(
        may, "review", prompt="Review.", triggers=[trigger], runner="review", options={"results": [STATUS, COMMENT]}
    )
    assert service.post(webhook, json.dumps(PULL_REQUEST).encode()).status == 202
    return may


def test_run_whose_service_is_killed_never_leaves_its_status_pending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    with github_server() as github:
        begun = tmp_path / "begun"
        script = f"test -e {begun} && exit 1; touch {begun}; sleep 60"
        with serving(tmp_path / "data", run_attempts_max=1, **settings(github, script)) as service:
            with service.management() as management:
                may = deliver(management, service)
                until(lambda: github.states() == ["pending"], "the status is pending")
                until(begun.exists, "the command runs")
            service.kill()
            service.start()

            until(lambda: github.states() == ["pending", "error"], "the status has ended")
            with service.management() as management:
                assert [run.state for run in management.runs.newest(may)] == [RunState.INTERRUPTED]
