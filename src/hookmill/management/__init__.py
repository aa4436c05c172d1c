"""The operations of operators, members and keys on factories, webhooks, automations, the log and runs.

The API, the dashboard, the command line and definition files (the *channels*) all call them. An operation requires a
permission as its argument `may`. Only `access` grants one. A change is one transaction, which also adds a line to the
audit log, and takes effect in every process before the call returns.

The exceptions are: setting up and signing in need no permission. `PlatformReports` grants permission for its reports
itself. `Runs.cancel_many` uses several transactions. These add no line to the audit log: reports, the sign-in link for
the first admin, sign-outs, times of the last use of keys and sessions, the responses that `Idempotency` stores,
`DefinitionRuns.store`, and the rows of the log that `Probes` adds and removes.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

from hookmill.domain.api_key import ApiKey
from hookmill.domain.audit import AuditEntry
from hookmill.domain.definition_run import DefinitionAct, DefinitionOutcome
from hookmill.domain.member import Member
from hookmill.domain.permission import MayAdminister, MayManage
from hookmill.management.access import Access
from hookmill.management.alarm_destinations import (
    AlarmDestinations,
    DestinationTest,
    DestinationWithSecret,
    SendAlarm,
)
from hookmill.management.alarms import Alarms
from hookmill.management.audit import Audit
from hookmill.management.automations import Automations
from hookmill.management.definition_runs import DefinitionRuns
from hookmill.management.external_sign_ins import ExternalSession, ExternalSignIns
from hookmill.management.factories import Factories
from hookmill.management.filters import (
    AutomationMatch,
    Backtest,
    Filters,
    FilterTest,
    draft_filter,
    evaluate_filter,
)
from hookmill.management.idempotency import Idempotency, IdempotencyKeyReused
from hookmill.management.installation import Installation, InstallationConfig
from hookmill.management.keys import Keys, KeyWithToken
from hookmill.management.log import Log
from hookmill.management.master_keys import MasterKeyRotations
from hookmill.management.members import Members
from hookmill.management.platform_reports import MayReport, PlatformReports
from hookmill.management.probes import Probes
from hookmill.management.run_files import LocalPackages, RunFileReader
from hookmill.management.runs import Runs
from hookmill.management.secrets import Secrets, TeamSecret
from hookmill.management.sessions import KnownBrowser, LinkTarget, Sessions, SignedInMember
from hookmill.management.webhooks import Webhooks, WebhookWithSecret
from hookmill.store.database import Database
from hookmill.store.keys.sealing import KeyRing
from hookmill.store.runs.files import RunFileStorage


class Management:
    """The operations of one installation, in groups."""

    def __init__(
        self,
        database: Database,
        master_keys: KeyRing,
        config: InstallationConfig,
        now_us: Callable[[], int],
        *,
        has_room: Callable[[], bool] = lambda: True,
        packages: LocalPackages | None = None,
        run_file_storage: RunFileStorage | None = None,
        send_alarm: SendAlarm | None = None,
    ) -> None:
        """`now_us`: the time in µs since 1970. `has_room`: whether the database's disk has room for changes that create
        something.

        `packages`: the packages of runs on this host. `run_file_storage`: where runs' files are stored; None if they
        stay on the worker's host. `send_alarm` sends tests of alarm destinations; None if this process can't send them.
        """
        installation = Installation(database, master_keys, config, now_us, has_room)
        self._installation = installation
        self.config = config
        self.access = Access(installation)
        self.factories = Factories(installation)
        self.webhooks = Webhooks(installation)
        self.secrets = Secrets(installation)
        self.probes = Probes(installation, self.access, self.webhooks, self.secrets)
        self.automations = Automations(installation)
        self.log = Log(installation)
        self.filters = Filters(installation)
        self.runs = Runs(installation)
        self.run_files = RunFileReader(installation, packages, run_file_storage)
        self.platform_reports = PlatformReports(installation)
        self.keys = Keys(installation)
        self.members = Members(installation)
        self.sessions = Sessions(installation)
        self.external_sign_ins = ExternalSignIns(installation, self.sessions)
        self.alarms = Alarms(installation)
        self.audit = Audit(installation)
        self.definition_runs = DefinitionRuns(installation)
        self.master_key_rotations = MasterKeyRotations(installation)
        self.idempotency = Idempotency(installation)
        self.alarm_destinations = AlarmDestinations(installation, send_alarm)

    def one_transaction(self, may: MayManage | MayAdminister) -> AbstractContextManager[object]:
        """A context in which all operations of this thread share one transaction. Don't catch exceptions inside it."""
        return self._installation.one_transaction(may)

    def rehearsing(self, may: MayManage) -> AbstractContextManager[None]:
        """A context in which this thread's operations on webhooks and automations change only a copy in memory."""
        return self._installation.rehearsing(may)


__all__ = [
    "ApiKey",
    "AuditEntry",
    "AutomationMatch",
    "Backtest",
    "DefinitionAct",
    "DefinitionOutcome",
    "DestinationTest",
    "DestinationWithSecret",
    "ExternalSession",
    "FilterTest",
    "IdempotencyKeyReused",
    "InstallationConfig",
    "KeyWithToken",
    "KnownBrowser",
    "LinkTarget",
    "Management",
    "MayReport",
    "Member",
    "SignedInMember",
    "TeamSecret",
    "WebhookWithSecret",
    "draft_filter",
    "evaluate_filter",
]
