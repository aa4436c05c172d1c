"""The service in the test's process, so that the test controls the clock.

It has the real store, ingress and HTTP routes, but no socket.
"""

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from ipaddress import ip_network
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from hookmill import ingress
from hookmill.domain.delivery import Delivery, Label
from hookmill.domain.external_identity import ExternalSignIn
from hookmill.domain.ids import DeliveryKey
from hookmill.domain.permission import MayManage
from hookmill.domain.results import DestinationRules, ResultDestinationKind
from hookmill.domain.run_secrets import RunSecretRule
from hookmill.ingress import Ingress, Limits
from hookmill.management import InstallationConfig, Management, WebhookWithSecret
from hookmill.management.alarm_destinations import SendAlarm
from hookmill.runs.package import PackagesOnHost
from hookmill.store.admission import group_commit, snapshot
from hookmill.store.admission.group_commit import GroupCommit
from hookmill.store.admission.plan import Rejection
from hookmill.store.admission.snapshot import Snapshot
from hookmill.store.admission.transaction import Stale
from hookmill.store.admission.writer import serve_ingress
from hookmill.store.keys.sealing import KeyRing, MasterKey
from hookmill.store.runs.files import RunFileStorage
from hookmill.web.ingress import IngressEndpoint
from hookmill.web.routes import Routes
from tests.support.automations import automation_created
from tests.support.service import Answer
from tests.support.stores import open_store_database

T = TypeVar("T")
Headers = Mapping[str, str] | Sequence[tuple[str, str]]
"""A sequence may name a header more than once."""
Body = bytes | Iterator[bytes]
"""An iterator yields chunks, one whenever the service reads; no length is declared. If it raises, the connection
breaks."""
START_US = 1_900_000_000_000_000
PUBLIC_URL = "https://hooks.test"
ENDLESS_SECONDS = 1.0
"""A client disconnects after this time if the response does not end."""


class Clock:
    """A clock that moves only by `advance`. Its time is in µs since 1970."""

    def __init__(self, now: int = START_US):
        self.now = now

    def __call__(self) -> int:
        return self.now

    def advance(self, *, seconds: float = 0, days: float = 0):
        self.now += round((seconds + days * 86_400) * 1_000_000)


class World:
    """An ingress process of the service. `another_process` adds one with the same store and clock."""

    def __init__(
        self,
        url: str,
        *,
        key: KeyRing | None = None,
        clock: Clock | None = None,
        deliveries_per_minute: int = 60,
        failed_authentications_per_minute: int = 60,
        webhooks_per_factory: int = 20,
        packages: Path | None = None,
        run_file_storage: RunFileStorage | None = None,
        external_sign_in: ExternalSignIn | None = None,
        password_sign_in: bool = True,
        allows_private_addresses: bool = False,
        send_alarm: SendAlarm | None = None,
    ):
        self.url = url
        on_sqlite = url.startswith("sqlite:///")
        self.packages = packages or (Path(url.removeprefix("sqlite:///")).parent / "runs" if on_sqlite else None)
        """The directory of the packages on this host."""
        self.clock = clock or Clock()
        self.key = key or KeyRing([MasterKey(b"k" * 32)])
        self.limits = Limits(
            deliveries_per_minute=deliveries_per_minute,
            failed_authentications_per_minute=failed_authentications_per_minute,
        )
        self._exit_stack = ExitStack()
        self.database = self._exit_stack.enter_context(open_store_database(url))
        config = InstallationConfig(
            public_url=PUBLIC_URL,
            webhooks_per_factory=webhooks_per_factory,
            runner_names=("package",),
            default_runner="package",
            # Tests save automations with secrets, and perform none of their runs.
            secret_rules={"package": RunSecretRule()},
            repositories={"app": None, "elsewhere": ("another",)},
            destinations={
                "github": DestinationRules(kind=ResultDestinationKind.GITHUB),
                "team": DestinationRules(kind=ResultDestinationKind.SLACK, factories=("default", "another")),
                "elsewhere": DestinationRules(kind=ResultDestinationKind.SLACK, factories=("another",)),
            },
            password_sign_in=password_sign_in,
            external_sign_in=external_sign_in,
            sends_email=True,
            allows_private_addresses=allows_private_addresses,
        )
        self.has_room = True
        self.management = Management(
            self.database,
            self.key,
            config,
            self.clock,
            has_room=lambda: self.has_room,
            packages=PackagesOnHost(self.packages) if self.packages is not None else None,
            run_file_storage=run_file_storage,
            send_alarm=send_alarm,
        )
        self.factory, _ = self.management.factories.set_up()
        self.may = self.management.access.operator(self.factory.name)
        self.failures: list[tuple[str, str]] = []
        """The failures that the service reported: the component and the message."""
        self.possible_failure: str | None = None
        """A part of the message of a failure that may be reported at any time after what the test has done."""
        self._other_processes: list[World] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._do(self._open())

    def another_process(self) -> "World":
        """Another ingress process with the same store and clock. `close` closes it, too."""
        other = World(
            self.url,
            key=self.key,
            clock=self.clock,
            deliveries_per_minute=self.limits.deliveries_per_minute,
            failed_authentications_per_minute=self.limits.failed_authentications_per_minute,
        )
        self._other_processes.append(other)
        return other

    def close(self):
        """Close this process and those that `another_process` added."""
        for other in self._other_processes:
            other.close()
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._writer.join()
        self._exit_stack.close()

    # Requests

    def post(
        self,
        webhook: WebhookWithSecret,
        body: Body = b"{}",
        *,
        token: str | None = None,
        headers: Headers = (),
    ) -> Answer:
        """Send a delivery to the webhook, with the webhook's secret, or with `token` instead."""
        return self._do(self._post(webhook, body, token, headers))

    def post_many(self, posts: list[tuple[WebhookWithSecret, bytes]]) -> list[Answer]:
        """Send all deliveries before the first is answered."""

        async def send_all() -> list[Answer]:
            return list(await asyncio.gather(*(self._post(webhook, body, None, ()) for webhook, body in posts)))

        return self._do(send_all())

    def request(self, method: str, path: str, *, headers: Headers = (), body: Body = b"") -> Answer:
        return self._do(self._request(method, path, headers, body))

    # Management

    def webhook(self, name: str = "source", *, secret: str | None = None, **fields: Any) -> WebhookWithSecret:
        """Create a webhook."""
        return self.management.webhooks.create(self.may, {"name": name, **fields}, secret)

    def log(self, webhook: WebhookWithSecret) -> list[Delivery]:
        """The webhook's log, newest first."""
        return list(self.management.log.newest(self.may, webhook=webhook.webhook.uid, limit=1000))

    def labels(self, webhook: WebhookWithSecret) -> list[str]:
        return [row.label.wording for row in self.log(webhook)]

    def runs(self, webhook: WebhookWithSecret) -> list[Any]:
        return list(self.management.runs.newest(self.may, webhook=webhook.webhook.uid, limit=1000))

    def dropped_attempts(self, webhook: WebhookWithSecret) -> dict[str, int]:
        """The number of the webhook's dropped attempts of each kind. They have no row in the log."""
        self._do(self._write_dropped(webhook))
        total: dict[str, int] = {}
        for minute in self.management.log.dropped_attempts(self.may, webhook.webhook.uid):
            total[minute.kind] = total.get(minute.kind, 0) + minute.count
        return total

    def automation(self, name: str, *webhooks: WebhookWithSecret, payload: Any = None, **options: Any) -> Any:
        """Create an automation that deliveries of these webhooks trigger, if their payload matches."""
        delivery_filter: dict[str, Any] = {"webhook_ids": [each.webhook.uid for each in webhooks]}
        if payload is not None:
            delivery_filter["payload"] = payload
        trigger = {"provider": "webhook", "event": "received", "filter": delivery_filter}
        options.setdefault("prompt", "Look at the delivery.")
        return automation_created(self.management, self.may, name, triggers=[trigger], **options)

    def operator_of_new_factory(self, name: str = "other") -> MayManage:
        """Create another factory, and return permission for all operations in it."""
        self.management.factories.create(self.management.access.operator_of_team(), name)
        return self.management.access.operator(name)

    # Internals

    async def _open(self):
        self.snapshot = Snapshot(self.database, self.key, report_failure=self._report_failure)
        self.group_commit = GroupCommit(self._start_writer, report_failure=self._report_failure)
        await self.group_commit.open()
        self.ingress = Ingress(
            self.snapshot,
            self.group_commit,
            self.limits,
            has_room=lambda: self.has_room,
            public_url=PUBLIC_URL,
            trusted_proxies=[ip_network("192.0.2.0/24")],
            report_failure=self._report_failure,
        )
        self.routes = Routes(IngressEndpoint(self.ingress, self.clock), lambda: True, public_url=PUBLIC_URL)

    async def _close(self):
        self.ingress.write_dropped()
        await self.group_commit.close()
        self.snapshot.close()

    async def _write_dropped(self, webhook: WebhookWithSecret):
        self.ingress.write_dropped()
        # The writer handles messages in order. When it answers this outdated plan, it has written the counts.
        outdated_plan = Rejection(
            delivery_key=DeliveryKey(bytes(16)),
            webhook_no=webhook.webhook.no,
            revision=0,
            received_at=0,
            label=Label.REJECTED_AUTH,
            rate_limit=1,
            per_minute=1,
            size=0,
        )
        assert isinstance(await self.group_commit.admit(outdated_plan), Stale)

    def _start_writer(self, channel: socket.socket):
        """Run the writer in a thread, because a process for each test would take longer than the test."""
        self._writer = threading.Thread(target=self._write, args=(channel.dup(),), daemon=True)
        self._writer.start()

    def _write(self, channel: socket.socket):
        with channel:
            serve_ingress(channel, self.database)

    def _report_failure(self, component: str, error: str | BaseException):
        self.failures.append((component, str(error)))

    async def _post(self, webhook: WebhookWithSecret, body: Body, token: str | None, headers: Headers) -> Answer:
        secret = token if token is not None else webhook.reveal()
        path = f"/webhooks/w/{webhook.webhook.uid}"
        if webhook.webhook.auth_mode == "url_token":
            return await self._request("POST", f"{path}/{secret}", headers, body)
        return await self._request("POST", path, _merged({"Authorization": f"Bearer {secret}"}, headers), body)

    async def _request(self, method: str, path: str, headers: Headers, body: Body) -> Answer:
        framing = {"Content-Length": str(len(body))} if isinstance(body, bytes) else {"Transfer-Encoding": "chunked"}
        if not _FRAMING_HEADERS.isdisjoint(name.lower() for name, _ in _merged({}, headers)):
            framing = {}
        all_headers = _merged({"Host": "hooks.test"} | framing, headers)
        scope = {
            "type": "http",
            "client": ("192.0.2.7", 4711),
            "method": method,
            "raw_path": path.partition("?")[0].encode("latin-1"),
            "query_string": path.partition("?")[2].encode("latin-1"),
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in all_headers],
        }
        messages: list[Any] = []
        pieces = iter([body]) if isinstance(body, bytes) else body
        is_sent = False
        is_answered = asyncio.Event()

        async def receive() -> Any:
            nonlocal is_sent
            if is_sent:
                # A client reads the answer before it disconnects, unless the answer has no end.
                with suppress(TimeoutError):
                    await asyncio.wait_for(is_answered.wait(), ENDLESS_SECONDS)
                return {"type": "http.disconnect"}
            piece = next(pieces, None)
            is_sent = piece is None or isinstance(body, bytes)
            return {"type": "http.request", "body": piece or b"", "more_body": not is_sent}

        async def send(message: Any):
            messages.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                is_answered.set()

        await self.routes(scope, receive, send)
        start, *rest = messages
        response_headers = {name.decode(): value.decode() for name, value in start["headers"]}
        cookies = tuple(value.decode() for name, value in start["headers"] if name == b"set-cookie")
        return Answer(
            start["status"], response_headers, b"".join(message.get("body", b"") for message in rest), cookies
        )

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


_FRAMING_HEADERS = {"content-length", "transfer-encoding"}


def _merged(defaults: Mapping[str, str], headers: Headers) -> list[tuple[str, str]]:
    """The headers, and those defaults whose names they don't contain."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    names = {name.lower() for name, _ in pairs}
    return [default for default in defaults.items() if default[0].lower() not in names] + pairs


def world_for_test(url: str, **choices: Any) -> Iterator[World]:
    """A world for one test. It fails if `failures` is not empty at the end, so a test clears those that it expects."""
    # A delivery must not be unavailable because the machine stands still for seconds.
    with (
        patch.object(group_commit, "PLAN_TIMEOUT_SECONDS", 50.0),
        patch.object(snapshot, "REVALIDATION_TIMEOUT_SECONDS", 50.0),
        patch.object(ingress, "REEVALUATE_SECONDS_MAX", 50.0),
    ):
        world = World(url, **choices)
        yield world
        world.close()
    possible = world.possible_failure
    failures = [(part, reason) for part, reason in world.failures if possible is None or possible not in reason]
    assert not failures, f"the service reported failures: {failures}"


__all__ = ["Answer", "Clock", "World"]
