"""The operations of the API. `python -m scripts.client` writes this file from the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, Literal, Unpack

from hookmill.client.requests import Requests

if TYPE_CHECKING:
    from hookmill.client import types


class ApiOperations(Requests):
    """One method for each operation. Lists are read page by page."""

    def show_me(self) -> types.CallerJson:
        """Show the API key in use."""
        return self._call("GET", "me")

    def list_factories(self, *, limit: int | None = None, cursor: str | None = None) -> Iterator[types.FactoryJson]:
        """List factories."""
        return self._pages("factories", limit=limit, cursor=cursor)

    def create_factory(self, **body: Unpack[types.FactoryCreationJson]) -> types.FactoryJson:
        """Create a factory."""
        return self._call("POST", "factories", body=body, is_idempotent=True)

    def show_factory(self, factory: str, /) -> types.FactoryJson:
        """Show a factory."""
        return self._call("GET", "factories/{}", factory)

    def change_factory(self, factory: str, /, **body: Unpack[types.FactoryChangesJson]) -> types.FactoryJson:
        """Change a factory."""
        return self._call("PATCH", "factories/{}", factory, body=body)

    def list_webhooks(
        self, factory: str, /, *, deleted: bool | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Iterator[types.WebhookJson]:
        """List webhooks."""
        return self._pages("factories/{}/webhooks", factory, query={"deleted": deleted}, limit=limit, cursor=cursor)

    def create_webhook(self, factory: str, /, **body: Unpack[types.WebhookCreationJson]) -> types.WebhookWithSecretJson:
        """Create a webhook."""
        return self._call("POST", "factories/{}/webhooks", factory, body=body, is_idempotent=True)

    def show_webhook(self, factory: str, uid: str, /) -> types.WebhookJson:
        """Show a webhook."""
        return self._call("GET", "factories/{}/webhooks/{}", factory, uid)

    def change_webhook(self, factory: str, uid: str, /, **body: Unpack[types.WebhookChangesJson]) -> types.WebhookJson:
        """Change a webhook."""
        return self._call("PATCH", "factories/{}/webhooks/{}", factory, uid, body=body)

    def delete_webhook(self, factory: str, uid: str, /) -> None:
        """Delete a webhook."""
        self._call("DELETE", "factories/{}/webhooks/{}", factory, uid)

    def rotate_webhook(
        self, factory: str, uid: str, /, **body: Unpack[types.RotationRequestJson]
    ) -> types.WebhookWithSecretJson:
        """Rotate a webhook's secret."""
        return self._call("POST", "factories/{}/webhooks/{}/rotate", factory, uid, body=body, is_idempotent=True)

    def sync_webhook(self, factory: str, uid: str, /) -> types.WebhookJson:
        """Sync a webhook with its team secret."""
        return self._call("POST", "factories/{}/webhooks/{}/sync", factory, uid)

    def list_secrets(
        self, factory: str, /, *, limit: int | None = None, cursor: str | None = None
    ) -> Iterator[types.SecretJson]:
        """List team secrets."""
        return self._pages("factories/{}/secrets", factory, limit=limit, cursor=cursor)

    def create_secret(self, factory: str, /, **body: Unpack[types.SecretCreationJson]) -> types.SecretWithValueJson:
        """Create a team secret."""
        return self._call("POST", "factories/{}/secrets", factory, body=body, is_idempotent=True)

    def show_secret(self, factory: str, name: str, /) -> types.SecretJson:
        """Show a team secret."""
        return self._call("GET", "factories/{}/secrets/{}", factory, name)

    def replace_secret(
        self, factory: str, name: str, /, **body: Unpack[types.SecretReplacementJson]
    ) -> types.SecretWithValueJson:
        """Replace a team secret."""
        return self._call("PUT", "factories/{}/secrets/{}", factory, name, body=body)

    def delete_secret(self, factory: str, name: str, /) -> None:
        """Delete a team secret."""
        self._call("DELETE", "factories/{}/secrets/{}", factory, name)

    def list_automations(
        self, factory: str, /, *, limit: int | None = None, cursor: str | None = None
    ) -> Iterator[types.AutomationInListJson]:
        """List automations."""
        return self._pages("factories/{}/automations", factory, limit=limit, cursor=cursor)

    def create_automation(self, factory: str, /, **body: Unpack[types.AutomationCreationJson]) -> types.AutomationJson:
        """Create an automation."""
        return self._call("POST", "factories/{}/automations", factory, body=body, is_idempotent=True)

    def show_automation(self, factory: str, automation: str, /) -> types.AutomationJson:
        """Show an automation."""
        return self._call("GET", "factories/{}/automations/{}", factory, automation)

    def change_automation(
        self, factory: str, automation: str, /, **body: Unpack[types.AutomationChangesJson]
    ) -> types.AutomationJson:
        """Change an automation."""
        return self._call("PATCH", "factories/{}/automations/{}", factory, automation, body=body)

    def delete_automation(self, factory: str, automation: str, /) -> None:
        """Delete an automation."""
        self._call("DELETE", "factories/{}/automations/{}", factory, automation)

    def run_automation(self, factory: str, automation: str, /, **body: Unpack[types.RunRequestJson]) -> types.RunJson:
        """Run an automation."""
        return self._call(
            "POST", "factories/{}/automations/{}/runs", factory, automation, body=body, is_idempotent=True
        )

    def export_definitions(self, factory: str, /) -> types.DefinitionExportJson:
        """Export definition files."""
        return self._call("GET", "factories/{}/definitions", factory)

    def plan_definitions(self, factory: str, /, **body: Unpack[types.DefinitionFilesJson]) -> types.DefinitionPlanJson:
        """Plan definition files."""
        return self._call("POST", "factories/{}/definitions/plan", factory, body=body)

    def apply_definitions(self, factory: str, /, **body: Unpack[types.DefinitionApplyJson]) -> types.DefinitionPlanJson:
        """Apply definition files."""
        return self._call("POST", "factories/{}/definitions/apply", factory, body=body)

    def list_deliveries(
        self,
        factory: str,
        /,
        *,
        webhook: str | None = None,
        label: Literal["Accepted", "Duplicate", "Rejected (auth)", "Rejected (invalid JSON)", "Rejected (too large)"]
        | None = None,
        since: str | None = None,
        until: str | None = None,
        identity: str | None = None,
        event: str | None = None,
        oldest_first: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Iterator[types.DeliveryJson]:
        """List deliveries."""
        return self._pages(
            "factories/{}/deliveries",
            factory,
            query={
                "webhook": webhook,
                "label": label,
                "since": since,
                "until": until,
                "identity": identity,
                "event": event,
                "oldest_first": oldest_first,
            },
            limit=limit,
            cursor=cursor,
        )

    def show_delivery(self, factory: str, delivery: str, /) -> types.DeliveryWithRunsJson:
        """Show a delivery."""
        return self._call("GET", "factories/{}/deliveries/{}", factory, delivery)

    def download_payload(self, factory: str, delivery: str, /) -> BinaryIO:
        """Download a delivery's payload."""
        return self._download("factories/{}/deliveries/{}/payload", factory, delivery)

    def explain_delivery(self, factory: str, delivery: str, /) -> types.ExplanationJson:
        """Explain a delivery."""
        return self._call("GET", "factories/{}/deliveries/{}/explanation", factory, delivery)

    def replay_delivery(
        self, factory: str, delivery: str, /, **body: Unpack[types.ReplayRequestJson]
    ) -> types.ReplayJson:
        """Replay a delivery."""
        return self._call("POST", "factories/{}/deliveries/{}/replay", factory, delivery, body=body, is_idempotent=True)

    def list_dropped_attempts(
        self, factory: str, /, *, webhook: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Iterator[types.DroppedAttemptsJson]:
        """List dropped attempts."""
        return self._pages(
            "factories/{}/dropped-attempts", factory, query={"webhook": webhook}, limit=limit, cursor=cursor
        )

    def test_filter(self, factory: str, /, **body: Unpack[types.FilterTestRequestJson]) -> types.FilterTestJson:
        """Test a filter on a delivery."""
        return self._call("POST", "factories/{}/filter-tests", factory, body=body)

    def backtest_filter(self, factory: str, /, **body: Unpack[types.BacktestRequestJson]) -> types.BacktestJson:
        """Backtest a filter."""
        return self._call("POST", "factories/{}/backtests", factory, body=body)

    def list_runs(
        self,
        factory: str,
        /,
        *,
        webhook: str | None = None,
        automation: str | None = None,
        state: types.RunStateJson | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Iterator[types.RunJson]:
        """List runs."""
        return self._pages(
            "factories/{}/runs",
            factory,
            query={"webhook": webhook, "automation": automation, "state": state},
            limit=limit,
            cursor=cursor,
        )

    def show_run(self, factory: str, run: str, /) -> types.RunWithOutputJson:
        """Show a run."""
        return self._call("GET", "factories/{}/runs/{}", factory, run)

    def show_run_output(self, factory: str, run: str, /) -> types.RunOutputJson:
        """Show a run's output."""
        return self._call("GET", "factories/{}/runs/{}/output", factory, run)

    def list_run_files(self, factory: str, run: str, /) -> types.RunFilesJson:
        """List a run's files."""
        return self._call("GET", "factories/{}/runs/{}/files", factory, run)

    def download_run_file(self, factory: str, run: str, file: str, /) -> BinaryIO:
        """Download a run's file."""
        return self._download("factories/{}/runs/{}/files/{}", factory, run, file)

    def cancel_runs(self, factory: str, /, **body: Unpack[types.RunCancellationJson]) -> types.CancelledRunsJson:
        """Cancel many runs."""
        return self._call("POST", "factories/{}/runs/cancel", factory, body=body)

    def cancel_run(self, factory: str, run: str, /) -> types.RunJson:
        """Cancel a run."""
        return self._call("POST", "factories/{}/runs/{}/cancel", factory, run)

    def show_queue(
        self, factory: str, /, *, limit: int | None = None, cursor: str | None = None
    ) -> Iterator[types.WaitingRunJson]:
        """Show the queue."""
        return self._pages("factories/{}/queue", factory, limit=limit, cursor=cursor)

    def create_alarm_destination(
        self, factory: str, /, **body: Unpack[types.AlarmDestinationCreationJson]
    ) -> types.AlarmDestinationWithSecretJson:
        """Create an alarm destination of a factory."""
        return self._call("POST", "factories/{}/alarm-destinations", factory, body=body, is_idempotent=True)

    def list_alarm_destinations(
        self, factory: str, /, *, limit: int | None = None, cursor: str | None = None
    ) -> Iterator[types.AlarmDestinationJson]:
        """List the alarm destinations of a factory."""
        return self._pages("factories/{}/alarm-destinations", factory, limit=limit, cursor=cursor)

    def delete_alarm_destination(self, factory: str, destination: str, /) -> None:
        """Delete an alarm destination of a factory."""
        self._call("DELETE", "factories/{}/alarm-destinations/{}", factory, destination)

    def test_alarm_destination(self, factory: str, destination: str, /) -> types.DestinationTestJson:
        """Send a test to a destination of a factory."""
        return self._call("POST", "factories/{}/alarm-destinations/{}/test", factory, destination)

    def create_installation_alarm_destination(
        self, **body: Unpack[types.AlarmDestinationCreationJson]
    ) -> types.AlarmDestinationWithSecretJson:
        """Create an alarm destination of the installation."""
        return self._call("POST", "alarm-destinations", body=body, is_idempotent=True)

    def list_installation_alarm_destinations(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Iterator[types.AlarmDestinationJson]:
        """List the alarm destinations of the installation."""
        return self._pages("alarm-destinations", limit=limit, cursor=cursor)

    def delete_installation_alarm_destination(self, installation_destination: str, /) -> None:
        """Delete an alarm destination of the installation."""
        self._call("DELETE", "alarm-destinations/{}", installation_destination)

    def test_installation_alarm_destination(self, installation_destination: str, /) -> types.DestinationTestJson:
        """Send a test to a destination of the installation."""
        return self._call("POST", "alarm-destinations/{}/test", installation_destination)

    def list_alarms(
        self, factory: str, /, *, open: bool | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Iterator[types.AlarmJson]:
        """List the alarms of a factory."""
        return self._pages("factories/{}/alarms", factory, query={"open": open}, limit=limit, cursor=cursor)

    def show_alarm(self, factory: str, alarm: str, /) -> types.AlarmJson:
        """Show an alarm of a factory."""
        return self._call("GET", "factories/{}/alarms/{}", factory, alarm)

    def snooze_alarm(self, factory: str, alarm: str, /, **body: Unpack[types.AlarmSnoozeJson]) -> types.AlarmJson:
        """Snooze an alarm of a factory."""
        return self._call("POST", "factories/{}/alarms/{}/snooze", factory, alarm, body=body)

    def wake_alarm(self, factory: str, alarm: str, /) -> types.AlarmJson:
        """Wake an alarm of a factory."""
        return self._call("POST", "factories/{}/alarms/{}/wake", factory, alarm)

    def list_installation_alarms(
        self, *, open: bool | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Iterator[types.AlarmJson]:
        """List the alarms of the installation."""
        return self._pages("alarms", query={"open": open}, limit=limit, cursor=cursor)

    def show_installation_alarm(self, installation_alarm: str, /) -> types.AlarmJson:
        """Show an alarm of the installation."""
        return self._call("GET", "alarms/{}", installation_alarm)

    def snooze_installation_alarm(
        self, installation_alarm: str, /, **body: Unpack[types.AlarmSnoozeJson]
    ) -> types.AlarmJson:
        """Snooze an alarm of the installation."""
        return self._call("POST", "alarms/{}/snooze", installation_alarm, body=body)

    def wake_installation_alarm(self, installation_alarm: str, /) -> types.AlarmJson:
        """Wake an alarm of the installation."""
        return self._call("POST", "alarms/{}/wake", installation_alarm)

    def list_audit_log(
        self, factory: str, /, *, limit: int | None = None, cursor: str | None = None
    ) -> Iterator[types.AuditEntryJson]:
        """List a factory's audit log."""
        return self._pages("factories/{}/audit-log", factory, limit=limit, cursor=cursor)

    def list_team_audit_log(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> Iterator[types.AuditEntryJson]:
        """List the team's audit log."""
        return self._pages("audit-log", limit=limit, cursor=cursor)

    def list_members(self, *, limit: int | None = None, cursor: str | None = None) -> Iterator[types.MemberJson]:
        """List members."""
        return self._pages("members", limit=limit, cursor=cursor)

    def add_member(self, **body: Unpack[types.MemberCreationJson]) -> types.MemberJson:
        """Add a member."""
        return self._call("POST", "members", body=body, is_idempotent=True)

    def show_member(self, member: str, /) -> types.MemberJson:
        """Show a member."""
        return self._call("GET", "members/{}", member)

    def change_member(self, member: str, /, **body: Unpack[types.MemberChangesJson]) -> types.MemberJson:
        """Change a member."""
        return self._call("PATCH", "members/{}", member, body=body)

    def remove_member(self, member: str, /) -> None:
        """Remove a member."""
        self._call("DELETE", "members/{}", member)

    def give_role(self, member: str, factory: str, /, **body: Unpack[types.FactoryRoleJson]) -> types.MemberJson:
        """Give a role in a factory."""
        return self._call("PUT", "members/{}/roles/{}", member, factory, body=body)

    def take_role(self, member: str, factory: str, /) -> types.MemberJson:
        """Remove a role in a factory."""
        return self._call("DELETE", "members/{}/roles/{}", member, factory)

    def create_sign_in_link(self, member: str, /) -> types.SignInLinkJson:
        """Create a sign-in link."""
        return self._call("POST", "members/{}/sign-in-link", member, is_idempotent=True)

    def list_keys(self, *, limit: int | None = None, cursor: str | None = None) -> Iterator[types.KeyJson]:
        """List API keys."""
        return self._pages("keys", limit=limit, cursor=cursor)

    def create_key(self, **body: Unpack[types.KeyCreationJson]) -> types.KeyWithTokenJson:
        """Create an API key."""
        return self._call("POST", "keys", body=body, is_idempotent=True)

    def revoke_key(self, key: str, /) -> types.KeyJson:
        """Revoke an API key."""
        return self._call("DELETE", "keys/{}", key)
