"""What model calls used and cost: one row for each, and sums by turn and session."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("sessions", sa.Column("spent", sa.JSON(), nullable=True))
    op.add_column("sessions", sa.Column("limits", sa.JSON(), nullable=True))
    op.add_column("turns", sa.Column("spent", sa.JSON(), nullable=True))
    op.create_table(
        "model_calls",
        sa.Column("session_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("turn_id", sa.String(length=64), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("purpose", sa.String(length=12), nullable=False),
        sa.Column("provider", sa.String(length=64), nullable=True),
        sa.Column("model", sa.JSON(), nullable=True),
        sa.Column("started_us", sa.BigInteger(), nullable=True),
        sa.Column("first_output_us", sa.BigInteger(), nullable=True),
        sa.Column("ended_us", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.String(length=40), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cache_write_tokens", sa.BigInteger(), nullable=True),
        sa.Column("output_tokens", sa.BigInteger(), nullable=True),
        sa.Column("reasoning_tokens", sa.BigInteger(), nullable=True),
        sa.Column("is_partial", sa.Boolean(), nullable=False),
        sa.Column("cost", sa.BigInteger(), nullable=True),
        sa.Column("currency", sa.String(length=3), nullable=True),
        sa.PrimaryKeyConstraint("session_id", "number", name=op.f("pk_model_calls")),
        sa.UniqueConstraint("id", name=op.f("uq_model_calls_id")),
    )
