"""The numbers of the contract. Those an operator may change are defaults here and settings elsewhere."""

from typing import Final

BODY_BYTES_MAX: Final = 262_144
"""256 KB, inclusive. Counted in bytes as received; not a setting."""

WINDOW_SECONDS: Final = 60
"""The length of the sliding window in which deliveries and failed authentications are counted."""

DELIVERIES_PER_MINUTE: Final = 60
FAILED_AUTHENTICATIONS_PER_MINUTE: Final = 60
WEBHOOKS_PER_FACTORY: Final = 20
AUTOMATIONS_PER_FACTORY: Final = 500
"""Each is looked at whenever somebody asks what a delivery triggers."""
BACKTEST_MAX: Final = 200
"""Deliveries that one backtest evaluates."""

LOG_KEEPS_ROWS: Final = 50
LOG_KEEPS_DAYS: Final = 7
IDENTITIES_KEPT_DAYS: Final = 30
"""How long an identity that the sender or provider chose is remembered. A body's digest lives as long as its
delivery."""

IDENTITY_SHOWN_CHARACTERS: Final = 255
"""How much of a sender's own event id the log keeps for people; its digest always covers the whole."""

IDEMPOTENT_ANSWERS_KEPT_HOURS: Final = 24
"""How long a request that is repeated with the same Idempotency-Key gets the same answer."""
SESSION_IDLE_HOURS: Final = 24
"""A session ends when nothing came from it for so long."""
SESSION_HOURS: Final = 24 * 14
"""A session ends after so long, whatever comes from it."""
