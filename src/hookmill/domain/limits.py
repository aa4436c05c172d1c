"""Limits of the service. `DELIVERIES_PER_MINUTE`, `FAILED_AUTHENTICATIONS_PER_MINUTE` and `WEBHOOKS_PER_FACTORY` are
only defaults of settings; operators can't change the others.
"""

from typing import Final

BODY_BYTES_MAX: Final = 262_144
"""The maximum size of a body in bytes as received. Not a setting."""

WINDOW_SECONDS: Final = 60
"""The length of the sliding window in which deliveries and failed authentications are counted."""

DELIVERIES_PER_MINUTE: Final = 60
FAILED_AUTHENTICATIONS_PER_MINUTE: Final = 60
WEBHOOKS_PER_FACTORY: Final = 20
AUTOMATIONS_PER_FACTORY: Final = 500
"""Limited, because the explanation of a delivery evaluates all automations of the factory."""
BACKTEST_DELIVERIES_MAX: Final = 200
"""The maximum number of deliveries that one backtest evaluates."""

LOG_ROWS_KEPT: Final = 50
LOG_DAYS_KEPT: Final = 7
"""The newest `LOG_ROWS_KEPT` rows of a webhook, its newest `LOG_ROWS_KEPT` Accepted rows, and all rows younger than
`LOG_DAYS_KEPT` are kept. Of a deleted webhook or automation, nothing is kept `LOG_DAYS_KEPT` after the deletion."""
IDENTITIES_KEPT_DAYS: Final = 30
"""How long ids of senders and providers are stored as identities. A body's digest counts as long as the log has its
delivery, and is removed later."""

IDENTITY_SHOWN_CHARACTERS: Final = 255
"""The maximum length of an event id in the log. The log shortens longer ids, but their digest covers the whole id."""

IDEMPOTENT_ANSWERS_KEPT_HOURS: Final = 24
"""How long a retry with the same Idempotency-Key gets the first response."""
SESSION_IDLE_HOURS: Final = 24
"""A session ends after this time without a visit."""
SESSION_HOURS: Final = 24 * 14
"""A session ends after this time, even if it is in use."""
