"""One of two hosts is cut off, then killed or frozen, and returns. No delivery or run is lost or doubled, and the other
host finishes the runs."""

import random
import time

import pytest

from hookmill.domain.ids import run_key
from hookmill.store.database import open_database
from tests.faults.audit import audit, audit_attempts, wait_until_runs_have_ended
from tests.faults.senders import LoadGenerator
from tests.faults.two_hosts import HookmillHost, TwoHosts, two_hosts
from tests.runs.worker import microseconds
from tests.support.counts import count
from tests.support.waiting import until

ROUNDS = count(10, usually=1)
GATED_RUNS = 4
ANSWER_SECONDS = 2.0
"""How long senders wait for an answer."""
TAKEOVER_SECONDS_MAX = 45
"""The longest time from the loss of a host until the other one has finished its runs."""
PACKAGE_FILES = {"envelope.json", "envelope.txt", "event-payload.json", "prompt.md"}


@pytest.fixture
def site(postgres_server, migrated_postgres, tmp_path_factory):
    url = postgres_server.create_database(template=migrated_postgres)
    settings = {"deliveries_per_minute": 100_000, "runs_at_once": 8, "run_attempts_max": 100}
    with two_hosts(url, tmp_path_factory.mktemp("hosts"), **settings) as site:
        yield site
    postgres_server.drop_database(url)


def random_load(site: TwoHosts):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    return site.load(random.Random(seed), senders=8, per_second=40, copies=0.1, answer_seconds=ANSWER_SECONDS)


def choose_lost_host(site: TwoHosts, runs: list[str]) -> tuple[HookmillHost, HookmillHost, list[str]]:
    """The host that performs most of the runs, the other host, and the first host's runs."""
    rows = site.runs
    lost, survivor = sorted(site.hosts, key=lambda host: -sum(rows[run].host == host.name for run in runs))
    return lost, survivor, [run for run in runs if rows[run].host == lost.name]


def require_live_output(site: TwoHosts, runs: list[str], *hosts: HookmillHost, attempt: int):
    """Fails unless each of these hosts shows the output of running commands, in the API and in the dashboard."""
    for run in runs:
        row = site.runs[run]
        assert (row.state, row.attempt) == ("running", attempt)
        output = f"attempt {attempt} on {row.host} begins\n"
        for host in hosts:
            until(lambda: site.output(host, run) == output, f"{host.name} shows the output")  # noqa: B023
            assert f">{output}</pre>" in site.page(host, run)


def finish_on(site: TwoHosts, survivor: HookmillHost, runs: list[str], *, lost_at: float):
    """Wait until the remaining host performs the second attempt of each run. Then let the runs end, and wait for it."""

    def is_taken_over(run: str) -> bool:
        row = site.runs[run]
        return (row.state, row.attempt, row.host) == ("running", 2, survivor.name)

    until(lambda: all(map(is_taken_over, runs)), f"{survivor.name} performs the runs", seconds=TAKEOVER_SECONDS_MAX)
    require_live_output(site, runs, survivor, attempt=2)
    for run in runs:
        site.let_end(run, 2)
    until(lambda: all(site.runs[run].state == "succeeded" for run in runs), f"{survivor.name} has finished the runs")
    seconds = time.monotonic() - lost_at
    print(f"taken over and finished after {seconds:.1f} s")
    assert seconds < TAKEOVER_SECONDS_MAX


def require_that_nothing_is_lost_or_doubled(site: TwoHosts, load: LoadGenerator):
    print(dict(load.answers))
    assert load.unexpected_answers == []
    result = audit(site.url, site.events)
    automations = site.sources[0].when_urgent | site.gated.always
    runs, attempt_violations = audit_attempts(site.url, site.notes, automations)
    print(f"{result.accepted} deliveries accepted, {runs} runs")
    assert result.violations() == {}
    assert {name: count for name, count in attempt_violations.items() if count} == {}


def require_files_on_both_hosts(site: TwoHosts):
    """Fails unless both hosts show the output and the files of each run's latest attempt."""
    run_by_commands = {line.split()[0] for line in site.notes.read_text().splitlines()}
    for run, row in site.runs.items():
        shown = [
            (site.output(host, run), [(file["name"], file["size"], file["only_on_host"]) for file in files])
            for host in site.hosts
            for files in [site.get(host, f"/runs/{run}/files").json["files"]]
        ]
        assert shown[0] == shown[1]
        output, files = shown[0]
        assert {only_on_host for _, _, only_on_host in files} == {None}
        command_files = {"output.log", "result.txt"} if run in run_by_commands else set()
        assert {name for name, _, _ in files} == PACKAGE_FILES | command_files
        if run in run_by_commands:
            attempt = f"attempt {row.attempt} on {row.host}"
            assert output == f"{attempt} begins\n{attempt} ends\n"
            for host in site.hosts:
                assert site.get(host, f"/runs/{run}/files/result.txt").body == f"{attempt}\n".encode()
                page = site.page(host, run)
                assert f">{output}</pre>" in page
                assert "result.txt" in page


def stored_rows(site: TwoHosts, runs: list[str]) -> list[dict[str, object]]:
    """All rows about these runs and their files."""
    with open_database(site.url) as database, database.read() as tx:
        return [
            dict(row)
            for run in runs
            for sql in (
                "SELECT * FROM runs WHERE id = :run",
                "SELECT * FROM run_files WHERE run_id = :run ORDER BY name",
            )
            for row in tx.all(sql, run=run_key(run))
        ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_host_that_is_cut_off_and_killed_loses_and_doubles_no_run(site, number):
    runs = site.start_gated_runs(GATED_RUNS)
    lost, survivor, lost_runs = choose_lost_host(site, runs)
    require_live_output(site, runs, lost, survivor, attempt=1)

    with random_load(site) as load:
        until(lambda: all(load.last_accepted_at.values()), "both hosts accept deliveries")
        lost.host.unplug()
        lost_at = time.monotonic()
        until(lambda: load.answers["none"], "a sender gets no answer")
        lost.host.kill_all()
        finish_on(site, survivor, lost_runs, lost_at=lost_at)
        lost.host.plug_in()
        back_at = time.monotonic()
        lost.start()
        until(lambda: load.last_accepted_at[lost.port] > back_at, lambda: f"{lost.name} accepts again: {lost.log()}")
        for run in runs:
            site.let_end(run, 1)
        load.drain(60)
    wait_until_runs_have_ended(site.url)

    require_that_nothing_is_lost_or_doubled(site, load)
    assert {run: site.runs[run].attempt for run in runs} == {run: 1 + (run in lost_runs) for run in runs}
    require_files_on_both_hosts(site)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.proof
def test_host_that_was_cut_off_and_frozen_overwrites_no_result(site, number):
    runs = site.start_gated_runs(GATED_RUNS)
    lost, survivor, lost_runs = choose_lost_host(site, runs)

    with random_load(site) as load:
        until(lambda: all(load.last_accepted_at.values()), "both hosts accept deliveries")
        lost.host.unplug()
        lost_at = time.monotonic()
        # Now the worker of the lost host has results, and can't record them.
        for run in runs:
            site.let_end(run, 1)
        until(lambda: all(site.has_ended(run, 1) for run in runs), "the commands have ended")
        lost.host.freeze()
        # The host's kernel accepts connections again, but no process reads the requests.
        lost.host.plug_in()
        finish_on(site, survivor, lost_runs, lost_at=lost_at)
        before = stored_rows(site, lost_runs)
        resumed_at = microseconds()
        lost.host.resume()
        until(
            lambda: any(
                row.host == lost.name and row.state == "succeeded" and row.created_at > resumed_at
                for row in site.runs.values()
            ),
            lambda: f"the worker of {lost.name} performs new runs: {lost.log()}",
        )
        load.drain(60)
    wait_until_runs_have_ended(site.url)
    # After SIGTERM, a worker first finishes what it has begun.
    lost.worker.terminate()
    assert lost.worker.wait() == 0

    for run in lost_runs:
        old_result = lost.service.data_dir / "runs" / run / "result.txt"
        assert old_result.read_text() == f"attempt 1 on {lost.name}\n"
    assert stored_rows(site, lost_runs) == before
    require_that_nothing_is_lost_or_doubled(site, load)
    assert {run: site.runs[run].attempt for run in runs} == {run: 1 + (run in lost_runs) for run in runs}
    require_files_on_both_hosts(site)
