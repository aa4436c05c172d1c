"""nginx in front of two hosts, with the configuration in the documentation."""

import http.client
import os
import re
import shutil
import signal
import ssl
from collections import Counter

from hookmill.domain.delivery import Label
from tests.http.test_readiness import wait_until_alive
from tests.support.loaded import Command
from tests.support.ports import free_port
from tests.support.proxies import DEPLOY, Proxy, proxy_place
from tests.support.service import Service, create_webhook, operator, serving

PAGE = DEPLOY.parent / "docs" / "from-one-machine-to-many.md"
DELIVERIES = 60


def test_deliveries_are_accepted_as_long_as_one_host_can_record_them(tmp_path, postgres_store):
    proxy, first_directory, second_directory = proxy_place(tmp_path / "proxy"), tmp_path / "1", tmp_path / "2"
    with serving(first_directory, database_url=postgres_store, deliveries_per_minute=1_000) as first:
        with first.management() as management:
            webhook = create_webhook(management, "ci")
        second_directory.mkdir(mode=0o700)
        shutil.copy2(first_directory / "master.key", second_directory)
        full = Service(
            second_directory,
            postgres_store,
            settings={"FREE_SPACE_MIN_MB": "100000000", "DELIVERIES_PER_MINUTE": "1000"},
            port=free_port(),
        )
        path = f"/webhooks/w/{webhook.webhook.uid}"
        token = webhook.reveal()
        upstream, location = changes_in_documentation(full.port)
        with proxy.nginx(first.port, upstream | location):
            send_large_bodies_of_a_stranger(proxy)
            without_second = statuses_of_deliveries(proxy, path, token, "ended")
        full.process = Command(["serve"], full.environment(), full.data_dir, full.log_path)
        try:
            wait_until_alive(full)
            with proxy.nginx(first.port, upstream | location):
                with_full_second = statuses_of_deliveries(proxy, path, token, "full")
            with proxy.nginx(first.port, upstream):
                with_upstream_only = statuses_of_deliveries(proxy, path, token, "not repeated")
            with proxy.nginx(full.port, upstream | location):
                with_both_full = statuses_of_deliveries(proxy, path, token, "both full")
            os.killpg(full.process.pid, signal.SIGSTOP)
            with proxy.nginx(first.port, upstream | location):
                with_second_paused = statuses_of_deliveries(proxy, path, token, "paused", deliveries=2)
        finally:
            full.kill()
        with first.management() as management:
            recorded = management.log.oldest(operator(management))

    assert (without_second, with_full_second) == ({202: DELIVERIES}, {202: DELIVERIES})
    assert {delivery.label for delivery in recorded} == {Label.ACCEPTED}
    assert len(recorded) == 2 * DELIVERIES + with_upstream_only[202] + 2
    assert with_upstream_only[503] > 0
    assert with_second_paused == {202: 2}
    assert with_both_full == {503: DELIVERIES}


def changes_in_documentation(second_port: int) -> tuple[dict[str, str], dict[str, str]]:
    """The page's changes of the sample configuration: the upstream, whose first host keeps the sample's address, and
    the location."""
    page = PAGE.read_text()
    upstream = re.search(
        r"^(upstream hookmill \{\n.*?^\}\n)```.*?\n```\n( +proxy_connect_timeout .*?\}\n)```",
        page,
        re.DOTALL | re.MULTILINE,
    )
    assert upstream is not None
    sample = (DEPLOY / "nginx" / "hookmill.conf").read_text()
    first_block = re.search(r"^upstream hookmill \{\n.*?^\}\n", sample, re.DOTALL | re.MULTILINE)
    assert first_block is not None
    block = (
        upstream[1].replace("10.0.0.11:8420", "127.0.0.1:8420").replace("10.0.0.12:8420", f"127.0.0.1:{second_port}")
    )
    end_of_location = "        proxy_buffering off;\n"
    return {first_block[0]: block}, {end_of_location: end_of_location + upstream[2]}


def send_large_bodies_of_a_stranger(proxy: Proxy):
    """Hookmill answers before it has read these bodies, and nginx loses such responses."""
    tls = ssl.create_default_context(cafile=proxy.ca_file)
    for _ in range(20):
        connection = http.client.HTTPSConnection("127.0.0.1", proxy.port, context=tls, timeout=20)
        try:
            connection.request("POST", "/webhooks/w/wh_unknown", bytes(1_000_000))
            connection.getresponse()
        finally:
            connection.close()


def statuses_of_deliveries(
    proxy: Proxy, path: str, token: str, name: str, *, deliveries: int = DELIVERIES
) -> Counter[int]:
    """Send deliveries one after the other, and count the statuses of the responses."""
    tls = ssl.create_default_context(cafile=proxy.ca_file)
    statuses: Counter[int] = Counter()
    for number in range(deliveries):
        connection = http.client.HTTPSConnection("127.0.0.1", proxy.port, context=tls, timeout=20)
        try:
            connection.request("POST", path, f'"{name} {number}"', {"Authorization": f"Bearer {token}"})
            statuses[connection.getresponse().status] += 1
        finally:
            connection.close()
    return statuses
