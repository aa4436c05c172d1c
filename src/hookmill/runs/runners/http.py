"""The kind `http`: it sends a run to an agent platform, and waits for the platform's report.

The platform gets a signed POST with the run's prompt, envelope and payload, and with a token for this one attempt. It
answers 202, and later reports the result to `/api/v1/attempts/…/report`, which stores it in the database.
"""

import base64
import os
import re
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec
from pydantic import Field, field_validator, model_validator

from hookmill.domain.errors import HookmillError, Invalid, StoreUnavailable
from hookmill.domain.ids import RunKey, run_id
from hookmill.domain.moment import iso
from hookmill.domain.platform_report import PlatformReport
from hookmill.domain.run import Ended, Run, RunState
from hookmill.domain.secret import problem_of_variable
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.scheme import Scheme
from hookmill.domain.signatures.sign import sign
from hookmill.domain.text import trimmed_text
from hookmill.outbound.http_url import http_url_parts
from hookmill.runs.package import Package
from hookmill.runs.runner import Abandoned, HostFault, Instruction, NextInstruction, reason_of
from hookmill.runs.runners.command import CANCELLED_REASON, INSTRUCTION_SECONDS
from hookmill.runs.runners.http_request import Endpoint, PostRequest, RequestFailed
from hookmill.runs.runners.kind import RunnerContext, RunnerSettings, VariableName
from hookmill.store.database import Database
from hookmill.store.runs import platform_attempts

TOKEN_PREFIX: Final = "hat_"
TOKEN_BYTES: Final = 32
REPORT_PATH: Final = "/api/v1/attempts/{run}-{attempt}/report"
_SCHEME: Final = "standard_webhooks"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRunner:
    """Hands runs to an agent platform. While the platform works, the run occupies a slot of the worker."""

    endpoint: Endpoint = field(repr=False)
    secret_from: str
    """The service's variable that contains the secret with which requests are signed."""
    database: Database
    public_url: str
    time_limit_seconds: float = 3600
    grace_seconds: float = 0.0
    """A stopped run ends immediately: its request is not continued."""

    def end_earlier_attempts(self, run: Run) -> None:
        """Tell the platform that attempts without a report are outdated. The platform may be unreachable."""
        with suppress(StoreUnavailable):
            with self.database.read() as tx:
                if platform_attempts.accepted_report(tx, run.id) is not None:
                    return
                attempts = platform_attempts.attempts_without_report(tx, run.id, before=run.attempt)
            for attempt in attempts[-1:]:
                self._tell_cancelled(run.id, attempt, "outdated")

    def run(self, package: Package, next_instruction: NextInstruction) -> Ended | Abandoned:
        run = package.run
        token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
        deadline = time.monotonic() + self.time_limit_seconds
        try:
            with self.database.write() as tx:
                if (report := platform_attempts.accepted_report(tx, run.id)) is not None:
                    # The report is about an earlier attempt, whose worker died before it read the report.
                    return report.ended
                now = time.time_ns() // 1000
                platform_attempts.begin(tx, run.id, run.attempt, sha256(token.encode()).digest(), now=now)
        except StoreUnavailable as error:
            raise HostFault(f"The token of a run could not be stored: {error}") from error
        try:
            body = self._start_message(package, token)
        except OSError as error:
            raise HostFault(f"The package of a run could not be read: {reason_of(error)}.") from error
        request = self._post(f"{run_id(run.id)}-{run.attempt}-start", body)
        if isinstance(request, Ended):
            return request
        response: int | RequestFailed | None = None
        while True:
            if response is None:
                response = request.wait(INSTRUCTION_SECONDS)
                if isinstance(response, RequestFailed):
                    failure = Ended(state=RunState.FAILED, reason=response.reason)
                    return self._ended(run, failure, next_instruction)
            else:
                time.sleep(INSTRUCTION_SECONDS)
            with suppress(StoreUnavailable), self.database.read() as tx:
                if (report := platform_attempts.accepted_report(tx, run.id)) is not None:
                    request.close()
                    return report.ended
            match next_instruction():
                case Instruction.ABANDON:
                    request.close()
                    return Abandoned()
                case Instruction.CANCEL:
                    request.close()
                    cancelled = Ended(state=RunState.CANCELLED, reason=CANCELLED_REASON)
                    return self._ended(run, cancelled, next_instruction, stop_reason="cancelled")
                case Instruction.CONTINUE:
                    pass
            if time.monotonic() > deadline:
                request.close()
                reason = f"The platform did not report within the time limit of {self.time_limit_seconds:g} s."
                failure = Ended(state=RunState.FAILED, reason=reason)
                return self._ended(run, failure, next_instruction, stop_reason="time_limit")

    def _ended(
        self, run: Run, result: Ended, next_instruction: NextInstruction, *, stop_reason: str | None = None
    ) -> Ended | Abandoned:
        """The result, unless the platform's report was accepted before. Then the report decides.

        `stop_reason`: the reason that the platform receives; None if it receives nothing.
        """
        report: PlatformReport | None = None
        is_closed = False
        while not is_closed:
            try:
                with self.database.write() as tx:
                    report = platform_attempts.close(tx, run.id, run.attempt)
                is_closed = True
            except StoreUnavailable:
                # Until the token is closed, a report may be accepted, so the attempt has not ended.
                if next_instruction() is Instruction.ABANDON:
                    return Abandoned()
                time.sleep(INSTRUCTION_SECONDS)
        if report is not None:
            return report.ended
        if stop_reason is not None:
            self._tell_cancelled(run.id, run.attempt, stop_reason)
        return result

    def _tell_cancelled(self, run: RunKey, attempt: int, reason: str) -> None:
        data = {"run_id": run_id(run), "attempt": attempt, "reason": reason}
        request = self._post(f"{run_id(run)}-{attempt}-cancel", _message("run.cancelled", data))
        if isinstance(request, PostRequest):
            # The platform's answer changes nothing: a report about this attempt has no effect any more.
            request.wait_until_done()

    def _start_message(self, package: Package, token: str) -> bytes:
        run = package.run
        payload = package.payload_file.read_bytes() if run.has_payload else None
        path = REPORT_PATH.format(run=run_id(run.id), attempt=run.attempt)
        return _message(
            "run.started",
            {
                "run_id": run_id(run.id),
                "attempt": run.attempt,
                "automation": {
                    "id": run.automation_id,
                    "name": run.automation_name,
                    "version": run.automation_version,
                },
                "prompt": package.prompt_file.read_text("utf-8"),
                # The bytes of the file: decoded and encoded again, its exact numbers would be rounded.
                "envelope": msgspec.Raw(package.envelope_file.read_bytes()),
                "payload_base64": base64.b64encode(payload).decode() if payload is not None else None,
                "time_limit_seconds": self.time_limit_seconds,
                "report": {"url": self.public_url + path, "token": token},
            },
        )

    def _post(self, message_id: str, body: bytes) -> PostRequest | Ended:
        """Begin to send a signed message. Returns the failure of the run if it can't be signed."""
        secret = trimmed_text(os.environ.get(self.secret_from, ""))
        try:
            signed = sign(standard_webhooks(), secret, body, self.endpoint.url, time.time_ns() // 1000, message_id)
        except HookmillError:
            # The error's text is about the secret of a webhook.
            return Ended(state=RunState.FAILED, reason=_secret_problem(self.secret_from))
        headers = {"Content-Type": "application/json", "User-Agent": "hookmill", **dict(signed.headers)}
        return PostRequest(self.endpoint, headers, signed.body)


def standard_webhooks() -> Scheme:
    return catalogue.find(_SCHEME)


def _message(kind: str, data: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": kind, "timestamp": iso(time.time_ns() // 1000), "data": data})


def _secret_problem(variable: str) -> str:
    cause = problem_of_variable(os.environ.get(variable))
    problem = f"{cause}. It must contain" if cause is not None else "has no usable secret. It must be"
    return (
        f"The variable {variable} {problem} whsec_ and at least 24 bytes in base64. Set it for every process that "
        "performs runs, or correct the runner's secret_from."
    )


class HttpSettings(RunnerSettings):
    """The settings of an agent platform that performs runs."""

    kind: Literal["http"] = Field(default="http", description="`http` sends the run to an agent platform.")
    url: str = Field(max_length=2_000, description="The URL of the platform, to which the run is sent.")
    allow_http: bool = Field(
        default=False, description="Whether `url` may begin with http://. Payloads are then not encrypted."
    )
    secret_from: VariableName = Field(
        description="The service's environment variable that contains the secret to sign requests with (`whsec_…`)."
    )
    time_limit_seconds: int = Field(
        default=3600, ge=1, le=7 * 86_400, description="After this time without a report, the run fails."
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if http_url_parts(url) is None:
            raise ValueError("must be an https URL without a password, such as https://agents.example.com/runs")
        if not re.fullmatch(r"[!-~]+", url):
            raise ValueError("must have visible ASCII characters only")
        return url

    @model_validator(mode="after")
    def _check_encryption(self) -> "HttpSettings":
        if self.url.startswith("http:") and not self.allow_http:
            raise ValueError("url: must begin with https://, unless allow_http is true")
        return self

    def examine(self, packages: Any) -> str:
        try:
            sign(standard_webhooks(), trimmed_text(os.environ.get(self.secret_from, "")), b"", self.url, 0, "id")
        except HookmillError:
            raise Invalid(_secret_problem(self.secret_from)) from None
        return f"sends runs to {Endpoint(self.url).origin}, for at most {self.time_limit_seconds:,} s"

    def create_runner(self, context: RunnerContext) -> HttpRunner:
        assert context.database is not None, "the reports of the platform are in the database"
        return HttpRunner(
            endpoint=Endpoint(self.url),
            secret_from=self.secret_from,
            database=context.database,
            public_url=context.public_url,
            time_limit_seconds=self.time_limit_seconds,
        )

    def summary(self) -> str:
        # The path may contain a token.
        return (
            f"sends runs to {Endpoint(self.url).origin}, signed with the secret in {self.secret_from}, at most "
            f"{self.time_limit_seconds} s"
        )
