"""The stored form of the audit log, which records every management operation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One management operation: which actor did what to which subject, and through which channel.

    `at` is in µs since 1970.
    """

    key: bytes
    at: int
    actor_kind: str
    actor_id: str
    actor_name: str
    channel: str
    client: str | None
    """The client's IP address; None for operations that did not come over HTTP."""
    action: str
    factory_name: str | None
    """None if the operation concerns the whole team."""
    subject_kind: str
    subject_id: str
    subject_name: str
    details: Mapping[str, Any]
