"""A pull request arrives, and the service reports the run to GitHub, also after kill -9. See also test_review.py."""

import json
import os
import threading
from typing import Any

import pytest

from hookmill.app import open_store
from hookmill.app.worker_process import StopSignal, work
from hookmill.domain.run import RunState
from hookmill.management import Management
from hookmill.settings import read_settings
from tests.results.github import CLIENT_ID, GitHub, app_private_key, github_server, pem
from tests.results.scene import CHECK, COMMENT, PULL_REQUEST, STATUS
from tests.support.automations import automation_created
from tests.support.counts import only_in_proof
from tests.support.loaded import Forked
from tests.support.service import Service, operator, serving
from tests.support.triggers import received
from tests.support.waiting import LONG_SECONDS, until


def settings(github: GitHub, script: str) -> dict[str, Any]:
    command = {"kind": "command", "argv": ["sh", "-c", script]}
    destination = {
        "kind": "github",
        "url": github.url,
        "allow_http": True,
        "app_id": CLIENT_ID,
        "app_key_from": "APP_KEY",
        "repositories": ["acme/*"],
    }
    return {"runners": json.dumps({"review": command}), "destinations": json.dumps({"github": destination})}


def deliver(management: Management, service: Service) -> Any:
    """Create a webhook and an automation with results, and send the payload of a pull request."""
    may = operator(management)
    webhook = management.webhooks.create(may, {"name": "github"})
    trigger = received(webhook.webhook.uid)
    automation_created(
        management,
        may,
        "review",
        prompt="Review.",
        triggers=[trigger],
        runner="review",
        options={"results": [STATUS, COMMENT, CHECK]},
    )
    assert service.post(webhook, json.dumps(PULL_REQUEST).encode()).status == 202
    return may


def test_run_whose_service_is_killed_never_leaves_its_status_pending(tmp_path, monkeypatch):
    monkeypatch.setenv("APP_KEY", pem(app_private_key()))
    with github_server() as github:
        # The service is killed after GitHub has created the check run, and before GitHub answers.
        github.performs_held = True
        github.held = lambda method, path: (method, path) == ("POST", "/repos/acme/shop/check-runs")
        begun = tmp_path / "begun"
        script = f"test -e {begun} && exit 1; touch {begun}; sleep 60"
        with serving(tmp_path / "data", run_attempts_max=1, **settings(github, script)) as service:
            with service.management() as management:
                may = deliver(management, service)
                until(github.is_holding.is_set, "GitHub has created the check run")
                assert set(github.states()) == {"pending"}
                assert github.check_runs[0]["status"] == "in_progress"
                until(begun.exists, "the command runs")
            service.kill()
            github.release.set()
            service.start()

            until(lambda: github.states()[-1:] == ["error"], "the status has ended")
            until(lambda: github.check_runs[0]["status"] == "completed", "the check run has ended")
            with service.management() as management:
                assert [run.state for run in management.runs.newest(may)] == [RunState.INTERRUPTED]
        assert [check_run["conclusion"] for check_run in github.check_runs] == ["failure"]
        assert "PRIVATE KEY" not in service.log()
        assert not [token for token in github.tokens if token in service.log()]


def work_until_ready(started_by_serve: bool):
    """Start a worker, print the names of its threads, and stop it."""
    settings = read_settings()
    open_store(settings, create=True).close()
    stop = StopSignal()
    stop.send(grace_seconds=0)
    work(
        settings,
        stop,
        lambda: print("threads:", sorted({thread.name for thread in threading.enumerate()}), flush=True),
        build="0123456789ab",
        started_by_serve=started_by_serve,
    )


@pytest.mark.parametrize(("started_by_serve", "sends_results"), [(True, False), only_in_proof(False, True)])
def test_only_workers_that_perform_runs_send_results(tmp_path, started_by_serve, sends_results):
    destination = {"kind": "webhook", "url": "https://ci.example.com/hook", "secret_from": "CI_SECRET"}
    environment = os.environ | {
        "HOOKMILL_DATA_DIR": str(tmp_path / "data"),
        "HOOKMILL_PERFORMS_RUNS": "false",
        "HOOKMILL_DESTINATIONS": json.dumps({"ci": destination}),
    }

    worker = Forked(work_until_ready, (started_by_serve,), environment, tmp_path, tmp_path / "output")

    assert worker.wait(LONG_SECONDS) == 0, (tmp_path / "output").read_text()
    threads = (tmp_path / "output").read_text()
    assert "'alarm destinations'" in threads
    assert ("'results'" in threads) is sends_results
