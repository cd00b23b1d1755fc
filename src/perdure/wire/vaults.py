"""Vaults and the credentials they hold; secrets go in and never come out."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, TypeAdapter

from perdure.wire.environment_rules import CredentialHost
from perdure.wire.metadata import Metadata
from perdure.wire.shapes import Omissible, Request, Resource, refusal

MAX_NAME_BYTES = 256
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset(
    {
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "GIT_SSL_CAINFO",
        "AWS_CA_BUNDLE",
        "PIP_CERT",
    }
)


def _check_name(name: str) -> str:
    name = name.strip()
    if not 1 <= len(name.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES:
        raise refusal(f"Invalid '{{param}}': expected 1 to {MAX_NAME_BYTES} bytes of UTF-8.")
    return name


def _check_https(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username
    except ValueError:
        host, user = None, None
    if not host or user is not None or parts.scheme.lower() != "https" or re.search(r"[\s\x00-\x1f]", url):
        raise refusal("Invalid '{param}': expected an https URL without credentials.")
    return url


def _check_time(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise refusal("Invalid '{param}': expected a time as in RFC 3339, such as 2030-01-31T12:00:00Z.")
    return text


def _check_secret_name(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise refusal(
            "Invalid '{param}': expected ASCII letters, digits and underscores, not starting with a digit."
        )
    if name.startswith("CODEX_") or name.upper() in _RESERVED:
        raise refusal("Invalid '{param}': this variable is reserved. Choose another name.")
    return name


def _check_secret_value(value: str) -> str:
    if not value or re.search(r"[\r\n\x00]", value):
        raise refusal("Invalid '{param}': expected a non-empty value without line breaks or NUL.")
    return value


def _check_hosts(hosts: list[str]) -> list[str]:
    if len(set(hosts)) != len(hosts):
        raise refusal("Invalid '{param}': a host is given twice.")
    return hosts


Name = Annotated[str, AfterValidator(_check_name)]
HttpsUrl = Annotated[str, Field(max_length=4096), AfterValidator(_check_https)]
Rfc3339 = Annotated[str, AfterValidator(_check_time)]
Secret = Annotated[str, Field(max_length=65_536), AfterValidator(_check_secret_value)]
AllowedHosts = Annotated[
    list[CredentialHost], Field(min_length=1, max_length=16), AfterValidator(_check_hosts)
]


class VaultCreate(Request):
    name: Omissible[Name] = None
    metadata: Metadata | None = None


class VaultUpdate(Request):
    """What is not in `model_fields_set` stays; a null name clears it."""

    name: Name | None = None
    metadata: Omissible[Metadata] = None


class Vault(Resource):
    id: str
    object: Literal["vault"] = "vault"
    name: str | None = None
    metadata: dict[str, str]
    created_at: int


class VaultDeleted(Resource):
    id: str
    object: Literal["vault.deleted"] = "vault.deleted"
    deleted: Literal[True] = True


class NoClientAuth(Request):
    type: Literal["none"]


class SecretClientAuth(Request):
    type: Literal["client_secret_basic", "client_secret_post"]
    client_secret: Secret = Field(repr=False)


class SecretClientAuthRotation(Request):
    """The method cannot change; no secret keeps the stored one."""

    type: Literal["client_secret_basic", "client_secret_post"]
    client_secret: Secret | None = Field(default=None, repr=False)


class OAuthRefreshParams(Request):
    client_id: Annotated[str, Field(min_length=1)]
    refresh_token: Secret = Field(repr=False)
    token_endpoint: HttpsUrl
    token_endpoint_auth: Annotated[NoClientAuth | SecretClientAuth, Field(discriminator="type")]
    resource: str | None = None
    scope: str | None = None


class OAuthParams(Request):
    type: Literal["mcp_oauth"]
    access_token: Secret = Field(repr=False)
    mcp_server_url: HttpsUrl
    expires_at: Rfc3339 | None = None
    refresh: OAuthRefreshParams | None = None


class BearerParams(Request):
    type: Literal["static_bearer"]
    token: Secret = Field(repr=False)
    mcp_server_url: HttpsUrl


class UnrestrictedParams(Request):
    type: Literal["unrestricted"]


class LimitedParams(Request):
    type: Literal["limited"]
    allowed_hosts: AllowedHosts


class VariableParams(Request):
    type: Literal["environment_variable"]
    secret_name: Annotated[str, AfterValidator(_check_secret_name)]
    secret_value: Secret = Field(repr=False)
    networking: Annotated[UnrestrictedParams | LimitedParams, Field(discriminator="type")]


class OAuthRefreshRotation(Request):
    """A null `scope` stops sending one; what is not in `model_fields_set` stays."""

    refresh_token: Secret | None = Field(default=None, repr=False)
    scope: str | None = None
    token_endpoint_auth: SecretClientAuthRotation | None = None


class OAuthRotation(Request):
    """A new token without `expires_at` clears the stored expiry."""

    type: Literal["mcp_oauth"]
    access_token: Secret | None = Field(default=None, repr=False)
    expires_at: Rfc3339 | None = None
    refresh: OAuthRefreshRotation | None = None


class BearerRotation(Request):
    type: Literal["static_bearer"]
    token: Secret = Field(repr=False)


class VariableRotation(Request):
    type: Literal["environment_variable"]
    secret_value: Secret = Field(repr=False)


class CredentialCreate(Request):
    name: Name
    auth: Annotated[OAuthParams | BearerParams | VariableParams, Field(discriminator="type")]
    metadata: Omissible[Metadata] = None


class CredentialUpdate(Request):
    """Rotation keeps the type; what is not in `model_fields_set` stays."""

    auth: Omissible[
        Annotated[OAuthRotation | BearerRotation | VariableRotation, Field(discriminator="type")]
    ] = None
    metadata: Omissible[Metadata] = None


class ClientAuth(Resource):
    type: Literal["none", "client_secret_basic", "client_secret_post"]


class OAuthRefresh(Resource):
    client_id: str
    token_endpoint: str
    token_endpoint_auth: ClientAuth
    resource: str | None = None
    scope: str | None = None


class OAuthAuth(Resource):
    type: Literal["mcp_oauth"] = "mcp_oauth"
    mcp_server_url: str
    expires_at: str | None = None
    refresh: OAuthRefresh | None = None


class BearerAuth(Resource):
    type: Literal["static_bearer"] = "static_bearer"
    mcp_server_url: str


class Unrestricted(Resource):
    type: Literal["unrestricted"] = "unrestricted"


class Limited(Resource):
    type: Literal["limited"] = "limited"
    allowed_hosts: list[str]


class VariableAuth(Resource):
    type: Literal["environment_variable"] = "environment_variable"
    secret_name: str
    networking: Annotated[Unrestricted | Limited, Field(discriminator="type")]


CredentialAuth = Annotated[OAuthAuth | BearerAuth | VariableAuth, Field(discriminator="type")]
CredentialAuthAdapter: TypeAdapter[CredentialAuth] = TypeAdapter(CredentialAuth)


class Credential(Resource):
    """A credential without its secrets. Times in Unix seconds."""

    id: str
    object: Literal["vault.credential"] = "vault.credential"
    vault_id: str
    name: str
    auth: CredentialAuth
    metadata: dict[str, str]
    created_at: int
    updated_at: int


class CredentialDeleted(Resource):
    id: str
    object: Literal["vault.credential.deleted"] = "vault.credential.deleted"
    deleted: Literal[True] = True
