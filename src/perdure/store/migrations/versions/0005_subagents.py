"""Subagents: agents that agents of a session created, and what waits for them."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    for name in ("subagents", "subagents_running"):
        op.add_column("sessions", sa.Column(name, sa.Integer(), nullable=False, server_default="0"))
    op.create_table(
        "subagents",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("pos", sa.BigInteger(), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("parent_agent_id", sa.String(length=64), nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("name", sa.JSON(), nullable=False),
        sa.Column("instructions", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(length=12), nullable=False),
        sa.Column("opened_us", sa.BigInteger(), nullable=False),
        sa.Column("closed_us", sa.BigInteger(), nullable=True),
        sa.Column("turn_id", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("session_id", "pos", name=op.f("pk_subagents")),
        sa.UniqueConstraint("id", name=op.f("uq_subagents_id")),
    )
    op.create_table(
        "waits",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("item_id", sa.String(length=64), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("targets", sa.JSON(), nullable=False),
        sa.Column("for_any", sa.Boolean(), nullable=False),
        sa.Column("deadline_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session_id", "item_id", name=op.f("pk_waits")),
    )
