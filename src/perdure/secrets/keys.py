"""API keys: how they look, how they are kept, and what they allow.

A key reads `perdure_<public id>_<43 characters>`. Only the SHA-256 of the whole text is stored: the
text holds 256 random bits, so there is nothing that a slow hash would add.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import string
from dataclasses import dataclass
from typing import Literal, get_args

Scope = Literal["api.agents.read", "api.agents.write", "api.metrics.read", "api.limits.write"]

# Those of a project's clients; the metrics tell of all projects and are the operator's, and so is it to
# let a session have more than the configured ceilings allow.
SCOPES: tuple[Scope, ...] = ("api.agents.read", "api.agents.write")
EVERY_SCOPE: tuple[Scope, ...] = get_args(Scope)
KEY_PREFIX = "perdure_"

_ALPHABET = string.digits + string.ascii_letters
_PUBLIC_LENGTH = 12
_SECRET_LENGTH = 43


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is known of a key once its text has been handed out.

    `id` is `key_` and the public part of the text; `hint` is what may be shown of the text; times are
    microseconds since 1970, `revoked_us` is None while the key works.
    """

    id: str
    project_id: str
    name: str
    scopes: frozenset[Scope]
    created_us: int
    revoked_us: int | None
    hint: str

    @property
    def revoked(self) -> bool:
        return self.revoked_us is not None

    def allows(self, scope: Scope) -> bool:
        """Whether the key works and has the scope. Writing does not include reading."""
        return not self.revoked and scope in self.scopes


def new_key() -> tuple[str, str, bytes]:
    """A fresh key as `(key id, secret text, digest of the text)`. The text exists nowhere else."""
    public = "".join(secrets.choice(_ALPHABET) for _ in range(_PUBLIC_LENGTH))
    secret = "".join(secrets.choice(_ALPHABET) for _ in range(_SECRET_LENGTH))
    text = f"{KEY_PREFIX}{public}_{secret}"
    return f"key_{public}", text, digest(text)


def digest(secret: str) -> bytes:
    """The 32 bytes under which a key is stored and found."""
    # A header may hold anything; surrogates must not turn a wrong key into an internal error.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def matches(secret: str, stored: bytes) -> bool:
    """Whether the text belongs to the stored digest, in constant time."""
    return hmac.compare_digest(digest(secret), stored)


def hint(secret: str) -> str:
    """What may be shown of a key: the public part of ours, four characters of a long foreign one."""
    parts = secret.removeprefix(KEY_PREFIX).split("_")
    if secret.startswith(KEY_PREFIX) and len(parts) == 2 and len(parts[1]) == _SECRET_LENGTH:
        return f"{KEY_PREFIX}{parts[0]}_…"
    return f"{secret[:4]}…" if len(secret) >= 24 else "…"


def scope_of(word: str) -> Scope:
    """The scope for `read`, `write`, `metrics`, `limits` or its full name.

    Raises:
        ValueError: it is anything else.
    """
    for short, scope in zip(("read", "write", "metrics", "limits"), EVERY_SCOPE, strict=True):
        if word in (scope, short):
            return scope
    raise ValueError(f"unknown scope {word!r}; allowed: read, write, metrics, limits")
