"""Agents as runners: what they get, what they must not show, and what is read from their output."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import ValidationError

from hookmill.domain.agent_report import ERROR_CHARACTERS_MAX, RESULT_CHARACTERS_MAX, AgentReport, reason_with_error
from hookmill.domain.errors import Invalid
from hookmill.domain.masking import Masker
from hookmill.domain.run import BySchedule, Ended, RunState
from hookmill.domain.run_outputs import LAST_MESSAGE, OUTPUT_BYTES_MAX, OutputText
from hookmill.runs.package import Package, write_package
from hookmill.runs.runners import AgentSettings, RunnerContext
from hookmill.runs.runners.agent import AGENT_TAIL_BYTES
from hookmill.runs.runners.agent_presets import AGENT_PRESETS
from hookmill.runs.runners.guard import CapturedOutput
from tests.inputs.extreme_payloads import EXTREME_VALUES
from tests.runs.samples import always_continue, sample_run
from tests.support.claude_code import claude_code
from tests.support.model_endpoint import ANSWER, model_endpoint

KEY = "sk-canary-0123456789"
DESCRIBING_AGENT = """
import json, os, sys
print("not JSON", os.environ.get("ANTHROPIC_API_KEY"), flush=True)
report = {"arguments": sys.argv[1:], "input": sys.stdin.read(), "environment": dict(os.environ)}
print(json.dumps({"type": "result", "result": json.dumps(report), "total_cost_usd": 0.25, "is_error": False}))
"""


@pytest.fixture
def package(tmp_path):
    return write_package(tmp_path / "runs", sample_run(), b'{"a": "text of the payload"}')


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("AGENT_KEY", KEY)


def script(directory: Path, program: str) -> str:
    """The path of an executable program in Python."""
    path = directory / "agent"
    path.write_text(f"#!{sys.executable} -IS\n{program}")
    path.chmod(0o755)
    return str(path)


def perform(package: Package, agent: str = "claude", **settings: Any) -> Ended:
    runner = AgentSettings(agent=agent, **{"key_from": "AGENT_KEY", **settings}).create_runner(RunnerContext())
    result = runner.run(package, always_continue)
    assert isinstance(result, Ended)
    return result


@pytest.mark.usefixtures("key")
def test_agent_gets_its_prompt_as_a_file_and_its_key_as_a_variable(package, tmp_path):
    result = perform(package, program=script(tmp_path, DESCRIBING_AGENT), model="m-1", arguments=["--tool", "Read"])

    assert result.state is RunState.SUCCEEDED
    assert result.report is not None
    seen = json.loads(result.report.result or "")
    assert seen["arguments"] == [
        "--print", "--bare", "--no-session-persistence", "--output-format", "stream-json", "--verbose",
        "--model", "m-1", "--tool", "Read",
    ]  # fmt: skip
    assert seen["input"] == package.prompt_file.read_text()
    assert "text of the payload" not in seen["input"]
    assert seen["environment"]["DISABLE_AUTOUPDATER"] == "1"
    assert "AGENT_KEY" not in seen["environment"]
    # The output had the key, and the result is read from the output.
    assert seen["environment"]["ANTHROPIC_API_KEY"] == "[masked]"
    assert result.report.cost_microusd == 250_000


@pytest.mark.usefixtures("key")
def test_key_of_an_agent_is_in_no_file_and_no_result(package, tmp_path):
    result = perform(package, program=script(tmp_path, DESCRIBING_AGENT))

    assert KEY not in repr(result)
    assert "not JSON [masked]\n" in (package.directory / "output.log").read_text()
    assert [path for path in package.directory.iterdir() if KEY in path.read_text()] == []


def test_key_is_masked_wherever_the_output_is_divided(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = f"{KEY}, {KEY}{KEY[:9]}; {KEY[:-1]}".encode()

    for size in range(1, len(text) + 1):
        output = CapturedOutput(1_000, secrets=[KEY[:10].encode(), KEY.encode()])
        for start in range(0, len(text), size):
            output.add(text[start : start + size])
        output.finish()
        # The shorter secret is the beginning of the longer one. It may be masked first, but nothing of it stays.
        assert b"sk-canary-" not in output.tail, size
        assert (tmp_path / "output.log").read_bytes() == output.tail


@pytest.mark.usefixtures("key")
def test_result_is_found_behind_output_that_is_not_stored(package, tmp_path):
    program = f"""
print("{{" + "x" * 99)
for _ in range(200): print('{{"type": "assistant"}}' + " " * 5000)
print('{{"type": "result", "result": "{"y" * 5000}", "usage": {{"input_tokens": 3, "output_tokens": 4}}}}')
"""

    result = perform(package, program=script(tmp_path, program), output_bytes_max=2_000)

    assert (package.directory / "output.log").stat().st_size == 2_000
    assert result.report == AgentReport(result="y" * 5000, input_tokens=3, output_tokens=4)
    assert len(result.output_tail or "") < 4_200
    assert AGENT_TAIL_BYTES < 200 * 5_000


def test_agent_that_reports_a_failure_has_failed_whatever_its_status(package, tmp_path):
    program = """print('{"type": "result", "is_error": true, "result": "No credit."}')"""

    result = perform(package, program=script(tmp_path, program))

    assert (result.state, result.exit_status) == (RunState.FAILED, 0)
    assert result.reason == 'The agent reported that it has failed. The agent\'s error: "No credit."'
    assert result.report == AgentReport(result="No credit.")


def test_run_without_its_agent_says_how_to_install_it(package, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")

    assert perform(package).reason == (
        f"The runner {package.run.runner}: Its program claude does not exist. Install it with npm install --global "
        "@anthropic-ai/claude-code, or correct the runner's program."
    )


@pytest.mark.usefixtures("key")
def test_reason_of_a_run_quotes_the_error_of_its_agent_without_the_key(package, tmp_path):
    program = """
import json, os, sys
key = "".join("\\\\u%04x" % ord(each) for each in os.environ["ANTHROPIC_API_KEY"])
print('{"type": "result", "is_error": true, "result": "401\\\\n\\\\u001b[31m \\\\"%s\\\\" %s"}' % (key, "x" * 999))
sys.exit(1)
"""

    result = perform(package, program=script(tmp_path, program))

    reason = result.reason or ""
    assert reason.startswith(
        "The command exited with status 1. The agent's error: \"401 \N{REPLACEMENT CHARACTER}[31m '[masked]' xxx"
    )
    assert reason.endswith('x…"')
    assert len(reason) < ERROR_CHARACTERS_MAX + 80


def test_agent_that_succeeds_after_an_error_has_no_reason(package, tmp_path):
    program = """print('{"type": "error", "message": "Reconnecting... 1/5"}\\n{"type": "turn.completed"}')"""

    result = perform(package, agent="codex", program=script(tmp_path, program))

    assert (result.state, result.reason) == (RunState.SUCCEEDED, None)


def test_last_message_of_an_agent_is_its_output_unless_it_wrote_a_summary(package, tmp_path):
    program = """
import sys
open('outputs/other.md', 'w').write('x')
if 'writes' in sys.argv: open('outputs/summary.md', 'w').write('written')
print('{"type": "result", "result": "# Two bugs"}')
"""
    path = script(tmp_path, program)
    other_package = write_package(tmp_path / "others", sample_run(), b"{}")

    message = perform(package, program=path).outputs
    written = perform(other_package, program=path, arguments=["writes"]).outputs

    assert message == {LAST_MESSAGE: OutputText(text="# Two bugs")}
    assert written == {"summary.md": OutputText(text="written")}


@pytest.mark.usefixtures("key")
def test_last_message_has_the_limit_of_a_summary_and_no_key(package, tmp_path):
    program = f"""
import json, os
key = os.environ["ANTHROPIC_API_KEY"]
print(json.dumps({{"type": "result", "result": key[:9] + "\\u001b" + key + "x" * {OUTPUT_BYTES_MAX}}}))
"""

    result = perform(package, program=script(tmp_path, program))

    output = result.outputs[LAST_MESSAGE]
    assert output.text.startswith(f"{KEY[:9]}\x1b[masked]xxx")
    assert output.is_cut
    assert len(output.text.encode()) == OUTPUT_BYTES_MAX
    assert KEY not in repr(result)


@pytest.mark.usefixtures("key")
@pytest.mark.parametrize("is_error", [False, True])
def test_key_that_json_escapes_is_in_no_result(package, tmp_path, is_error):
    program = f"""
import json, os
key = "".join("\\\\u%04x" % ord(each) for each in os.environ["ANTHROPIC_API_KEY"])
text = "x" * ({RESULT_CHARACTERS_MAX} - 5) + key
event = '{{"type": "result", "is_error": {str(is_error).lower()}, "result": "%s", "modelUsage": {{"%s": {{}}}}}}'
print(event % (text, key))
"""

    result = perform(package, program=script(tmp_path, program))

    assert result.report is not None
    assert (result.report.result or "")[-6:] == "x[mask"
    assert result.report.model == "[masked]"
    assert result.report.is_result_cut
    assert all("sk-" not in output.text for output in result.outputs.values())
    assert len(result.outputs) == (0 if is_error else 1)


@pytest.mark.parametrize(
    "end", ["sys.exit(3)", """print('{"type": "result", "is_error": true, "result": "No credit."}')"""]
)
def test_last_message_of_a_failed_agent_is_no_output(package, tmp_path, end):
    program = f"""
import sys
if {end.startswith("sys")}: print('{{"type": "result", "result": "API Error: 401"}}', flush=True)
{end}
"""

    result = perform(package, program=script(tmp_path, program))

    assert (result.state, result.outputs) == (RunState.FAILED, {})
    assert result.report is not None


def test_report_of_an_agent_that_was_ended_is_kept(package, tmp_path):
    program = """
import time
print('{"type": "result", "result": "Almost.", "total_cost_usd": 1}', flush=True)
time.sleep(60)
"""

    path = script(tmp_path, program)

    seconds = 1
    result = perform(package, program=path, time_limit_seconds=seconds)
    while result.report is None and seconds < 20:
        # A busy machine may need more than a second until the program has printed.
        seconds *= 5
        result = perform(package, program=path, time_limit_seconds=seconds)

    reason = f"The command was ended after its time limit of {seconds} s."
    assert (result.state, result.reason) == (RunState.FAILED, reason)
    assert result.report == AgentReport(result="Almost.", cost_microusd=1_000_000)


@pytest.mark.parametrize(
    "output", ["", "{", '{"type": "result"}', "[" * 9_000, '{"a":' * 9_000, '{"type": []}', "\\xff"]
)
def test_unusable_output_is_no_report(package, tmp_path, output):
    result = perform(package, program=script(tmp_path, f"print({output!r})"))

    assert (result.state, result.report) == (RunState.SUCCEEDED, None)


def test_output_that_the_agent_replaced_by_a_link_is_not_read(package, tmp_path):
    (tmp_path / "other").write_text('{"type": "result", "result": "elsewhere"}\n')
    program = f"import os; os.unlink('output.log'); os.symlink({str(tmp_path / 'other')!r}, 'output.log')"

    result = perform(package, program=script(tmp_path, program))

    assert (result.state, result.report) == (RunState.SUCCEEDED, None)


def test_aider_gets_the_payload_as_a_file_only_if_there_is_one(tmp_path):
    schedule = BySchedule(name="nightly", scheduled_at=0, timezone="UTC")
    program = script(tmp_path, "import sys; print(sys.argv[1:], sys.stdin.read())")

    outputs = [
        perform(write_package(tmp_path / "runs", run, payload), "aider", program=program).output_tail or ""
        for run, payload in ((sample_run(), b"{}"), (sample_run(started_by=schedule), None))
    ]

    assert ["'--read', 'event-payload.json'" in output for output in outputs] == [True, False]
    assert all("'--message-file', 'prompt.md'" in output for output in outputs)


@pytest.mark.parametrize(
    ("agent", "options"),
    [
        ("claude", {"--bare", "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS"}),
        ("codex", {"project_doc_max_bytes=0", "skills.include_instructions=false"}),
        ("gemini", {"GEMINI_SYSTEM_MD"}),
        (
            "opencode",
            {
                "OPENCODE_DISABLE_PROJECT_CONFIG",
                "OPENCODE_DISABLE_CLAUDE_CODE",
                "OPENCODE_DISABLE_EXTERNAL_SKILLS",
                "OPENCODE_PURE",
            },
        ),
        ("goose", {"CONTEXT_FILE_NAMES", "--no-profile"}),
    ],
)
def test_agent_is_told_to_take_no_instructions_from_a_checkout(agent, options):
    runner = AgentSettings(agent=agent).create_runner(RunnerContext())

    assert options <= {*runner.argv, *runner.environment}


@pytest.mark.parametrize(("sandbox", "turns_off"), [("bubblewrap", True), ("none", False)])
def test_codex_creates_no_sandbox_in_a_sandbox(sandbox, turns_off):
    runner = AgentSettings(agent="codex", sandbox=sandbox, arguments=("-s", "read-only")).create_runner(RunnerContext())

    assert ("sandbox_mode=danger-full-access" in runner.argv) == turns_off
    # The settings of the operator come last, so they prevail.
    assert runner.argv[-2:] == ("-s", "read-only")


@pytest.mark.usefixtures("key")
@pytest.mark.proof
def test_claude_code_performs_a_run(package, tmp_path):
    with model_endpoint() as endpoint:
        result = perform(
            package,
            program=str(claude_code()),
            environment={"ANTHROPIC_BASE_URL": endpoint.url, "HOME": str(tmp_path)},
            time_limit_seconds=60,
        )

    assert (result.state, result.reason) == (RunState.SUCCEEDED, None), result.output_tail
    report = result.report
    assert report is not None
    assert (report.result, report.input_tokens, report.output_tokens) == (ANSWER, 15, 5)
    assert report.cost_microusd is not None
    assert report.cost_microusd > 0
    assert endpoint.keys == [KEY]
    assert json.dumps(package.prompt_file.read_text().strip())[1:-1] in endpoint.prompts[0]
    assert "text of the payload" not in endpoint.prompts[0]


# What agents print. The lines are those of the versions that docs/agents.md names.


def lines(*events: Any) -> Iterator[bytes]:
    return iter([event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n" for event in events])


OUTPUTS: dict[str, tuple[list[Any], AgentReport | None, bool]] = {
    "claude": (
        [
            {"type": "system", "subtype": "init"},
            {"type": "assistant", "message": {"content": [{"type": "text", "text": "Hello."}]}},
            {
                "type": "result",
                "subtype": "success",
                "is_error": False,
                "result": "Hello.",
                "total_cost_usd": 0.0105,
                "modelUsage": {"small": {"costUSD": 0.001}, "claude-sonnet-4-5": {"costUSD": 0.0095}},
                "usage": {
                    "input_tokens": 10,
                    "cache_creation_input_tokens": 2,
                    "cache_read_input_tokens": 3,
                    "output_tokens": 5,
                },
            },
        ],
        AgentReport(result="Hello.", cost_microusd=10_500, input_tokens=15, output_tokens=5, model="claude-sonnet-4-5"),
        False,
    ),
    "codex": (
        [
            {"type": "thread.started", "thread_id": "t"},
            {"type": "item.completed", "item": {"id": "item_0", "type": "reasoning", "text": "Thinking."}},
            {"type": "item.completed", "item": {"id": "item_1", "type": "agent_message", "text": "Hello."}},
            {"type": "turn.completed", "usage": {"input_tokens": 10, "cached_input_tokens": 4, "output_tokens": 5}},
        ],
        AgentReport(result="Hello.", input_tokens=10, output_tokens=5),
        False,
    ),
    "codex, failed": (
        [{"type": "turn.started"}, {"type": "turn.failed", "error": {"message": "No."}}],
        None,
        True,
    ),
    "gemini": (
        [
            {"type": "message", "role": "user", "content": "Do it."},
            {"type": "message", "role": "assistant", "content": "I look.", "delta": True},
            {"type": "tool_use", "tool_name": "read_file"},
            {"type": "message", "role": "assistant", "content": "Hel", "delta": True},
            {"type": "message", "role": "assistant", "content": "lo.", "delta": True},
            {"type": "result", "status": "success", "stats": {"input_tokens": 10, "output_tokens": 5}},
        ],
        AgentReport(result="Hello.", input_tokens=10, output_tokens=5),
        False,
    ),
    "opencode": (
        [
            {"type": "step_start", "part": {"type": "step-start"}},
            {
                "type": "step_finish",
                "part": {"cost": 0.25, "tokens": {"input": 7, "output": 2, "reasoning": 0, "cache": {"read": 1}}},
            },
            {"type": "text", "part": {"type": "text", "text": "Hello."}},
            {
                "type": "step_finish",
                "part": {"cost": 0.5, "tokens": {"input": 2, "output": 2, "reasoning": 1, "cache": {"write": 0}}},
            },
        ],
        AgentReport(result="Hello.", cost_microusd=750_000, input_tokens=10, output_tokens=5),
        False,
    ),
    "opencode, failed": ([{"type": "error", "error": {"name": "APIError"}}], None, True),
    "aider": (
        [b"Tokens: 1.2k sent, 150 received. Cost: $0.01 message, $0.03 session.\n"],
        AgentReport(cost_microusd=30_000, input_tokens=1_200, output_tokens=150),
        False,
    ),
    "goose": (
        [
            {
                "type": "message",
                "message": {"id": "msg_1", "role": "assistant", "content": [{"type": "text", "text": "Hello."}]},
            },
            {"type": "complete", "total_tokens": 15, "input_tokens": 10, "output_tokens": 5},
        ],
        AgentReport(result="Hello.", input_tokens=10, output_tokens=5),
        False,
    ),
    "goose, failed": (
        [
            {
                "type": "message",
                "message": {
                    "id": None,
                    "role": "assistant",
                    "content": [{"type": "text", "text": "Ran into this error: Authentication error: No."}],
                },
            },
            {"type": "complete", "total_tokens": None},
        ],
        AgentReport(result="Ran into this error: Authentication error: No."),
        True,
    ),
}


@pytest.mark.parametrize("case", OUTPUTS)
def test_output_of_each_agent_is_read(case):
    events, report, has_failed = OUTPUTS[case]

    outcome = AGENT_PRESETS[case.partition(",")[0]].read(lines(b"a warning\n", *events))

    assert (outcome.report, outcome.has_failed) == (report, has_failed)
    assert outcome.last_message == (report.result if report is not None else None)


def variants(event: Any, replacement: str) -> Iterator[Any]:
    """The event with each of its values replaced, one at a time."""
    if isinstance(event, dict | list):
        items = list(event.items() if isinstance(event, dict) else enumerate(event))
        for key, value in items:
            for variant in variants(value, replacement):
                copy = event.copy()
                copy[key] = variant
                yield copy
    yield replacement


@pytest.mark.parametrize("case", OUTPUTS)
def test_output_with_extreme_values_is_read(case):
    extremes = [*EXTREME_VALUES.values(), b"1" + b"0" * 400, b"1e305", b"-1", b"NaN", b"Infinity"]
    for index, event in enumerate(OUTPUTS[case][0]):
        if isinstance(event, bytes):
            continue
        for variant in variants(event, "replaced"):
            for extreme in extremes:
                output = list(lines(*OUTPUTS[case][0]))
                output[index] = json.dumps(variant).encode().replace(b'"replaced"', extreme)

                AGENT_PRESETS[case.partition(",")[0]].read(output)


def test_aider_with_numbers_of_any_length_is_read():
    number = b"9" * 400

    outcome = AGENT_PRESETS["aider"].read(
        [b"Tokens: %bM sent, %b received. Cost: $%b message, $%b session.\n" % ((number,) * 4)]
    )

    assert outcome.report is None


UNAUTHORIZED: Final = "unexpected status 401 Unauthorized"
ERRORS: dict[str, tuple[list[Any], str | None]] = {
    "claude": (
        [{"type": "result", "is_error": True, "result": "Invalid API key · Fix external API key"}],
        "Invalid API key · Fix external API key",
    ),
    "claude, without a result": (
        [{"type": "result", "subtype": "error_during_execution", "is_error": True, "errors": ["No session."]}],
        "No session.",
    ),
    "claude, at a limit": ([{"type": "result", "subtype": "error_max_turns", "is_error": True}], "error_max_turns"),
    "claude, ended while it retried": (
        [{"type": "system", "subtype": "api_retry", "error_status": 401, "error": "authentication_failed"}],
        "authentication_failed (status 401)",
    ),
    "claude, ended after a retry": (
        [{"type": "system", "subtype": "api_retry", "error_status": 529}, {"type": "assistant", "message": {}}],
        None,
    ),
    "codex": (
        [
            {"type": "error", "message": f"Reconnecting... 5/5 ({UNAUTHORIZED})"},
            {"type": "turn.failed", "error": {"message": UNAUTHORIZED}},
        ],
        UNAUTHORIZED,
    ),
    "codex, ended while it retried": ([{"type": "error", "message": UNAUTHORIZED}], UNAUTHORIZED),
    "codex, ended after a retry": (
        [{"type": "error", "message": UNAUTHORIZED}, {"type": "item.completed", "item": {"type": "reasoning"}}],
        None,
    ),
    "gemini": (
        [{"type": "result", "status": "error", "error": {"type": "unknown", "message": "API key not valid."}}],
        "API key not valid.",
    ),
    "gemini, before its result": (
        [{"type": "error", "severity": "error", "message": "Too many turns."}],
        "Too many turns.",
    ),
    "gemini, a warning": ([{"type": "error", "severity": "warning", "message": "Loop detected."}], None),
    "opencode": (
        [{"type": "error", "error": {"name": "APIError", "data": {"message": "invalid x-api-key"}}}],
        "invalid x-api-key",
    ),
    "opencode, without a message": ([{"type": "error", "error": {"name": "APIError"}}], "APIError"),
    "goose": ([{"type": "error", "error": "Authentication error"}], "Authentication error"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_error_of_each_agent_is_read(case):
    events, error = ERRORS[case]

    assert AGENT_PRESETS[case.partition(",")[0]].read(lines(*events)).error == error


def test_secret_that_joined_lines_complete_is_masked():
    masker = Masker([b"secret of two words"])

    reason = reason_with_error(None, "secret of\n\n two words", masker.mask_text)

    assert reason == 'The run failed. The agent\'s error: "[masked]"'


@pytest.mark.parametrize("agent", AGENT_PRESETS)
def test_events_of_unexpected_types_are_ignored(agent):
    types = [event["type"] for events, _, _ in OUTPUTS.values() for event in events if isinstance(event, dict)]
    types += [event["type"] for events, _ in ERRORS.values() for event in events]
    values = [None, 1, "text", [1], {"a": 1}]
    keys = (
        "item", "usage", "role", "content", "stats", "part", "message", "result", "total_cost_usd", "is_error", "error",
        "errors", "severity", "subtype", "modelUsage",
    )  # fmt: skip

    for value in values:
        events = [{"type": kind, **dict.fromkeys(keys, value)} for kind in types]
        AGENT_PRESETS[agent].read(lines(*events, {"type": value}, b"Tokens: ., sent, ,k received. Cost: $. message\n"))


# Settings


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"agent": "gpt"}, "must be one of: claude, codex, gemini, opencode, aider, goose"),
        ({"agent": "claude", "model": "--evil"}, "must not begin with -"),
        ({"agent": "claude", "key_from": "HOOKMILL_MASTER_KEY"}, "must not begin with HOOKMILL_"),
        ({"agent": "claude", "key_variable": "A=B"}, "String should match pattern"),
        ({"agent": "claude", "arguments": ["\0"]}, "NUL"),
        ({}, "Field required"),
    ],
)
def test_unusable_settings_of_an_agent_are_refused(settings, problem):
    with pytest.raises(ValidationError, match=problem):
        AgentSettings(**settings)


def test_missing_key_of_an_agent_is_found_by_the_doctor(tmp_path, monkeypatch):
    monkeypatch.delenv("AGENT_KEY", raising=False)
    settings = AgentSettings(agent="claude", program=script(tmp_path, ""), key_from="AGENT_KEY")

    with pytest.raises(Invalid, match="The variable AGENT_KEY, which must contain the key of claude, is not set"):
        settings.examine(tmp_path)
    monkeypatch.setenv("AGENT_KEY", KEY)
    assert (
        settings.examine(tmp_path)
        == f"starts claude ({settings.program}) with the key in AGENT_KEY without a sandbox, for at most 3,600 s"
    )


@pytest.mark.usefixtures("key")
def test_summary_of_an_agent_has_no_value_that_may_be_secret():
    settings = AgentSettings(
        agent="codex", model="m-1", arguments=("-c", "token=secret"), key_from="AGENT_KEY", environment={"X": "secret"}
    )

    assert settings.summary() == (
        "codex, model m-1, 2 arguments, with the key in AGENT_KEY, no sandbox, at most 3600 s, "
        "keeps 16,777,216 bytes of output, with X"
    )
