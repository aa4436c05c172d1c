"""The admission transaction: it checks revisions and rate limits, claims identities, and writes log rows and runs."""

import random
import time
from collections import defaultdict
from itertools import islice

import msgspec
import pytest
from msgspec import structs
from sqlalchemy.exc import IntegrityError

from hookmill.domain.authentication import Authentic
from hookmill.domain.delivery import Accepted, Duplicate, Label, RateLimited, Rejected
from hookmill.store.admission import window_counts
from hookmill.store.admission.plan import Acceptance, Plan, Rejection
from hookmill.store.admission.transaction import WINDOW_US, PlanOutcome, Stale, add_dropped_counts
from tests.support.automations import automation_changed, automation_created
from tests.support.triggers import received

REJECTED = [Label.REJECTED_AUTH, Label.REJECTED_INVALID_JSON, Label.REJECTED_TOO_LARGE]


def test_accepted_attempt_stores_row_body_identity_and_runs(store):
    webhook = store.webhook()
    plan = store.plan(webhook, "event-1", body=b"[1]", runs=[store.run("aut_a"), store.run("aut_b")])

    [outcome] = store.admit(plan)

    assert outcome == Accepted(plan.delivery_key)
    [row] = store.rows("deliveries")
    assert (bytes(row["id"]), row["webhook_no"], row["received_at"]) == (plan.delivery_key, webhook.no, store.clock.now)
    assert (row["label"], row["rate_limit"], row["size"], row["identity"]) == (1, 1, 3, "event-1")
    assert (row["duplicate_of"], row["reason"]) == (None, None)
    assert [bytes(row["body"]) for row in store.rows("payloads")] == [b"[1]"]
    assert [bytes(row["delivery_id"]) for row in store.rows("identities")] == [plan.delivery_key]
    assert sorted((row["automation_id"], row["state"], row["attempt"]) for row in store.rows("runs")) == [
        ("aut_a", "queued", 0),
        ("aut_b", "queued", 0),
    ]


@pytest.mark.parametrize("label", REJECTED)
def test_rejected_attempt_stores_only_a_row_with_the_reason(store, label):
    webhook = store.webhook()

    outcomes = store.admit(store.rejection(webhook, label, reason="because"))

    assert outcomes == [Rejected(label)]
    [row] = store.rows("deliveries")
    assert (row["label"], row["reason"]) == (int(label), "because")
    assert (row["identity_kind"], row["identity"], row["identity_digest"]) == (None, None, None)
    assert [store.count(table) for table in ("payloads", "identities", "runs")] == [0, 0, 0]


def test_empty_batch_has_no_outcomes(store):
    assert store.admit() == []


def test_only_the_first_copy_in_a_batch_is_accepted(store):
    webhook = store.webhook()
    first, *copies = [store.plan(webhook, "event-1", runs=[store.run("aut_a")]) for _ in range(4)]

    outcomes = store.admit(first, *copies)

    assert outcomes == [
        Accepted(first.delivery_key),
        *(Duplicate(copy.delivery_key, first.delivery_key) for copy in copies),
    ]
    assert (store.count("runs"), store.count("payloads"), store.count("identities")) == (1, 1, 1)


def test_duplicate_stores_its_identity_but_no_body(store):
    webhook = store.webhook()

    store.admit(store.plan(webhook, "a"), store.plan(webhook, "a"))

    rows = store.rows("deliveries")
    assert sorted((row["label"], row["identity"]) for row in rows) == [(1, "a"), (2, "a")]
    assert store.count("payloads") == 1


def test_replay_with_another_id_is_a_duplicate_and_claims_no_id(store):
    webhook = store.webhook()
    first, in_same_batch, later = [store.plan(webhook, event, fingerprint=b"content 1") for event in ("a", "b", "c")]
    other_content = store.plan(webhook, "c", fingerprint=b"content 2")

    outcomes = [*store.admit(first, in_same_batch), *store.admit(later), *store.admit(other_content)]

    assert outcomes == [
        Accepted(first.delivery_key),
        Duplicate(in_same_batch.delivery_key, first.delivery_key),
        Duplicate(later.delivery_key, first.delivery_key),
        Accepted(other_content.delivery_key),
    ]


@pytest.mark.parametrize("batches", [[1, 1, 1, 1], [1, 2, 1], [2, 2], [4]], ids=["1+1+1+1", "1+2+1", "2+2", "4"])
def test_replay_of_a_retry_is_a_duplicate_of_the_accepted_delivery(store, batches):
    webhook = store.webhook()
    first = store.plan(webhook, "a", fingerprint=b"content at 1 s")
    copies = [store.plan(webhook, event, fingerprint=b"content at 2 s") for event in ("a", "a", "b")]
    waiting = iter([first, *copies])

    outcomes = [outcome for size in batches for outcome in store.admit(*islice(waiting, size))]

    duplicates = [Duplicate(copy.delivery_key, first.delivery_key) for copy in copies]
    assert outcomes == [Accepted(first.delivery_key), *duplicates]
    owners = [bytes(row["delivery_id"]) for row in store.rows("identities")]
    assert owners == [first.delivery_key] * 3, "the event id and both signed contents"


def test_same_signed_content_at_two_webhooks_is_not_a_replay(store):
    plans = [store.plan(store.webhook(name), "a", fingerprint=b"content 1") for name in ("one", "other")]

    assert store.admit(*plans) == [Accepted(plan.delivery_key) for plan in plans]


def test_rows_far_ahead_of_a_clock_that_was_set_back_do_not_count(store):
    webhook = store.webhook()
    store.admit(*(store.plan(webhook, per_minute=60, at=3_600.0) for _ in range(60)))

    [outcome] = store.admit(store.plan(webhook, per_minute=60))

    assert isinstance(outcome, Accepted)


@pytest.mark.parametrize("revision", [0, 2, 99])
def test_plan_for_another_revision_is_stale_and_writes_nothing(store, revision):
    webhook, other = store.webhook(), store.webhook("other")
    outdated = store.plan(webhook, "a", revision=revision)
    current = store.plan(other, "a")

    assert store.admit(outdated, current) == [Stale(), Accepted(current.delivery_key)]
    assert store.count("deliveries") == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda management, may: management.webhooks.set_enabled(may, "source", False),
        lambda management, may: management.webhooks.rotate(may, "source"),
        lambda management, may: management.webhooks.delete(may, "source"),
        lambda management, may: management.automations.set_enabled(may, "triage", False),
        lambda management, may: automation_changed(management, may, "triage", prompt="Look again."),
        lambda management, may: management.automations.delete(may, "triage"),
    ],
    ids=["disable", "rotate", "delete", "disable automation", "change automation", "delete automation"],
)
def test_change_of_webhook_or_automation_makes_plans_stale(store, change):
    webhook, other = store.webhook(), store.webhook("other")
    trigger = received(webhook.uid)
    automation_created(store.management, store.may, "triage", triggers=[trigger])
    webhook = store.management.webhooks.get(store.may, "source")
    plans = [store.plan(webhook), store.plan(other)]

    change(store.management, store.may)

    assert [type(outcome) for outcome in store.admit(*plans)] == [Stale, Accepted]


def test_delivery_with_two_runs_of_an_automation_fails_its_batch(store):
    webhook = store.webhook()
    faulty = store.plan(webhook, runs=[store.run("aut_a"), store.run("aut_a")])

    with pytest.raises(IntegrityError):
        store.admit(store.plan(webhook), faulty)

    assert [store.count(table) for table in ("deliveries", "payloads", "identities", "runs")] == [0, 0, 0, 0]


def test_batch_of_any_size_is_admitted(store):
    webhook = store.webhook()
    bodies: dict[bytes, bytes] = {}
    for count in (1, 2, 3, 255, 256, 1_023, 1_025, 2_100):
        plans = [store.plan(webhook, body=b"%d" % i, runs=[store.run("aut_a")]) for i in range(count)]

        assert store.admit(*plans) == [Accepted(plan.delivery_key) for plan in plans]

        bodies |= {plan.delivery_key: plan.body for plan in plans}
    assert {bytes(row["delivery_id"]): bytes(row["body"]) for row in store.rows("payloads")} == bodies
    assert store.count("runs") == len(bodies)


def test_dropped_attempts_are_counted_by_webhook_minute_and_kind(store):
    one, other = store.webhook("one").no, store.webhook("other").no
    for counts in (
        [(one, 0, "not_found", 2), (one, 60, "not_found", 1), (other, 0, "not_found", 1)],
        [(one, 0, "not_found", 3), (one, 0, "rate_limited", 5)],
        [],
    ):
        with store.database.write() as tx:
            add_dropped_counts(tx, counts)

    stored = {(row["webhook_no"], row["minute"], row["kind"]): row["count"] for row in store.rows("dropped_attempts")}
    assert stored == {
        (one, 0, "not_found"): 5,
        (one, 60, "not_found"): 1,
        (other, 0, "not_found"): 1,
        (one, 0, "rate_limited"): 5,
    }


def test_two_counts_for_one_minute_in_one_call_are_both_added(store):
    no = store.webhook().no

    with store.database.write() as tx:
        add_dropped_counts(tx, [(no, 0, "not_found", 2), (no, 0, "not_found", 3)])

    assert [row["count"] for row in store.rows("dropped_attempts")] == [5]


def test_random_batches_are_admitted_like_single_attempts(store):
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)
    webhooks = [store.webhook(name) for name in "abc"]
    model = AdmissionModel()

    now = 0.0
    for _ in range(60):
        now += chance.choice([0.0, 0.0, 1.0, 7.5, 60.0])
        plans: list[Plan] = []
        for _ in range(chance.randrange(1, 9)):
            webhook = chance.choice(webhooks)
            if chance.random() < 0.1:
                webhook = structs.replace(webhook, revision=webhook.revision + 1)
            at = now - chance.choice([0.0, 0.0, 0.0, 3.0, 59.999_999, 60.0])
            label = chance.choice([None, None, *REJECTED])
            if label is None:
                fingerprint = chance.choice([None, bytes([chance.randrange(20)])])
                plans.append(store.plan(webhook, chance.choice("vwxyz"), at=at, per_minute=5, fingerprint=fingerprint))
            else:
                plans.append(store.rejection(webhook, label, at=at, per_minute=5))
        assert store.admit(*plans) == [model.admit(plan) for plan in plans]
    assert store.count("deliveries") == len(model.log)


class AdmissionModel:
    """The rules of admission, for one attempt at a time and in memory."""

    def __init__(self):
        self.log: list[Plan] = []
        self.owners: dict[tuple[int, bytes], bytes] = {}
        self.counted_times: defaultdict[tuple[int, int], list[int]] = defaultdict(list)

    def admit(self, plan: Plan) -> PlanOutcome:
        if plan.revision != 1:
            return Stale()
        counted_times = self.counted_times[plan.webhook_no, plan.rate_limit]
        in_window = sorted(at for at in counted_times if abs(at - plan.received_at) < WINDOW_US)
        if len(in_window) >= plan.per_minute:
            opens_at = in_window[-plan.per_minute] + WINDOW_US
            return RateLimited(max(1, -(-(opens_at - plan.received_at) // 1_000_000)), opens_at)
        counted_times.append(plan.received_at)
        self.log.append(plan)
        if isinstance(plan, Rejection):
            return Rejected(plan.label)
        signed_content = (plan.webhook_no, plan.signed_content_digest or plan.delivery_key)
        owner = self.owners.get(signed_content)
        if owner is None:
            owner = self.owners.setdefault((plan.webhook_no, plan.identity.digest), plan.delivery_key)
            self.owners[signed_content] = owner
        return Accepted(plan.delivery_key) if owner == plan.delivery_key else Duplicate(plan.delivery_key, owner)  # type: ignore[arg-type]


def test_acceptance_cannot_be_created_without_a_proof(store):
    fields = msgspec.structs.asdict(store.plan(store.webhook()))
    del fields["proof"]

    with pytest.raises(TypeError, match="proof"):
        Acceptance(**fields)
    with pytest.raises(TypeError, match="mode"):
        Authentic()  # type: ignore[call-arg]


def test_counts_of_periods_admit_the_same_plans_as_counted_rows(store):
    with_counts, with_rows = store.webhook("counts"), store.webhook("rows")
    limit = window_counts.ROWS_COUNTED_MAX + 1
    chance = random.Random(17)
    # Sometimes the clock jumps back or ahead, also by more than all counted periods.
    clock, outcome_types = 0.0, set()
    for _ in range(60):
        clock += chance.choice([0, 1, 3, 7]) if chance.random() < 0.8 else chance.choice([-400, -90, -5, 20, 70, 300])
        times = [clock + chance.random() * 3 for _ in range(chance.choice([5, 150, 256]))]
        outcomes = [
            store.admit(
                *(store.plan(webhook, at=at, per_minute=limit) for at in times),
                has_window_counts=webhook is with_counts,
            )
            for webhook in (with_counts, with_rows)
        ]

        by_counts, by_rows = ([outcome_without_key(outcome) for outcome in batch] for batch in outcomes)
        assert by_counts == by_rows
        outcome_types.update(type(outcome) for outcome in outcomes[0])
    assert outcome_types == {Accepted, RateLimited}


def outcome_without_key(outcome: PlanOutcome) -> object:
    return Accepted if isinstance(outcome, Accepted) else outcome


def test_counts_of_periods_use_a_bounded_number_of_rows(store):
    webhook = store.webhook()
    for second in range(0, 2_000, 3):
        store.admit(store.plan(webhook, at=second))

    assert 0 < store.count("window_counts") <= 40


def test_counts_replaced_under_a_fast_clock_still_limit_the_rate(store):
    webhook = store.webhook()
    limit = window_counts.ROWS_COUNTED_MAX + 1
    store.admit(*(store.plan(webhook, per_minute=limit) for _ in range(limit)))
    store.admit(*(store.plan(webhook, at=second, per_minute=limit) for second in range(800, 1_000, 4)))

    [outcome] = store.admit(store.plan(webhook, at=1, per_minute=limit), has_window_counts=True)

    assert isinstance(outcome, RateLimited)
