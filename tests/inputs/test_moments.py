"""Times outside the calendar are refused as inputs. If they are stored, the calendar's first or last time is shown."""

from datetime import UTC, datetime, timedelta

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.permission import Role
from hookmill.web.api.idempotency import IdempotentRequest

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES_OUTSIDE = [
    "9999-12-31T23:59:59-23:59",
    "9999-12-31T23:59:59.999999999999-00:01",
    "0001-01-01T00:00:00+00:01",
    "0001-01-01T00:00:00+23:59",
]
STORED_TIMES = [
    (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1) + 1,
    253_402_387_139_000_000,
    2**63 - 1,
    -(2**63),
]
"""Times after the last year, and the greatest and least values of the column. In microseconds since 1970."""


@pytest.mark.parametrize("expires_at", TIMES_OUTSIDE)
def test_api_refuses_a_key_that_expires_outside_the_calendar(service, expires_at):
    body = {"name": "x", "role": "viewer", "factory": "default", "expires_at": expires_at}

    answer = service.api.post("/keys", body, key=service.api.admin)

    assert (answer.status, answer.json["errors"][0]["pointer"]) == (422, "/expires_at")
    assert [key.name for key in service.management.keys.all(service.api.team)].count("x") == 0
    assert service.api.get("/keys", key=service.api.admin).status == 200


def test_key_is_not_created_if_its_answer_fails(service):
    def create_key():
        service.management.keys.create(service.api.team, "x", Role.ADMIN)
        raise OverflowError("the answer")

    with pytest.raises(OverflowError):
        IdempotentRequest(service.management, None, b"", b"").respond(service.api.team, create_key)

    assert "x" not in [key.name for key in service.management.keys.all(service.api.team)]


@pytest.mark.parametrize("expires_at", STORED_TIMES[:3])
def test_management_refuses_a_key_that_expires_outside_the_calendar(service, expires_at):
    with pytest.raises(Invalid, match="expire") as error:
        service.management.keys.create(service.api.team, "x", Role.ADMIN, expires_at=expires_at)

    assert error.value.faults[0].pointer == "/expires_at"


@pytest.mark.parametrize("time", TIMES_OUTSIDE)
def test_filter_with_a_time_outside_the_calendar_is_refused(service, time):
    for name in ("since", "until"):
        api_answer = service.api.get(f"/factories/default/deliveries?{name}={time.replace('+', '%2B')}")
        page_answer = service.admin.get(f"/f/default/deliveries?{name}={time.replace('+', '%2B')}")

        assert (api_answer.status, api_answer.json["errors"][0]["parameter"]) == (422, name)
        assert page_answer.status == 422
        assert "Invalid time" in page_answer.body.decode()


@pytest.mark.parametrize("time_us", STORED_TIMES)
def test_stored_time_outside_the_calendar_is_shown_as_its_edge(service, time_us):
    key_id = service.path_values["key"]
    with service.world.database.write() as tx:
        tx.run(
            "UPDATE api_keys SET expires_at = :at, created_at = :at, last_used_at = :at WHERE id = :id",
            at=time_us,
            id=key_id,
        )
        tx.run("UPDATE audit_log SET details = :details, at = :at", details=f'{{"expires_at": {time_us}}}', at=time_us)
        tx.run("UPDATE members SET created_at = :at", at=time_us)
        tx.run("UPDATE webhooks SET created_at = :at", at=time_us)
        tx.run("UPDATE automations SET created_at = :at, updated_at = :at", at=time_us)
        tx.run("UPDATE deliveries SET received_at = :at", at=time_us)
        tx.run("UPDATE runs SET state = 'failed', created_at = :at, started_at = :at, finished_at = :at", at=time_us)
        tx.run("UPDATE secrets SET created_at = :at", at=time_us)

    service.require_success_everywhere()
    (key,) = [key for key in service.api.get("/keys", key=service.api.admin).json["items"] if key["key_id"] == key_id]
    edge = "9999-12-31T23:59:59.999999Z" if time_us > 0 else "0001-01-01T00:00:00.000000Z"
    assert (key["expires_at"], key["created_at"]) == (edge, edge)
