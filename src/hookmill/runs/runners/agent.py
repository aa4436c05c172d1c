"""The kind `agent`: it starts a known agent in the workspace or the package, and reads what the agent reports."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, field_validator

from hookmill.domain.errors import Invalid
from hookmill.domain.run import Ended, RunState
from hookmill.domain.run_files import PROMPT_FILE
from hookmill.domain.run_outputs import LAST_MESSAGE, NO_OUTPUTS, RunOutputs, output_text
from hookmill.runs.package import Package, open_file
from hookmill.runs.runner import Instruction
from hookmill.runs.runners.agent_presets import (
    AGENT_PRESETS,
    PACKAGE_IN_JSON_PLACEHOLDER,
    PACKAGE_PLACEHOLDER,
    AgentOutcome,
    AgentPreset,
)
from hookmill.runs.runners.command import (
    CommandRunner,
    SandboxableSettings,
    count_of_arguments,
)
from hookmill.runs.runners.guard import OUTPUT_FILE
from hookmill.runs.runners.kind import RunnerContext, SystemText, VariableName
from hookmill.runs.runners.masking import Masker

TAIL_BYTES: Final = 262_144
"""How much of the end of the output is read, even if `output.log` is full: there, most agents report their result."""
LINE_BYTES_MAX: Final = 1_048_576
"""Longer lines of the output are not read."""
OUTPUT_BYTES_MAX: Final = 16_777_216
"""The default of `output_bytes_max`. The output of an agent has every step, so it is longer than that of a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRunner(CommandRunner):
    """Runs an agent like a command. The prompt reaches it on standard input or as a file, never as an argument."""

    preset: AgentPreset
    last_arguments: tuple[str, ...] = ()
    """The arguments after `argv` and those that depend on the run."""
    key_variable: str
    """The variable in which the agent expects its key."""
    key_from: str
    """The service's variable that contains the key."""

    def _argv(self, package: Package) -> tuple[str, ...]:
        payload_arguments = self.preset.payload_arguments if package.run.has_payload else ()
        arguments = (*self.argv, *payload_arguments, *self._workspace_arguments(package), *self.last_arguments)
        if package.workspace is None:
            return arguments
        paths = {path.name: str(path) for path in (package.prompt_file, package.envelope_file, package.payload_file)}
        return tuple(paths.get(argument, argument) for argument in arguments)

    def _workspace_arguments(self, package: Package) -> tuple[str, ...]:
        if package.workspace is None:
            return ()
        return tuple(_with_path(argument, package.directory) for argument in self.preset.workspace_arguments)

    def _working_directory(self, package: Package) -> str | None:
        return str(package.workspace) if package.workspace is not None and self.preset.starts_in_workspace else None

    def _environment(self, package: Package) -> dict[str, str]:
        # `super()` does not work in a dataclass with slots.
        environment = CommandRunner._environment(self, package)
        if package.workspace is not None:
            for name, value in self.preset.workspace_environment.items():
                environment.setdefault(name, _with_path(value, package.directory))
        key = os.environ.get(self.key_from)
        return environment if key is None else {**environment, self.key_variable: key}

    def _result_from(self, package: Package, instruction: Instruction, report: dict[str, Any]) -> Ended:
        result = CommandRunner._result_from(self, package, instruction, report)
        if result.exit_status is None:
            return result
        outcome = self.preset.read(self._lines(package, report))
        if outcome.has_failed and result.state is RunState.SUCCEEDED:
            result = replace(result, state=RunState.FAILED, reason="The agent reported that it has failed.")
        return replace(result, report=outcome.report, outputs=self._last_message(package, result, outcome))

    def _last_message(self, package: Package, result: Ended, outcome: AgentOutcome) -> RunOutputs:
        """The agent's last message as an output, if the run succeeded. After a failure, it may be an error message."""
        if outcome.last_message is None or result.state is not RunState.SUCCEEDED:
            return NO_OUTPUTS
        masker = Masker(self._secrets_to_mask(package))
        text = output_text(masker.mask(outcome.last_message.encode("utf-8", "replace")))
        return {LAST_MESSAGE: text} if text is not None else NO_OUTPUTS

    def _lines(self, package: Package, report: dict[str, Any]) -> Iterator[bytes]:
        """The lines of the output: those in the file, then those at the end that the file lacks."""
        try:
            descriptor = open_file(package.directory.parent, package.run.id, OUTPUT_FILE)
        except OSError:
            # The agent has removed or replaced the file.
            return
        with os.fdopen(descriptor, "rb") as file:
            remaining = self.output_bytes_max
            while remaining > 0 and (line := file.readline(min(LINE_BYTES_MAX, remaining))):
                remaining -= len(line)
                yield line
        if report["dropped_bytes"]:
            tail: bytes = report["tail"].encode("latin-1")[-report["dropped_bytes"] :]
            # The line at the border is incomplete in both parts. It is not valid JSON.
            yield from tail.splitlines()


def _with_path(text: str, package: Path) -> str:
    """The text, with the path of the package instead of placeholders."""
    in_json = json.dumps(str(package))[1:-1]
    return text.replace(PACKAGE_IN_JSON_PLACEHOLDER, in_json).replace(PACKAGE_PLACEHOLDER, str(package))


class AgentSettings(SandboxableSettings):
    """The settings of an agent that performs runs."""

    kind: Literal["agent"] = Field(default="agent", description="`agent` starts a known agent there.")
    agent: str = Field(description=f"The agent: {', '.join(f'`{name}`' for name in AGENT_PRESETS)}.")
    program: SystemText | None = Field(
        default=None, min_length=1, description="The agent's program. Unset: its usual name, such as `claude`."
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
        default=OUTPUT_BYTES_MAX, ge=1_024, description="How much output is stored; the rest is only counted."
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

    def examine(self, packages: Path) -> str:
        program = self._examine_program(packages, self._program, "program")
        if self._key_from not in os.environ and self.key_from is not None:
            raise Invalid(
                f"The variable {self.key_from}, which must contain the key of {self.agent}, is not set. Set it for "
                "every process that performs runs, or correct the runner's key_from."
            )
        key = f"the key in {self._key_from}" if self._key_from in os.environ else "no key"
        sandbox = self._examine_sandbox(packages, self._program)
        return f"starts {self.agent} ({program}) with {key} {sandbox}, for at most {self.time_limit_seconds:,} s"

    def create_runner(self, context: RunnerContext) -> AgentRunner:
        preset = self._preset
        sandboxed_arguments = preset.sandboxed_arguments if self._sandbox is not None else ()
        model_arguments: tuple[str, ...] = ()
        model_environment = {}
        if self.model is not None:
            if preset.model_option is not None:
                model_arguments = (preset.model_option, self.model)
            elif preset.model_variable is not None:
                model_environment = {preset.model_variable: self.model}
        return AgentRunner(
            argv=(self._program, *preset.arguments, *sandboxed_arguments, *model_arguments, *self.arguments),
            last_arguments=preset.last_arguments,
            preset=preset,
            key_variable=self._key_variable,
            key_from=self._key_from,
            time_limit_seconds=self.time_limit_seconds,
            environment={**preset.environment, **model_environment, **self.environment},
            pass_environment=self.pass_environment,
            output_bytes_max=self.output_bytes_max,
            account=self._account(),
            open_files_max=context.open_files_max,
            standard_input=PROMPT_FILE if preset.is_prompt_on_stdin else None,
            masked_variables=(self._key_variable,),
            tail_bytes=TAIL_BYTES,
            sandbox=self._sandbox,
        )

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
            self._sandbox_summary(),
        )

    @property
    def _preset(self) -> AgentPreset:
        return AGENT_PRESETS[self.agent]

    @property
    def _program(self) -> str:
        return self.program or self._preset.program

    @property
    def _key_variable(self) -> str:
        return self.key_variable or self._preset.key_variable

    @property
    def _key_from(self) -> str:
        return self.key_from or self._key_variable
