"""The tables, once, for SQLite and PostgreSQL.

Times are integer microseconds since the Unix epoch (`*_us`); positions and sequences count from 1
within their session and are assigned under the session's row lock, so they are dense and ordered.
Text that people or models wrote lives in JSON columns only: a JSON text can hold U+0000 on every
database, a plain text column cannot.
"""

from __future__ import annotations

from sqlalchemy import JSON as SqlJson
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Id = String(64)
JSON = SqlJson(none_as_null=True)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", Id, primary_key=True),
    Column("project_id", Id, nullable=False),
    Column("name", JSON, nullable=True),
    Column("scopes", JSON, nullable=False),
    Column("digest", LargeBinary, nullable=False, unique=True),
    Column("hint", String(32), nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("revoked_us", BigInteger, nullable=True),
)

agents = Table(
    "agents",
    metadata,
    Column("id", Id, primary_key=True),
    Column("project_id", Id, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
    Column("name", JSON, nullable=True),
    Column("settings", JSON, nullable=False),
    Column("metadata", JSON, nullable=False),
    # Deleted rows stay as tombstones, so that they remain usable as cursors.
    Column("deleted_us", BigInteger, nullable=True),
    Index(None, "project_id", "created_us", "id"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", Id, primary_key=True),
    Column("project_id", Id, nullable=False),
    # The root agent: a saved agent's id, or one minted for this session alone (`inline_agent`).
    Column("agent_id", Id, nullable=False),
    Column("inline_agent", Boolean, nullable=False),
    Column("agent_name", JSON, nullable=True),
    Column("config_version", Integer, nullable=False),
    Column("status", String(20), nullable=False),
    # Fencing: each owner bumps it, every write of an owner is conditional on it.
    Column("epoch", BigInteger, nullable=False),
    # The worker that runs the session, or ran it when it died; null while nobody has to.
    Column("owner", Id, nullable=True),
    # The last event sequence, item position and inbox position handed out.
    Column("seq", BigInteger, nullable=False),
    Column("item_pos", BigInteger, nullable=False),
    Column("inbox_pos", BigInteger, nullable=False),
    Column("turn_pos", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("last_active_us", BigInteger, nullable=False),
    Column("environment", JSON, nullable=False),
    Column("metadata", JSON, nullable=False),
    Column("vault_ids", JSON, nullable=False),
    Column("prompt_cache", JSON, nullable=True),
    Column("review", String(20), nullable=False),
    Column("error", JSON, nullable=True),
    Column("usage", JSON, nullable=True),
    Column("usage_unknown", Boolean, nullable=False),
    # What counts against the session's ceilings, and those that its agent or a privileged key set.
    Column("spent", JSON, nullable=True),
    Column("limits", JSON, nullable=True),
    # How many inbox rows and open calls there are, so that none are looked for when there are none.
    Column("inbox_count", Integer, nullable=False),
    Column("open_calls", Integer, nullable=False),
    # The unfinished root turn, if there is one.
    Column("turn_id", Id, nullable=True),
    # How many subagents there are, closed ones included, and how many of them have an unfinished turn.
    Column("subagents", Integer, nullable=False, server_default="0"),
    Column("subagents_running", Integer, nullable=False, server_default="0"),
    # When a sweep must look at the session again (deadlines); null when nothing is timed.
    Column("wake_at", BigInteger, nullable=True),
    Column("deleted_us", BigInteger, nullable=True),
    Index(None, "project_id", "created_us", "id"),
    Index(None, "project_id", "agent_id", "created_us", "id"),
    Index(None, "turn_id"),
    Index(None, "wake_at"),
)

# Deleted sessions whose rows are still to be removed; the session's own row stays as a tombstone.
deletions = Table(
    "deletions",
    metadata,
    Column("session_id", Id, primary_key=True),
    Column("deleted_us", BigInteger, nullable=False),
)

# The processes that run sessions of this database. A row says who an owner is; whether it lives is
# told by the lock its process holds in the database, and by how old its heartbeat is.
workers = Table(
    "workers",
    metadata,
    Column("id", Id, primary_key=True),
    Column("host", JSON, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_us", BigInteger, nullable=False),
    # By the database's clock.
    Column("heartbeat_us", BigInteger, nullable=False),
)

session_configs = Table(
    "session_configs",
    metadata,
    Column("session_id", Id, nullable=False),
    Column("version", Integer, nullable=False),
    Column("settings", JSON, nullable=False),
    PrimaryKeyConstraint("session_id", "version"),
)

session_metadata = Table(
    "session_metadata",
    metadata,
    Column("session_id", Id, nullable=False),
    Column("project_id", Id, nullable=False),
    # Digests, because keys and values may hold characters that text columns cannot.
    Column("key_digest", LargeBinary, nullable=False),
    Column("pair_digest", LargeBinary, nullable=False),
    PrimaryKeyConstraint("session_id", "key_digest"),
    Index(None, "project_id", "pair_digest"),
)

turns = Table(
    "turns",
    metadata,
    Column("id", Id, primary_key=True),
    Column("session_id", Id, nullable=False),
    Column("agent_id", Id, nullable=False),
    Column("subagent_id", Id, nullable=True),
    Column("pos", BigInteger, nullable=False),
    Column("status", String(20), nullable=False),
    # Model, effort and tier of the turn stay those of this version; functions follow the newest.
    Column("config_version", Integer, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("started_us", BigInteger, nullable=True),
    Column("completed_us", BigInteger, nullable=True),
    Column("active_us", BigInteger, nullable=False),
    Column("error", JSON, nullable=True),
    Column("usage", JSON, nullable=True),
    Column("usage_unknown", Boolean, nullable=False),
    Column("prompt_cache", JSON, nullable=True),
    # The next output_index, and what the turn has spent against its ceilings.
    Column("outputs", Integer, nullable=False),
    Column("model_calls", Integer, nullable=False),
    Column("tool_calls", Integer, nullable=False),
    Column("spent", JSON, nullable=True),
    Index(None, "session_id", "pos", unique=True),
)

# Every call of a model that was begun, with what its provider told: null where it told nothing.
model_calls = Table(
    "model_calls",
    metadata,
    Column("session_id", Id, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("id", Id, nullable=False, unique=True),
    Column("turn_id", Id, nullable=False),
    Column("agent_id", Id, nullable=False),
    # step: an answer of the agent; compaction: a summary of its history.
    Column("purpose", String(12), nullable=False),
    # The configured provider's name, and the model's name there; null when nobody lived to tell.
    Column("provider", Id, nullable=True),
    Column("model", JSON, nullable=True),
    Column("started_us", BigInteger, nullable=True),
    Column("first_output_us", BigInteger, nullable=True),
    Column("ended_us", BigInteger, nullable=False),
    # ok, cancelled, interrupted (its owner died), or the code of an error.
    Column("outcome", String(40), nullable=False),
    Column("input_tokens", BigInteger, nullable=True),
    Column("cached_tokens", BigInteger, nullable=True),
    Column("cache_write_tokens", BigInteger, nullable=True),
    Column("output_tokens", BigInteger, nullable=True),
    Column("reasoning_tokens", BigInteger, nullable=True),
    # The tokens are those that were told before the answer broke off.
    Column("is_partial", Boolean, nullable=False),
    # Billionths of the currency's unit, by the price that was configured then.
    Column("cost", BigInteger, nullable=True),
    Column("currency", String(3), nullable=True),
    PrimaryKeyConstraint("session_id", "number"),
)

items = Table(
    "items",
    metadata,
    Column("session_id", Id, nullable=False),
    Column("pos", BigInteger, nullable=False),
    Column("id", Id, nullable=False, unique=True),
    Column("turn_id", Id, nullable=False),
    Column("agent_id", Id, nullable=False),
    # The model call that produced the item, counted within its turn; null for what no model wrote.
    Column("step", Integer, nullable=True),
    Column("type", String(48), nullable=False),
    Column("status", String(20), nullable=True),
    Column("output_index", Integer, nullable=True),
    # The item as the protocol shows it, less id, turn_id, type and status.
    Column("data", JSON, nullable=False),
    # What only the harness sees: provider payload, notes to the model.
    Column("private", JSON, nullable=True),
    PrimaryKeyConstraint("session_id", "pos"),
    Index(None, "session_id", "agent_id", "pos"),
    Index(None, "turn_id", "pos"),
)

calls = Table(
    "calls",
    metadata,
    Column("session_id", Id, nullable=False),
    Column("call_id", Id, nullable=False),
    Column("turn_id", Id, nullable=False),
    Column("agent_id", Id, nullable=False),
    Column("item_id", Id, nullable=False),
    Column("pos", BigInteger, nullable=False),
    Column("name", JSON, nullable=False),
    Column("arguments", JSON, nullable=False),
    Column("is_async", Boolean, nullable=False),
    # open → answered (accepted) → applied (an item); or dropped when its turn ended first;
    # refused: the server answered the model itself.
    Column("state", String(12), nullable=False),
    Column("result", JSON, nullable=True),
    Column("created_us", BigInteger, nullable=False),
    PrimaryKeyConstraint("session_id", "call_id"),
    Index(None, "session_id", "state"),
)

inbox = Table(
    "inbox",
    metadata,
    Column("session_id", Id, nullable=False),
    Column("pos", BigInteger, nullable=False),
    Column("agent_id", Id, nullable=False),
    Column("kind", String(12), nullable=False),
    Column("payload", JSON, nullable=False),
    Column("accepted_us", BigInteger, nullable=False),
    PrimaryKeyConstraint("session_id", "pos"),
)

# Agents that agents of the session created. They have turns, items, input and compactions of their own,
# under their own id; a closed one stays listed.
subagents = Table(
    "subagents",
    metadata,
    Column("session_id", Id, nullable=False),
    Column("pos", BigInteger, nullable=False),
    Column("id", Id, nullable=False, unique=True),
    # The root agent or another subagent, and how far below the root this one is: its children are at 1.
    Column("parent_agent_id", Id, nullable=False),
    Column("depth", Integer, nullable=False),
    Column("name", JSON, nullable=False),
    # What it was created for, as content of the protocol.
    Column("instructions", JSON, nullable=False),
    # active or closed; whether it runs is told by its unfinished turn.
    Column("status", String(12), nullable=False),
    Column("opened_us", BigInteger, nullable=False),
    Column("closed_us", BigInteger, nullable=True),
    Column("turn_id", Id, nullable=True),
    PrimaryKeyConstraint("session_id", "pos"),
)

# What an agent waits for: one row for each wait_for_subagents_call that is in progress.
waits = Table(
    "waits",
    metadata,
    Column("session_id", Id, nullable=False),
    Column("item_id", Id, nullable=False),
    Column("agent_id", Id, nullable=False),
    # The ids of the subagents, and whether all of them have to rest or any of them.
    Column("targets", JSON, nullable=False),
    Column("for_any", Boolean, nullable=False),
    Column("deadline_us", BigInteger, nullable=False),
    PrimaryKeyConstraint("session_id", "item_id"),
)

# Large texts that rows of the session refer to, once each.
blobs = Table(
    "blobs",
    metadata,
    Column("session_id", Id, nullable=False),
    # SHA-256 of `data`, in hexadecimal.
    Column("digest", Id, nullable=False),
    Column("size", BigInteger, nullable=False),
    # UTF-8, with lone surrogates encoded as they are.
    Column("data", LargeBinary, nullable=False),
    PrimaryKeyConstraint("session_id", "digest"),
)

# What the model is shown in place of an agent's oldest items, which stay as they are. The newest row
# counts, and covers what those before it covered.
compactions = Table(
    "compactions",
    metadata,
    Column("session_id", Id, nullable=False),
    Column("agent_id", Id, nullable=False),
    Column("number", Integer, nullable=False),
    # The position of the last item it stands for.
    Column("through_pos", BigInteger, nullable=False),
    # summary: written by a model; trim: cut by rule.
    Column("method", String(12), nullable=False),
    # The summary, the requests that are finished, what is open, and the items that are shown all the same.
    Column("data", JSON, nullable=False),
    # Facts that are restated word for word, with where each was found.
    Column("pins", JSON, nullable=False),
    # Tokens of the request before and after, estimated, and what the provider reported.
    Column("tokens", JSON, nullable=False),
    # Who wrote the summary.
    Column("model", JSON, nullable=True),
    Column("dropped", JSON, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    PrimaryKeyConstraint("session_id", "agent_id", "number"),
)

# One row for each committed transaction of a session; `entries` are its events in small form
# (type and references), the last of which has the sequence `seq`.
events = Table(
    "events",
    metadata,
    Column("session_id", Id, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("entries", JSON, nullable=False),
    PrimaryKeyConstraint("session_id", "seq"),
    Index(None, "created_us"),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("project_id", Id, nullable=False),
    Column("route", String(160), nullable=False),
    Column("key_digest", LargeBinary, nullable=False),
    # Keys of input to a session are kept as long as the session.
    Column("session_id", Id, nullable=True),
    Column("body_digest", LargeBinary, nullable=False),
    Column("outcome", JSON, nullable=True),
    Column("created_us", BigInteger, nullable=False),
    PrimaryKeyConstraint("project_id", "route", "key_digest"),
    Index(None, "created_us"),
    Index(None, "session_id"),
)
