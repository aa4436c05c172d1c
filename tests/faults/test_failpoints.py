"""A crash or an error at every step of the transaction that admits: afterwards it is as if nothing had been, or as if
all had been."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

import pytest

from hookmill.domain.permission import MayManage
from hookmill.management import Management, WebhookWithSecret
from tests.faults.audit import count_rows
from tests.faults.plant import Steps, serving_planted
from tests.faults.senders import Line, ask, at_one_instant, request
from tests.support.service import Answer, Service, operator
from tests.support.waiting import until

STEPS_MAX = 30
"""More steps than an admission has."""
BATCH = 6
ROUNDS_MAX = 30


@dataclass(frozen=True, slots=True)
class Scene:
    service: Service
    steps: Steps
    url: str

    def post(self, made: WebhookWithSecret, body: bytes) -> Answer:
        answer = ask(self.service.port, request(made, body))
        assert answer is not None
        return answer

    def repeat(self, made: WebhookWithSecret, body: bytes) -> Answer:
        """As a sender does, until it is no longer told to come again."""

        def taken() -> Answer | None:
            answer = self.post(made, body)
            return answer if answer.status != 503 else None

        return until(taken, "the repeat is answered")

    def webhook(self, management: Management, may: MayManage, name: str) -> WebhookWithSecret:
        """One that an automation listens to."""
        made = management.webhooks.create(may, name)
        trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [made.webhook.uid]}}
        management.automations.create(may, name, prompt="Look.", triggers=[trigger])
        return made

    def count(self, made: WebhookWithSecret) -> tuple[int, ...]:
        """How many rows of each kind the webhook has: Accepted, Duplicate, others, identities, payloads, runs."""
        return count_rows(self.url, made.webhook.no)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("failpoints")
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None
    url = server.create_database() if server is not None else None
    steps = Steps(directory / "order")
    with serving_planted(
        directory / "data",
        {"STEPS": str(steps.path)},
        database_url=url,
        deliveries_per_minute=BATCH,
        performs_runs=False,
        webhooks_per_factory=1000,
        master_key="A" * 43 + "=",
    ) as service:
        yield Scene(service, steps, service.read_settings().store_url())
    if server is not None and url is not None:
        server.drop_database(url)


@pytest.mark.parametrize("how", ["kill", "raise"])
@pytest.mark.timeout(240)
def test_an_admission_that_fails_at_any_step_is_repeated_safely(scene: Scene, how: Literal["kill", "raise"]):
    struck: list[str] = []
    with scene.service.management() as management:
        may = operator(management)
        for step in range(1, STEPS_MAX):
            made = scene.webhook(management, may, f"{how}-{step}")
            scene.steps.fail_at(step, how)
            first = scene.post(made, b'{"event": 1}')
            name = scene.steps.struck
            if name is None:
                scene.steps.withdraw()
                break
            struck.append(name)
            was_kept = name == "after COMMIT"

            assert first.status == 503, name
            assert first.headers["retry-after"]
            assert scene.count(made) == ((1, 0, 0, 1, 1, 1) if was_kept else (0, 0, 0, 0, 0, 0)), name
            second = scene.repeat(made, b'{"event": 1}')
            assert second.status == 202, name
            assert scene.count(made) == ((1, 1, 0, 1, 1, 1) if was_kept else (1, 0, 0, 1, 1, 1)), name
            # What was rolled back has spent nothing of the minute's budget.
            more = [scene.post(made, b"[%d]" % number).status for number in range(BATCH)]
            spent = 2 if was_kept else 1
            assert more == [202] * (BATCH - spent) + [429] * spent, name
    print(f"{how}: {struck}")

    assert struck[-2:] == ["COMMIT", "after COMMIT"]
    assert len(struck) >= 7, "state, rate, identity, log, payload, run, COMMIT"


def test_an_error_fails_its_own_transaction_and_none_after_it(scene: Scene):
    with ExitStack() as stack:
        management = stack.enter_context(scene.service.management())
        lines = [stack.enter_context(Line(scene.service.port)) for _ in range(16)]

        def round_(number: int) -> tuple[list[WebhookWithSecret], list[int]]:
            """As many webhooks as lines, and what each was answered when the first transaction failed."""
            may = operator(management)
            made = [scene.webhook(management, may, f"shared-{number}-{place}") for place in range(len(lines))]
            scene.steps.fail_at(3, "raise")
            answers = at_one_instant(lines, [request(each, b"1") for each in made])
            assert scene.steps.struck is not None
            return made, [answer.status for answer in answers if answer is not None]

        # How many share a transaction is left to chance.
        rounds = (round_(number) for number in range(ROUNDS_MAX))
        made, statuses = next(found for found in rounds if found[1].count(503) > 1)
    print(f"{statuses.count(503)} of {len(statuses)} shared the transaction")

    assert set(statuses) <= {202, 503}
    assert [scene.count(each)[0] for each in made] == [int(status == 202) for status in statuses]
    assert [scene.repeat(each, b'"once more"').status for each in made] == [202] * len(made)
