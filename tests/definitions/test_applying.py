"""Applying definition files to a factory, on both kinds of store. An apply changes everything or nothing."""

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
from hookmill.definitions.applying import BACKTEST_SECONDS
from hookmill.domain.errors import Conflict
from hookmill.domain.permission import Channel, MayManage
from hookmill.domain.run_options import RunOptions
from hookmill.domain.webhook import Webhook, WebhookState
from tests.definitions import samples
from tests.definitions.conftest import Contents, Folder
from tests.support.loaded import Forked
from tests.support.sqlite_usually import store_url
from tests.support.waiting import stalls
from tests.support.world import World

__all__ = ["store_url"]

TOKEN = "secretName: TOKEN\n"


@dataclass
class Repository:
    """A folder of definition files, and the factory to which they are applied."""

    world: World
    folder: Folder

    @property
    def may(self) -> MayManage:
        return self.world.management.access.operator("default", channel=Channel.FILES)

    def write(self, contents: Contents) -> "Repository":
        """Add or replace files, by their paths."""
        self.root = self.folder(contents)
        return self

    def remove(self, *paths: str) -> None:
        for path in paths:
            (self.root / path).unlink()
            if path.startswith("automations"):
                (self.root / path).parent.rmdir()

    def plan(self) -> Plan:
        files = definitions.definitions_for(self.world.management, self.may, definitions.read_folder(self.root))
        return definitions.plan(self.world.management, self.may, files)

    def apply(self, *, may_delete: bool = False) -> ApplyResult:
        files = definitions.definitions_for(self.world.management, self.may, definitions.read_folder(self.root))
        return definitions.apply(self.world.management, self.may, files, may_delete=may_delete)

    def problems(self) -> list[str]:
        """The problems for which both `plan` and `apply` refuse the files."""
        with pytest.raises(definitions.UnusableDefinitions) as plan_error:
            self.plan()
        with pytest.raises(definitions.UnusableDefinitions) as apply_error:
            self.apply()
        assert plan_error.value.problems == apply_error.value.problems
        return [str(problem) for problem in apply_error.value.problems]

    def backtest_warnings(self, seconds: float = BACKTEST_SECONDS) -> list[str]:
        files = definitions.definitions_for(self.world.management, self.may, definitions.read_folder(self.root))
        warnings = definitions.backtest(self.world.management, self.may, files, seconds=seconds)
        return [str(warning) for warning in warnings]

    def webhook(self, name: str) -> Webhook:
        return self.world.management.webhooks.get(self.may, name)

    def uids(self) -> dict[str, str]:
        """The uids of the webhooks, by name."""
        return {each.name: each.uid for each in self.world.management.webhooks.all(self.may)}

    def state(self) -> Any:
        """Everything that an apply could change, and the actions in the audit log."""
        may = self.may
        return (
            may.factory.defined_by_files,
            list(self.world.management.webhooks.all(may, with_deleted=True)),
            list(self.world.management.automations.all(may)),
            [entry.action for entry in self.world.management.audit.of_factory(may, limit=1000)],
        )


@pytest.fixture
def repository(world, folder):
    """A repository without files."""
    return Repository(world, folder).write({})


def with_secrets(repository: Repository, secrets: Mapping[str, str]) -> Repository:
    """The repository, whose factory now has these team secrets."""
    for name, value in secrets.items():
        repository.world.management.secrets.create(repository.may, name, value)
    return repository


@pytest.fixture
def applied_repository(repository):
    """A repository whose files are applied: the webhook `source`, and the automation `triage` that selects it."""
    with_secrets(repository, {"TOKEN": "one-token", "OTHER": "another-token", "SPACED": "not safe in a URL"})
    repository.write({"webhooks/source.yaml": TOKEN}).apply()
    repository.write({"automations/triage/automation.md": automation(repository.uids()["source"])}).apply()
    return repository


def automation(uid: str, payload: str = "", other_keys: str = "", prompt: str = "Look.") -> str:
    """The text of an automation's file."""
    payload_line = f"      payload: {payload}\n" if payload else ""
    trigger = f"  - provider: webhook\n    event: received\n    filter:\n      webhook_ids: [{uid}]\n{payload_line}"
    return f"---\n{other_keys}triggers:\n{trigger}---\n{prompt}\n"


def post(repository: Repository, name: str, token: str, body: bytes = b"{}") -> int:
    """Send a delivery to the webhook. Returns the status."""
    path = f"/webhooks/w/{repository.webhook(name).uid}"
    return repository.world.request("POST", path, headers={"Authorization": f"Bearer {token}"}, body=body).status


# A typical repository


def test_second_apply_of_a_repository_changes_nothing(repository):
    with_secrets(repository, samples.SECRETS).write(samples.WEBHOOKS)
    first = repository.apply()
    repository.write(samples.automations(repository.uids()))
    second = repository.apply()
    before = repository.state()

    third = repository.apply()

    assert [step.action for step in first.plan.steps] == [PlannedAction.CREATE] * 12
    assert [(step.action, step.kind.value) for step in second.plan.steps] == [(PlannedAction.CREATE, "automation")] * 12
    assert third.plan.steps == ()
    assert third.plan.unchanged_count == 24
    assert repository.state() == before


def test_one_apply_creates_a_webhook_and_an_automation_that_names_it(repository):
    with_secrets(repository, {"CRON_SECRET": "cron-token"}).write(
        {
            "webhooks/new.yaml": "name: New source\nsecretName: CRON_SECRET\n",
            "webhooks/cron.yaml": "secretName: CRON_SECRET\n",
            "automations/reader.md": "---\ntriggers:\n  - provider: webhook\n    event: received\n"
            "    filter: {webhook_ids: {in: ['webhook:New source', 'webhook:cron']}}\n---\nLook.\n",
        }
    )

    planned = repository.plan()
    repository.apply(may_delete=True)

    [triggers] = [change.after for step in planned.steps for change in step.changes if change.key == "triggers"]
    assert triggers[0]["filter"]["webhook_ids"] == ["webhook:New source", "webhook:cron"]
    [trigger] = repository.world.management.automations.get(repository.may, "reader").triggers
    assert planned.warnings == ()
    assert trigger.filter.webhook_ids == (repository.webhook("New source").uid, repository.webhook("cron").uid)
    assert not repository.plan().has_changes


def test_applied_webhooks_have_the_fields_of_their_files(repository):
    with_secrets(repository, samples.SECRETS).write(samples.WEBHOOKS).apply()

    webhooks = {each.name: each for each in repository.world.management.webhooks.all(repository.may)}

    schemes = {name: each.signature_scheme for name, each in webhooks.items() if name in samples.SCHEMES}
    assert schemes == samples.SCHEMES
    assert webhooks["homegrown"].delivery_id_header == "X-Build-Id"
    assert [name for name, each in webhooks.items() if each.state is not WebhookState.ENABLED] == ["old-forms"]
    assert webhooks["old-forms"].state is WebhookState.DISABLED
    assert post(repository, "cron", "cron-token") == 202


# An apply changes everything or nothing


def test_apply_with_an_invalid_last_step_changes_nothing(applied_repository):
    before = applied_repository.state()
    uid = applied_repository.uids()["source"]
    applied_repository.write(
        {
            "webhooks/source.yaml": "secretName: OTHER\n",
            "webhooks/more.yaml": TOKEN,
            "automations/zzz/automation.md": automation(uid, other_keys="runner: nobody\n"),
        }
    )

    problems = applied_repository.problems()

    assert problems == [
        "automations/zzz/automation.md:2:9: No runner is named 'nobody'. The operator configured: package."
    ]
    assert applied_repository.state() == before
    assert post(applied_repository, "source", "one-token") == 202


def apply_and_die_before_the_commit(url: str, root: Path) -> None:
    world = World(url)
    may = world.management.access.operator("default", channel=Channel.FILES)
    files = definitions.definitions_for(world.management, may, definitions.read_folder(root))
    with world.management.one_transaction(may):
        definitions.apply(world.management, may, files)
        assert len(world.management.webhooks.all(may)) == 3
        os.kill(os.getpid(), signal.SIGKILL)


def test_killed_apply_changes_nothing(applied_repository, tmp_path):
    before = applied_repository.state()
    applied_repository.write(
        {"webhooks/source.yaml": "secretName: OTHER\n", "webhooks/b.yaml": TOKEN, "webhooks/c.yaml": TOKEN}
    )

    output = tmp_path / "output"
    process = Forked(
        apply_and_die_before_the_commit,
        (applied_repository.world.url, applied_repository.root),
        os.environ,
        tmp_path,
        output,
    )

    assert process.wait(60) == -signal.SIGKILL, output.read_text()
    assert applied_repository.state() == before
    assert applied_repository.apply().plan.steps != ()


def test_plan_changes_nothing(applied_repository):
    applied_repository.write(
        {"webhooks/source.yaml": "secretName: OTHER\nenabled: false\n", "webhooks/more.yaml": TOKEN}
    )
    before = applied_repository.state()

    plan = applied_repository.plan()

    assert len(plan.steps) == 2
    assert applied_repository.state() == before
    assert post(applied_repository, "source", "one-token") == 202


def test_rehearsal_does_not_block_deliveries(applied_repository):
    before = applied_repository.state()
    management, may = applied_repository.world.management, applied_repository.may

    with management.rehearsing(may):
        management.webhooks.set_enabled(may, "source", False)
        management.automations.delete(may, "triage")
        rehearsed_state = applied_repository.webhook("source").state, list(management.automations.all(may))
        status = post(applied_repository, "source", "one-token")

    assert rehearsed_state == (WebhookState.DISABLED, [])
    assert status == 202
    assert applied_repository.state() == before


def test_changes_do_not_wait_for_a_large_plan(applied_repository):
    uid = applied_repository.uids()["source"]
    applied_repository.write({f"automations/a{number}/automation.md": automation(uid) for number in range(200)})
    management, may = applied_repository.world.management, applied_repository.may
    files = definitions.definitions_for(management, may, definitions.read_folder(applied_repository.root))
    waits: list[float] = []

    def plan() -> float:
        start = time.monotonic()
        assert len(definitions.plan(management, may, files).steps) == 200
        return time.monotonic() - start

    with stalls() as stalls_seconds, ThreadPoolExecutor(1) as thread:
        planning = thread.submit(plan)
        while not planning.done():
            start = time.monotonic()
            with applied_repository.world.database.write() as tx:
                tx.run("UPDATE webhooks SET revision = revision + 1 WHERE uid = :uid", uid=uid)
            waits.append(time.monotonic() - start)

    # A stall of the machine makes one of the waits as much longer as the plan.
    assert max(waits) - sum(stalls_seconds) < planning.result() / 2


def test_apply_performs_exactly_the_plan(applied_repository):
    applied_repository.write({"webhooks/source.yaml": "secretName: OTHER\n", "webhooks/more.yaml": TOKEN})

    plan = applied_repository.plan()

    assert applied_repository.apply().plan == plan


def test_all_problems_of_files_and_factory_are_reported_together(applied_repository):
    applied_repository.write(
        {
            "webhooks/a.yaml": "secretName: MISSING\n",
            "webhooks/b.yaml": "authMode: url_token\nsecretName: SPACED\n",
            "webhooks/c.yaml": "authMode: signature\nsignatureScheme: svix\nsecretName: SPACED\n",
            "automations/x/automation.md": automation(
                applied_repository.uids()["source"], other_keys="runner: nobody\n"
            ),
        }
    )

    problems = applied_repository.problems()

    assert [problem[: problem.index(": ")] for problem in problems] == [
        "automations/x/automation.md:2:9",
        "webhooks/a.yaml:1:13",
        "webhooks/b.yaml:2:13",
        "webhooks/c.yaml:3:13",
    ]


def test_concurrent_applies_are_serialized(applied_repository):
    applied_repository.write({"webhooks/more.yaml": TOKEN})
    other = applied_repository.world.another_process()

    def apply(world: World) -> int:
        may = world.management.access.operator("default", channel=Channel.FILES)
        files = definitions.definitions_for(world.management, may, definitions.read_folder(applied_repository.root))
        return len(definitions.apply(world.management, may, files).plan.steps)

    with ThreadPoolExecutor(2) as threads:
        steps = sorted(threads.map(apply, (applied_repository.world, other)))

    assert steps == [0, 1]
    assert sorted(applied_repository.uids()) == ["more", "source"]


# Webhooks


def test_webhook_keeps_its_uid_when_its_file_changes(applied_repository):
    uid = applied_repository.uids()["source"]

    for content in (
        "authMode: url_token\nsecretName: TOKEN\n",
        "authMode: signature\nsignatureScheme: github\nsecretName: TOKEN\n",
        "secretName: OTHER\ndeliveryIdHeader: X-Id\n",
        "secretName: OTHER\ndeliveryIdHeader: X-Other-Id\nenabled: false\n",
        "secretName: OTHER\neventHeader: X-Kind\n",
        "secretName: OTHER\nallowedNetworks: [192.0.2.0/24, '2001:db8::/32']\n",
        "secretName: TOKEN\nallowedNetworks: [192.0.2.7]\n",
        "secretName: OTHER\ndeliveryIdHeader: X-Id\neventHeader: X-Other-Kind\n",
    ):
        applied_repository.write({"webhooks/source.yaml": content}).apply()
        assert applied_repository.uids() == {"source": uid}
        assert applied_repository.apply().plan.steps == ()


def test_renamed_file_with_the_webhooks_name_changes_nothing(applied_repository):
    applied_repository.remove("webhooks/source.yaml")
    applied_repository.write({"webhooks/better.yaml": f"name: source\n{TOKEN}"})

    assert applied_repository.apply().plan.steps == ()


def test_apply_takes_effect_immediately_in_every_process(applied_repository):
    other = applied_repository.world.another_process()
    path = f"/webhooks/w/{applied_repository.uids()['source']}"

    def status(token: str):
        return other.request("POST", path, headers={"Authorization": f"Bearer {token}"}, body=b"{}").status

    assert status("one-token") == 202
    applied_repository.write({"webhooks/source.yaml": "secretName: OTHER\n"}).apply()
    assert (status("one-token"), status("another-token")) == (401, 202)
    applied_repository.world.management.secrets.replace(applied_repository.may, "OTHER", "third-token")
    applied_repository.apply()
    assert (status("another-token"), status("third-token")) == (401, 202)
    applied_repository.write({"webhooks/source.yaml": "secretName: OTHER\nenabled: false\n"}).apply()
    assert status("third-token") == 404
    applied_repository.write({"webhooks/source.yaml": "secretName: OTHER\nenabled: true\n"}).apply()
    assert status("third-token") == 202
    applied_repository.remove("webhooks/source.yaml")
    applied_repository.apply(may_delete=True)
    assert status("third-token") == 404


def test_unknown_secret_is_refused_with_what_to_do(applied_repository):
    world = applied_repository.world
    world.management.secrets.create(world.operator_of_new_factory(), "TOKENSS")
    applied_repository.write({"webhooks/source.yaml": "secretName: TOKENS\n"})

    assert applied_repository.problems() == [
        "webhooks/source.yaml:1:13: No team secret is named TOKENS. "
        "Create it first: hookmill secret create TOKENS, or did you mean TOKEN?"
    ]


def test_next_apply_syncs_a_replaced_secret(applied_repository):
    applied_repository.world.management.secrets.replace(applied_repository.may, "TOKEN", "new-token")
    assert post(applied_repository, "source", "one-token") == 202

    (step,) = applied_repository.apply().plan.steps

    assert [(change.key, change.concerns_senders) for change in step.changes] == [("secret", True)]
    statuses = [post(applied_repository, "source", token) for token in ("one-token", "new-token")]
    assert statuses == [401, 202]
    assert applied_repository.apply().plan.steps == ()


def test_replaced_secret_that_is_not_url_safe_is_refused(applied_repository):
    applied_repository.write({"webhooks/source.yaml": "authMode: url_token\nsecretName: TOKEN\n"}).apply()
    applied_repository.world.management.secrets.replace(applied_repository.may, "TOKEN", "not safe")

    (problem,) = applied_repository.problems()

    assert problem.startswith("webhooks/source.yaml:2:13: Team secret TOKEN: A url_token secret")


def test_apply_may_replace_a_webhook_of_a_full_factory(repository):
    with_secrets(repository, {"TOKEN": "one-token"})
    repository.write({f"webhooks/w{number}.yaml": TOKEN for number in range(20)}).apply()
    repository.remove("webhooks/w0.yaml")
    repository.write({"webhooks/new.yaml": TOKEN})

    result = repository.apply(may_delete=True)

    assert [(step.action, step.name) for step in result.plan.steps] == [
        (PlannedAction.REMOVE, "w0"),
        (PlannedAction.CREATE, "new"),
    ]


# Toggles


@pytest.mark.parametrize(
    ("line", "before", "after"), [("", False, False), ("", True, True), ("enabled: true\n", False, True)]
)
def test_apply_changes_a_toggle_only_if_the_file_contains_it(applied_repository, line, before, after):
    applied_repository.write({"webhooks/source.yaml": TOKEN + line})
    applied_repository.write(
        {"automations/triage/automation.md": automation(applied_repository.uids()["source"], other_keys=line)}
    ).apply()
    applied_repository.world.management.webhooks.set_enabled(applied_repository.world.may, "source", before)
    applied_repository.world.management.automations.set_enabled(applied_repository.world.may, "triage", before)

    applied_repository.apply()

    assert (applied_repository.webhook("source").state is WebhookState.ENABLED) is after
    assert applied_repository.world.management.automations.get(applied_repository.may, "triage").enabled is after


# Automations


def test_automation_changes_with_its_file(applied_repository):
    uid = applied_repository.uids()["source"]
    applied_repository.write(
        {"automations/triage/automation.md": automation(uid, "{n: [1.5, no]}", "enabled: false\n", "Else.")}
    )

    (step,) = applied_repository.apply().plan.steps

    stored = applied_repository.world.management.automations.get(applied_repository.may, "triage")
    assert [change.key for change in step.changes] == ["enabled", "triggers", "prompt"]
    assert (stored.prompt, stored.enabled, stored.id) == ("Else.", False, step.id)
    assert stored.filters[0].payload is not None
    assert stored.filters[0].payload.source == {"n": [1.5, "no"]}
    assert applied_repository.apply().plan.steps == ()


def test_automation_without_a_file_is_deleted(applied_repository):
    applied_repository.remove("automations/triage/automation.md")

    (step,) = applied_repository.apply().plan.steps

    assert (step.action, step.name) == (PlannedAction.REMOVE, "triage")
    assert list(applied_repository.world.management.automations.all(applied_repository.may)) == []


def test_plan_warns_of_a_selected_webhook_that_starts_no_run(applied_repository):
    source = applied_repository.uids()["source"]
    applied_repository.write({"webhooks/gone.yaml": TOKEN}).apply()
    gone = applied_repository.uids()["gone"]
    applied_repository.remove("webhooks/gone.yaml")
    applied_repository.write(
        {
            "webhooks/source.yaml": TOKEN + "enabled: false\n",
            "automations/triage/automation.md": automation(f"{source}, {gone}, wh_nowhere"),
            "automations/other/automation.md": automation(f"{gone}"),
            "automations/third/automation.md": automation(f"{gone}"),
        }
    )

    before = [str(warning) for warning in applied_repository.plan().warnings]
    applied_repository.apply(may_delete=True)
    after = [str(warning) for warning in applied_repository.plan().warnings]

    line = "automations/triage/automation.md:6"
    assert before == [
        f"automations/other/automation.md:6:21: 'gone' ({gone}) has no file, so this apply deletes it. "
        "It then starts no runs. 2 more triggers select it.",
        f"{line}:21: 'source' ({source}) is disabled, so it starts no runs until it is enabled.",
        f"{line}:85: wh_nowhere is not a webhook of factory 'default', so it starts no runs.",
    ]
    assert any(f"'gone' ({gone}) is deleted, so it starts no runs." in warning for warning in after)


# Backtests


def test_backtest_warns_of_a_filter_that_matches_no_delivery(applied_repository):
    for number in range(3):
        assert post(applied_repository, "source", "one-token", b'{"action": "opened", "n": %d}' % number) == 202
    uid = applied_repository.uids()["source"]

    applied_repository.write({"automations/triage/automation.md": automation(uid, "{action: [open]}")})
    warnings = applied_repository.backtest_warnings()
    applied_repository.write({"automations/triage/automation.md": automation(uid, "{action: [opened], n: [2]}")})

    assert warnings == [
        "automations/triage/automation.md:7:16: This filter would have matched none of the last 3 deliveries "
        "stored from its webhooks. `hookmill filter test` shows why."
    ]
    assert applied_repository.backtest_warnings() == []


def test_backtest_uses_only_the_last_120_deliveries(applied_repository):
    for number in range(122):
        applied_repository.world.clock.advance(seconds=2)
        assert post(applied_repository, "source", "one-token", b'{"n": %d}' % number) == 202
    uid = applied_repository.uids()["source"]

    applied_repository.write({"automations/triage/automation.md": automation(uid, "{n: [0, 1]}")})
    warnings = applied_repository.backtest_warnings()
    applied_repository.write({"automations/triage/automation.md": automation(uid, "{n: [2]}")})

    assert "none of the last 120 deliveries" in warnings[0]
    assert applied_repository.backtest_warnings() == []


def test_backtest_without_stored_deliveries_has_no_warning(applied_repository):
    uid = applied_repository.uids()["source"]
    applied_repository.write({"automations/triage/automation.md": automation(f"{uid}, wh_nowhere", "{action: [open]}")})

    assert applied_repository.backtest_warnings() == []


def test_backtest_that_takes_too_long_says_what_it_left_out(applied_repository):
    uid = applied_repository.uids()["source"]
    applied_repository.write({"automations/triage/automation.md": automation(uid, "{action: [open]}")})

    assert applied_repository.backtest_warnings(seconds=-1) == [
        "automations/triage/automation.md:3:3: Of 1 filters, 1 were not tested, from here on: it took too long."
    ]


# Factories that are defined by files


def test_first_apply_makes_the_factory_defined_by_files(repository):
    assert repository.plan().files_take_over is True
    assert repository.plan().has_changes is True
    assert repository.may.factory.defined_by_files is False

    repository.apply()

    assert repository.may.factory.defined_by_files is True
    with pytest.raises(Conflict, match="is defined by files"):
        repository.world.webhook("by-hand")
    assert repository.plan().files_take_over is False
    assert repository.plan().has_changes is False


def test_first_apply_deletes_existing_webhooks_only_with_consent(repository):
    webhook = repository.world.webhook("by-hand")
    repository.world.automation("its-own", webhook)

    assert repository.plan().consent_reason is not None
    with pytest.raises(definitions.ConsentNeeded) as refused:
        repository.apply()
    before = [each.name for each in repository.world.management.webhooks.all(repository.may)]
    repository.apply(may_delete=True)

    assert str(refused.value) == (
        "Factory 'default' would lose webhook 'by-hand': senders get 404, and the URL can't be restored. "
        "Factory 'default' would lose automation 'its-own', whose prompt has no file. "
        "If the files are for another factory, use --factory NAME. "
        "Factory 'default' was not defined by files so far: `hookmill export DIR` writes it as files."
    )
    assert before == ["by-hand"]
    assert repository.uids() == {}


def test_consent_reason_says_how_to_keep_the_webhook_of_a_renamed_file(applied_repository):
    applied_repository.remove("webhooks/source.yaml")
    applied_repository.write({"webhooks/better.yaml": TOKEN})

    consent = applied_repository.plan().consent_reason

    assert consent is not None
    assert consent.endswith(
        "If webhooks/better.yaml is the renamed file of 'source', add the line name: source to it. "
        "Then the webhook keeps its URL."
    )


def test_audit_log_contains_an_apply_with_its_channel(applied_repository):
    entries = applied_repository.world.management.audit.of_factory(applied_repository.may, limit=100)

    actions = [entry.action for entry in entries if entry.channel == Channel.FILES]
    assert {"factory.define_by_files", "webhook.create", "automation.create"} <= set(actions)


def test_apply_does_not_change_another_factory(applied_repository):
    other_factory = applied_repository.world.operator_of_new_factory()
    applied_repository.world.management.webhooks.create(other_factory, {"name": "source"})
    before = list(applied_repository.world.management.webhooks.all(other_factory))
    applied_repository.remove("webhooks/source.yaml", "automations/triage/automation.md")

    applied_repository.apply(may_delete=True)

    assert list(applied_repository.world.management.webhooks.all(other_factory)) == before


# Schedules


def automation_with_schedules(uid: str, schedules: str) -> str:
    """The text of an automation's file whose schedules precede a webhook trigger."""
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


def test_schedule_is_applied_exported_changed_and_removed_with_its_file(applied_repository):
    uid = applied_repository.uids()["source"]
    management, may = applied_repository.world.management, applied_repository.may

    def apply(schedules: str) -> list[str]:
        applied_repository.write({"automations/triage/automation.md": automation_with_schedules(uid, schedules)})
        steps = applied_repository.apply().plan.steps
        assert applied_repository.apply().plan.steps == ()
        stored = management.automations.get(may, "triage")
        assert [schedule.name for schedule in stored.schedules] == list(
            management.automations.next_times_of(may, stored)
        )
        return [change.key for step in steps for change in step.changes]

    apply("")
    assert apply(NIGHTLY) == ["triggers"]
    [nightly] = management.automations.get(may, "triage").schedules
    assert nightly.as_json() == {"name": "nightly", "cron": "0 3 * * *", "timezone": "Europe/Berlin"}
    exported = definitions.export(management, may)["automations/triage/automation.md"]
    assert exported.count('cron: "0 3 * * *"\n      timezone: Europe/Berlin\n') == 1
    applied_repository.write({"automations/triage/automation.md": exported})
    assert applied_repository.plan().steps == ()
    assert apply(NIGHTLY.replace("Europe/Berlin", "UTC, catch_up: none")) == ["triggers"]
    assert apply("") == ["triggers"]


def test_warning_of_a_trigger_after_a_schedule_has_its_place(applied_repository):
    unknown = "wh_" + "0" * 27
    applied_repository.write({"automations/triage/automation.md": automation_with_schedules(unknown, NIGHTLY)})

    [warning] = applied_repository.plan().warnings

    assert (warning.place.line, warning.message.partition(" ")[0]) == (8, unknown)


# Run options


OPTIONS: dict[str, tuple[str, tuple[str, str], list[str], dict[str, Any]]] = {
    "policy": (
        "concurrency:\n  key: /pull_request/number\n  when_busy: skip\n"
        "debounce: {seconds: 20}\npriority: high\nmax_running: 4\npause_after_failures: 3\n",
        ("high", "low"),
        ["concurrency", "debounce", "priority", "max_running", "pause_after_failures"],
        {
            "concurrency": {"key": ["/pull_request/number"], "limit": 1, "when_busy": "skip"},
            "debounce": {"seconds": 20},
            "priority": "high",
            "max_running": 4,
            "pause_after_failures": 3,
        },
    ),
    "fields": (
        "fields:\n  pr: /pull_request/number\n  title: {pointer: /pull_request/title, max_characters: 500}\n",
        ("500", "50"),
        ["fields"],
        {
            "fields": {
                "pr": {"pointer": "/pull_request/number", "max_characters": 200},
                "title": {"pointer": "/pull_request/title", "max_characters": 500},
            }
        },
    ),
    "secrets": (
        "secrets: [NPM_TOKEN, GH_TOKEN=BILLING_GH_TOKEN]\n",
        ("NPM_TOKEN, ", ""),
        ["secrets"],
        {"secrets": ["NPM_TOKEN", "GH_TOKEN=BILLING_GH_TOKEN"]},
    ),
    "workspace": (
        "workspace: {repository: app, ref: {pointer: /pull_request/head/sha}, base: {pointer: /pull_request/base/ref}, "
        "depth: full}\n",
        ("full", "7"),
        ["workspace"],
        {
            "workspace": {
                "repository": "app",
                "ref": {"pointer": "/pull_request/head/sha"},
                "base": {"pointer": "/pull_request/base/ref"},
                "depth": 0,
            }
        },
    ),
    "results": (
        "results:\n  - {kind: github_comment, destination: github}\n  - {kind: slack, destination: team}\n",
        ("github_comment", "github_review"),
        ["results"],
        {
            "results": [
                {"kind": "github_comment", "destination": "github"},
                {"kind": "slack", "destination": "team"},
            ]
        },
    ),
}
"""The text in the file, a change of it, the keys that it changes, and what is stored."""


@pytest.mark.parametrize(("text", "change", "keys", "stored"), OPTIONS.values(), ids=OPTIONS)
def test_option_is_applied_exported_changed_and_removed_with_its_file(applied_repository, text, change, keys, stored):
    uid = applied_repository.uids()["source"]
    management, may = applied_repository.world.management, applied_repository.may
    for name in ("NPM_TOKEN", "BILLING_GH_TOKEN"):
        management.secrets.create(may, name, f"canary-of-{name}", for_runs=True)

    def apply(options: str) -> list[str]:
        applied_repository.write({"automations/triage/automation.md": automation(uid, "{n: [1]}", options, "Go.")})
        steps = applied_repository.apply().plan.steps
        assert applied_repository.apply().plan.steps == ()
        return [change.key for step in steps for change in step.changes]

    def stored_options():
        fields = management.automations.get(may, "triage").spec.as_json()
        return {name: fields[name] for name in RunOptions.__struct_fields__ if name in fields}

    apply("")
    assert (apply(text), stored_options()) == (keys, stored)
    exported = definitions.export(management, may)["automations/triage/automation.md"]
    applied_repository.write({"automations/triage/automation.md": exported})
    assert applied_repository.plan().steps == ()
    assert "canary-of" not in exported
    changed = apply(text.replace(*change))
    assert (len(changed), set(changed) <= set(keys)) == (1, True)
    assert (apply(""), stored_options()) == (keys, {})


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("secrets: [GH_TOKEN=BILLING_GH_TOKEN]\n", "no secret for runs named BILLING_GH_TOKEN"),
        ("results: [{kind: slack, destination: elsewhere}]\n", "may not use a destination 'elsewhere'"),
    ],
)
def test_option_that_the_factory_may_not_use_is_refused_with_its_line(applied_repository, option, problem):
    uid = applied_repository.uids()["source"]
    applied_repository.write({"automations/triage/automation.md": automation(uid, "{n: [1]}", option, "Go.")})

    [found] = applied_repository.problems()

    assert "automations/triage/automation.md:" in found
    assert problem in found
