"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "agents",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("updated_us", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.JSON(), nullable=True),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("deleted_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agents")),
    )
    op.create_index(
        op.f("ix_agents_project_id_created_us_id"), "agents", ["project_id", "created_us", "id"], unique=False
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.JSON(), nullable=True),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("hint", sa.String(length=32), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("revoked_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
    )
    op.create_table(
        "calls",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("call_id", sa.String(length=64), nullable=False),
        sa.Column("turn_id", sa.String(length=64), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("item_id", sa.String(length=64), nullable=False),
        sa.Column("pos", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.JSON(), nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("is_async", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(length=12), nullable=False),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "call_id", name=op.f("pk_calls")),
    )
    op.create_index(op.f("ix_calls_session_id_state"), "calls", ["session_id", "state"], unique=False)
    op.create_table(
        "deletions",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("deleted_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", name=op.f("pk_deletions")),
    )
    op.create_table(
        "events",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("entries", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "seq", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_created_us"), "events", ["created_us"], unique=False)
    op.create_table(
        "idempotency",
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("route", sa.String(length=160), nullable=False),
        sa.Column("key_digest", sa.LargeBinary(), nullable=False),
        sa.Column("session_id", sa.String(length=64), nullable=True),
        sa.Column("body_digest", sa.LargeBinary(), nullable=False),
        sa.Column("outcome", sa.JSON(), nullable=True),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "route", "key_digest", name=op.f("pk_idempotency")),
    )
    op.create_index(op.f("ix_idempotency_created_us"), "idempotency", ["created_us"], unique=False)
    op.create_index(op.f("ix_idempotency_session_id"), "idempotency", ["session_id"], unique=False)
    op.create_table(
        "inbox",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("pos", sa.BigInteger(), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=12), nullable=False),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("accepted_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "pos", name=op.f("pk_inbox")),
    )
    op.create_table(
        "items",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("pos", sa.BigInteger(), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("turn_id", sa.String(length=64), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("type", sa.String(length=48), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=True),
        sa.Column("output_index", sa.Integer(), nullable=True),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("private", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("session_id", "pos", name=op.f("pk_items")),
        sa.UniqueConstraint("id", name=op.f("uq_items_id")),
    )
    op.create_index(
        op.f("ix_items_session_id_agent_id_pos"), "items", ["session_id", "agent_id", "pos"], unique=False
    )
    op.create_index(op.f("ix_items_turn_id_pos"), "items", ["turn_id", "pos"], unique=False)
    op.create_table(
        "session_configs",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "version", name=op.f("pk_session_configs")),
    )
    op.create_table(
        "session_metadata",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("key_digest", sa.LargeBinary(), nullable=False),
        sa.Column("pair_digest", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "key_digest", name=op.f("pk_session_metadata")),
    )
    op.create_index(
        op.f("ix_session_metadata_project_id_pair_digest"),
        "session_metadata",
        ["project_id", "pair_digest"],
        unique=False,
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("inline_agent", sa.Boolean(), nullable=False),
        sa.Column("agent_name", sa.JSON(), nullable=True),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("item_pos", sa.BigInteger(), nullable=False),
        sa.Column("inbox_pos", sa.BigInteger(), nullable=False),
        sa.Column("turn_pos", sa.BigInteger(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("last_active_us", sa.BigInteger(), nullable=False),
        sa.Column("environment", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("vault_ids", sa.JSON(), nullable=False),
        sa.Column("prompt_cache", sa.JSON(), nullable=True),
        sa.Column("review", sa.String(length=20), nullable=False),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("usage", sa.JSON(), nullable=True),
        sa.Column("usage_unknown", sa.Boolean(), nullable=False),
        sa.Column("inbox_count", sa.Integer(), nullable=False),
        sa.Column("open_calls", sa.Integer(), nullable=False),
        sa.Column("turn_id", sa.String(length=64), nullable=True),
        sa.Column("wake_at", sa.BigInteger(), nullable=True),
        sa.Column("deleted_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
    )
    op.create_index(
        op.f("ix_sessions_project_id_agent_id_created_us_id"),
        "sessions",
        ["project_id", "agent_id", "created_us", "id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_sessions_project_id_created_us_id"),
        "sessions",
        ["project_id", "created_us", "id"],
        unique=False,
    )
    op.create_index(op.f("ix_sessions_turn_id"), "sessions", ["turn_id"], unique=False)
    op.create_index(op.f("ix_sessions_wake_at"), "sessions", ["wake_at"], unique=False)
    op.create_table(
        "turns",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("subagent_id", sa.String(length=64), nullable=True),
        sa.Column("pos", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("config_version", sa.Integer(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("started_us", sa.BigInteger(), nullable=True),
        sa.Column("completed_us", sa.BigInteger(), nullable=True),
        sa.Column("active_us", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("usage", sa.JSON(), nullable=True),
        sa.Column("usage_unknown", sa.Boolean(), nullable=False),
        sa.Column("prompt_cache", sa.JSON(), nullable=True),
        sa.Column("outputs", sa.Integer(), nullable=False),
        sa.Column("model_calls", sa.Integer(), nullable=False),
        sa.Column("tool_calls", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_turns")),
    )
    op.create_index(op.f("ix_turns_session_id_pos"), "turns", ["session_id", "pos"], unique=True)
