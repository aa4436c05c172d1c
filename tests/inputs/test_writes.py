"""What an operation of the API answers about a resource is what the next GET answers."""

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from hookmill.store import automations
from hookmill.web.api import PREFIX, application, operations
from hookmill.web.api.openapi import openapi_document
from tests.inputs.requests import BODIES, UNIQUE_NAME
from tests.inputs.service import InProcessService
from tests.support.service import Answer

NOT_COMPARED: Final = {"report_attempt", "replay_delivery", "cancel_runs", "plan_definitions", "apply_definitions"}
"""There is no attempt with a token, the automation is disabled, and an answer about many runs or changes is no
resource."""


def writes() -> Iterator[tuple[str, str, str, dict[str, Any] | None]]:
    """Each operation that changes something and answers about a resource: its id, method, path and each body."""
    for path, methods in openapi_document(application())["paths"].items():
        for method, operation in methods.items():
            name = operation["operationId"]
            if method in ("post", "patch", "put") and name not in NOT_COMPARED:
                for body in BODIES.get(name, [None]):
                    yield name, method.upper(), path.removeprefix(PREFIX), body


def test_answer_to_each_write_is_what_the_next_get_answers(service, subtests):
    readable = {
        operation.path.removeprefix(PREFIX) for operation in operations(application()) if operation.method == "GET"
    }
    compared: list[str] = []
    for number, (name, method, path, body) in enumerate(writes()):
        with subtests.test(name):
            pause_the_automation(service)
            raw = json.dumps(body).replace(UNIQUE_NAME, f"NAME_{number}") if body is not None else ""
            for variable, value in service.path_values.items():
                raw = raw.replace(f"{{{variable}}}", value)

            written = service.api.request(
                method, path.format(**service.path_values), key=service.api.admin, raw=raw.encode() or None
            )
            read = read_again(service, path, written, readable)

            if read is not None:
                compared.append(name)
                assert read.status == 200
                shared = written.json.keys() & read.json.keys()
                assert {key: written.json[key] for key in shared} == {key: read.json[key] for key in shared}
                if "etag" in written.headers:
                    assert written.headers["etag"] == read.headers["etag"]
    assert {"create_automation", "change_automation", "change_webhook", "rotate_webhook", "change_member"} <= {
        *compared
    }


def pause_the_automation(service: InProcessService):
    """Disable the automation as the service does after failures, so that its answer has a pause reason."""
    world = service.world
    with world.database.write() as tx:
        automation = automations.live_by_id(tx, world.management.automations.all(world.may)[0].id)
        assert automation is not None
        automations.pause(tx, automation, "Its last run failed.", world.clock())


def read_again(service: InProcessService, path: str, written: Answer, readable: set[str]) -> Answer | None:
    """The resource that the operation answered about; None if the operation answered something else."""
    assert written.status < 300, written.body
    if not written.body or not isinstance(written.json, dict):
        return None
    if (location := written.headers.get("location")) is not None:
        return service.api.get(location.removeprefix(PREFIX), key=service.api.admin)
    for parent in itertools.islice((path, path.rpartition("/")[0]), 2):
        if parent in readable:
            return service.api.get(parent.format(**service.path_values), key=service.api.admin)
    return None


def test_form_without_a_choice_of_the_secret_shows_the_generated_one(service):
    page = service.admin.post("/f/default/webhooks/new", {"/name": "shown", "/auth_mode": "token"}).body.decode()

    path = f"/webhooks/w/{service.management.webhooks.get(service.world.may, 'shown').uid}"
    [token] = set(re.findall(r"Bearer ([A-Za-z0-9_-]{20,})", page))
    headers = {"Authorization": f"Bearer {token}"}
    assert service.world.request("POST", path, headers=headers, body=b"{}").status == 202
