"""The kind `agent`: it starts a known agent in the workspace or the package, and reads what the agent reports.

The agent runs on this host, with or without a sandbox of bubblewrap, or in a new container for each attempt.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from hookmill.domain.agent_report import reason_with_error
from hookmill.domain.errors import Invalid
from hookmill.domain.masking import Masker
from hookmill.domain.run import PAYLOAD_FILE, Ended, RunState
from hookmill.domain.run_files import ENVELOPE_FILE, PROMPT_FILE, WORKSPACE_DIRECTORY
from hookmill.domain.run_outputs import LAST_MESSAGE, NO_OUTPUTS, OUTPUTS_DIRECTORY, RunOutputs, output_text
from hookmill.domain.run_secrets import RunSecretRule
from hookmill.domain.text import trimmed_text
from hookmill.runs.package import Package, open_file
from hookmill.runs.runner import Instruction
from hookmill.runs.runners.agent_presets import (
    AGENT_PRESETS,
    PACKAGE_IN_JSON_PLACEHOLDER,
    PACKAGE_PLACEHOLDER,
    AgentPreset,
)
from hookmill.runs.runners.command import (
    CommandRunner,
    SandboxableSettings,
    count_of_arguments,
)
from hookmill.runs.runners.container import (
    PACKAGE_PATH,
    ContainerOptions,
    ContainerRunner,
    refuse_comma,
    without_variables_of_the_engine,
)
from hookmill.runs.runners.guard import OUTPUT_FILE
from hookmill.runs.runners.kind import ProgramName, RunnerContext, SystemText, VariableName
from hookmill.runs.runners.programs import Program

AGENT_TAIL_BYTES: Final = 262_144
"""How much of the output's end is read, even if `output.log` is full: most agents report their result at the end."""
LINE_BYTES_MAX: Final = 1_048_576
"""Longer lines of the output are not read."""
OUTPUT_BYTES_MAX: Final = 16_777_216
"""The default of `output_bytes_max`. The output of an agent has every step, so it is longer than that of a command."""


@dataclass(frozen=True, kw_only=True)
class AgentRunner(CommandRunner):
    """Runs an agent on this host like a command. The prompt reaches it on standard input or as a file, never as an
    argument."""

    preset: AgentPreset
    key_variable: str
    """The variable in which the agent expects its key."""
    key_from: str
    """The service's variable that contains the key."""

    def _command(self, package: Package) -> tuple[str, ...]:
        """The configured program and arguments, and those of this run.

        If the run has a workspace, the files of the package have absolute paths.
        """
        directory = self._directory(package)
        payload_arguments = self.preset.payload_arguments if package.run.has_payload else ()
        if package.workspace is None:
            return (*self.argv, *payload_arguments, *self.preset.last_arguments)
        workspace_arguments = (_with_path(argument, directory) for argument in self.preset.workspace_arguments)
        paths = {name: str(directory / name) for name in (PROMPT_FILE, ENVELOPE_FILE, PAYLOAD_FILE)}
        arguments = (*self.argv, *payload_arguments, *workspace_arguments, *self.preset.last_arguments)
        return tuple(paths.get(argument, argument) for argument in arguments)

    def _starts_in_workspace(self, package: Package) -> bool:
        return package.workspace is not None and self.preset.starts_in_workspace

    def _environment(self, package: Package) -> dict[str, str]:
        environment = super()._environment(package)
        key = os.environ.get(self.key_from)
        # A key from a file may have a line end, which no header can have.
        return environment if key is None else {**environment, self.key_variable: trimmed_text(key)}

    def _result_from(self, package: Package, instruction: Instruction, report: dict[str, Any]) -> Ended:
        """The result of the command, with what the lines of its output report."""
        result = super()._result_from(package, instruction, report)
        if result.exit_status is None:
            return result
        outcome = self.preset.read(_lines_of_output(package, report))
        if outcome.has_failed and result.state is RunState.SUCCEEDED:
            result = replace(result, state=RunState.FAILED, reason="The agent reported that it has failed.")
        # The output was masked as it was printed, but JSON may escape any character.
        masker = Masker(self._secrets_to_mask(package))
        if outcome.error is not None and result.state is RunState.FAILED:
            result = replace(result, reason=reason_with_error(result.reason, outcome.error, masker.mask_text))
        agent_report = outcome.report
        if agent_report is not None and agent_report.model is not None:
            agent_report = replace(agent_report, model=masker.mask_text(agent_report.model))
        if outcome.last_message is None:
            return replace(result, report=agent_report)
        message = masker.mask_text(outcome.last_message)
        agent_report = agent_report.with_result(message) if agent_report is not None else None
        return replace(result, report=agent_report, outputs=_last_message(message, result))


@dataclass(frozen=True, kw_only=True)
class AgentContainerRunner(AgentRunner, ContainerRunner):
    """Runs an agent in a new container for each attempt."""

    # As without a container, so that prompts with relative paths work in both.
    outputs_path: ClassVar[str] = f"{PACKAGE_PATH}/{OUTPUTS_DIRECTORY}"
    workspace_path: ClassVar[str] = f"{PACKAGE_PATH}/{WORKSPACE_DIRECTORY}"


def _last_message(message: str, result: Ended) -> RunOutputs:
    """The agent's last message as an output, if the run succeeded. After a failure, it may be an error message."""
    if result.state is not RunState.SUCCEEDED:
        return NO_OUTPUTS
    text = output_text(message.encode("utf-8", "replace"))
    return {LAST_MESSAGE: text} if text is not None else NO_OUTPUTS


def _lines_of_output(package: Package, report: dict[str, Any]) -> Iterator[bytes]:
    """The lines of the output: the first ones in the file, then those at the end."""
    try:
        output = open_file(package.directory.parent, package.run.id, OUTPUT_FILE)
    except OSError:
        # The agent has removed or replaced the file.
        return
    with output as file:
        remaining: int = report["first_bytes"]
        while remaining > 0 and (line := file.readline(min(LINE_BYTES_MAX, remaining))):
            remaining -= len(line)
            yield line
    if report["dropped_bytes"]:
        tail: bytes = report["tail"].encode("latin-1")[-report["dropped_bytes"] :]
        # The line at the border is incomplete in both parts. It is not valid JSON.
        yield from tail.splitlines()


def _with_path(text: str, package: PurePath) -> str:
    """The text, with the path of the package instead of placeholders."""
    in_json = json.dumps(str(package))[1:-1]
    return text.replace(PACKAGE_IN_JSON_PLACEHOLDER, in_json).replace(PACKAGE_PLACEHOLDER, str(package))


class AgentSettings(SandboxableSettings):
    """The settings of an agent that performs runs."""

    kind: Literal["agent"] = Field(
        default="agent", description="`agent` starts a known agent in the package or the checkout."
    )
    agent: str = Field(description=f"The agent: {', '.join(f'`{name}`' for name in AGENT_PRESETS)}.")
    program: ProgramName | None = Field(
        default=None, description="The agent's program. Unset: its usual name, such as `claude`."
    )
    model: SystemText | None = Field(
        default=None, min_length=1, max_length=200, description="The model, as the agent names it. Unset: its default."
    )
    arguments: tuple[SystemText, ...] = Field(
        default=(), description="Further arguments, such as those that allow the agent to use tools."
    )
    key_variable: VariableName | None = Field(
        default=None,
        description="The variable in which the agent expects its API key. Unset: that of its usual provider.",
    )
    key_from: VariableName | None = Field(
        default=None,
        description="The service's environment variable that contains the key. Unset: the one in `key_variable`.",
    )
    output_bytes_max: int = Field(
        default=OUTPUT_BYTES_MAX,
        ge=1_024,
        description="How much output is stored: of a longer one, the beginning and the last 4 KiB.",
    )

    container: ContainerOptions | None = Field(
        default=None, description="The image of an agent's container, and its limits."
    )

    @field_validator("agent")
    @classmethod
    def _check_agent(cls, agent: str) -> str:
        if agent not in AGENT_PRESETS:
            raise ValueError(f"must be one of: {', '.join(AGENT_PRESETS)}")
        return agent

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str | None) -> str | None:
        if model is not None and model.startswith("-"):
            raise ValueError("must not begin with -, because the agent would read it as an option")
        return model

    @model_validator(mode="after")
    def _check_container(self) -> Self:
        if self.container is not None and self.sandbox != "container":
            raise ValueError('must have sandbox = "container" with container')
        if self.container is None and self.sandbox == "container":
            raise ValueError('must have container = { image = "…" } with sandbox = "container"')
        return self

    def secret_rule(self) -> RunSecretRule:
        rule = SandboxableSettings.secret_rule(self)
        return rule if self.container is None else without_variables_of_the_engine(rule)

    def refuse_unusable(self) -> None:
        SandboxableSettings.refuse_unusable(self)
        if self.container is not None:
            self.container.refuse_unlimited_network(self._account())

    def prepare_host(self, packages: Path) -> None:
        if self.container is not None:
            refuse_comma(packages)
        SandboxableSettings.prepare_host(self, packages)

    def examine(self, packages: Path) -> str:
        if self._key_from not in os.environ and self.key_from is not None:
            raise Invalid(
                f"The variable {self.key_from}, which must contain the key of {self.agent}, is not set. Set it for "
                "every process that performs runs, or correct the runner's key_from."
            )
        key = f"the key in {self._key_from}" if self._key_from in os.environ else "no key"
        limit = f"for at most {self.time_limit_seconds:,} s"
        if (container := self.container) is not None:
            refuse_comma(packages)
            container.refuse_unlimited_network(self._account())
            engine = self._examine_program(packages, container.client)
            containers = f"containers of {container.image} with {engine}, with {container.network_text}"
            return f"starts {self.agent} with {key} in {containers}, {limit}"
        program = self._examine_program(packages, self._host_program)
        sandbox = self._examine_sandbox(packages, self._host_program)
        return f"starts {self.agent} ({program}) with {key} {sandbox}, {limit}"

    def create_runner(self, context: RunnerContext) -> AgentRunner | AgentContainerRunner:
        preset = self._preset
        sandboxed_arguments = preset.sandboxed_arguments if self.is_isolated else ()
        model_arguments: tuple[str, ...] = ()
        model_environment = {}
        if self.model is not None:
            if preset.model_option is not None:
                model_arguments = (preset.model_option, self.model)
            elif preset.model_variable is not None:
                model_environment = {preset.model_variable: self.model}
        options = {
            **self._runner_options(context),
            "argv": (self._program, *preset.arguments, *sandboxed_arguments, *model_arguments, *self.arguments),
            "preset": preset,
            "key_variable": self._key_variable,
            "key_from": self._key_from,
            "environment": {**preset.environment, **model_environment, **self.environment},
            "standard_input": PROMPT_FILE if preset.is_prompt_on_stdin else None,
            "masked_variables": (self._key_variable,),
            "tail_bytes": AGENT_TAIL_BYTES,
        }
        if (container := self.container) is None:
            return AgentRunner(**options, sandbox=self._sandbox, program=self._host_program)
        return AgentContainerRunner(**options, container=container, program=container.client)

    def _set_variables(self) -> frozenset[str]:
        variables = {self._key_variable, *self._preset.environment}
        if self._preset.model_variable is not None:
            variables.add(self._preset.model_variable)
        return super()._set_variables() | variables

    def variables_of_service(self) -> tuple[str, ...]:
        return (*self.pass_environment, self._key_from)

    def summary(self) -> str:
        program = [self.program] if self.program is not None else []
        model = [f"model {self.model}"] if self.model is not None else []
        return self._summary(
            self.agent,
            *program,
            *model,
            *count_of_arguments(self.arguments),
            f"with the key in {self._key_from}",
            *self._summary_of_isolation(),
        )

    def _summary_of_isolation(self) -> tuple[str, ...]:
        if self.container is None:
            return (self._sandbox_summary(),)
        return (f"in {self.container.image}", *self.container.parts_of_summary)

    @property
    def _preset(self) -> AgentPreset:
        return AGENT_PRESETS[self.agent]

    @property
    def _program(self) -> str:
        return self.program or self._preset.program

    @property
    def _host_program(self) -> Program:
        """The program if this host starts it, and no container."""
        return Program(self._program, "program", self._preset.installation if self.program is None else None)

    @property
    def _key_variable(self) -> str:
        return self.key_variable or self._preset.key_variable

    @property
    def _key_from(self) -> str:
        return self.key_from or self._key_variable
