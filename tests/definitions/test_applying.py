"""Definition files applied to a factory, on each kind of store: all of it, or nothing."""

import os
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hookmill import definitions
from hookmill.definitions import ApplyResult, Plan, PlannedAction
from hookmill.domain.errors import Conflict
from hookmill.domain.permission import Channel, MayManage
from hookmill.domain.webhook import Webhook, WebhookState
from tests.definitions import samples
from tests.definitions.conftest import Contents, Folder
from tests.support.loaded import Forked
from tests.support.world import World

TOKEN = "secretName: TOKEN\n"


@dataclass
class Repository:
    """A folder of definitions, and the factory that they are applied to."""

    world: World
    folder: Folder

    @property
    def may(self) -> MayManage:
        return self.world.management.access.operator("default", channel=Channel.FILES)

    def holds(self, contents: Contents) -> "Repository":
        self.root = self.folder(contents)
        return self

    def without(self, *paths: str) -> None:
        for path in paths:
            (self.root / path).unlink()
            if path.startswith("automations"):
                (self.root / path).parent.rmdir()

    def plan(self) -> Plan:
        wanted = definitions.definitions_for(self.world.management, self.may, self.root)
        return definitions.plan(self.world.management, self.may, wanted)

    def apply(self, *, may_delete: bool = False) -> ApplyResult:
        wanted = definitions.definitions_for(self.world.management, self.may, self.root)
        return definitions.apply(self.world.management, self.may, wanted, may_delete=may_delete)

    def refused(self) -> list[str]:
        """What `apply` says against it. `plan` says the same."""
        with pytest.raises(definitions.UnusableDefinitions) as planned:
            self.plan()
        with pytest.raises(definitions.UnusableDefinitions) as applied:
            self.apply()
        assert planned.value.problems == applied.value.problems
        return [str(problem) for problem in applied.value.problems]

    def backtested(self) -> list[str]:
        wanted = definitions.definitions_for(self.world.management, self.may, self.root)
        found = definitions.backtest(self.world.management, self.may, wanted)
        return [str(warning) for warning in found if warning is not None]

    def webhook(self, name: str) -> Webhook:
        return self.world.management.webhooks.get(self.may, name)

    def uids(self) -> dict[str, str]:
        return {one.name: one.uid for one in self.world.management.webhooks.all(self.may)}

    def everything(self) -> Any:
        """All that files define, as it is now."""
        may = self.may
        return (
            may.factory.defined_by_files,
            list(self.world.management.webhooks.all(may, with_deleted=True)),
            list(self.world.management.automations.all(may)),
            [entry.action for entry in self.world.management.audit.of_factory(may, limit=1000)],
        )


@pytest.fixture
def repository(world: World, folder: Folder) -> Repository:
    return Repository(world, folder).holds({})


def with_secrets(repository: Repository, secrets: Mapping[str, str]) -> Repository:
    for name, value in secrets.items():
        repository.world.management.secrets.create(repository.may, name, value)
    return repository


@pytest.fixture
def applied_repository(repository: Repository) -> Repository:
    """One webhook and one automation that it starts, applied."""
    with_secrets(repository, {"TOKEN": "one-token", "OTHER": "another-token", "SPACED": "not fit for a URL"})
    repository.holds({"webhooks/source.yaml": TOKEN}).apply()
    repository.holds({"automations/triage/automation.md": automation(repository.uids()["source"])}).apply()
    return repository


def automation(uid: str, payload: str = "", more: str = "", prompt: str = "Look.") -> str:
    chosen = f"      payload: {payload}\n" if payload else ""
    trigger = f"  - provider: webhook\n    event: received\n    filter:\n      webhook_ids: [{uid}]\n{chosen}"
    return f"---\n{more}triggers:\n{trigger}---\n{prompt}\n"


def post(repository: Repository, name: str, token: str, body: bytes = b"{}") -> int:
    path = f"/webhooks/w/{repository.webhook(name).uid}"
    return repository.world.request("POST", path, headers={"Authorization": f"Bearer {token}"}, body=body).status


# A repository as teams have them


def test_a_whole_repository_applies_and_applies_again_without_a_change(repository: Repository):
    with_secrets(repository, samples.SECRETS).holds(samples.WEBHOOKS)
    first = repository.apply()
    repository.holds(samples.automations(repository.uids()))
    second = repository.apply()
    before = repository.everything()

    again = repository.apply()

    assert [step.action for step in first.plan.steps] == [PlannedAction.CREATE] * 12
    assert [(step.action, step.kind.value) for step in second.plan.steps] == [(PlannedAction.CREATE, "automation")] * 12
    assert again.plan.steps == ()
    assert again.plan.unchanged_count == 24
    assert repository.everything() == before


def test_a_whole_repository_does_what_it_says(repository: Repository):
    with_secrets(repository, samples.SECRETS).holds(samples.WEBHOOKS).apply()

    found = {one.name: one for one in repository.world.management.webhooks.all(repository.may)}

    assert {name: one.signature_scheme for name, one in found.items() if name in samples.SIGNED} == samples.SIGNED
    assert found["homegrown"].delivery_id_header == "X-Build-Id"
    assert found["old-forms"].state is WebhookState.DISABLED
    assert all(one.state is WebhookState.ENABLED for name, one in found.items() if name != "old-forms")
    assert post(repository, "cron", "cron-token") == 202


def test_a_broken_merge_leaves_the_last_good_state_serving(repository: Repository):
    with_secrets(repository, samples.SECRETS).holds(samples.WEBHOOKS).apply()
    before = repository.everything()
    merged = "<<<<<<< HEAD\nsecretName: CRON_SECRET\n=======\nsecretName: FORMS_SECRET\n>>>>>>> branch\n"
    repository.holds({"webhooks/cron.yaml": merged, "webhooks/deploys.yaml": "secretName: CRON_SECRET\n"})

    said = repository.refused()

    assert said == [
        "webhooks/cron.yaml:1:1: A merge is unresolved here. "
        "Choose one side, and remove the lines <<<<<<<, ======= and >>>>>>>."
    ]
    assert repository.everything() == before
    assert post(repository, "cron", "cron-token") == 202


# All or nothing


def test_nothing_is_changed_when_the_last_step_fails(applied_repository: Repository):
    before = applied_repository.everything()
    uid = applied_repository.uids()["source"]
    applied_repository.holds(
        {
            "webhooks/source.yaml": "secretName: OTHER\n",
            "webhooks/more.yaml": TOKEN,
            "automations/zzz/automation.md": automation(uid, more="runner: nobody\n"),
        }
    )

    said = applied_repository.refused()

    assert said == ["automations/zzz/automation.md:2:9: No runner is named 'nobody'. The operator configured: package."]
    assert applied_repository.everything() == before
    assert post(applied_repository, "source", "one-token") == 202


def be_killed_before_the_commit(url: str, root: Path) -> None:
    world = World(url)
    may = world.management.access.operator("default", channel=Channel.FILES)
    wanted = definitions.definitions_for(world.management, may, root)
    with world.management.one_transaction(may):
        definitions.apply(world.management, may, wanted)
        assert len(world.management.webhooks.all(may)) == 3
        os.kill(os.getpid(), signal.SIGKILL)


def test_nothing_is_changed_by_an_apply_that_is_killed(applied_repository: Repository, tmp_path: Path):
    before = applied_repository.everything()
    applied_repository.holds(
        {"webhooks/source.yaml": "secretName: OTHER\n", "webhooks/b.yaml": TOKEN, "webhooks/c.yaml": TOKEN}
    )

    output = tmp_path / "output"
    killed = Forked(
        be_killed_before_the_commit,
        (applied_repository.world.url, applied_repository.root),
        os.environ,
        tmp_path,
        output,
    )

    assert killed.wait(60) == -signal.SIGKILL, output.read_text()
    assert applied_repository.everything() == before
    assert applied_repository.apply().plan.steps != ()


def test_a_plan_changes_nothing(applied_repository: Repository):
    applied_repository.holds(
        {"webhooks/source.yaml": "secretName: OTHER\nenabled: false\n", "webhooks/more.yaml": TOKEN}
    )
    before = applied_repository.everything()

    planned = applied_repository.plan()

    assert len(planned.steps) == 2
    assert applied_repository.everything() == before
    assert post(applied_repository, "source", "one-token") == 202


def test_a_rehearsal_locks_nothing(applied_repository: Repository):
    before = applied_repository.everything()
    management, may = applied_repository.world.management, applied_repository.may

    with management.rehearsing(may):
        management.webhooks.set_enabled(may, "source", False)
        management.automations.delete(may, "triage")
        rehearsed = applied_repository.webhook("source").state, list(management.automations.all(may))
        status = post(applied_repository, "source", "one-token")

    assert rehearsed == (WebhookState.DISABLED, [])
    assert status == 202
    assert applied_repository.everything() == before


def test_changes_do_not_wait_for_a_large_plan(applied_repository: Repository):
    uid = applied_repository.uids()["source"]
    applied_repository.holds({f"automations/a{number}/automation.md": automation(uid) for number in range(200)})
    management, may = applied_repository.world.management, applied_repository.may
    wanted = definitions.definitions_for(management, may, applied_repository.root)
    waits: list[float] = []

    def plan() -> float:
        began = time.monotonic()
        assert len(definitions.plan(management, may, wanted).steps) == 200
        return time.monotonic() - began

    with ThreadPoolExecutor(1) as thread:
        planning = thread.submit(plan)
        while not planning.done():
            began = time.monotonic()
            with applied_repository.world.database.write() as tx:
                tx.run("UPDATE webhooks SET revision = revision + 1 WHERE uid = :uid", uid=uid)
            waits.append(time.monotonic() - began)

    assert max(waits) < planning.result() / 2


def test_a_plan_says_what_apply_does(applied_repository: Repository):
    applied_repository.holds({"webhooks/source.yaml": "secretName: OTHER\n", "webhooks/more.yaml": TOKEN})

    planned = applied_repository.plan()

    assert applied_repository.apply().plan == planned


def test_all_problems_of_files_and_factory_are_reported_together(applied_repository: Repository):
    applied_repository.holds(
        {
            "webhooks/a.yaml": "secretName: NOWHERE\n",
            "webhooks/b.yaml": "authMode: url_token\nsecretName: SPACED\n",
            "webhooks/c.yaml": "authMode: signature\nsignatureScheme: svix\nsecretName: SPACED\n",
            "automations/x/automation.md": automation(applied_repository.uids()["source"], more="runner: nobody\n"),
        }
    )

    said = applied_repository.refused()

    assert [one[: one.index(": ")] for one in said] == [
        "automations/x/automation.md:2:9",
        "webhooks/a.yaml:1:13",
        "webhooks/b.yaml:2:13",
        "webhooks/c.yaml:3:13",
    ]


def test_two_applies_at_the_same_time_are_one_after_the_other(applied_repository: Repository):
    applied_repository.holds({"webhooks/more.yaml": TOKEN})
    other = applied_repository.world.beside()

    def apply(world: World) -> int:
        may = world.management.access.operator("default", channel=Channel.FILES)
        wanted = definitions.definitions_for(world.management, may, applied_repository.root)
        return len(definitions.apply(world.management, may, wanted).plan.steps)

    with ThreadPoolExecutor(2) as threads:
        steps = sorted(threads.map(apply, (applied_repository.world, other)))

    assert steps == [0, 1]
    assert sorted(applied_repository.uids()) == ["more", "source"]


# Webhooks


def test_a_webhook_keeps_its_uid_whatever_its_file_says_of_it(applied_repository: Repository):
    uid = applied_repository.uids()["source"]

    for content in (
        "authMode: url_token\nsecretName: TOKEN\n",
        "authMode: signature\nsignatureScheme: github\nsecretName: TOKEN\n",
        "secretName: OTHER\ndeliveryIdHeader: X-Id\n",
        "secretName: OTHER\ndeliveryIdHeader: X-Other-Id\nenabled: false\n",
        "secretName: OTHER\neventHeader: X-Kind\n",
        "secretName: OTHER\ndeliveryIdHeader: X-Id\neventHeader: X-Other-Kind\n",
    ):
        applied_repository.holds({"webhooks/source.yaml": content}).apply()
        assert applied_repository.uids() == {"source": uid}
        assert applied_repository.apply().plan.steps == ()


def test_a_renamed_file_that_names_its_webhook_is_no_change(applied_repository: Repository):
    applied_repository.without("webhooks/source.yaml")
    applied_repository.holds({"webhooks/better.yaml": f"name: source\n{TOKEN}"})

    assert applied_repository.apply().plan.steps == ()


def test_a_change_holds_at_once_in_every_process(applied_repository: Repository):
    other = applied_repository.world.beside()
    path = f"/webhooks/w/{applied_repository.uids()['source']}"

    def answer(token: str) -> int:
        return other.request("POST", path, headers={"Authorization": f"Bearer {token}"}, body=b"{}").status

    assert answer("one-token") == 202
    applied_repository.holds({"webhooks/source.yaml": "secretName: OTHER\n"}).apply()
    assert (answer("one-token"), answer("another-token")) == (401, 202)
    applied_repository.world.management.secrets.replace(applied_repository.may, "OTHER", "third-token")
    applied_repository.apply()
    assert (answer("another-token"), answer("third-token")) == (401, 202)
    applied_repository.holds({"webhooks/source.yaml": "secretName: OTHER\nenabled: false\n"}).apply()
    assert answer("third-token") == 404
    applied_repository.holds({"webhooks/source.yaml": "secretName: OTHER\nenabled: true\n"}).apply()
    assert answer("third-token") == 202
    applied_repository.without("webhooks/source.yaml")
    applied_repository.apply(may_delete=True)
    assert answer("third-token") == 404


def test_a_secret_that_is_not_there_is_refused_with_what_to_do(applied_repository: Repository):
    applied_repository.holds({"webhooks/source.yaml": "secretName: TOKENS\n"})

    assert applied_repository.refused() == [
        "webhooks/source.yaml:1:13: No team secret is named TOKENS. "
        "Create it first: hookmill secret create TOKENS, or did you mean TOKEN?"
    ]


def test_a_secret_that_a_url_cannot_hold_is_refused(applied_repository: Repository):
    applied_repository.holds({"webhooks/source.yaml": "authMode: url_token\nsecretName: SPACED\n"})

    assert applied_repository.refused() == [
        "webhooks/source.yaml:2:13: Team secret SPACED: A url_token secret is part of the URL. "
        "Use only letters, digits and - . _ ~."
    ]


def test_a_new_secret_value_is_taken_up_by_the_next_apply(applied_repository: Repository):
    applied_repository.world.management.secrets.replace(applied_repository.may, "TOKEN", "new-token")
    assert post(applied_repository, "source", "one-token") == 202

    (step,) = applied_repository.apply().plan.steps

    assert [(change.key, change.concerns_senders) for change in step.changes] == [("secret", True)]
    assert (post(applied_repository, "source", "one-token"), post(applied_repository, "source", "new-token")) == (
        401,
        202,
    )
    assert applied_repository.apply().plan.steps == ()


def test_a_new_secret_value_that_does_not_fit_is_refused(applied_repository: Repository):
    applied_repository.holds({"webhooks/source.yaml": "authMode: url_token\nsecretName: TOKEN\n"}).apply()
    applied_repository.world.management.secrets.replace(applied_repository.may, "TOKEN", "not fit")

    (said,) = applied_repository.refused()

    assert said.startswith("webhooks/source.yaml:2:13: Team secret TOKEN: A url_token secret")


def test_one_webhook_too_many_is_refused(repository: Repository):
    with_secrets(repository, {"TOKEN": "one-token"})
    repository.holds({f"webhooks/w{number}.yaml": TOKEN for number in range(21)})

    (said,) = repository.refused()

    assert "Factory 'default' has 20 webhooks, which is the limit." in said


def test_a_full_factory_may_exchange_a_webhook(repository: Repository):
    with_secrets(repository, {"TOKEN": "one-token"})
    repository.holds({f"webhooks/w{number}.yaml": TOKEN for number in range(20)}).apply()
    repository.without("webhooks/w0.yaml")
    repository.holds({"webhooks/new.yaml": TOKEN})

    applied = repository.apply(may_delete=True)

    assert [(step.action, step.name) for step in applied.plan.steps] == [
        (PlannedAction.REMOVE, "w0"),
        (PlannedAction.CREATE, "new"),
    ]


# Toggles


@pytest.mark.parametrize(
    ("line", "before", "after"), [("", False, False), ("", True, True), ("enabled: true\n", False, True)]
)
def test_a_toggle_is_left_to_people_unless_the_file_says_it(
    applied_repository: Repository, line: str, before: bool, after: bool
):
    applied_repository.holds({"webhooks/source.yaml": TOKEN + line})
    applied_repository.holds(
        {"automations/triage/automation.md": automation(applied_repository.uids()["source"], more=line)}
    ).apply()
    applied_repository.world.management.webhooks.set_enabled(applied_repository.world.may, "source", before)
    applied_repository.world.management.automations.set_enabled(applied_repository.world.may, "triage", before)

    applied_repository.apply()

    assert (applied_repository.webhook("source").state is WebhookState.ENABLED) is after
    assert applied_repository.world.management.automations.get(applied_repository.may, "triage").enabled is after


# Automations


def test_an_automation_changes_with_its_file(applied_repository: Repository):
    uid = applied_repository.uids()["source"]
    applied_repository.holds(
        {"automations/triage/automation.md": automation(uid, "{n: [1.5, no]}", "enabled: false\n", "Else.")}
    )

    (step,) = applied_repository.apply().plan.steps

    found = applied_repository.world.management.automations.get(applied_repository.may, "triage")
    assert [change.key for change in step.changes] == ["triggers", "prompt", "enabled"]
    assert (found.prompt, found.enabled, found.id) == ("Else.", False, step.id)
    assert found.triggers[0].payload is not None
    assert found.triggers[0].payload.source == {"n": [1.5, "no"]}
    assert applied_repository.apply().plan.steps == ()


def test_an_automation_without_a_file_is_deleted(applied_repository: Repository):
    applied_repository.without("automations/triage/automation.md")

    (step,) = applied_repository.apply().plan.steps

    assert (step.action, step.name) == (PlannedAction.REMOVE, "triage")
    assert list(applied_repository.world.management.automations.all(applied_repository.may)) == []


def test_a_webhook_that_will_not_send_is_warned_of_at_its_place(applied_repository: Repository):
    source = applied_repository.uids()["source"]
    applied_repository.holds({"webhooks/gone.yaml": TOKEN}).apply()
    gone = applied_repository.uids()["gone"]
    applied_repository.without("webhooks/gone.yaml")
    applied_repository.holds(
        {
            "webhooks/source.yaml": TOKEN + "enabled: false\n",
            "automations/triage/automation.md": automation(f"{source}, {gone}, wh_nowhere"),
        }
    )

    before = [str(warning) for warning in applied_repository.plan().warnings]
    applied_repository.apply(may_delete=True)
    after = [str(warning) for warning in applied_repository.plan().warnings]

    at = "automations/triage/automation.md:6"
    assert before == [
        f"{at}:21: 'source' ({source}) is disabled, so it starts no runs until it is enabled.",
        f"{at}:53: 'gone' ({gone}) has no file, so this apply deletes it. It then starts no runs.",
        f"{at}:85: wh_nowhere is not a webhook of factory 'default', so it starts no runs.",
    ]
    assert f"{at}:53: 'gone' ({gone}) is deleted, so it starts no runs." in after


# Backtests


def test_a_filter_that_nothing_stored_would_have_passed_is_warned_of(applied_repository: Repository):
    for number in range(3):
        assert post(applied_repository, "source", "one-token", b'{"action": "opened", "n": %d}' % number) == 202
    uid = applied_repository.uids()["source"]

    applied_repository.holds({"automations/triage/automation.md": automation(uid, "{action: [open]}")})
    in_vain = applied_repository.backtested()
    applied_repository.holds({"automations/triage/automation.md": automation(uid, "{action: [opened], n: [2]}")})

    assert in_vain == [
        "automations/triage/automation.md:7:16: This filter would have matched none of the last 3 deliveries "
        "stored from its webhooks. `hookmill filter test` shows why."
    ]
    assert applied_repository.backtested() == []


def test_a_filter_is_tried_on_no_more_than_the_last_120_deliveries(applied_repository: Repository):
    for number in range(122):
        applied_repository.world.clock.advance(seconds=2)
        assert post(applied_repository, "source", "one-token", b'{"n": %d}' % number) == 202
    uid = applied_repository.uids()["source"]

    applied_repository.holds({"automations/triage/automation.md": automation(uid, "{n: [0, 1]}")})
    too_old = applied_repository.backtested()
    applied_repository.holds({"automations/triage/automation.md": automation(uid, "{n: [2]}")})

    assert "none of the last 120 deliveries" in too_old[0]
    assert applied_repository.backtested() == []


def test_nothing_is_said_of_a_filter_while_nothing_is_stored(applied_repository: Repository):
    uid = applied_repository.uids()["source"]
    applied_repository.holds({"automations/triage/automation.md": automation(f"{uid}, wh_nowhere", "{action: [open]}")})

    assert applied_repository.backtested() == []


# Who defines the factory


def test_the_first_apply_makes_the_factory_the_files(repository: Repository):
    assert repository.plan().files_take_over is True
    assert repository.plan().has_changes is True
    assert repository.may.factory.defined_by_files is False

    repository.apply()

    assert repository.may.factory.defined_by_files is True
    with pytest.raises(Conflict, match="is defined by files"):
        repository.world.webhook("by-hand")
    assert repository.plan().files_take_over is False
    assert repository.plan().has_changes is False


def test_what_was_made_by_hand_is_deleted_with_consent_only(repository: Repository):
    made = repository.world.webhook("by-hand")
    repository.world.automation("its-own", made)

    assert repository.plan().consent_reason is not None
    with pytest.raises(definitions.ConsentNeeded) as refused:
        repository.apply()
    before = [one.name for one in repository.world.management.webhooks.all(repository.may)]
    repository.apply(may_delete=True)

    assert str(refused.value) == (
        "Factory 'default' would lose webhook 'by-hand': senders get 404, and the URL can't be restored. "
        "Factory 'default' would lose automation 'its-own', whose prompt has no file. "
        "If the files are for another factory, use --factory NAME. "
        "Factory 'default' was not defined by files so far: `hookmill export DIR` writes it as files."
    )
    assert before == ["by-hand"]
    assert repository.uids() == {}


def test_a_webhook_without_a_file_is_deleted_with_consent_only(applied_repository: Repository):
    applied_repository.without("webhooks/source.yaml")

    with pytest.raises(definitions.ConsentNeeded, match="Factory 'default' would lose webhook 'source'"):
        applied_repository.apply()
    assert post(applied_repository, "source", "one-token") == 202
    uid = applied_repository.uids()["source"]
    applied_repository.apply(may_delete=True)

    assert applied_repository.world.request("POST", f"/webhooks/w/{uid}", body=b"{}").status == 404


def test_a_renamed_file_is_recognised_before_its_webhook_is_deleted(applied_repository: Repository):
    applied_repository.without("webhooks/source.yaml")
    applied_repository.holds({"webhooks/better.yaml": TOKEN})

    consent = applied_repository.plan().consent_reason

    assert consent is not None
    assert consent.endswith(
        "If webhooks/better.yaml is the renamed file of 'source', add the line name: source to it. "
        "Then the webhook keeps its URL."
    )


def test_an_apply_is_in_the_audit_log_with_its_channel(applied_repository: Repository):
    entries = applied_repository.world.management.audit.of_factory(applied_repository.may, limit=100)

    by_files = [entry.action for entry in entries if entry.channel == Channel.FILES]
    assert {"factory.define_by_files", "webhook.create", "automation.create"} <= set(by_files)


def test_another_factory_is_left_alone(applied_repository: Repository):
    elsewhere = applied_repository.world.elsewhere()
    applied_repository.world.management.webhooks.create(elsewhere, "source")
    before = list(applied_repository.world.management.webhooks.all(elsewhere))
    applied_repository.without("webhooks/source.yaml", "automations/triage/automation.md")

    applied_repository.apply(may_delete=True)

    assert list(applied_repository.world.management.webhooks.all(elsewhere)) == before


POLICY = """\
concurrency:
  key: /pull_request/number
  when_busy: skip
debounce: {seconds: 20}
priority: high
max_running: 4
pause_after_failures: 3
"""


def test_a_policy_is_applied_changed_and_removed_with_its_file(applied_repository: Repository):
    uid = applied_repository.uids()["source"]
    management, may = applied_repository.world.management, applied_repository.may

    def apply(policy: str) -> list[str]:
        applied_repository.holds({"automations/triage/automation.md": automation(uid, "{n: [1]}", policy, "Go.")})
        apply_steps = applied_repository.apply().plan.steps
        assert applied_repository.apply().plan.steps == ()
        return [change.key for step in apply_steps for change in step.changes]

    apply("")
    added = apply(POLICY)
    policy = management.automations.get(may, "triage").policy
    changed = apply(POLICY.replace("skip", "queue"))
    removed = apply("")

    assert added == ["concurrency", "debounce", "priority", "max_running", "pause_after_failures"]
    assert policy.as_json() == {
        "concurrency": {"key": ["/pull_request/number"], "limit": 1, "when_busy": "skip"},
        "debounce": {"seconds": 20, "max_seconds": 200},
        "priority": "high",
        "max_running": 4,
        "pause_after_failures": 3,
    }
    assert changed == ["concurrency"]
    assert removed == added
    assert management.automations.get(may, "triage").policy.as_json() == {}


def test_an_exported_policy_applies_without_a_change(applied_repository: Repository):
    uid = applied_repository.uids()["source"]
    applied_repository.holds({"automations/triage/automation.md": automation(uid, "{n: [1]}", POLICY, "Go.")}).apply()

    files = definitions.export(applied_repository.world.management, applied_repository.may)

    assert "when_busy: skip" in files["automations/triage/automation.md"]
    assert applied_repository.plan().steps == ()


# Schedules


def scheduled(uid: str, schedules: str) -> str:
    return f"""\
---
triggers:
{schedules}
  - provider: webhook
    event: received
    filter: {{webhook_ids: [{uid}], payload: {{n: [1]}}}}
---
Go.
"""


NIGHTLY = """\
  - provider: schedule
    event: cron_fired
    schedule: {name: nightly, cron: "0 3 * * *", timezone: Europe/Berlin}"""


def test_a_schedule_is_applied_changed_and_removed_with_its_file(applied_repository: Repository):
    uid = applied_repository.uids()["source"]
    management, may = applied_repository.world.management, applied_repository.may

    def apply(schedules: str) -> list[str]:
        applied_repository.holds({"automations/triage/automation.md": scheduled(uid, schedules)})
        apply_steps = applied_repository.apply().plan.steps
        assert applied_repository.apply().plan.steps == ()
        stored = management.automations.get(may, "triage")
        assert [schedule.name for schedule in stored.schedules] == list(
            management.automations.next_times_of(may, stored)
        )
        return [change.key for step in apply_steps for change in step.changes]

    apply("")
    assert apply(NIGHTLY) == ["triggers"]
    [nightly] = management.automations.get(may, "triage").schedules
    assert nightly.schedule_json() == {"name": "nightly", "cron": "0 3 * * *", "timezone": "Europe/Berlin"}
    assert apply(NIGHTLY.replace("Europe/Berlin", "UTC, catch_up: none")) == ["triggers"]
    assert apply("") == ["triggers"]


def test_an_exported_schedule_applies_without_a_change(applied_repository: Repository):
    uid = applied_repository.uids()["source"]
    applied_repository.holds({"automations/triage/automation.md": scheduled(uid, NIGHTLY)}).apply()

    files = definitions.export(applied_repository.world.management, applied_repository.may)

    assert """\
  - provider: schedule
    event: cron_fired
    schedule:
      name: nightly
      cron: "0 3 * * *"
      timezone: Europe/Berlin
""" in files["automations/triage/automation.md"]
    assert applied_repository.plan().steps == ()


def test_warnings_and_backtests_of_a_trigger_after_a_schedule_have_its_place(applied_repository: Repository):
    unknown = "wh_" + "0" * 27
    files = {"automations/triage/automation.md": scheduled(unknown, NIGHTLY)}

    [warning] = applied_repository.holds(files).plan().warnings

    assert (warning.place.line, warning.message.partition(" ")[0]) == (8, unknown)
