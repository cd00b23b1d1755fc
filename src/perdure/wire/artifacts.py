"""What a session leaves behind: artifacts of hosted turns, and traces of root turns."""

from __future__ import annotations

from typing import Any, Literal

from perdure.wire.shapes import Resource


class Artifact(Resource):
    """An immutable file that a completed turn published; `path` is where it was. Times in Unix seconds."""

    id: str
    object: Literal["agent.session.artifact"] = "agent.session.artifact"
    session_id: str
    turn_id: str
    environment_id: str
    path: str
    size_bytes: int
    created_at: int


class ArtifactDeleted(Resource):
    id: str
    object: Literal["agent.session.artifact.deleted"] = "agent.session.artifact.deleted"
    deleted: Literal[True] = True


class Trace(Resource):
    """The published spans of a root turn (whose id it has), as an OTLP/JSON export request."""

    id: str
    object: Literal["agent.session.trace"] = "agent.session.trace"
    session_id: str
    created_at: int
    otlp: dict[str, Any]
