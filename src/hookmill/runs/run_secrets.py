"""The secrets of one attempt: decrypted when it starts, and masked in its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hookmill.domain.errors import HookmillError
from hookmill.domain.masking import Masker
from hookmill.domain.run import Ended, Run
from hookmill.domain.run_secrets import NO_SECRETS, RunSecretRule
from hookmill.domain.secret import SecretValue
from hookmill.store import secrets
from hookmill.store.database import Transaction
from hookmill.store.keys.sealing import KeyRing, WrongKey


class UnusableSecret(HookmillError):
    """A run can't get one of its secrets. The message says which, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSecretReader:
    """Reads the secrets of runs."""

    master_keys: KeyRing = field(repr=False)
    rules: Mapping[str, RunSecretRule]
    """Which secrets the runs of each runner may get, by the runner's name."""

    def values_for(self, tx: Transaction, run: Run) -> Mapping[str, SecretValue]:
        """The present values of the run's secrets, by variable. Raises `UnusableSecret`."""
        rule = self.rules.get(run.runner, NO_SECRETS)
        for secret in run.options.run_secrets:
            # The settings may have changed since the automation was saved.
            if (problem := rule.problem_of(run.runner, secret.variable)) is not None:
                raise UnusableSecret(problem)
        ids = secrets.for_runs(tx, run.factory_id, (secret.name for secret in run.options.run_secrets))
        values = {}
        for secret in run.options.run_secrets:
            version = secrets.newest_version_id(tx, ids[secret.name]) if secret.name in ids else None
            if version is None:
                raise UnusableSecret(
                    f"The secret {secret.name} does not exist any more, so the command was not started. Create it with "
                    f"hookmill secret create {secret.name} --for-runs, or remove it from the automation."
                )
            try:
                values[secret.variable] = secrets.reveal(tx, version, self.master_keys)
            except WrongKey:
                raise UnusableSecret(
                    f"The secret {secret.name} can't be decrypted on this host, so the command was not started. Check "
                    f"the host's master key, or set a new value with hookmill secret replace {secret.name}."
                ) from None
        return values


def masker_of(values: Mapping[str, SecretValue]) -> Masker:
    return Masker([value.reveal().encode() for value in values.values()])


def masked_result(result: Ended, masker: Masker) -> Ended:
    """The result, with the secrets masked in each of its texts."""
    if not masker.is_needed:
        return result

    def masked(text: str | None) -> str | None:
        return masker.mask_text(text) if text is not None else None

    report = result.report
    if report is not None:
        report = replace(report, result=masked(report.result), model=masked(report.model))
    return replace(
        result,
        reason=masked(result.reason),
        output_tail=masked(result.output_tail),
        report=report,
    )
