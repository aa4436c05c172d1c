"""What is taken over from an agent's report: only values that can be what they claim to be."""

import math

import pytest

from hookmill.domain.agent_report import RESULT_CHARACTERS_MAX, AgentReport, agent_report


def test_report_has_the_values_of_the_agent():
    report = agent_report("Looks good.\n", cost_usd=0.0123, input_tokens=1200, output_tokens=34)

    assert report == AgentReport(result="Looks good.\n", cost_microusd=12_300, input_tokens=1200, output_tokens=34)


def test_long_result_is_cut_and_marked():
    report = agent_report("x" * (RESULT_CHARACTERS_MAX + 1))

    assert report == AgentReport(result="x" * RESULT_CHARACTERS_MAX, is_result_cut=True)


def test_characters_that_no_database_or_terminal_accepts_are_replaced():
    assert agent_report("a\0b\ud83d\x1b[31m\u202e") == AgentReport(result="a\ufffdb\ufffd\ufffd[31m\ufffd")


@pytest.mark.parametrize("value", [True, -1, 1.5, "12", None, [], 10**16, float("nan")])
def test_unusable_numbers_of_tokens_are_left_out(value):
    assert agent_report("done", input_tokens=value, output_tokens=value) == AgentReport(result="done")


@pytest.mark.parametrize("value", [True, -0.1, "0.1", math.nan, math.inf, 1e300, 1e308, 10**4_000, None, {}])
def test_unusable_cost_is_left_out(value):
    assert agent_report("done", cost_usd=value) == AgentReport(result="done")


@pytest.mark.parametrize("result", [None, "", " \n", 7, ["done"]])
def test_report_without_any_usable_value_is_none(result):
    assert agent_report(result) is None
