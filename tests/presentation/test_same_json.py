"""One store, asked through the API and by the command line: the same thing has the same fields, in the same order."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hookmill.domain.permission import Role
from hookmill.domain.webhook import AuthMode
from hookmill.management import Management
from hookmill.store.keys.sealing import as_text, new_master_key
from tests.api.client import Api, Stocked
from tests.inputs.commands import run
from tests.support.world import PUBLIC_URL, World

FACTORY = "/factories/default"
HMAC = {"header": "X-Signature", "timestamp_header": "X-Time", "content": "{ts}.{body}", "tolerance_seconds": 300}
FILTER = b'{"amount": [1.10, 123456789012345678901234567890], "aB": ["\\ud83d\\ude00"]}'


@dataclass(frozen=True, slots=True)
class ApiAndCommands:
    """The two ways to one store with one of everything in it, and the variable parts of addresses."""

    api: Api
    management: Management
    places: dict[str, str]

    def from_api(self, path: str, body: Any = None) -> Any:
        answer = self.api.ask("GET" if body is None else "POST", path.format(**self.places), body, key=self.api.admin)
        assert answer.status in {200, 201}, answer.body
        return parsed(answer.body)

    def from_cli(self, *arguments: str) -> Any:
        ended = run([*(argument.format(**self.places) for argument in arguments), "--json"])
        assert ended.code == 0, ended.err
        return parsed(ended.out)


def parsed(text: bytes) -> Any:
    """JSON whose objects keep the order of their fields, and whose numbers keep their spelling."""
    return json.loads(text, object_pairs_hook=list, parse_float=str, parse_int=str)


def of(fields: Any, name: str) -> Any:
    """The field of that name."""
    return dict(fields)[name]


@pytest.fixture(scope="module")
def api_and_commands(migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiAndCommands]:
    directory, key = tmp_path_factory.mktemp("both"), new_master_key()
    url = f"sqlite:///{shutil.copy(migrated_sqlite, directory / 'hookmill.db')}"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        for name, value in {"DATA_DIR": str(directory), "MASTER_KEY": as_text(key), "BASE_URL": PUBLIC_URL}.items():
            patch.setenv(f"HOOKMILL_{name}", value)
        world = World(url, key=key)
        try:
            api = Api(world)
            stocked = Stocked(api, world.may)
            stock(world, api, stocked)
            yield ApiAndCommands(api, world.management, stocked.places)
        finally:
            world.close()


def stock(world: World, api: Api, stocked: Stocked) -> None:
    """What is rarer than one of everything: each form that a thing may have."""
    may, management = world.may, world.management
    management.webhooks.create(
        may,
        "signed",
        auth_mode=AuthMode.SIGNATURE,
        signature_scheme="hmac",
        signature_options=HMAC,
        secret="given-secret",
        delivery_id_header="X-Id",
    )
    management.webhooks.create(may, "waiting", auth_mode=AuthMode.SIGNATURE, signature_scheme="github")
    gone = management.webhooks.create(may, "gone")
    management.webhooks.delete(may, gone.webhook.uid)
    management.secrets.replace(may, stocked.by_url.webhook.secret_name, "another-value")
    selected = {
        "webhook_ids": [stocked.places["uid"], gone.webhook.uid],
        "payload": json.loads(FILTER, parse_float=Decimal),
    }
    trigger = {"provider": "webhook", "event": "received", "filter": selected}
    management.automations.create(may, "exact", prompt="Look.", triggers=[trigger], enabled=False)
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
    ("/factories", ("factory", "list"), "factories"),
    (f"{FACTORY}/webhooks?deleted=true", ("webhook", "list", "--deleted"), "webhooks"),
    (f"{FACTORY}/secrets", ("secret", "list"), "secrets"),
    (f"{FACTORY}/automations", ("automation", "list"), "automations"),
    (f"{FACTORY}/deliveries", ("delivery", "list"), "deliveries"),
    (f"{FACTORY}/dropped-attempts", ("delivery", "list"), "dropped_attempts"),
    (f"{FACTORY}/runs", ("run", "list"), "runs"),
    (f"{FACTORY}/audit-log?limit=200", ("audit", "list", "--limit", "200"), "entries"),
    ("/audit-log?limit=200", ("audit", "list", "--team", "--limit", "200"), "entries"),
    ("/members", ("member", "list"), "members"),
    ("/keys", ("key", "list"), "keys"),
    ("/schemes?limit=200", ("scheme", "list"), "schemes"),
]


@pytest.mark.parametrize(("path", "command", "name"), LISTS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_list_has_the_same_items(api_and_commands: ApiAndCommands, path: str, command: tuple[str, ...], name: str):
    items = of(api_and_commands.from_api(path), "items")
    printed = of(api_and_commands.from_cli(*command), name)

    assert len(items) > 0
    assert sorted(map(str, printed)) == sorted(map(str, items))


@pytest.mark.parametrize(
    ("path", "command", "also"),
    [
        (f"{FACTORY}/webhooks/{{uid}}", ("webhook", "show", "{uid}"), {"automations"}),
        (f"{FACTORY}/secrets/{{name}}", ("secret", "show", "{name}"), {"not_synced"}),
        (f"{FACTORY}/automations/{{automation}}", ("automation", "show", "{automation}"), set()),
        (f"{FACTORY}/deliveries/{{delivery}}", ("delivery", "show", "{delivery}"), {"automations"}),
        (f"{FACTORY}/runs/{{run}}", ("run", "show", "{run}"), {"package", "files", "more_files"}),
    ],
    ids=["webhook", "secret", "automation", "delivery", "run"],
)
def test_one_thing_has_the_same_fields(
    api_and_commands: ApiAndCommands, path: str, command: tuple[str, ...], also: set[str]
):
    printed = api_and_commands.from_cli(*command)

    assert [field for field in printed if field[0] not in also] == api_and_commands.from_api(path)
    assert also <= {name for name, _ in printed}


def test_the_queue_is_the_same(api_and_commands: ApiAndCommands):
    answered, printed = api_and_commands.from_api(f"{FACTORY}/queue"), api_and_commands.from_cli("run", "queue")

    assert of(printed, "waiting") == of(answered, "items") != []
    for name in ("counts", "warning", "running", "workers"):
        assert of(printed, name) == of(answered, name)


def test_what_automations_make_of_a_delivery_is_the_same(api_and_commands: ApiAndCommands):
    explained = api_and_commands.from_api(f"{FACTORY}/deliveries/{{delivery}}/explanation")

    assert of(api_and_commands.from_cli("delivery", "show", "{delivery}"), "automations") == of(
        explained, "automations"
    )


def test_a_filter_test_and_a_backtest_are_the_same(api_and_commands: ApiAndCommands):
    draft = '{{"action": ["opened"], "of": {{"not_in": ["default"]}}}}'
    chosen = json.loads(draft.format())
    tested = api_and_commands.from_api(
        f"{FACTORY}/filter-tests", {"delivery_id": api_and_commands.places["delivery"], "filter": chosen}
    )
    printed = api_and_commands.from_cli("filter", "test", "--delivery", "{delivery}", "--filter", draft)

    assert [field for field in printed if field[0] != "triggers"] == tested
    assert of(printed, "triggers") == [tested]
    assert api_and_commands.from_cli("filter", "backtest", "--filter", draft) == api_and_commands.from_api(
        f"{FACTORY}/backtests", {"filter": chosen}
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
def test_what_was_made_is_answered_with_the_same_fields(
    api_and_commands: ApiAndCommands, path: str, body: Any, command: tuple[str, ...]
):
    given = {name: value.format(**api_and_commands.places) for name, value in body.items()}

    assert names(api_and_commands.from_cli(*command)) == names(api_and_commands.from_api(path, given))


def names(value: Any) -> Any:
    """The fields' names, in their order, of an object and of those that stand in it."""
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return [(name, names(inner)) for name, inner in value]
    return [names(each) for each in value] if isinstance(value, list) else None
