"""The agents that the kind `agent` knows: how each is started, where its prompt goes, and how its output is read.

docs/agents.md says which version of each agent was checked, and how.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from json import loads
from typing import Any, Final

from hookmill.domain.agent_report import TOKENS_MAX, AgentReport, agent_report, is_cost, sum_of_counts
from hookmill.domain.run import PAYLOAD_FILE
from hookmill.domain.run_files import PROMPT_FILE

PACKAGE_PLACEHOLDER: Final = "{package}"
PACKAGE_IN_JSON_PLACEHOLDER: Final = "{package in JSON}"
"""The package's path as a part of a JSON string."""
Event = Mapping[str, Any]
"""A line of an agent's output: a JSON object."""


@dataclass(frozen=True, slots=True)
class AgentOutcome:
    """What the output of an agent says about its work."""

    report: AgentReport | None
    last_message: str | None = None
    """The agent's last message, which the report has only up to a limit. None if there is none."""
    has_failed: bool = False
    """Whether the agent says that it has failed. Some agents exit with status 0 nevertheless."""
    error: str | None = None
    """The agent's last error, unless it has made progress since. It explains a failure, and is none by itself."""


def _outcome(last_message: Any, *, has_failed: bool = False, error: str | None = None, **usage: Any) -> AgentOutcome:
    """The outcome from values of any type, as in `agent_report`."""
    return AgentOutcome(agent_report(last_message, **usage), _text(last_message), has_failed, error)


def _text(*values: Any) -> str | None:
    """The first of these values that is a text and not blank."""
    return next((value for value in values if isinstance(value, str) and value.strip()), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPreset:
    """How one agent is used. No argument contains text of the prompt or of the payload."""

    program: str
    installation: str | None
    """The command that installs the program; None if there is no usual one."""
    arguments: tuple[str, ...]
    """The arguments after the program. The configured ones follow, then `last_arguments`."""
    last_arguments: tuple[str, ...] = ()
    sandboxed_arguments: tuple[str, ...] = ()
    """Arguments in a sandbox of this service. They turn off a sandbox of the agent, which can't be created there."""
    model_option: str | None = "--model"
    """The option that names the model. None: `model_variable` names it."""
    model_variable: str | None = None
    payload_arguments: tuple[str, ...] = ()
    """Arguments for runs with a payload. Agents that read files with tools need none, because the prompt names it."""
    workspace_arguments: tuple[str, ...] = ()
    """Arguments for runs with a workspace. They let an agent that starts there use the package, whose path replaces the
    placeholders."""
    starts_in_workspace: bool = True
    """Whether it starts in the workspace of a run that has one. False: in the package, because it would execute what
    configuration files in its working directory say."""
    is_prompt_on_stdin: bool = True
    """Whether the agent reads the prompt from standard input. Otherwise, an argument names the prompt's file."""
    key_variable: str
    """The variable in which the agent expects the key of its usual provider."""
    environment: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[Iterable[bytes]], AgentOutcome]
    """Reads the lines of the output."""


def _events(lines: Iterable[bytes]) -> Iterator[Event]:
    """The JSON objects among the lines. The agent may print other lines, too."""
    for line in lines:
        if line.startswith(b"{"):
            try:
                event = loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                yield event


def _at(event: Any, *keys: str) -> Any:
    """The value at this path of keys; None if there is none."""
    for key in keys:
        event = event.get(key) if isinstance(event, dict) else None
    return event


def _read_claude(lines: Iterable[bytes]) -> AgentOutcome:
    error = None
    for event in _events(lines):
        if event.get("type") == "assistant":
            error = None
        elif event.get("subtype") == "api_retry":
            error = _claude_retry_error(event)
        elif event.get("type") == "result":
            has_failed = event.get("is_error") is True
            usage = event.get("usage")
            input_tokens = sum_of_counts(
                _at(usage, name) for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
            )
            return _outcome(
                event.get("result"),
                has_failed=has_failed,
                error=_claude_result_error(event) if has_failed else None,
                cost_usd=event.get("total_cost_usd"),
                input_tokens=input_tokens,
                output_tokens=_at(usage, "output_tokens"),
                model=_costliest(event.get("modelUsage")),
            )
    return AgentOutcome(None, error=error)


def _costliest(usage_by_model: Any) -> str | None:
    """The model that cost most. An agent also uses small models for side tasks."""
    if not isinstance(usage_by_model, dict) or not usage_by_model:
        return None

    def cost(model: Any) -> float:
        value = _at(usage_by_model, model, "costUSD")
        return value if type(value) in (int, float) else 0.0

    return str(max(usage_by_model, key=cost))


def _claude_retry_error(event: Event) -> str | None:
    """The error after which Claude Code calls the model again."""
    name, status = _text(event.get("error")), event.get("error_status")
    if type(status) is not int:
        return name
    return f"status {status}" if name is None else f"{name} (status {status})"


def _claude_result_error(event: Event) -> str | None:
    errors = event.get("errors")
    return _text(event.get("result"), *(errors if isinstance(errors, list) else []), event.get("subtype"))


def _read_codex(lines: Iterable[bytes]) -> AgentOutcome:
    result = None
    usages = []
    has_failed = False
    error = None
    for event in _events(lines):
        match event.get("type"):
            case "item.completed" if _at(event, "item", "type") != "error":
                error = None
                if _at(event, "item", "type") == "agent_message":
                    result = _at(event, "item", "text")
            case "turn.completed":
                error = None
                usages.append(event.get("usage"))
            case "turn.failed":
                has_failed = True
                error = _text(_at(event, "error", "message"), error)
            case "error":
                # Codex may try again.
                error = _text(event.get("message"), error)
    return _outcome(
        result,
        has_failed=has_failed,
        error=error,
        input_tokens=sum_of_counts(_at(usage, "input_tokens") for usage in usages),
        output_tokens=sum_of_counts(_at(usage, "output_tokens") for usage in usages),
    )


def _read_gemini(lines: Iterable[bytes]) -> AgentOutcome:
    parts: list[str] = []
    stats = None
    has_failed = False
    error = None
    for event in _events(lines):
        match event.get("type"):
            case "message" if event.get("role") == "assistant" and isinstance(event.get("content"), str):
                parts.append(event["content"])
            case "tool_use":
                # The text before the use of a tool is no result.
                parts.clear()
            case "result":
                stats = event.get("stats")
                has_failed = event.get("status") == "error"
                error = _text(_at(event, "error", "message"), error) if has_failed else None
            case "error" if event.get("severity") != "warning":
                error = _text(event.get("message"), error)
    return _outcome(
        "".join(parts),
        has_failed=has_failed,
        error=error,
        input_tokens=_at(stats, "input_tokens"),
        output_tokens=_at(stats, "output_tokens"),
    )


def _read_opencode(lines: Iterable[bytes]) -> AgentOutcome:
    result = None
    steps = []
    has_failed = False
    error = None
    for event in _events(lines):
        match event.get("type"):
            case "text":
                result = _at(event, "part", "text")
            case "step_finish":
                steps.append(event.get("part"))
            case "error":
                has_failed = True
                error = _text(
                    _at(event, "error", "data", "message"), _at(event, "error", "message"), _at(event, "error", "name")
                )
    costs = [cost for step in steps if is_cost(cost := _at(step, "cost"))]
    input_counts = (
        count
        for step in steps
        for count in (
            _at(step, "tokens", "input"),
            _at(step, "tokens", "cache", "read"),
            _at(step, "tokens", "cache", "write"),
        )
    )
    output_counts = (
        count for step in steps for count in (_at(step, "tokens", "output"), _at(step, "tokens", "reasoning"))
    )
    return _outcome(
        result,
        has_failed=has_failed,
        error=error,
        cost_usd=sum(costs) if costs else None,
        input_tokens=sum_of_counts(input_counts),
        output_tokens=sum_of_counts(output_counts),
    )


_AIDER_TOKENS: Final = re.compile(rb"Tokens: ([\d.,]+)([kM]?) sent,.*?([\d.,]+)([kM]?) received\.")
_AIDER_COST: Final = re.compile(rb"Cost: \$([\d.]+) message, \$([\d.]+) session\.")


def _read_aider(lines: Iterable[bytes]) -> AgentOutcome:
    """Aider prints text for people. It rounds its numbers, and marks no line as the result."""
    input_counts, output_counts = [], []
    cost = None
    for line in lines:
        if tokens := _AIDER_TOKENS.search(line):
            input_counts.append(_rounded_count(tokens[1], tokens[2]))
            output_counts.append(_rounded_count(tokens[3], tokens[4]))
        if costs := _AIDER_COST.search(line):
            cost = _number(costs[2])
    return AgentOutcome(
        agent_report(
            cost_usd=cost, input_tokens=sum_of_counts(input_counts), output_tokens=sum_of_counts(output_counts)
        )
    )


def _number(digits: bytes) -> float | None:
    try:
        return float(digits.replace(b",", b""))
    except ValueError:
        return None


def _rounded_count(digits: bytes, unit: bytes) -> int | None:
    number = _number(digits)
    if number is None or number > TOKENS_MAX:
        return None
    return round(number * {b"": 1, b"k": 1_000, b"M": 1_000_000}[unit])


_GOOSE_ERROR: Final = "Ran into this error:"
"""The beginning of a message that goose itself writes if the model can't be used. Its exit status is then 0."""


def _read_goose(lines: Iterable[bytes]) -> AgentOutcome:
    result = None
    usage: Event = {}
    has_failed = False
    error = None
    for event in _events(lines):
        match event.get("type"):
            case "message" if _at(event, "message", "role") == "assistant":
                content = _at(event, "message", "content")
                texts = [
                    part["text"]
                    for part in (content if isinstance(content, list) else [])
                    if _at(part, "type") == "text" and isinstance(_at(part, "text"), str)
                ]
                result = "".join(texts) or result
                # A message of the model has an id.
                is_error = _at(event, "message", "id") is None and "".join(texts).startswith(_GOOSE_ERROR)
                if is_error:
                    has_failed, error = True, _text("".join(texts))
            case "complete":
                usage = event
            case "error":
                has_failed = True
                error = _text(event.get("error"))
    return _outcome(
        result,
        has_failed=has_failed,
        error=error,
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
    )


AGENT_PRESETS: Final[Mapping[str, AgentPreset]] = {
    "claude": AgentPreset(
        program="claude",
        installation="npm install --global @anthropic-ai/claude-code",
        # `--bare` ignores settings, hooks and instructions that files in the account's home, the package or the
        # workspace contain.
        arguments=("--print", "--bare", "--no-session-persistence", "--output-format", "stream-json", "--verbose"),
        # With `--add-dir`, it would obey the CLAUDE.md of the workspace, which a payload may have chosen.
        workspace_arguments=(
            f'--settings={{"permissions": {{"additionalDirectories": ["{PACKAGE_IN_JSON_PLACEHOLDER}"]}}}}',
        ),
        key_variable="ANTHROPIC_API_KEY",
        environment={
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # Otherwise, the system prompt contains the messages of the workspace's newest commits.
            "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1",
        },
        read=_read_claude,
    ),
    "codex": AgentPreset(
        program="codex",
        installation="npm install --global @openai/codex",
        # A package is no Git repository. Anybody may have written the AGENTS.md and the skills of a workspace, so none
        # is read.
        arguments=(
            "exec",
            "--json",
            "--skip-git-repo-check",
            "--ephemeral",
            "-c",
            "project_doc_max_bytes=0",
            "-c",
            "skills.include_instructions=false",
        ),
        sandboxed_arguments=("-c", "sandbox_mode=danger-full-access"),
        last_arguments=("-",),
        key_variable="CODEX_API_KEY",
        read=_read_codex,
    ),
    "gemini": AgentPreset(
        program="gemini",
        installation="npm install --global @google/gemini-cli",
        # It refuses folders that it does not trust. `--skip-trust` is safe, because the package has no settings.
        arguments=("--output-format", "stream-json", "--skip-trust"),
        # In the workspace, it would execute the hooks of .gemini/settings.json.
        starts_in_workspace=False,
        key_variable="GEMINI_API_KEY",
        # Otherwise, a file .env of the workspace can replace the system prompt.
        environment={"GEMINI_SYSTEM_MD": "false"},
        read=_read_gemini,
    ),
    "opencode": AgentPreset(
        program="opencode",
        installation="npm install --global opencode-ai",
        arguments=("run", "--format", "json"),
        key_variable="ANTHROPIC_API_KEY",
        environment={
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            # Anybody may have written the AGENTS.md, the CLAUDE.md and the skills of a workspace, so none is read.
            "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
            "OPENCODE_DISABLE_CLAUDE_CODE": "1",
            "OPENCODE_DISABLE_EXTERNAL_SKILLS": "1",
            "OPENCODE_PURE": "1",
        },
        # In the workspace, it would execute the plugins there, whatever these variables say.
        starts_in_workspace=False,
        read=_read_opencode,
    ),
    "aider": AgentPreset(
        program="aider",
        installation="pip install aider-chat",
        arguments=(
            "--message-file",
            PROMPT_FILE,
            "--yes-always",
            "--no-git",
            "--no-check-update",
            "--no-show-release-notes",
            "--no-pretty",
            "--no-stream",
            "--no-suggest-shell-commands",
        ),
        # Its files .aider.conf.yml and .env can name commands to execute, and no option turns them off.
        starts_in_workspace=False,
        # Aider reads no file by itself.
        payload_arguments=("--read", PAYLOAD_FILE),
        is_prompt_on_stdin=False,
        key_variable="ANTHROPIC_API_KEY",
        environment={"AIDER_ANALYTICS_DISABLE": "true"},
        read=_read_aider,
    ),
    "goose": AgentPreset(
        program="goose",
        installation=None,
        # Otherwise, it would load the skills of a workspace, which anybody may have written.
        arguments=(
            "run",
            "--no-session",
            "--quiet",
            "--output-format",
            "stream-json",
            "--no-profile",
            "--with-builtin",
            "developer",
            "--instructions",
            PROMPT_FILE,
        ),
        # In the workspace, it would execute the hooks of .agents/plugins.
        starts_in_workspace=False,
        model_option=None,
        model_variable="GOOSE_MODEL",
        is_prompt_on_stdin=False,
        key_variable="ANTHROPIC_API_KEY",
        # Anybody may have written the AGENTS.md and the .goosehints of a workspace, so none is read.
        environment={"GOOSE_PROVIDER": "anthropic", "CONTEXT_FILE_NAMES": "[]"},
        read=_read_goose,
    ),
}
"""The presets by the name that the setting `agent` has."""
