"""The audit log: what people and programs did, as it is kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One act of management: who did what to which thing, when (µs since 1970), how, from where."""

    key: bytes
    at: int
    actor_kind: str
    actor_id: str
    actor_name: str
    channel: str
    client: str | None
    action: str
    factory_name: str | None
    """None for what concerns the whole team."""
    subject_kind: str
    subject_id: str
    subject_name: str
    details: Mapping[str, Any]
