"""Environments as clients ask for them, and templates of hosted ones."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, TypeAdapter, model_validator

from perdure.wire.environment_resources import ContainerSize, NetworkAccess
from perdure.wire.environment_rules import (
    MAX_ARCHIVE_BASE64,
    MAX_DOMAINS,
    MAX_FILE_BASE64,
    MAX_FILES,
    MAX_INLINE_FILE,
    MAX_INLINE_TOTAL,
    MAX_PATH,
    AbsolutePath,
    CapabilityDirectories,
    EnvironmentVariables,
    Host,
    WorkspacePath,
    base64_size,
    nested_destination,
)
from perdure.wire.shapes import Omissible, Request, refusal

ShortId = Annotated[str, Field(min_length=1, max_length=64)]
MAX_VAULTS = 10


def _check_vaults(vault_ids: list[str]) -> list[str]:
    distinct = list(dict.fromkeys(vault_ids))
    if len(distinct) > MAX_VAULTS:
        raise refusal(
            f"Invalid '{{param}}': array too long. Expected at most {MAX_VAULTS} different vaults, but got "
            f"{len(distinct)} instead."
        )
    return distinct


VaultIds = Annotated[list[Annotated[str, Field(min_length=1, max_length=256)]], AfterValidator(_check_vaults)]
"""Vaults of a session or an environment, each once."""


def _check_version(version: str) -> str:
    if not re.fullmatch(r"latest|[1-9][0-9]{0,17}", version):
        raise refusal("Invalid '{param}': expected a positive integer as a string, or 'latest'.")
    return version


SkillVersion = Annotated[str, AfterValidator(_check_version)]


class InlineFileParams(Request):
    type: Literal["inline"]
    path: WorkspacePath
    data: Annotated[str, Field(max_length=MAX_FILE_BASE64, repr=False)]

    @model_validator(mode="after")
    def _check_data(self) -> InlineFileParams:
        size = base64_size(self.data)
        if size is None:
            raise refusal("Invalid '{param}': expected standard base64.", "data")
        if size > MAX_INLINE_FILE:
            raise refusal(
                f"Invalid '{{param}}': an inline file may have at most {MAX_INLINE_FILE:,} bytes.", "data"
            )
        return self


class UploadedFileParams(Request):
    type: Literal["file_id"]
    path: WorkspacePath
    file_id: Annotated[str, Field(min_length=1, max_length=256)]


FileParams = Annotated[InlineFileParams | UploadedFileParams, Field(discriminator="type")]
FileParamsAdapter: TypeAdapter[FileParams] = TypeAdapter(FileParams)
"""Body of uploading a file to a connected environment."""


class NetworkParams(Request):
    access: NetworkAccess
    allowed_domains: Annotated[list[Host], Field(max_length=MAX_DOMAINS)] | None = None
    blocked_domains: list[Host] | None = None

    @model_validator(mode="after")
    def _check_domains(self) -> NetworkParams:
        if self.allowed_domains and self.blocked_domains:
            raise refusal(
                "Invalid '{param}': domains are either allowed or blocked. Give one of the two lists.",
                "blocked_domains",
            )
        for name in ("allowed_domains", "blocked_domains"):
            if getattr(self, name) and self.access != "restricted":
                raise refusal("Invalid '{param}': a list of domains needs access 'restricted'.", name)
        if self.allowed_domains == [] and self.access == "restricted" and not self.blocked_domains:
            raise refusal(
                "Invalid '{param}': name at least one domain, or use access 'disabled'.", "allowed_domains"
            )
        return self


class PackagesParams(Request):
    npm: list[Annotated[str, Field(min_length=1)]] | None = None
    python: list[Annotated[str, Field(min_length=1)]] | None = None
    system: list[Annotated[str, Field(min_length=1)]] | None = None


class SetupCommand(Request):
    command: Annotated[str, Field(min_length=1, max_length=65_536, repr=False)]
    cwd: Annotated[AbsolutePath, Field(max_length=MAX_PATH)] | None = None


class DesktopParams(Request):
    enabled: bool


class ArchiveSource(Request):
    type: Literal["base64"]
    media_type: Literal["application/zip"]
    data: Annotated[str, Field(min_length=1, max_length=MAX_ARCHIVE_BASE64, repr=False)]

    @model_validator(mode="after")
    def _check_data(self) -> ArchiveSource:
        if base64_size(self.data) is None:
            raise refusal("Invalid '{param}': expected standard base64.", "data")
        return self


class _InlineCapability(Request):
    type: Literal["inline"]
    name: ShortId
    description: str
    source: ArchiveSource


class PluginParams(_InlineCapability):
    """A plugin as one ZIP."""


class InlineSkillParams(_InlineCapability):
    """A skill as one ZIP."""


class ReferencedSkillParams(Request):
    type: Literal["skill_reference"]
    skill_id: ShortId
    version: SkillVersion | None = None


SkillParams = Annotated[InlineSkillParams | ReferencedSkillParams, Field(discriminator="type")]


class _HostedFields(Request):
    """What can be said of a hosted environment, in a request and in a template."""

    files: Annotated[list[FileParams], Field(max_length=MAX_FILES)] | None = None
    env: Annotated[EnvironmentVariables | None, Field(repr=False)] = None
    network: NetworkParams | None = None
    packages: PackagesParams | None = None
    setup_commands: list[SetupCommand] | None = None
    skills: list[SkillParams] | None = None
    plugins: list[PluginParams] | None = None
    capability_directories: CapabilityDirectories | None = None
    desktop: DesktopParams | None = None

    @model_validator(mode="after")
    def _check_files(self) -> _HostedFields:
        files = self.files or []
        total = sum(base64_size(file.data) or 0 for file in files if file.type == "inline")
        if total > MAX_INLINE_TOTAL:
            raise refusal(
                f"Invalid '{{param}}': inline files may have at most {MAX_INLINE_TOTAL:,} bytes together.",
                "files",
            )
        nested = nested_destination([file.path for file in files])
        if nested is not None:
            raise refusal(
                "Invalid '{param}': the path is used by another file, or one lies below the other.",
                "files",
                nested,
                "path",
            )
        return self


class NoEnvironmentParams(Request):
    """Model and service-side tools only."""

    type: Literal["none"]


class HostedEnvironmentParams(_HostedFields):
    """A sandbox run by the service: an existing one, or a new one by template and inline fields."""

    type: Literal["openai_hosted"]
    environment_id: Omissible[Annotated[str, Field(min_length=1, max_length=256)]] = None
    environment_template_id: Omissible[ShortId] = None
    container_size: Omissible[ContainerSize] = None

    @model_validator(mode="after")
    def _check_existing(self) -> HostedEnvironmentParams:
        if self.environment_id is None:
            return self
        for name in HostedEnvironmentParams.model_fields:
            if name not in ("type", "environment_id") and getattr(self, name) is not None:
                raise refusal(
                    "Invalid '{param}': an existing environment_id cannot be combined with other settings of "
                    "the environment.",
                    name,
                )
        return self


class SelfHostedEnvironmentParams(Request):
    """The application's own compute, connected by an executor."""

    type: Literal["self_hosted"]
    workspace_directory: AbsolutePath
    capability_directories: CapabilityDirectories | None = None


EnvironmentParams = Annotated[
    NoEnvironmentParams | HostedEnvironmentParams | SelfHostedEnvironmentParams, Field(discriminator="type")
]


class PrewarmedEnvironmentParams(_HostedFields):
    type: Literal["openai_hosted"]
    environment_template_id: Omissible[ShortId] = None


class EnvironmentCreate(Request):
    """Body of preparing a hosted environment before a session uses it."""

    environment: PrewarmedEnvironmentParams
    vault_ids: VaultIds | None = None


class TemplateCreate(_HostedFields):
    """Body of creating a template."""

    name: Annotated[str, Field(max_length=128)] | None = None


class TemplateUpdate(TemplateCreate):
    """Body of updating a template: fields in `model_fields_set` replace, null resets, the others stay."""
