"""Environments as the server answers them: without secrets, contents or set-up commands."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from perdure.wire.shapes import Resource

ContainerSize = Literal["small", "medium", "large"]
NetworkAccess = Literal["enabled", "disabled", "restricted"]
EnvironmentStatus = Literal["pending", "ready", "connected", "disconnected", "suspended", "expired", "failed"]


class Network(Resource):
    access: NetworkAccess
    allowed_domains: list[str] = Field(default_factory=list)


class Packages(Resource):
    npm: list[str] = Field(default_factory=list)
    python: list[str] = Field(default_factory=list)
    system: list[str] = Field(default_factory=list)


class Desktop(Resource):
    enabled: bool


class InlineFile(Resource):
    id: str
    type: Literal["inline"] = "inline"
    path: str
    size_bytes: int


class UploadedFile(Resource):
    """A copy of a Files API object."""

    id: str
    type: Literal["file_id"] = "file_id"
    file_id: str
    path: str
    size_bytes: int


class Plugin(Resource):
    type: Literal["inline"] = "inline"
    name: str
    description: str


class InlineSkill(Resource):
    type: Literal["inline"] = "inline"
    name: str
    description: str


class ReferencedSkill(Resource):
    """A stored skill with the concrete version the environment uses."""

    type: Literal["skill_reference"] = "skill_reference"
    skill_id: str
    name: str
    description: str
    version: str


HostedFile = Annotated[InlineFile | UploadedFile, Field(discriminator="type")]
HostedSkill = Annotated[InlineSkill | ReferencedSkill, Field(discriminator="type")]


class NoEnvironment(Resource):
    type: Literal["none"] = "none"


class HostedEnvironment(Resource):
    type: Literal["openai_hosted"] = "openai_hosted"
    id: str
    files: list[HostedFile] = Field(default_factory=list)
    skills: list[HostedSkill] = Field(default_factory=list)
    plugins: list[Plugin] = Field(default_factory=list)
    packages: Packages = Packages()
    network: Network = Network(access="enabled")
    capability_directories: list[str] = Field(default_factory=list)
    container_size: ContainerSize | None = None
    desktop: Desktop | None = None


class SelfHostedEnvironment(Resource):
    """`remote_url` is where an executor connects."""

    type: Literal["self_hosted"] = "self_hosted"
    id: str
    remote_url: str
    workspace_directory: str
    capability_directories: list[str] = Field(default_factory=list)


Environment = Annotated[
    NoEnvironment | HostedEnvironment | SelfHostedEnvironment, Field(discriminator="type")
]
EnvironmentAdapter: TypeAdapter[Environment] = TypeAdapter(Environment)


class EnvironmentFault(Resource):
    type: str
    code: str
    message: str


class EnvironmentState(Resource):
    """An environment as its events show it."""

    id: str
    type: str
    status: EnvironmentStatus
    error: EnvironmentFault | None = None


class EnvironmentInfo(Resource):
    """An environment by its own id."""

    id: str
    object: Literal["agent.environment"] = "agent.environment"
    type: Literal["openai_hosted", "self_hosted"]
    status: EnvironmentStatus
    files: list[HostedFile] = Field(default_factory=list)
    plugins: list[Plugin] = Field(default_factory=list)
    skills: list[HostedSkill] = Field(default_factory=list)


class EnvironmentFile(Resource):
    """A file in a connected environment."""

    object: Literal["agent.environment.file"] = "agent.environment.file"
    environment_id: str
    path: str
    size_bytes: int


class TemplateInlineFile(Resource):
    type: Literal["inline"] = "inline"
    path: str
    size_bytes: int


class TemplateUploadedFile(Resource):
    type: Literal["file_id"] = "file_id"
    file_id: str
    path: str


class TemplateReferencedSkill(Resource):
    """A skill whose version is resolved anew for each session."""

    type: Literal["skill_reference"] = "skill_reference"
    skill_id: str
    version: str | None = None


TemplateFile = Annotated[TemplateInlineFile | TemplateUploadedFile, Field(discriminator="type")]
TemplateSkill = Annotated[InlineSkill | TemplateReferencedSkill, Field(discriminator="type")]


class EnvironmentTemplate(Resource):
    id: str
    object: Literal["agent.environment.template"] = "agent.environment.template"
    name: str | None = None
    created_at: int
    updated_at: int
    files: list[TemplateFile] = Field(default_factory=list)
    network: Network = Network(access="enabled")
    packages: Packages = Packages()
    plugins: list[Plugin] = Field(default_factory=list)
    skills: list[TemplateSkill] = Field(default_factory=list)
    capability_directories: list[str] = Field(default_factory=list)
    desktop: Desktop | None = None


class EnvironmentTemplateDeleted(Resource):
    id: str
    object: Literal["agent.environment.template.deleted"] = "agent.environment.template.deleted"
    deleted: Literal[True] = True
