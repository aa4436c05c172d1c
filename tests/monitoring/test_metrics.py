"""What a process counts, how its numbers reach the worker, and how Prometheus reads them."""

import os
import stat
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hookmill import metrics as defined
from hookmill.app.metrics_files import STALE_SECONDS, MetricsPublisher, ProcessMetrics, read_published
from hookmill.app.metrics_server import MetricsSource, StateReader
from hookmill.domain.alarm import AlarmKind
from hookmill.domain.errors import StoreUnavailable
from hookmill.domain.run import Hold
from hookmill.maintenance import DiskSpace
from hookmill.metrics import (
    HOST_METRICS,
    INSTALLATION_METRICS,
    PROCESS_METRICS,
    MetricKind,
    Metrics,
    process_usage,
)
from hookmill.store.monitoring import InstallationState
from tests.support.waiting import until

SECOND = 1_000_000
STATE = InstallationState(
    ready_runs=7,
    held_runs={hold: int(hold) for hold in Hold},
    running_runs=2,
    oldest_ready_at=1_000 * SECOND,
    live_workers=1,
    pending_uploads=3,
    open_alarms={kind: 4 if kind is AlarmKind.DISK_LOW else 0 for kind in AlarmKind},
    bytes_by_part={"main": 4_096, "wal": 100},
)
DISK = DiskSpace(free_bytes=10, free_bytes_min=20, free_inodes=5_000)


def fails(component: str, error: BaseException):
    raise AssertionError(f"{component}: {error!r}")


def source(directory: Path, **changes: Any) -> MetricsSource:
    values: dict[str, Any] = {
        "directory": directory,
        "read_state": lambda: STATE,
        "read_disk": lambda: DISK,
        "database_kind": "sqlite",
        "build_id": "0123456789ab",
        "now_us": lambda: 1_090 * SECOND,
    }
    return MetricsSource(**{**values, **changes})


def samples(text: bytes) -> dict[tuple[str, str], float]:
    """The values by the name of the series and its labels, without the label `process`."""
    return {
        (sample.name, ",".join(f"{name}={value}" for name, value in sample.labels.items() if name != "process")): (
            sample.value
        )
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


@pytest.fixture
def publish(tmp_path):
    def start(metrics: Metrics, **choices: Any) -> MetricsPublisher:
        publisher = MetricsPublisher(tmp_path / "metrics", "ingress", metrics, report_failure=fails, **choices)
        until(lambda: read_published(tmp_path / "metrics"), "the metrics are published")
        return publisher

    return start


# Counting


def test_counter_begins_with_zero_for_each_known_label():
    metrics = Metrics()

    metrics.number(defined.DELIVERIES, "accepted").value += 1

    values = dict(metrics.values()[defined.DELIVERIES.name])
    assert values[("accepted",)] == [1]
    assert values[("duplicate",)] == [0]
    assert len(values) == len(defined.OUTCOMES)


def test_histogram_counts_a_value_in_the_first_bucket_that_is_not_below_it():
    metrics = Metrics()
    histogram = metrics.histogram(defined.COMMIT_DELIVERIES)

    for value in (1, 2, 3, 256, 257):
        histogram.observe(value)

    # The buckets are 1, 2, 4, 8, …, 256, and everything above; the last number is the sum.
    assert histogram.counts_and_sum == [1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 519]


def test_usage_of_this_process_is_plausible():
    usage = process_usage()

    assert usage.pid == os.getpid()
    assert usage.cpu_seconds > 0
    assert 10_000_000 < usage.memory_bytes < 10_000_000_000


# Publishing


def test_only_the_owner_can_read_published_metrics(tmp_path, publish):
    publisher = publish(Metrics())

    directory = tmp_path / "metrics"
    modes = {path.name.partition("-")[0]: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    publisher.close()

    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert modes == {"ingress": 0o600}
    assert list(directory.iterdir()) == []


def test_metrics_of_a_child_are_published_with_those_of_its_parent(tmp_path, publish):
    child = ProcessMetrics.of_usage("writer", process_usage())
    publisher = publish(Metrics(), children=lambda: [child])

    names = [process.name for process, _ in read_published(tmp_path / "metrics")]
    publisher.close()

    assert names == [f"ingress-{os.getpid()}", f"writer-{os.getpid()}"]


def test_metrics_of_an_ended_process_are_removed(tmp_path, publish):
    publisher = publish(Metrics())
    [path] = (tmp_path / "metrics").iterdir()
    ended = path.with_name(path.name.replace("ingress", "worker"))
    ended.write_bytes(path.read_bytes())
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(b"{")
    for each in (ended, draft):
        old = each.stat().st_mtime - STALE_SECONDS - 1
        os.utime(each, (old, old))

    published = read_published(tmp_path / "metrics")
    publisher.close()

    assert len(published) == 1
    assert not ended.exists()
    assert not draft.exists()


def test_files_that_are_no_metrics_of_this_host_are_ignored(tmp_path, publish):
    publisher = publish(Metrics())
    [path] = (tmp_path / "metrics").iterdir()
    path.with_name(path.name.replace("ingress", "cut")).write_bytes(path.read_bytes()[:100])
    path.with_name("ingress-1@elsewhere.json").write_bytes(path.read_bytes())
    path.with_name(path.name.replace("ingress", "directory")).mkdir()

    published = read_published(tmp_path / "metrics")
    publisher.close()

    assert [process.name for process, _ in published] == [f"ingress-{os.getpid()}"]


def test_process_that_cannot_publish_reports_it_once_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("hookmill.app.metrics_files.PUBLISH_SECONDS", 0.01)
    failures = []
    (tmp_path / "metrics").write_text("This is no directory.")
    measured = []
    publisher = MetricsPublisher(
        tmp_path / "metrics",
        "ingress",
        Metrics(),
        measure=lambda: measured.append(1),
        report_failure=lambda component, error: failures.append(component),
    )
    until(lambda: len(measured) > 3, "several publications failed")

    (tmp_path / "metrics").unlink()
    until(lambda: read_published(tmp_path / "metrics"), "the metrics are published")
    publisher.close()

    assert failures == ["metrics"]


# Rendering


def test_prometheus_reads_the_numbers_of_every_process(tmp_path, publish):
    metrics = Metrics()
    metrics.number(defined.DELIVERIES, "accepted").value = 3
    for seconds in (0.0004, 0.3, 60):
        metrics.histogram(defined.DELIVERY_SECONDS).observe(seconds)
    publisher = publish(metrics)

    values = samples(source(tmp_path / "metrics").render())
    publisher.close()

    assert values["hookmill_deliveries_total", "outcome=accepted"] == 3
    assert values["hookmill_deliveries_total", "outcome=evicted"] == 0
    assert values["hookmill_delivery_seconds_bucket", "le=0.001"] == 1
    assert values["hookmill_delivery_seconds_bucket", "le=0.5"] == 2
    assert values["hookmill_delivery_seconds_bucket", "le=+Inf"] == 3
    assert values["hookmill_delivery_seconds_count", ""] == 3
    assert values["hookmill_delivery_seconds_sum", ""] == pytest.approx(60.3004)
    assert values["hookmill_process_resident_memory_bytes", ""] > 0
    assert values["hookmill_process_metrics_age_seconds", ""] < STALE_SECONDS


def test_prometheus_reads_the_state_of_the_installation_and_the_host(tmp_path):
    values = samples(source(tmp_path).render())

    assert values["hookmill_database_up", ""] == 1
    assert values["hookmill_runs_ready", ""] == 7
    assert values["hookmill_runs_held", "reason=retry"] == int(Hold.RETRY)
    assert values["hookmill_oldest_ready_run_age_seconds", ""] == 90
    assert values["hookmill_pending_uploads", ""] == 3
    assert values["hookmill_open_alarms", "kind=disk_low"] == 4
    assert values["hookmill_open_alarms", "kind=clock_wrong"] == 0
    assert values["hookmill_database_bytes", "part=wal"] == 100
    assert values["hookmill_disk_free_bytes", ""] == 10
    assert values["hookmill_disk_full", ""] == 1


def test_database_that_does_not_answer_leaves_the_other_metrics(tmp_path):
    values = samples(source(tmp_path, read_state=lambda: None).render())

    assert values["hookmill_database_up", ""] == 0
    assert ("hookmill_runs_ready", "") not in values
    assert values["hookmill_disk_free_inodes", ""] == 5_000


def test_disk_that_does_not_answer_leaves_the_other_metrics(tmp_path):
    def fail():
        raise OSError

    values = samples(source(tmp_path, read_disk=fail).render())

    assert values["hookmill_database_up", ""] == 1
    assert ("hookmill_disk_full", "") not in values


def test_numbers_of_another_version_are_left_out(tmp_path, publish):
    publisher = publish(Metrics())
    publisher.close()
    publisher = publish(Metrics())
    [path] = (tmp_path / "metrics").iterdir()
    content = msgspec.json.decode(path.read_bytes())
    content["processes"][0]["values"] |= {
        "hookmill_new_total": [[[], [1]]],
        "hookmill_deliveries_total": [[["accepted", "more"], [1]]],
        "hookmill_delivery_seconds": [[[], [1, 2, 3]]],
    }
    publisher.close()
    path.write_bytes(msgspec.json.encode(content))

    values = samples(source(tmp_path / "metrics").render())

    assert [name for name, _ in values if "new" in name or "deliver" in name] == []
    assert values["hookmill_process_cpu_seconds_total", ""] > 0


def test_every_metric_has_a_plain_unique_name_and_a_meaning():
    definitions = [*PROCESS_METRICS, *INSTALLATION_METRICS, *HOST_METRICS]
    names = [each.name for each in definitions]

    assert len(set(names)) == len(names)
    assert [name for name in names if not name.startswith("hookmill_")] == []
    assert [
        each.name for each in definitions if (each.kind is MetricKind.COUNTER) != each.name.endswith("_total")
    ] == []
    assert [each.name for each in definitions if (each.kind is MetricKind.HISTOGRAM) != bool(each.bounds)] == []
    assert [each.name for each in definitions if not each.meaning.endswith(".") or "|" in each.meaning] == []


# Reading the state


def test_scrapes_within_ten_seconds_read_the_database_once():
    reads = []

    def read():
        reads.append(1)
        return STATE

    reader = StateReader(read, fails)

    assert [reader.latest(), reader.latest(), reader.latest()] == [STATE] * 3
    assert len(reads) == 1


def test_unavailable_database_is_no_state():
    def read():
        raise StoreUnavailable("gone")

    assert StateReader(read, fails).latest() is None


def test_scrape_does_not_wait_long_for_a_database_that_hangs(monkeypatch):
    monkeypatch.setattr("hookmill.app.metrics_server.STATE_TIMEOUT_SECONDS", 0.05)
    answer = threading.Event()
    reads = []

    def read():
        reads.append(1)
        answer.wait()
        return STATE

    reader = StateReader(read, fails)

    assert [reader.latest(), reader.latest()] == [None, None]
    until(lambda: reads, "the database is read")
    assert len(reads) == 1
    answer.set()
    assert until(reader.latest, "the state is read") == STATE
