"""How the stored data grows, at which size retention lets it level off, and when the disk is full.

Retention removes log rows with their payloads, runs and files `LOG_DAYS_KEPT` days after their arrival, and identities
`IDENTITIES_KEPT_DAYS` days after it. So with constant traffic, each kind of row stops growing after that time.
"""

from dataclasses import dataclass
from typing import Final

from hookmill.domain.limits import IDENTITIES_KEPT_DAYS, LOG_DAYS_KEPT

DAY_US: Final = 86_400_000_000
OBSERVED_DAYS_MIN: Final = 1.0
"""If the recent deliveries span less than this, there is no forecast: most traffic differs between day and night."""
DELIVERY_BYTES: Final = 500
"""A row of the log with its entries in the indexes, and what the payload needs besides its own bytes."""
SQLITE_IDENTITY_BYTES: Final = 60
"""An identity, with its part of an index and of a filter. Its digest is random, so index pages stay partly empty."""
POSTGRES_IDENTITY_BYTES: Final = 150
RUN_BYTES: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredData:
    """The stored data at one moment. Times are in µs since 1970. The recent rows are those of the last `LOG_DAYS_KEPT`
    days."""

    at: int
    """The moment."""
    recent_since: int | None
    """When the first recent delivery was received; None if there is none."""
    identities_since: int | None
    """When the oldest identities were stored; None if there are none."""
    deliveries: int
    """All recent rows of the log."""
    accepted: int
    """The deliveries that have a payload and an identity."""
    identity_bytes: int
    """The bytes that the database needs for each identity."""
    payload_bytes: int
    runs: int
    run_file_bytes: int
    """The bytes of the files in the database."""
    is_estimate: bool
    """Whether a sample of the rows was counted, because there are many."""
    older_deliveries: int
    """Rows that are older, but kept: each webhook's newest ones, and those with an unfinished run."""
    older_payload_bytes: int
    leaving_deliveries: int
    """Recent rows that become older in the next 24 hours."""
    leaving_payload_bytes: int
    database_bytes: int
    reusable_bytes: int
    """The part of the database that new rows use before the database grows."""
    package_bytes: int
    """About how much space the packages of the recent runs have on the disk of the database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The growth of the data with constant traffic. Sizes include the database and the packages of runs."""

    deliveries_per_day: float
    payload_bytes_per_day: float
    bytes_per_day: float
    """The bytes that a day of deliveries adds, before retention removes anything."""
    level_bytes: int
    """The size at which the data levels off."""
    full_in_days: float | None
    """When `free_bytes` are used up; None if they suffice or are not known."""


def forecast(data: StoredData, free_bytes: int | None) -> Forecast | None:
    """The forecast; None if the log is too young for one. `free_bytes`: how much the data may grow; None if unknown."""
    observed_days = (data.at - data.recent_since) / DAY_US if data.recent_since is not None else 0.0
    if observed_days < OBSERVED_DAYS_MIN:
        return None
    log_per_day = (
        data.deliveries * DELIVERY_BYTES
        + data.payload_bytes
        + data.runs * RUN_BYTES
        + data.run_file_bytes
        + data.package_bytes
    ) / observed_days
    identities_per_day = data.accepted * data.identity_bytes / observed_days
    identity_days = (data.at - data.identities_since) / DAY_US if data.identities_since is not None else 0.0
    # For so many days from now, the log and the identities grow.
    log_days = max(LOG_DAYS_KEPT - observed_days, 0.0)
    more_identity_days = max(IDENTITIES_KEPT_DAYS - identity_days, 0.0)
    to_come = log_per_day * log_days + identities_per_day * more_identity_days
    full_in_days = None
    if free_bytes is not None:
        full_in_days = _days_until(
            max(free_bytes, 0) + data.reusable_bytes,
            ((log_days, log_per_day), (more_identity_days, identities_per_day)),
        )
    return Forecast(
        deliveries_per_day=data.deliveries / observed_days,
        payload_bytes_per_day=data.payload_bytes / observed_days,
        bytes_per_day=log_per_day + identities_per_day,
        level_bytes=data.database_bytes + data.package_bytes + max(round(to_come) - data.reusable_bytes, 0),
        full_in_days=full_in_days,
    )


def _days_until(available: float, growths: tuple[tuple[float, float], ...]) -> float | None:
    """When these growths have used up the available bytes; None if they end before. Each growth is a number of days
    and the bytes that it adds per day."""
    passed = 0.0
    for end in sorted(days for days, _ in growths):
        per_day = sum(rate for days, rate in growths if days > passed)
        needed = per_day * (end - passed)
        if needed > available:
            return passed + available / per_day
        available -= needed
        passed = end
    return None
