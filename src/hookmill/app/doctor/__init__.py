"""`hookmill doctor`: checks an installation and says what to do. It needs no running service.

These checks change no data of the installation. The check `object store` stores an object, and removes it.
Each check has a deadline. A check whose prerequisite has a problem is not made.
"""

import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from hookmill.app.doctor import alarms, base_url, database, destinations, directory, host, repositories, runs, sign_in
from hookmill.app.doctor.check import Check, findings_of
from hookmill.domain.finding import Examination, Finding, Status, ok, problem
from hookmill.settings import LoadedSettings, Settings

__all__ = ["CHECKS", "examine"]

CHECKS: Final[Sequence[Check[Settings]]] = (
    Check("data directory", directory.check_owner_and_modes),
    Check("file system", directory.check_file_system, needs=("data directory",)),
    Check("disk space", directory.check_space, needs=("data directory",)),
    Check("memory", directory.check_memory),
    Check("disk sync", directory.check_sync, needs=("data directory",), seconds=20),
    Check("database", database.check_database, seconds=20),
    Check("schema", database.check_schema, needs=("database",)),
    # Not after "database": damage is often why that check fails.
    Check("integrity", database.check_integrity, seconds=20),
    Check("pooler", database.check_pooler, needs=("database",)),
    Check("privileges", database.check_privileges, needs=("database",)),
    Check("durability", database.check_durability, needs=("database",)),
    Check("connections", database.check_connections, needs=("database",)),
    Check("master key", database.check_master_key, needs=("database",)),
    Check("database clock", database.check_clock, needs=("database",)),
    Check("object store", runs.check_object_store, seconds=30),
    Check("runners", runs.check_runners, seconds=30),
    Check("repositories", repositories.check_repositories, needs=("database", "schema"), seconds=60),
    Check("destinations", destinations.check_destinations, seconds=destinations.CHECK_SECONDS),
    Check("automations", runs.check_automations, needs=("database", "schema")),
    Check("port", host.check_port),
    Check("workers", runs.check_workers, needs=("database", "schema")),
    Check("retention", runs.check_retention, needs=("database", "schema")),
    Check("base_url", base_url.check_base_url, seconds=30),
    Check("trusted_proxies", base_url.check_trusted_proxies),
    Check("OpenID Connect", sign_in.check_provider, seconds=sign_in.CHECK_SECONDS),
    Check(
        "alarm destinations",
        alarms.check_alarm_destinations,
        needs=("database", "schema", "master key"),
        seconds=alarms.CHECK_SECONDS,
    ),
    Check("allowed networks", base_url.check_allowed_networks, needs=("database", "schema")),
)
"""In the order in which they are made and shown. Checks without a result, such as those of another database, show
nothing."""

_WITHOUT_SETTINGS: Final[Sequence[Check[None]]] = (
    Check("version", lambda _: host.check_version()),
    Check("open files", lambda _: host.check_open_files()),
    Check("proxies", lambda _: host.check_proxies()),
)


def examine(
    loaded: LoadedSettings,
    report: Callable[[Finding], None] = lambda _: None,
    tls: ssl.SSLContext | None = None,
) -> Examination:
    """Make every check. `report` is called with each finding, as soon as it is known.

    `tls` verifies the certificate of `base_url`; None for the system's certificate authorities.
    """
    findings: list[Finding] = []
    not_checked: list[str] = []
    failed: set[str] = set()

    def make(name: str, results: Iterator[Finding]) -> None:
        for result in results:
            finding = result.of_check(name)
            findings.append(finding)
            if finding.status is Status.PROBLEM:
                failed.add(name)
            report(finding)

    make("settings", _settings_findings(loaded))
    for general_check in _WITHOUT_SETTINGS:
        make(general_check.name, findings_of(general_check, None))
    for general in CHECKS:
        check = general
        if check.examine is base_url.check_base_url:
            check = replace(general, examine=partial(base_url.check_base_url, tls=tls))
        if loaded.settings is None or not failed.isdisjoint(check.needs):
            not_checked.append(check.name)
        else:
            make(check.name, findings_of(check, loaded.settings))
    return Examination(findings=tuple(findings), not_checked=tuple(not_checked))


def _settings_findings(loaded: LoadedSettings) -> Iterator[Finding]:
    for text in loaded.problems:
        yield problem(text, "Correct this setting. The page docs/settings.md lists all settings.")
    if loaded.settings is not None:
        file = f"the file {loaded.file} and " if loaded.file is not None else ""
        yield ok(f"valid, from {file}the environment")
