"""The hosts of other tests are separate from each other and from this machine, and end with their owner."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.hosts import Host, Network
from tests.support.waiting import until

PORT = 8_000
CONNECT_SECONDS = 0.5
SERVER = """
import os, socket, sys, time
from pathlib import Path

listener = socket.create_server(("0.0.0.0", 8_000))
pids_before_fork = [each.name for each in Path("/proc").iterdir() if each.name.isdecimal()]
if os.fork() == 0:
    os.setsid()
# In one write, because both processes write at the same time.
sys.stdout.write(f"{socket.gethostname()} {len(pids_before_fork)}\\n")
sys.stdout.flush()
while True:
    listener.accept()[0].sendall(b"reply")
"""


@pytest.fixture
def network() -> Iterator[Network]:
    with Network("one", "two") as network:
        yield network


def start_server(host: Host, directory: Path) -> Path:
    """Start a server, which forks once. Returns the file with its output.

    Each line has the host's name, and the number of the host's processes before the fork: the host's first process and
    the server.
    """
    output = directory / host.name
    host.start([sys.executable, "-c", SERVER], dict(os.environ), directory, output)
    # Both processes print the line after the fork.
    until(lambda: output.exists() and output.read_text().count("\n") == 2, "the servers listen")
    return output


def test_hosts_have_their_own_names_processes_and_networks(network: Network, tmp_path: Path):
    outputs = [start_server(host, tmp_path) for host in network.hosts]

    assert [set(output.read_text().splitlines()) for output in outputs] == [{"one 2"}, {"two 2"}]
    for host in network.hosts:
        with host.connect(PORT) as connection:
            assert connection.recv(5) == b"reply"


def test_unplugged_host_is_unreachable_until_it_is_plugged_in(network: Network, tmp_path: Path):
    one, two = network.hosts
    for host in (one, two):
        start_server(host, tmp_path)
    one.unplug()
    with network.open_socket() as connection:
        connection.settimeout(CONNECT_SECONDS)
        with pytest.raises(OSError, match=r"timed out|No route to host"):
            connection.connect((one.address, PORT))
    with two.connect(PORT) as connection:
        assert connection.recv(5) == b"reply"

    one.plug_in()

    with one.connect(PORT) as connection:
        assert connection.recv(5) == b"reply"


def test_closed_network_leaves_no_process_and_no_network_namespace(tmp_path: Path):
    with Network("one", "two") as network:
        for host in network.hosts:
            start_server(host, tmp_path)
        network.hosts[0].freeze()
        pids = server_pids(tmp_path)
        namespaces = {network_namespace(pid) for pid in pids}
        assert len(pids) == 4
        assert len(namespaces) == 2
        earlier_pids = set(psutil.pids())

    assert server_pids(tmp_path) == []
    # The kernel removes a namespace and its interfaces with its last process. Later processes may get its number.
    assert namespaces.isdisjoint(map(network_namespace, earlier_pids.intersection(psutil.pids())))


def network_namespace(pid: int) -> str | None:
    """The process's network namespace; None if the process has ended."""
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except OSError:
        return None


def server_pids(directory: Path) -> list[int]:
    pids = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(directory):
                pids.append(process.pid)
        except (psutil.AccessDenied, psutil.NoSuchProcess):
            continue
    return pids
