"""The forecast of the storage: growth, the size at which it levels off, and when the disk is full."""

from dataclasses import replace

import pytest

from hookmill.domain.storage_forecast import (
    DAY_US,
    DELIVERY_BYTES,
    RUN_BYTES,
    StoredData,
    forecast,
)
from hookmill.presentation.storage import forecast_text, storage_fields

NOW = 100 * DAY_US
IDENTITY_BYTES = 100
GB = 1_000_000_000


def data_of(days: float, *, identity_days: float | None = None, per_day: int = 100_000) -> StoredData:
    """The data after so many days with the same traffic: payloads of 1 KB, one run in ten deliveries."""
    deliveries = round(per_day * min(days, 7))
    return StoredData(
        at=NOW,
        recent_since=NOW - round(min(days, 7) * DAY_US),
        identities_since=NOW - round((identity_days or days) * DAY_US),
        deliveries=deliveries,
        accepted=deliveries,
        identity_bytes=IDENTITY_BYTES,
        payload_bytes=deliveries * 1_000,
        runs=deliveries // 10,
        run_file_bytes=deliveries * 100,
        is_estimate=False,
        older_deliveries=50,
        older_payload_bytes=50_000,
        leaving_deliveries=per_day if days >= 7 else 0,
        leaving_payload_bytes=per_day * 1_000 if days >= 7 else 0,
        database_bytes=deliveries * 1_600,
        reusable_bytes=0,
        package_bytes=0,
    )


LOG_PER_DAY = 100_000 * (DELIVERY_BYTES + 1_000 + 100) + 10_000 * RUN_BYTES
IDENTITIES_PER_DAY = 100_000 * IDENTITY_BYTES


@pytest.mark.parametrize(
    ("days", "identity_days", "to_come"),
    [
        (1, 1, 6 * LOG_PER_DAY + 29 * IDENTITIES_PER_DAY),
        (7, 7, 23 * IDENTITIES_PER_DAY),
        (60, 60, 0),
        # The service was stopped for a month, and now gets deliveries for two days.
        (2, 60, 5 * LOG_PER_DAY),
    ],
)
def test_data_levels_off_when_retention_removes_as_much_as_arrives(days: float, identity_days: float, to_come: int):
    data = data_of(days, identity_days=identity_days)

    result = forecast(data, 100 * GB)

    assert result is not None
    assert result.level_bytes == pytest.approx(data.database_bytes + to_come, rel=1e-6)
    assert result.bytes_per_day == pytest.approx(LOG_PER_DAY + IDENTITIES_PER_DAY)
    assert result.deliveries_per_day == pytest.approx(100_000)
    assert result.full_in_days is None


@pytest.mark.parametrize(
    ("free_bytes", "full_in_days"),
    [
        (0, 0),
        (3 * (LOG_PER_DAY + IDENTITIES_PER_DAY), 3),
        (6 * LOG_PER_DAY + 10 * IDENTITIES_PER_DAY, 10),
        (6 * LOG_PER_DAY + 28 * IDENTITIES_PER_DAY, 28),
        (6 * LOG_PER_DAY + 30 * IDENTITIES_PER_DAY, None),
    ],
)
def test_disk_is_full_when_the_growth_has_used_it_up(free_bytes: int, full_in_days: float | None):
    result = forecast(data_of(1), free_bytes)

    assert result is not None
    assert result.full_in_days == (pytest.approx(full_in_days) if full_in_days is not None else None)


def test_free_pages_of_the_database_are_used_first():
    data = replace(data_of(1), reusable_bytes=LOG_PER_DAY)

    result = forecast(data, 2 * LOG_PER_DAY + 3 * IDENTITIES_PER_DAY)

    assert result is not None
    assert result.full_in_days == pytest.approx(3)
    assert result.level_bytes == data.database_bytes + 5 * LOG_PER_DAY + 29 * IDENTITIES_PER_DAY


@pytest.mark.parametrize("data", [data_of(0.9), replace(data_of(3), recent_since=None, deliveries=0)])
def test_forecast_needs_a_day_of_deliveries(data: StoredData):
    result = forecast(data, GB)

    assert result is None
    assert forecast_text(result, GB, on_postgres=False).startswith("too early to say")


@pytest.mark.parametrize(
    ("days", "free_bytes", "on_postgres", "text"),
    [
        (7, 40 * GB, False, "fits: levels off at about 1.4 GB, and 40.0 GB more can be used"),
        (1, GB // 2, False, "the disk is full in about 3 days: 500.0 MB more can be used, and the data levels off"),
        (1, 1_000, False, "the disk is full within a day: 1.0 kB more can be used"),
        (7, None, True, "levels off at about 1.4 GB. The free space of the disk of PostgreSQL is not known here"),
    ],
)
def test_forecast_says_whether_the_disk_is_large_enough(
    days: float, free_bytes: int | None, on_postgres: bool, text: str
):
    result = forecast(data_of(days), free_bytes)

    assert forecast_text(result, free_bytes, on_postgres=on_postgres).startswith(text)


def test_storage_fields_mark_estimates():
    data = replace(data_of(7), is_estimate=True)

    fields = dict(storage_fields(data, forecast(data, GB), GB, on_postgres=False))

    assert fields["Stored now"].startswith("about 700,050 deliveries with 700.0 MB of payloads")
    assert fields["A day adds"] == "about 176.0 MB: 100,000 deliveries with 100.0 MB of payloads"
    assert "up to about 100,000 deliveries with 100.0 MB of payloads" in fields["Retention"]
