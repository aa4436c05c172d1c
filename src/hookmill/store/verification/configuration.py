"""Checks of what people define: webhooks, automations, secrets; and of the audit log."""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from hookmill.domain.ids import audit_entry_id, time_of
from hookmill.domain.permission import ActorKind, Channel
from hookmill.domain.run_options import options_from_stored
from hookmill.domain.run_policy import policy_from_stored
from hookmill.domain.webhook import AuthMode, WebhookState
from hookmill.store.automations import parsed_triggers
from hookmill.store.keys.rotation import SEALED_TABLES
from hookmill.store.keys.sealing import WrongKey
from hookmill.store.verification.snapshot import RESTORE, DatabaseProblem, DatabaseSnapshot, json_object

SAVE_AGAIN: Final = "Save the automation again, such as with `hookmill automation change NAME --prompt …`."
REPLACE_SECRET: Final = (
    "Give what uses it a new secret, such as with `hookmill webhook rotate NAME`. docs/secrets.md has the details."
)
REPLACE_DESTINATION: Final = "Remove the destination with `hookmill alarm destination remove`, and add it again."
SEALED_ROWS_PER_PAGE: Final = 500
AUDIT_ROWS_PER_PAGE: Final = 2_000
_KEY_TIME_TOLERANCE_US: Final = 1_000_000


def check_webhooks(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    versions = {row["id"]: row["secret_id"] for row in snapshot.tx.all("SELECT id, secret_id FROM secret_versions")}
    for webhook in snapshot.webhooks.values():
        row = f"webhook {webhook['uid']}"
        if webhook["state"] not in list(WebhookState) or webhook["auth_mode"] not in list(AuthMode):
            yield DatabaseProblem(
                kind="webhook_state",
                row=row,
                text=f"Its state {webhook['state']!r} or its mode {webhook['auth_mode']!r} does not exist.",
                advice=RESTORE,
            )
            continue
        if (webhook["state"] == WebhookState.DELETED) != (webhook["deleted_at"] is not None):
            yield DatabaseProblem(
                kind="webhook_state", row=row, text="Its state contradicts the time of its deletion.", advice=RESTORE
            )
        if webhook["revision"] < 1:
            yield DatabaseProblem(
                kind="webhook_revision",
                row=row,
                text="Its revision is not positive, so processes may not notice changes of it.",
                advice="Rename the webhook, which increments the revision, and restart every process.",
            )
        version = webhook["secret_version_id"]
        if version is None and webhook["state"] == WebhookState.ENABLED:
            text = "It is enabled without a secret, so no sender can authenticate."
        elif version is not None and versions.get(version) != webhook["secret_id"]:
            text = "The value of its secret belongs to another secret, so senders with the right secret are refused."
        else:
            continue
        yield DatabaseProblem(kind="webhook_secret", row=row, text=text, advice="Run `hookmill webhook rotate NAME`.")
    snapshot.rows += len(snapshot.webhooks)


def check_automations(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    tx = snapshot.tx
    selected: dict[str, set[str]] = {}
    for row in tx.all("SELECT automation_id, webhook_uid FROM automation_webhooks"):
        selected.setdefault(row["automation_id"], set()).add(row["webhook_uid"])
    schedules: dict[str, set[str]] = {}
    for row in tx.all("SELECT automation_id, name FROM schedules"):
        schedules.setdefault(row["automation_id"], set()).add(row["name"])
    newest = {
        row["automation_id"]: row["version"]
        for row in tx.all(
            "SELECT automation_id, MAX(version) AS version FROM automation_versions GROUP BY automation_id"
        )
    }
    for automation in snapshot.automations.values():
        snapshot.check()
        snapshot.rows += 1
        name = f"automation {automation['id']}"
        version = tx.one(
            "SELECT triggers, policy, options FROM automation_versions WHERE automation_id = :id AND version = :no",
            id=automation["id"],
            no=automation["version"],
        )
        if version is None or newest.get(automation["id"]) != automation["version"]:
            yield DatabaseProblem(
                kind="automation_version",
                row=name,
                text=f"Its version {automation['version']} is not the newest stored one, so its instructions are lost.",
                advice=RESTORE,
            )
            continue
        triggers = parsed_triggers(version["triggers"])
        policy, options = policy_from_stored(version["policy"]), options_from_stored(version["options"])
        for part, reason in (
            ("triggers", triggers.unreadable),
            ("policy", policy.unreadable),
            ("options", options.unreadable),
        ):
            if reason is not None:
                yield DatabaseProblem(
                    kind=f"automation_{part}",
                    row=name,
                    text=f"Its {part} can't be read, so no run of it starts: {reason}",
                    advice=f"Replace all of its {part} with one request of the API.",
                )
        if policy.unreadable is None and (policy.max_running, policy.pause_after_failures) != (
            automation["max_running"],
            automation["pause_after_failures"],
        ):
            yield DatabaseProblem(
                kind="automation_policy",
                row=name,
                text="The limits that workers apply are not those of its policy.",
                advice=SAVE_AGAIN,
            )
        is_live = automation["deleted_at"] is None
        selections = [trigger.webhook_ids for trigger in triggers.delivery_triggers]
        uids = set(chain.from_iterable(selections))
        if triggers.unreadable is None and selected.get(automation["id"], set()) != (uids if is_live else set()):
            yield DatabaseProblem(
                kind="automation_webhooks",
                row=name,
                text="The webhooks that start it are not those of its triggers, so runs are missing or unwanted.",
                advice=SAVE_AGAIN,
            )
        schedule_names = {schedule.name for schedule in triggers.schedules}
        if not schedules.get(automation["id"], set()) >= (schedule_names if is_live else set()):
            yield DatabaseProblem(
                kind="automation_schedule",
                row=name,
                text="A schedule of it is not stored, so it starts no runs.",
                advice=SAVE_AGAIN,
            )


def check_secrets(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    """Whether the master keys open every sealed value."""
    for table in SEALED_TABLES:
        last = ""
        while rows := snapshot.tx.all(
            f"SELECT id, key_id, sealed FROM {table} WHERE id > :last ORDER BY id LIMIT {SEALED_ROWS_PER_PAGE}",
            last=last,
        ):
            snapshot.check()
            for row in rows:
                try:
                    snapshot.keys.named(row["key_id"]).open(bytes(row["sealed"]), row["id"])
                except WrongKey:
                    yield DatabaseProblem(
                        kind="secret_sealed",
                        row=f"{table} {row['id']}",
                        text="No available master key decrypts its value, so it can't be used.",
                        advice=REPLACE_DESTINATION if table == "alarm_destinations" else REPLACE_SECRET,
                    )
            last = rows[-1]["id"]
            snapshot.rows += len(rows)


def check_audit_log(snapshot: DatabaseSnapshot) -> Iterator[DatabaseProblem]:
    teams = {row["id"] for row in snapshot.tx.all("SELECT id FROM teams")}
    for page in snapshot.pages(
        "checking the audit log",
        "audit_log",
        """
        SELECT id AS key, team_id, at, actor_kind, channel, details
        FROM audit_log WHERE id > :last ORDER BY id LIMIT :limit
        """,
        rows_per_page=AUDIT_ROWS_PER_PAGE,
    ):
        for row in page:
            problems = []
            if json_object(row["details"]) is None:
                problems.append("its details are no JSON object")
            if row["actor_kind"] not in list(ActorKind) or row["channel"] not in list(Channel):
                problems.append("its author is of an unknown kind")
            if row["team_id"] not in teams:
                problems.append("its team does not exist")
            if abs(time_of(bytes(row["key"])) - row["at"]) > _KEY_TIME_TOLERANCE_US:
                problems.append("its time is not the time of its id")
            if problems:
                yield DatabaseProblem(
                    kind="audit_entry",
                    row=f"audit entry {audit_entry_id(bytes(row['key']))}",
                    text=f"It was altered: {'; '.join(problems)}.",
                    advice="Compare it with a backup. Entries are never changed by Hookmill.",
                )
