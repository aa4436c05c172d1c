"""The API and the command line show the same fields of a resource, in the same order."""

import json
import shutil
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from hookmill.domain.permission import Role
from hookmill.domain.webhook import AuthMode
from hookmill.management import Management
from hookmill.store.keys.sealing import KeyRing, as_text, new_master_key
from tests.api.client import Api, StockedFactory
from tests.inputs.commands import run
from tests.support.automations import automation_created
from tests.support.world import PUBLIC_URL, World

FACTORY = "/factories/default"
HMAC = {"header": "X-Signature", "timestamp_header": "X-Time", "content": "{ts}.{body}", "tolerance_seconds": 300}
FILTER = b'{"amount": [1.10, 123456789012345678901234567890], "aB": ["\\ud83d\\ude00"]}'


@dataclass(frozen=True, slots=True)
class Channels:
    """The API and the commands on one store. `path_values` has ids of existing objects, by the names in paths."""

    api: Api
    management: Management
    path_values: dict[str, str]

    def from_api(self, path: str, body: Any = None) -> Any:
        method = "GET" if body is None else "POST"
        answer = self.api.request(method, path.format(**self.path_values), body, key=self.api.admin)
        assert answer.status in {200, 201}, answer.body
        return parse(answer.body)

    def from_cli(self, *arguments: str) -> Any:
        output = run([*(argument.format(**self.path_values) for argument in arguments), "--json"])
        assert output.exit_code == 0, output.err
        return parse(output.out)


def parse(text: bytes) -> Any:
    """Parse JSON. An object becomes a list of names and values in their order, and a number a string."""
    return json.loads(text, object_pairs_hook=list, parse_float=str, parse_int=str)


def value_of(fields: Any, name: str) -> Any:
    """The value of the field with this name."""
    return dict(fields)[name]


@pytest.fixture(scope="module")
def channels(migrated_sqlite, tmp_path_factory):
    directory, key = tmp_path_factory.mktemp("data"), new_master_key()
    url = f"sqlite:///{shutil.copy(migrated_sqlite, directory / 'hookmill.db')}"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        for name, value in {"DATA_DIR": str(directory), "MASTER_KEY": as_text(key), "BASE_URL": PUBLIC_URL}.items():
            patch.setenv(f"HOOKMILL_{name}", value)
        world = World(url, key=KeyRing([key]))
        try:
            api = Api(world)
            stocked = StockedFactory(api, world.may)
            add_variants(world, api, stocked)
            yield Channels(api, world.management, stocked.path_parameters)
        finally:
            world.close()


def add_variants(world: World, api: Api, stocked: StockedFactory) -> None:
    """Add a resource for each variant, such as a deleted webhook, a revoked key and a cancelled run."""
    may, management = world.may, world.management
    management.webhooks.create(
        may,
        {
            "name": "signed",
            "auth_mode": AuthMode.SIGNATURE,
            "signature_scheme": "hmac",
            "signature_options": HMAC,
            "delivery_id_header": "X-Id",
        },
        secret="given-secret",
    )
    management.webhooks.create(may, {"name": "waiting", "auth_mode": AuthMode.SIGNATURE, "signature_scheme": "github"})
    deleted = management.webhooks.create(may, {"name": "deleted"})
    management.webhooks.delete(may, deleted.webhook.uid)
    management.secrets.replace(may, stocked.by_url.webhook.secret_name, "another-value")
    filter_ = {
        "webhook_ids": [stocked.path_parameters["uid"], deleted.webhook.uid],
        "payload": json.loads(FILTER, parse_float=Decimal),
    }
    trigger = {"provider": "webhook", "event": "received", "filter": filter_}
    automation_created(management, may, "exact", triggers=[trigger], enabled=False)
    for body in (b'{"action": "opened", "of": "default"}', b"no JSON", b"[]"):
        world.post(stocked.webhook, body)
    world.post(stocked.webhook, b"{}", token="wrong")
    management.log.replay(may, stocked.delivery, stocked.automation.id)
    management.runs.cancel(may, stocked.run)
    management.members.set_role(api.team, stocked.member, "default", Role.VIEWER)
    expiring = management.keys.create(api.team, "expiring", Role.ADMIN, expires_at=world.clock() + 86_400_000_000)
    management.keys.revoke(api.team, expiring.key.id)
    management.webhooks.set_enabled(may, stocked.by_url.webhook.uid, False)
    world.post(stocked.by_url, b"{}")
    world.dropped_attempts(stocked.by_url)


LISTS = [
    ("/factories", ("factory", "list"), "items"),
    (f"{FACTORY}/webhooks?deleted=true", ("webhook", "list", "--deleted"), "items"),
    (f"{FACTORY}/secrets", ("secret", "list"), "items"),
    (f"{FACTORY}/automations", ("automation", "list"), "items"),
    (f"{FACTORY}/deliveries", ("delivery", "list"), "items"),
    (f"{FACTORY}/dropped-attempts", ("delivery", "list"), "dropped_attempts"),
    (f"{FACTORY}/runs", ("run", "list"), "items"),
    (f"{FACTORY}/audit-log?limit=200", ("audit", "list", "--limit", "200"), "items"),
    ("/audit-log?limit=200", ("audit", "list", "--team", "--limit", "200"), "items"),
    ("/members", ("member", "list"), "items"),
    ("/keys", ("key", "list"), "items"),
    ("/schemes?limit=200", ("scheme", "list"), "items"),
]


@pytest.mark.parametrize(("path", "command", "name"), LISTS, ids=lambda value: value if isinstance(value, str) else "")
def test_api_and_command_line_list_the_same_items(channels, path, command, name):
    items = value_of(channels.from_api(path), "items")
    listed = value_of(channels.from_cli(*command), name)

    assert len(items) > 0
    assert sorted(map(str, listed)) == sorted(map(str, items))


@pytest.mark.parametrize(
    ("path", "command", "additional_fields"),
    [
        (f"{FACTORY}/webhooks/{{uid}}", ("webhook", "show", "{uid}"), {"automations"}),
        (f"{FACTORY}/secrets/{{name}}", ("secret", "show", "{name}"), {"not_synced"}),
        (f"{FACTORY}/automations/{{automation}}", ("automation", "show", "{automation}"), set()),
        (f"{FACTORY}/deliveries/{{delivery}}", ("delivery", "show", "{delivery}"), {"automations"}),
        (f"{FACTORY}/runs/{{run}}", ("run", "show", "{run}"), {"package", "files", "more_files"}),
    ],
    ids=["webhook", "secret", "automation", "delivery", "run"],
)
def test_api_and_command_line_show_the_same_fields(channels, path, command, additional_fields):
    shown = channels.from_cli(*command)

    assert [field for field in shown if field[0] not in additional_fields] == channels.from_api(path)
    assert additional_fields <= {name for name, _ in shown}


def test_api_and_command_line_show_the_same_queue(channels):
    from_api, from_cli = channels.from_api(f"{FACTORY}/queue"), channels.from_cli("run", "queue")

    assert value_of(from_cli, "waiting") == value_of(from_api, "items") != []
    for name in ("counts", "warning", "running", "workers"):
        assert value_of(from_cli, name) == value_of(from_api, name)


def test_api_and_command_line_explain_a_delivery_equally(channels):
    explanation = channels.from_api(f"{FACTORY}/deliveries/{{delivery}}/explanation")

    assert value_of(channels.from_cli("delivery", "show", "{delivery}"), "automations") == value_of(
        explanation, "automations"
    )


def test_api_and_command_line_test_filters_equally(channels):
    filter_json = '{{"action": ["opened"], "of": {{"not_in": ["default"]}}}}'
    filter_ = json.loads(filter_json.format())
    from_api = channels.from_api(
        f"{FACTORY}/filter-tests", {"delivery_id": channels.path_values["delivery"], "filter": filter_}
    )
    from_cli = channels.from_cli("filter", "test", "--delivery", "{delivery}", "--filter", filter_json)

    assert [field for field in from_cli if field[0] != "triggers"] == from_api
    assert value_of(from_cli, "triggers") == [from_api]
    assert channels.from_cli("filter", "backtest", "--filter", filter_json) == channels.from_api(
        f"{FACTORY}/backtests", {"filter": filter_}
    )


@pytest.mark.parametrize(
    ("path", "body", "command"),
    [
        ("/factories", {"name": "a"}, ("factory", "create", "b")),
        (f"{FACTORY}/webhooks", {"name": "a"}, ("webhook", "create", "b")),
        (f"{FACTORY}/webhooks/{{uid}}/rotate", {}, ("webhook", "rotate", "{uid}")),
        (f"{FACTORY}/secrets", {"name": "A"}, ("secret", "create", "B")),
        (
            f"{FACTORY}/deliveries/{{delivery}}/replay",
            {"automation": "{automation}"},
            ("delivery", "replay", "{delivery}", "--automation", "{automation}"),
        ),
        ("/members", {"email": "a@example.com", "name": "A"}, ("member", "add", "b@example.com", "--name", "A")),
        ("/keys", {"name": "a", "role": "admin"}, ("key", "create", "b", "--role", "admin")),
    ],
    ids=["factory", "webhook", "rotation", "secret", "replay", "member", "key"],
)
def test_api_and_command_line_return_created_resources_equally(channels, path, body, command):
    request_body = {name: value.format(**channels.path_values) for name, value in body.items()}

    assert field_names(channels.from_cli(*command)) == field_names(channels.from_api(path, request_body))


def field_names(value: Any) -> Any:
    """The names of the fields of an object, and of the objects in it, in their order."""
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return [(name, field_names(inner)) for name, inner in value]
    return [field_names(item) for item in value] if isinstance(value, list) else None
