"""The files and the output of a run as JSON."""

from typing import Annotated, Self

from msgspec import Meta

from hookmill.domain.ids import RunKey, run_id
from hookmill.domain.run_files import RunFile, RunFiles, RunOutput
from hookmill.presentation.view import View


class RunFileView(View, frozen=True):
    name: Annotated[str, Meta(description="Bytes that are not UTF-8 are written as `\\xff`.")]
    size: Annotated[int, Meta(description="In bytes.")]
    only_on_host: Annotated[
        str | None, Meta(description="The host that has the file, if it can't be downloaded here. Else null.")
    ]

    @classmethod
    def of(cls, file: RunFile) -> Self:
        name = file.name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        return cls(name=name, size=file.size, only_on_host=file.only_on_host)


class RunFilesView(View, frozen=True):
    files: Annotated[list[RunFileView], Meta(description="The files of the latest attempt, by name.")]
    more_files: Annotated[bool, Meta(description="Whether the package contains files that are not listed.")]

    @classmethod
    def of(cls, files: RunFiles) -> Self:
        return cls(files=[RunFileView.of(file) for file in files.files], more_files=files.has_more)


class RunOutputView(View, frozen=True):
    run_id: str
    output: Annotated[str | None, Meta(description="The output, or its end. Null if no output is known.")]
    size: Annotated[int | None, Meta(description="The size of the whole output in bytes. Null if it is unknown.")]
    is_cut: Annotated[bool | None, Meta(description="Whether `output` is not the whole. Null if it is unknown.")]

    @classmethod
    def of(cls, run: RunKey, output: RunOutput | None) -> Self:
        if output is None:
            return cls(run_id=run_id(run), output=None, size=None, is_cut=None)
        return cls(
            run_id=run_id(run),
            output=output.content.decode("utf-8", "backslashreplace"),
            size=output.size,
            is_cut=output.is_cut,
        )
