"""The reports of agents about attempts."""

from dataclasses import asdict

from hookmill.domain.agent_report import AgentReport
from hookmill.domain.ids import RunKey
from hookmill.store.database import Transaction


def add(tx: Transaction, key: RunKey, attempt: int, report: AgentReport) -> None:
    """Store the report about an attempt that has just ended."""
    tx.run(
        """
        INSERT INTO attempt_reports (
            run_id, attempt, result, is_result_cut, cost_microusd, input_tokens, output_tokens, model
        )
        VALUES (:run, :attempt, :result, :is_result_cut, :cost_microusd, :input_tokens, :output_tokens, :model)
        """,
        run=key,
        attempt=attempt,
        **asdict(report),
    )
