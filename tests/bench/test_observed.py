"""The process that observes the service under measurement."""

import json
import sys
from http.client import HTTPConnection
from urllib.request import urlopen

from bench.machine import free_port
from bench.observed import spans_by_result
from bench.process import serving_process

METRICS = """\
# TYPE hookmill_spans_total counter
hookmill_spans_total{process="ingress",result="sent"} 1500.0
hookmill_spans_total{process="worker",result="sent"} 500.0
hookmill_spans_total{process="ingress",result="dropped"} 7.0
hookmill_runs_ready 3.0
"""


def test_spans_of_all_processes_are_added_by_their_result():
    assert spans_by_result(METRICS) == {"sent": 2_000, "dropped": 7}


def test_collector_accepts_and_counts_all_traces():
    port, metrics_port = free_port(), free_port()
    command = [sys.executable, "-m", "bench.observed", str(port), str(metrics_port)]
    with serving_process(command, port=port):
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        for _ in range(2):
            connection.request("POST", "/v1/traces", body=b"anything")
            response = connection.getresponse()
            assert (response.status, response.read()) == (200, b"")
        connection.close()
        with urlopen(f"http://127.0.0.1:{port}/", timeout=10) as response:
            counts = json.loads(response.read())

    assert counts == {"scrapes": 0, "requests_with_spans": 2}
