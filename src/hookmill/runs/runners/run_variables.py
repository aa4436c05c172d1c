"""The environment variables with which a command learns about its run."""

from enum import StrEnum

from hookmill.runs.runners import guard


class RunVariable(StrEnum):
    """The settings ignore these variables, so that a command can call `hookmill`."""

    RUN_ID = guard.RUN_VARIABLE
    ATTEMPT = guard.ATTEMPT_VARIABLE
    AUTOMATION = "HOOKMILL_AUTOMATION"
    DELIVERY_ID = "HOOKMILL_DELIVERY_ID"
    WEBHOOK = "HOOKMILL_WEBHOOK"
    SCHEDULE = "HOOKMILL_SCHEDULE"
    SCHEDULED_AT = "HOOKMILL_SCHEDULED_AT"
    PROMPT_FILE = "HOOKMILL_PROMPT_FILE"
    ENVELOPE_FILE = "HOOKMILL_ENVELOPE_FILE"
    PAYLOAD_FILE = "HOOKMILL_PAYLOAD_FILE"
    WORKSPACE = "HOOKMILL_WORKSPACE"
    OUTPUTS_DIR = "HOOKMILL_OUTPUTS_DIR"
