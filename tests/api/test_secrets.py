"""Only the answer that creates a secret contains it: no list, no error, and no retry of another request."""

import json
from typing import Any

import pytest

from hookmill.domain.permission import Role
from hookmill.web.api import application, operations
from tests.api.client import Api, StockedFactory
from tests.support.service import Answer

WEBHOOKS = "/factories/default/webhooks"
CANARY = "canary.of-the~provider_0123456789"


class RecordedApi:
    """An API with a record of all its answers."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.answers: list[tuple[str, Answer]] = []
        """Each answer, after the method and the path of its request."""

    def request(self, method: str, path: str, body: Any = None, **choices: Any) -> Answer:
        answer = self.api.request(method, path, body, key=choices.pop("key", self.api.admin), **choices)
        self.answers.append((f"{method} {path}", answer))
        return answer

    def requests_revealing(self, secret: str) -> list[str]:
        """The requests whose answers contain the secret."""
        return [
            request
            for request, answer in self.answers
            if secret in answer.body.decode("utf-8", "replace") + json.dumps(dict(answer.headers))
        ]


def read_everything(recorded: RecordedApi, stocked: StockedFactory) -> None:
    for each in operations(application()):
        if each.method == "GET":
            recorded.request("GET", each.path.removeprefix("/api/v1").format(**stocked.path_parameters))
    for noun in ("webhooks?deleted=true", "deliveries?label=rejected_auth", "audit-log?limit=200"):
        recorded.request("GET", f"/factories/default/{noun}")


def test_only_the_creating_answer_contains_a_generated_secret(api, stocked):
    recorded = RecordedApi(api)
    by_url = recorded.request("POST", WEBHOOKS, {"name": "by URL too", "auth_mode": "url_token"}).json
    secrets_by_request = {
        "POST " + WEBHOOKS: by_url["secret"],
        f"POST {WEBHOOKS}/{stocked.webhook.webhook.uid}/rotate": recorded.request(
            "POST", f"{WEBHOOKS}/{stocked.webhook.webhook.uid}/rotate"
        ).json["secret"],
        "POST /factories/default/secrets": recorded.request(
            "POST", "/factories/default/secrets", {"name": "GENERATED"}
        ).json["value"],
        f"PUT /factories/default/secrets/{stocked.secret_name}": recorded.request(
            "PUT", f"/factories/default/secrets/{stocked.secret_name}"
        ).json["value"],
        "POST /keys": recorded.request("POST", "/keys", {"name": "new", "role": "admin"}).json["token"],
    }
    for secret in secrets_by_request.values():
        # The log contains a failed authentication with a similar secret.
        api.world.post(stocked.webhook, b"{}", token=f"{secret}x")
    recorded.request("PATCH", f"{WEBHOOKS}/{by_url['uid']}", {"name": "renamed"})
    recorded.request("POST", f"{WEBHOOKS}/{by_url['uid']}/sync")
    read_everything(recorded, stocked)

    assert len(recorded.answers) > 30
    assert {secret: recorded.requests_revealing(secret) for secret in secrets_by_request.values()} == {
        secret: [request] for request, secret in secrets_by_request.items()
    }
    assert by_url["url"].endswith(f"/{by_url['secret']}")


def test_no_answer_contains_a_supplied_secret(api, stocked):
    recorded = RecordedApi(api)
    uid = stocked.webhook.webhook.uid
    requests = [
        ("POST", WEBHOOKS, {"name": "by header", "secret": CANARY}),
        ("POST", WEBHOOKS, {"name": "by URL", "auth_mode": "url_token", "secret": CANARY}),
        ("POST", f"{WEBHOOKS}/{uid}/rotate", {"secret": CANARY}),
        ("POST", "/factories/default/secrets", {"name": "SUPPLIED", "value": CANARY}),
        ("PUT", f"/factories/default/secrets/{stocked.secret_name}", {"value": CANARY}),
    ]
    for number, (method, path, body) in enumerate(requests):
        headers = {"Idempotency-Key": f"request {number}"} if method == "POST" else {}
        assert recorded.request(method, path, body, headers=headers).status in (200, 201)
        recorded.request(method, path, body, headers=headers)
    read_everything(recorded, stocked)

    assert recorded.requests_revealing(CANARY) == []


@pytest.mark.parametrize(
    "body",
    [
        {"name": "x", "secret": [CANARY]},
        {"name": "x", "secret": {"value": CANARY}},
        {"name": "x", "secret": CANARY, "auth_mode": CANARY},
        {"name": "x", "secret": CANARY + "\x00"},
        {"name": "x", "secret": CANARY * 200},
        {"name": "x", "secret": f"{CANARY} with a space", "auth_mode": "url_token"},
        {"name": "x", "auth_mode": "signature", "signature_scheme": "standard_webhooks", "secret": f"whsec_{CANARY}"},
        {"name": "x", "secret_name": "lower", "secret": CANARY, "unknown": CANARY},
        {"name": "x", "delivery_id_header": f"{CANARY} {CANARY}"},
        {"name": "x", "signature_options": {"secret": CANARY}},
        {"name": "x", "enabled": CANARY},
        [CANARY],
        CANARY,
    ],
    ids=repr,
)
def test_refusal_does_not_contain_the_supplied_secret(api, body):
    recorded = RecordedApi(api)

    answer = recorded.request("POST", WEBHOOKS, body)

    assert 400 <= answer.status < 500
    assert recorded.requests_revealing(CANARY) == []


def test_refusal_of_invalid_json_does_not_contain_the_body(api):
    answer = api.post(WEBHOOKS, raw=f'{{"secret": "{CANARY}", '.encode())

    assert answer.status == 400
    assert CANARY.encode() not in answer.body


@pytest.mark.parametrize("where", ["header", "query", "path"])
def test_refusal_does_not_contain_a_misplaced_key(api, where):
    token = api.key("misplaced", Role.ADMIN)
    answer = {
        "header": lambda: api.get("/me", key="", headers={"Authorization": f"Basic {token}"}),
        "query": lambda: api.get(f"/factories/default/deliveries?cursor={token}"),
        "path": lambda: api.get(f"/factories/default/webhooks/{token}"),
    }[where]()

    assert answer.status in (401, 404, 422)
    assert token.encode() not in answer.body
