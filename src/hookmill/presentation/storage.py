"""Sizes and the forecast of the storage, in words."""

from hookmill.domain.limits import IDENTITIES_KEPT_DAYS, LOG_DAYS_KEPT
from hookmill.domain.storage_forecast import Forecast, StoredData


def size_text(byte_count: int) -> str:
    """A number of bytes, for people: `12 B`, `3.4 kB`, `5.6 MB` or `7.8 GB`."""
    if byte_count < 1_000:
        return f"{byte_count} B"
    if byte_count < 1_000_000:
        return f"{byte_count / 1_000:.1f} kB"
    if byte_count < 1_000_000_000:
        return f"{byte_count / 1_000_000:.1f} MB"
    return f"{byte_count / 1_000_000_000:,.1f} GB"


def storage_fields(
    data: StoredData, forecast: Forecast | None, usable_bytes: int | None, *, on_postgres: bool
) -> list[tuple[str, str]]:
    """What is stored, and how it will grow: names and texts for people."""
    about = "about " if data.is_estimate else ""
    deliveries = data.deliveries + data.older_deliveries
    fields = [
        (
            "Stored now",
            f"{about}{deliveries:,} deliveries with {size_text(data.payload_bytes + data.older_payload_bytes)} of "
            f"payloads; in the last {LOG_DAYS_KEPT} days, {about}{data.runs:,} runs with "
            f"{size_text(data.run_file_bytes)} of files in the database",
        ),
        ("Database", size_text(data.database_bytes)),
    ]
    if not on_postgres:
        fields.append(("Packages of runs", f"about {size_text(data.package_bytes)}"))
    if forecast is not None:
        fields.append(
            (
                "A day adds",
                f"about {size_text(round(forecast.bytes_per_day))}: {forecast.deliveries_per_day:,.0f} deliveries with "
                f"{size_text(round(forecast.payload_bytes_per_day))} of payloads",
            )
        )
    fields += [
        (
            "Retention",
            f"removes deliveries, payloads and runs after {LOG_DAYS_KEPT} days, except each webhook's newest ones, and "
            f"event ids after {IDENTITIES_KEPT_DAYS} days. In the next 24 hours, up to {about}"
            f"{data.leaving_deliveries:,} deliveries with {size_text(data.leaving_payload_bytes)} of payloads reach "
            "that age",
        ),
        ("Forecast", forecast_text(forecast, usable_bytes, on_postgres=on_postgres)),
    ]
    return fields


def forecast_text(forecast: Forecast | None, usable_bytes: int | None, *, on_postgres: bool) -> str:
    """At which size the data levels off, and whether the disk is large enough."""
    if forecast is None:
        return "too early to say: the log has deliveries of less than a day"
    level = size_text(forecast.level_bytes)
    if usable_bytes is None:
        where = "the disk of PostgreSQL" if on_postgres else "the disk"
        return f"levels off at about {level}. The free space of {where} is not known here"
    free = size_text(usable_bytes)
    if forecast.full_in_days is None:
        return f"fits: levels off at about {level}, and {free} more can be used"
    days = round(forecast.full_in_days)
    when = f"in about {days:,} day{'s' if days != 1 else ''}" if days else "within a day"
    return (
        f"the disk is full {when}: {free} more can be used, and the data levels off only at about {level}. Free disk "
        "space, or move to a larger disk"
    )
