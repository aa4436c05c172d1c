"""Commands that use the API have the same result in three ways.

The ways are: with a service on this host, without one, and with the service of another host.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hookmill.cli import connection
from hookmill.domain.delivery import Label
from hookmill.domain.ids import delivery_id
from hookmill.domain.permission import Role
from tests.support.automations import automation_created
from tests.support.service import Service, create_webhook, operator, serving
from tests.support.triggers import received

COMMANDS = """
member list
member add Ada@example.com --name Ada
member add bob@example.com --name Bob --admin --json
member add ada@example.com --name Again
member add nobody --name Nobody --json
member list
member list --json
member role ada@example.com manager
member role bob@example.com viewer
member role ada@example.com viewer --factory gone
member role ada@example.com none --json
member role gone@example.com viewer
member admin ada@example.com on
member admin bob@example.com off --json
member admin ada@example.com off
member link ada@example.com
member link bob@example.com --json
member link gone@example.com
member remove bob@example.com
member remove bob@example.com --yes
member remove ada@example.com --yes --json
key list
key create ci --role viewer
key create ops --role admin --expires-in-days 9 --json
key create ops --role admin --factory default
key create ci --role viewer --factory gone
key create ci --role manager
key list --json
key list
key revoke ops
key revoke ops --yes --json
key revoke ops --yes
key revoke ci --yes
key revoke gone --yes
factory create shop
factory create shop
factory create other --json
factory change shop --max-running 2
factory change shop --no-max-running --json
factory change gone --no-max-running
factory list
factory list --json
secret create FIRST --factory shop
secret create FIRST --factory shop
secret create FOR_RUNS --for-runs --json
secret create 1st
secret create FIRST --factory gone
secret list
secret list --factory other
secret list --factory shop --json
secret show WEBHOOK_FIRST_SECRET
secret show FOR_RUNS --json
secret show GONE
secret replace WEBHOOK_FIRST_SECRET
secret replace WEBHOOK_FIRST_SECRET --json
secret replace WEBHOOK_FIRST_SECRET --from-stdin
secret delete WEBHOOK_FIRST_SECRET --yes
secret delete FOR_RUNS
secret delete FOR_RUNS --yes
secret delete FIRST --factory shop --yes --json
alarm list
alarm list --open --installation --json
alarm show alm_00000000000000000000000000000000
alarm snooze gone --hours 1
alarm snooze alm_00000000000000000000000000000000 --hours 1 --installation
alarm wake alm_00000000000000000000000000000000
alarm destination add email --to ops@example.com
alarm destination add webhook
alarm destination add email --to nobody --json
alarm destination list
alarm destination list --installation --json
alarm destination test ald_0
alarm destination remove ald_0 --yes
alarm destination remove ald_0 --yes --installation
webhook list
webhook list --deleted --json
webhook create new
webhook create new
webhook create signed --mode signature --scheme github --json
webhook create provider --mode signature --scheme stripe
webhook create odd --scheme github
webhook create limited --allowed-network 192.0.2.0/24 --expect-every 1h --disabled
webhook show source
webhook show new --json
webhook show gone
webhook change new --name newer --event-header X-Event
webhook change newer --reset event_header --json
webhook change newer
webhook change newer --name source
webhook disable newer
webhook enable newer --json
webhook enable provider
webhook sync newer
webhook rotate newer
webhook rotate provider
webhook delete newer
webhook delete newer --yes
webhook delete limited --yes --json
webhook delete gone --yes
delivery list
delivery list --json
delivery list --label accepted --webhook source --limit 2
delivery list --label gone
delivery list --since 2h --until 3h
delivery list --identity gone --event push
delivery list --webhook gone
delivery show DELIVERY
delivery show DELIVERY --json
delivery show REFUSED
delivery show dlv_00000000000000000000000000000000
delivery show gone
delivery payload DELIVERY
delivery payload REFUSED
delivery replay DELIVERY
delivery replay DELIVERY --automation triage --json
delivery replay DELIVERY --automation gone
delivery export
delivery export --webhook gone
export ops
export ops
plan ops
apply ops --json
plan ops --json
plan gone
export other --factory gone
audit list
audit list --team --limit 3
audit list --before aud_00000000000000000000000000000000
audit list --before gone
audit list --factory gone
""".strip().splitlines()
"""They are run one after the other, each without an answer on standard input.

DELIVERY and REFUSED are the ids of an Accepted and of a refused delivery.
"""

REMOTE_KEY = "remote"
"""The name of the key of the remote way. Its last use differs, so lists are compared without it."""


@contextmanager
def way(name: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A new installation, and the environment in which commands use it in this way."""
    with (
        monkeypatch.context() as environment,
        serving(data_dir, performs_runs=False, base_url="https://hooks.example") as service,
    ):
        environment.chdir(data_dir)
        environment.setenv("HOOKMILL_BASE_URL", "https://hooks.example")
        environment.setenv("HOOKMILL_DATA_DIR", str(data_dir))
        with service.management() as management:
            permission = management.access.operator_of_team()
            key = management.keys.create(permission, REMOTE_KEY, Role.ADMIN).token.reveal()
            source = create_webhook(management, "source")
            automation_created(management, operator(management), "triage", triggers=[received(source.webhook.uid)])
        for number in range(3):
            service.post(source, b'{"number": %d}' % number)
        service.post(source, b'{"number": 4}', token="wrong")
        if name == "without a service":
            assert service.stop() == 0
        else:
            environment.setattr(connection, "_transport_in_this_process", None)
        if name == "remote":
            environment.setattr(connection, "_transport_of_service", None)
            environment.setenv("HOOKMILL_SERVER", f"http://127.0.0.1:{service.port}")
            environment.setenv("HOOKMILL_API_KEY", key)
        yield service


def comparable(output: str) -> Any:
    """The output without ids, secrets, times and widths. The author differs between the ways."""
    output = re.sub(" +", " ", output)
    output = re.sub(rf"operator \S+ (cli|files)|key {REMOTE_KEY} (api|files) from 127.0.0.1", "AUTHOR", output)
    output = re.sub(r"(?<![\w-])[\w-]{43}(?![\w-])", "SECRET", output)
    output = re.sub(r"\b(aut|mbr|key|hmk|aud|sec|wh|dlv|run|alm|ald|secret)_[\w-]+", r"\1", output)
    output = re.sub(r"\b\d{16}\b", "0", output)
    output = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", output)
    output = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", output)
    output = re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d)?", "TIME", output)
    if output.startswith("{") and output.count("\n") == 1:
        parsed = json.loads(output)
        if "items" in parsed:
            parsed["items"] = [item for item in parsed["items"] if item.get("name") != REMOTE_KEY]
        if "automations" in parsed:
            # They are in the order of their random ids.
            parsed["automations"].sort(key=lambda evaluation: evaluation["automation"])
        return parsed
    return [line for line in output.splitlines() if f" {REMOTE_KEY} " not in line]


def test_commands_have_the_same_result_in_three_ways(hookmill, tmp_path, monkeypatch):
    results, audits = {}, {}
    for name in ("with a service", "without a service", "remote"):
        with way(name, tmp_path / name, monkeypatch) as service:
            with service.management() as management:
                log = management.log.newest(management.access.operator("default"))
            ids = {
                "DELIVERY": next(delivery_id(entry.key) for entry in log if entry.label is Label.ACCEPTED),
                "REFUSED": next(delivery_id(entry.key) for entry in log if entry.label is not Label.ACCEPTED),
            }
            results[name] = {
                f"{number} {command}": (result.exit_code, comparable(result.out), comparable(result.err))
                for number, command in enumerate(COMMANDS)
                for result in [hookmill(*(ids.get(word, word) for word in command.split()), exit_code=None)]
            }
            with service.management() as management:
                entries = management.audit.of_team(management.access.operator_of_team(), before=None, limit=1000)
            audits[name] = [
                (
                    entry.action,
                    entry.factory_name,
                    comparable(entry.subject_name),
                    comparable(json.dumps(entry.details)),
                )
                for entry in reversed(entries)
            ]
            authors = {(entry.actor_kind, entry.channel) for entry in entries if entry.action == "member.add"}
            assert authors == {("key", "api") if name == "remote" else ("operator", "cli")}

    assert results["with a service"] == results["without a service"]
    assert results["with a service"] == results["remote"]
    assert audits["with a service"] == audits["without a service"] == audits["remote"]
    assert {code for code, _, _ in results["remote"].values()} == {0, 1, 2}
