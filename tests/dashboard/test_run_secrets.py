"""Secrets for runs in the dashboard: their creation, and the editor of automations."""

from tests.dashboard.client import text_of


def test_secret_for_runs_is_created_handed_over_and_removed(dashboard, manager):
    schedule = {"schedule_name": "nightly", "schedule_cron": "@daily", "schedule_catch_up": "once"}
    form = {"name": "deploy", "prompt": "Go.", "runner": "package", "enabled": "yes", "do": "save", **schedule}

    too_short = manager.post(
        "/f/default/secrets", {"name": "GH_TOKEN", "use": "runs", "secret_from": "own", "secret": "1234567"}
    )
    missing = manager.post("/f/default/automations/new", {**form, "secrets": "GH_TOKEN"})
    manager.post(
        "/f/default/secrets", {"name": "GH_TOKEN", "use": "runs", "secret_from": "own", "secret": "canary-of-gh"}
    )
    saved = manager.post("/f/default/automations/new", {**form, "secrets": " GH_TOKEN  OTHER_TOKEN=GH_TOKEN "})
    [automation] = dashboard.management.automations.all(dashboard.world.may)
    editor = manager.get(f"/f/default/automations/{automation.id}/edit").body.decode()
    pages = [manager.get(path).body for path in ("/f/default/secrets", "/f/default/secrets/GH_TOKEN")]

    assert (too_short.status, "at least 8 characters" in text_of(too_short.body)) == (422, True)
    assert (missing.status, "no secret for runs named GH_TOKEN" in text_of(missing.body)) == (422, True)
    assert saved.status == 303
    assert automation.secrets == ("GH_TOKEN", "OTHER_TOKEN=GH_TOKEN")
    assert 'value="GH_TOKEN OTHER_TOKEN=GH_TOKEN"' in editor
    assert [("deploy" in text_of(page), b"canary-of-gh" in page) for page in pages] == [(True, False)] * 2
    assert "for runs" in text_of(pages[0])
