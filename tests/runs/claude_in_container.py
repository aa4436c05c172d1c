"""A program that performs a run with a real Claude Code in a container, whose network reaches only the model endpoint.

Execute it in a network namespace of its own: `unshare --net python -m tests.runs.claude_in_container ENGINE IMAGE`. It
prints what happened, as JSON.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hookmill.domain.run import Ended
from hookmill.domain.workspace import CheckoutCommits
from hookmill.runs.package import write_package
from hookmill.runs.runners import AgentSettings, RunnerContext
from hookmill.runs.runners.container import ContainerOptions
from tests.runs.samples import always_continue, sample_run
from tests.support.model_endpoint import ToolUse, model_endpoint

KEY = "sk-canary-0123456789"
SUBNET, GATEWAY = "10.89.7.0/24", "10.89.7.1"
COMMAND = "pwd; cat README.md; echo reviewed > ../outputs/summary.md; touch ../x"


def main(engine: str, image: str):
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    create = [engine, "network", "create", "--internal", f"--subnet={SUBNET}", "models"]
    subprocess.run(create, check=True, capture_output=True)
    os.environ["AGENT_KEY"] = KEY
    with (
        tempfile.TemporaryDirectory() as directory,
        model_endpoint(ToolUse("Bash", {"command": COMMAND}), address="0.0.0.0") as endpoint,
    ):
        package = write_package(Path(directory, "runs"), sample_run(), b'{"a": 1}', check_out=check_out)
        settings = AgentSettings(
            agent="claude",
            key_from="AGENT_KEY",
            arguments=("--allowedTools", "Bash"),
            environment={"ANTHROPIC_BASE_URL": f"http://{GATEWAY}:{endpoint.port}"},
            sandbox="container",
            container=ContainerOptions(engine=engine, image=image, network="models"),
            time_limit_seconds=90,
        )
        result = settings.create_runner(RunnerContext()).run(package, always_continue)
        assert isinstance(result, Ended)
        seen = {
            "state": result.state.value,
            "result": result.report.result if result.report is not None else result.output_tail,
            "summary": result.outputs["summary.md"].text,
            "keys": endpoint.keys,
            "prompts": endpoint.prompts,
            "is_key_shown": KEY in (package.directory / "output.log").read_text(),
        }
        print(json.dumps(seen))


def check_out(target: Path) -> CheckoutCommits:
    target.mkdir()
    (target / "README.md").write_text("checked out\n")
    return CheckoutCommits(commit="0" * 40)


if __name__ == "__main__":
    main(*sys.argv[1:])
