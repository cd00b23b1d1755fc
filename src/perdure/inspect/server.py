"""Sessions of a running server of the Agents API, over plain HTTP; only GET, only what is asked for."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.parse import quote, urlencode, urlsplit

from perdure.inspect.exports import Resource
from perdure.inspect.faults import Unreadable

PAGE = 100
EVENT_PAGE = 1000
TIMEOUT = 60.0
"""Seconds for one answer."""


class _NotThere(Unreadable):
    """The server answered 404."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could carry the key to somebody else."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None


class ServerReader:
    """Reads sessions from one server.

    Args:
        url: where the server is, with or without the `/v1` of its API.
        api_key: a key that may read.

    Raises:
        Unreadable: `url` is none that can be asked.
    """

    is_snapshot = False

    def __init__(self, url: str, api_key: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Unreadable(f"{url} is no address of a server; it looks like http://127.0.0.1:8700.")
        self._root = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {api_key}", "OpenAI-Beta": "agents=v1"}
        self._opener = urllib.request.build_opener(_NoRedirect)

    def session(self, session_id: str) -> Resource:
        """The session."""
        try:
            found = self._get(self._session(session_id))
        except _NotThere as error:
            raise Unreadable(f"{self._root} has no session {session_id} that this key may read.") from error
        if found.get("id") != session_id:
            raise Unreadable(f"{self._root} does not answer as a server of the Agents API.")
        return found

    def turns(self, session_id: str, subagent_id: str | None) -> Sequence[Resource]:
        """The turns of the root agent, or of a subagent."""
        return self._pages(self._owner(session_id, subagent_id) + "/turns")

    def items(self, session_id: str, subagent_id: str | None) -> Sequence[Resource]:
        """The items of the root agent, or of a subagent."""
        return self._pages(self._owner(session_id, subagent_id) + "/items")

    def subagents(self, session_id: str) -> Sequence[Resource]:
        """The subagents; none on a server that has no such list."""
        try:
            return self._pages(self._session(session_id) + "/subagents")
        except _NotThere:
            return ()

    def events(self, session_id: str) -> Sequence[Resource]:
        """The stored events, which perdure keeps and other servers do not."""
        try:
            return self._pages(
                f"/perdure/v1/sessions/{quote(session_id, safe='')}/events", {"limit": EVENT_PAGE}
            )
        except _NotThere as error:
            raise Unreadable(f"{self._root} keeps no events of {session_id}: {error}") from error

    def _session(self, session_id: str) -> str:
        return f"/v1/agents/sessions/{quote(session_id, safe='')}"

    def _owner(self, session_id: str, subagent_id: str | None) -> str:
        own = self._session(session_id)
        return own if subagent_id is None else f"{own}/subagents/{quote(subagent_id, safe='')}"

    def _pages(self, path: str, query: Mapping[str, Any] | None = None) -> list[Resource]:
        asked = dict(query or {"limit": PAGE, "order": "asc"})
        found: list[Resource] = []
        while True:
            page = self._get(f"{path}?{urlencode(asked)}")
            entries = page.get("data")
            if not isinstance(entries, list):
                raise Unreadable(f"{self._root}{path} does not answer with a list.")
            found += entries
            after = page.get("last_id") or (entries[-1].get("id") if entries else None)
            if not page.get("has_more") or after is None:
                return found
            if after == asked.get("after"):
                raise Unreadable(f"{self._root}{path} gives the same page again and again.")
            asked["after"] = after

    def _get(self, path: str) -> dict[str, Any]:
        request = urllib.request.Request(self._root + path, headers=self._headers)
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                body = answer.read()
        except urllib.error.HTTPError as error:
            kind = _NotThere if error.code == 404 else Unreadable
            with error:
                raise kind(f"{self._root}: {_reason(error.code, error.read())}") from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise Unreadable(f"{self._root} cannot be reached: {reason}") from error
        try:
            found = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"{self._root} does not answer as a server of the Agents API.") from error
        if not isinstance(found, dict):
            raise Unreadable(f"{self._root} does not answer as a server of the Agents API.")
        return found


def _reason(status: int, body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"the request was refused with status {status}"
