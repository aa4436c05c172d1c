"""The reports of agent platforms about attempts. A platform authenticates with the token of one attempt."""

import hmac
import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from hookmill.domain.errors import Conflict, Invalid
from hookmill.domain.ids import RunKey, run_id, run_key
from hookmill.domain.platform_report import PlatformReport
from hookmill.management.installation import Operations
from hookmill.store.runs import platform_attempts
from hookmill.store.runs.platform_attempts import Reception

_ATTEMPT_DIGITS: Final = re.compile(r"[1-9][0-9]{0,8}\Z")
_UNKNOWN_DIGEST: Final = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class MayReport:
    """Permission to report about one attempt."""

    run: RunKey
    attempt: int
    token_digest: bytes = field(repr=False)


class PlatformReports(Operations):
    def permission(self, attempt_id: str, token: str) -> MayReport | None:
        """The permission that a token gives; None if it is not the token of this attempt.

        `attempt_id` is the run's id and the attempt's number, such as run_0192f0c1…-1.
        """
        run_text, _, attempt_text = attempt_id.partition("-")
        try:
            run = run_key(run_text)
        except Invalid:
            return None
        if not _ATTEMPT_DIGITS.match(attempt_text):
            return None
        attempt = int(attempt_text)
        with self._installation.reading() as tx:
            stored_digest = platform_attempts.token_digest(tx, run, attempt)
        digest = sha256(token.encode()).digest()
        if not hmac.compare_digest(digest, stored_digest or _UNKNOWN_DIGEST):
            return None
        return MayReport(run=run, attempt=attempt, token_digest=digest)

    def receive(self, may: MayReport, report: PlatformReport) -> None:
        """Store the report, with which the attempt ends. Repeating the same report has no effect.

        Raises `Conflict` for a different report, or if the attempt has ended.
        """
        with self._installation.writing_without_permission_check() as tx:
            reception = platform_attempts.receive(tx, may.run, may.attempt, may.token_digest, report)
        match reception:
            case Reception.OUTDATED:
                raise Conflict(
                    f"Attempt {may.attempt} of run {run_id(may.run)} has ended, or a later one has begun. The report "
                    "has no effect. Stop the work on this attempt."
                )
            case Reception.CONTRADICTED:
                raise Conflict(
                    f"Attempt {may.attempt} of run {run_id(may.run)} already has another report. The first one counts."
                )
            case Reception.ACCEPTED:
                return
