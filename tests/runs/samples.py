"""A running run without a database, instructions for runners, and the states of processes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hookmill.domain.ids import AutomationId, DeliveryKey, FactoryId, RunKey, WebhookUid, time_ordered_key
from hookmill.domain.run import ByDelivery, Run, RunState
from hookmill.runs.runner import Instruction
from tests.runs.worker import microseconds
from tests.support.waiting import until


def sample_run(*, webhook_name: str = "Deploys", **changes: Any) -> Run:
    """A run that is being performed, with these changes."""
    now = microseconds()
    run = Run(
        id=RunKey(time_ordered_key(now, b"runs8888")),
        started_by=ByDelivery(
            delivery_key=DeliveryKey(time_ordered_key(now, b"dlvs8888")),
            webhook_uid=WebhookUid("wh_7k2m9"),
            webhook_name=webhook_name,
        ),
        factory_id=FactoryId("fac_one"),
        automation_id=AutomationId("aut_3x"),
        automation_name="Answer",
        automation_version=1,
        prompt="Do it.",
        runner="command",
        state=RunState.RUNNING,
        attempt=1,
        created_at=now,
        claimed_at=now,
        started_at=now,
        finished_at=None,
        cancel_requested_at=None,
        exit_status=None,
        output_tail=None,
        reason=None,
    )
    return replace(run, **changes)


def always_continue() -> Instruction:
    return Instruction.CONTINUE


def instruct_when(condition: Callable[[], object], instruction: Instruction) -> Callable[[], Instruction]:
    """A function that returns `CONTINUE`, and `instruction` as soon as the condition is true."""
    return lambda: instruction if condition() else Instruction.CONTINUE


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def has_ended(pid: int) -> bool:
    """Wait until the process has ended. The processes that tests start end by themselves only after a minute."""
    return until(lambda: not is_alive(pid), f"process {pid} has ended", seconds=20)
