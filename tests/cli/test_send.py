"""`hookmill send`, to a server that stores the requests."""

import json

import pytest

from hookmill.cli.send import Answer, summary
from hookmill.domain.delivery import Delivery, Label
from hookmill.domain.ids import DeliveryKey, WebhookUid, delivery_id
from tests.notices.receivers import closed_port, http_receiver
from tests.support.certificates import write_certificates
from tests.support.ports import free_port


def test_sample_has_the_token_of_the_webhook(webhook, hookmill, receiver):
    result = hookmill("send", "source", "--url", receiver.url)

    ((path, headers, _),) = receiver.requests
    assert path == f"/webhooks/w/{webhook['uid']}"
    assert headers["authorization"] == f"Bearer {webhook['secret']}"
    assert result.out.splitlines()[1:] == ["202 dlv_1"]


def test_sample_for_a_url_token_webhook_is_sent_to_the_complete_url(log, hookmill, receiver):
    webhook = hookmill("webhook", "create", "a", "--mode", "url_token", "--json").json

    hookmill("send", "a", "--url", receiver.url + "/behind/a/proxy/")

    ((path, headers, _),) = receiver.requests
    assert path == f"/behind/a/proxy/webhooks/w/{webhook['uid']}/{webhook['secret']}"
    assert "authorization" not in headers


def test_sample_goes_through_the_proxy_of_the_environment(webhook, hookmill, receiver, monkeypatch):
    monkeypatch.setenv("http_proxy", receiver.url)

    hookmill("send", "source", "--url", "http://hooks.invalid")

    ((path, _, _),) = receiver.requests
    assert path == f"http://hooks.invalid:80/webhooks/w/{webhook['uid']}"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_sample_for_a_service_on_this_host_goes_through_no_proxy(host, webhook, hookmill, receiver, monkeypatch):
    with closed_port() as port:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        hookmill("send", "source", "--url", receiver.url.replace("127.0.0.1", host))

    ((path, _, _),) = receiver.requests
    assert path == f"/webhooks/w/{webhook['uid']}"


def test_first_line_has_the_url_without_the_token(log, hookmill, receiver):
    webhook = hookmill("webhook", "create", "a", "--mode", "url_token", "--json").json

    result = hookmill("send", "a", "--url", receiver.url + "/")

    assert result.out.splitlines()[0] == f"To {receiver.url}/webhooks/w/{webhook['uid']}/{{token}} (webhook a):"


def test_secret_is_not_printed(webhook, hookmill, receiver):
    result = hookmill("send", "source", "--url", receiver.url, "--json")

    assert webhook["secret"] not in result.out + result.err


def test_chosen_body_is_sent_byte_for_byte(webhook, hookmill, receiver, tmp_path):
    content = b"{not \xff json\r\n"
    (tmp_path / "body").write_bytes(content)

    hookmill("send", "source", "--url", receiver.url, "--body", "-", stdin=content)
    hookmill("send", "source", "--url", receiver.url, "--data", f"@{tmp_path}/body")
    hookmill("send", "source", "--url", receiver.url, "--data", '{"ü": 1}')

    assert [body for _, _, body in receiver.requests] == [content, content, '{"ü": 1}'.encode()]


def test_each_sample_has_a_different_body(webhook, hookmill, receiver):
    result = hookmill("send", "source", "--url", receiver.url, "--times", "5")

    assert len({body for _, _, body in receiver.requests}) == 5
    assert result.out.splitlines()[1:] == ["202 dlv_1"] * 5


def test_event_id_is_sent_in_the_header_that_the_webhook_names(log, hookmill, receiver):
    hookmill("webhook", "create", "plain")
    hookmill("webhook", "create", "custom", "--delivery-id-header", "X-Event")

    hookmill("send", "plain", "--url", receiver.url, "--id", "evt_1")
    hookmill("send", "custom", "--url", receiver.url, "--id", "evt_2")

    (_, plain, _), (_, custom, _) = receiver.requests
    assert plain["x-service-delivery-id"] == "evt_1"
    assert custom["x-event"] == "evt_2"


def test_event_type_is_sent_where_deliveries_of_the_webhook_have_it(hookmill, log, receiver):
    signed = ("--mode", "signature", "--secret-from-stdin", "--scheme")
    hookmill("webhook", "create", "custom", "--event-header", "X-Kind")
    hookmill("webhook", "create", "github", *signed, "github", stdin=b"given-secret")
    hookmill("webhook", "create", "stripe", *signed, "stripe", stdin=b"given-secret")
    hookmill("webhook", "create", "none")

    for name in ("custom", "github", "stripe"):
        hookmill("send", name, "--url", receiver.url, "--event", "paid")

    (_, custom, _), (_, github, _), (_, _, stripe_body) = receiver.requests
    assert (custom["x-kind"], github["x-github-event"], json.loads(stripe_body)["type"]) == ("paid", "paid", "paid")
    error = hookmill("send", "none", "--url", receiver.url, "--event", "paid", exit_code=1).err
    assert "Deliveries of webhook 'none' have no event type" in error


def test_answer_in_json(webhook, hookmill, receiver):
    single = hookmill("send", "source", "--url", receiver.url, "--json").json
    several = hookmill("send", "source", "--url", receiver.url, "--json", "--times", "2").json

    answer = {
        "status": 202,
        "delivery_id": "dlv_1",
        "title": None,
        "retry_after": None,
        "label": None,
        "duplicate_of": None,
    }
    url = f"{receiver.url}/webhooks/w/{webhook['uid']}"
    assert single == answer | {"url": url}
    assert several == {"sent": [answer, answer], "url": url}


def test_duplicates_are_counted_and_name_the_accepted_delivery(webhook, log, hookmill, receiver):
    original = log.add_delivery(webhook["uid"])
    duplicate = log.add_delivery(webhook["uid"], Label.DUPLICATE, duplicate_of=original)
    receiver.answer = json.dumps({"delivery_id": duplicate}).encode()

    several = hookmill("send", "source", "--url", receiver.url, "--times", "2")
    fields = hookmill("send", "source", "--url", receiver.url, "--json").json

    assert several.out.splitlines()[1:] == [f"202 {duplicate}"] * 2 + [f"2 sent: 2 duplicates of {original}"]
    assert (fields["label"], fields["duplicate_of"]) == ("Duplicate", original)


def test_summary_counts_each_outcome():
    keys = [DeliveryKey(bytes([number]) * 16) for number in range(5)]
    originals = {0: None, 1: keys[0], 2: keys[0], 3: keys[4]}
    logged = {
        delivery_id(keys[number]): Delivery(
            key=keys[number],
            webhook_uid=WebhookUid("wh_1"),
            webhook_name="source",
            label=Label.DUPLICATE if original else Label.ACCEPTED,
            size=2,
            received_at=0,
            identity_kind=None,
            identity=None,
            duplicate_of=original,
        )
        for number, original in originals.items()
    }

    def answered(*statuses_and_ids: tuple[int, str | None]) -> list[Answer]:
        return [
            Answer(status=status, delivery_id=sent_id, title=None, retry_after=None)
            for status, sent_id in statuses_and_ids
        ]

    accepted, first, second, third = ((202, sent_id) for sent_id in logged)
    assert summary(answered(accepted), logged) == "1 sent: 1 accepted"
    assert summary(answered(accepted, first, second), logged) == (
        f"3 sent: 1 accepted, 2 duplicates of {delivery_id(keys[0])}"
    )
    assert summary(answered(accepted, first, third, (429, None), (202, "dlv_1")), logged) == (
        "5 sent: 1 accepted, 2 duplicates of 2 deliveries, 1 answered 429, 1 not in this log"
    )


def test_rejected_sample_is_printed_with_its_reason_and_exit_code_1(webhook, hookmill, receiver):
    receiver.status, receiver.headers = 429, {"Retry-After": "7"}
    receiver.answer = b'{"title": "Too many deliveries for now."}'

    result = hookmill("send", "source", "--url", receiver.url, exit_code=1)

    assert result.out.splitlines()[1:] == ["429 Too many deliveries for now. (retry in 7 s)"]


def test_control_characters_in_an_answer_are_escaped(webhook, hookmill, receiver):
    receiver.answer = b'{"delivery_id": "\\u001b[31m[red]"}'

    assert hookmill("send", "source", "--url", receiver.url).out.endswith("\n202 \\u001b[31m[red]\n")


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b"\xff", b'{"delivery_id": 1}'])
def test_answer_of_another_service_is_shown_by_its_status(webhook, hookmill, receiver, answer):
    receiver.status, receiver.answer = 502, answer

    assert hookmill("send", "source", "--url", receiver.url, exit_code=1).out.endswith("\n502 Bad Gateway\n")


def test_answer_to_an_unread_body_is_printed(webhook, hookmill, receiver):
    receiver.status, receiver.reads_body, receiver.answer = 413, False, b'{"title": "Too large."}'
    larger_than_socket_buffers = b"1" * 16_000_000

    result = hookmill(
        "send", "source", "--url", receiver.url, "--body", "-", stdin=larger_than_socket_buffers, exit_code=1
    )

    assert result.out.endswith("\n413 Too large.\n")


def test_error_says_that_nothing_listens(webhook, hookmill):
    url = f"http://127.0.0.1:{free_port()}"

    result = hookmill("send", "source", "--url", url, exit_code=1)

    assert result.err.startswith(f"Could not connect to {url}: Connection refused. If the service does not run, start")


@pytest.mark.parametrize(
    ("days", "trusts_authority", "error"),
    [
        (1, False, "unable to get local issuer certificate"),
        (-1, True, "certificate has expired"),
        (1, True, None),
    ],
)
def test_certificate_that_cannot_be_verified_is_named(webhook, hookmill, tmp_path, days, trusts_authority, error):
    ca, certificate, key = (tmp_path / name for name in ("ca.pem", "server.pem", "key.pem"))
    write_certificates(ca, certificate, key, days=days)
    options = ["--ca-file", str(ca)] if trusts_authority else []
    with http_receiver((certificate, key)) as https:
        url = f"https://127.0.0.1:{https.port}"

        result = hookmill("send", "source", "--url", url, *options, exit_code=1)

    if error is None:
        assert len(https.requests) == 1
    else:
        assert f"The certificate of {url} is not valid: {error}." in result.err
        assert "--ca-file" in result.err
        assert https.requests == []


@pytest.mark.parametrize("url", ["localhost:8420", "ftp://x", "http://", "http://[", "http://x:99999", "http://x/a b"])
def test_invalid_url_is_refused(webhook, hookmill, url):
    assert f"{url} is not the URL of a service" in hookmill("send", "source", "--url", url, exit_code=1).err


def test_secret_that_a_header_cannot_contain_is_not_printed(log, hookmill, receiver):
    hookmill("webhook", "create", "a", "--secret-from-stdin", stdin=b"two\nlines")

    result = hookmill("send", "a", "--url", receiver.url, exit_code=1)

    assert result.err.startswith(f"A header for {receiver.url} has characters that no header can have.")
    assert "two" not in result.err


def test_send_to_a_deleted_webhook_is_refused(webhook, hookmill):
    hookmill("webhook", "delete", "source", "--yes")

    assert "is permanently deleted" in hookmill("send", webhook["uid"], exit_code=1).err
