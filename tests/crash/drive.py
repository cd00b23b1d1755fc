"""Driving one session against servers that die: each POST is repeated, with its key, until it is answered."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from openai import APIConnectionError, OpenAI
from tests.conformance.scripts import SETTINGS

from .database import Storage
from .forge import Forge, ServerDied
from .model import Model, provider_table
from .witness import Json, Seen, Witness, check_snapshot

T = TypeVar("T")
DEADLINE = 60.0
PAUSE = 0.02
KILLED = -9


def write_config(
    home: Path, model: Model, settings: str = SETTINGS, table: Callable[[str], str] = provider_table
) -> Path:
    """The settings file of a server that uses the model; `home` is made. `table` is the provider's."""
    home.mkdir(parents=True, exist_ok=True)
    config = home / "perdure.toml"
    config.write_text(settings + table(model.provider.base_url), "utf-8")
    return config


class Follower:
    """Collects the events of a stream on a thread, until it ends or breaks."""

    def __init__(self, client: OpenAI, session_id: str) -> None:
        self._stream = client.beta.agents.sessions.events.stream(session_id)
        self.events: list[Json] = []
        self._arrived = threading.Condition()
        self._broken = False
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def wait(self, kind: str) -> list[Json]:
        """The events up to now, once one of this type has arrived or the stream has broken."""

        def arrived() -> bool:
            return self._broken or any(event["type"] == kind for event in self.events)

        with self._arrived:
            assert self._arrived.wait_for(arrived, DEADLINE), f"not told; told were {self.events}"
            return list(self.events)

    @property
    def is_broken(self) -> bool:
        """Whether the stream has ended, in whatever way."""
        return self._broken

    def wait_end(self) -> None:
        """Return once the stream has ended."""
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive(), "the stream is still open"

    def close(self) -> None:
        with contextlib.suppress(OSError):
            # Closing alone would leave the thread in recv.
            network = self._stream.response.extensions["network_stream"]
            network.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self._thread.join(DEADLINE)

    def _follow(self) -> None:
        with contextlib.suppress(Exception):  # a stream that breaks is what these tests are about
            for event in self._stream:
                with self._arrived:
                    self.events.append(event.to_dict())
                    self._arrived.notify_all()
        with self._arrived:
            self._broken = True
            self._arrived.notify_all()


class Drive:
    """One session and its servers. The n-th server runs with the n-th of `faults`, later ones without.

    `deaths` are the faults that were reached.
    """

    def __init__(
        self,
        forge: Forge,
        model: Model,
        home: Path,
        faults: Sequence[str] = (),
        *,
        url: str | None = None,
        **environ: str,
    ) -> None:
        self.config = self._configure(home, model)
        self.storage = Storage(home / "data", url)
        self.model = model
        self.deaths: list[str] = []
        self.witness = Witness()
        self.session_id: str | None = None
        self._forge = forge
        self._left = list(faults)
        self._fault: str | None = None
        self._environ = environ
        self._followers: list[Follower] = []
        self._attached = False
        self._keys = 0
        self._start()

    # ---- how its servers are reached

    def _configure(self, home: Path, model: Model) -> Path:
        return write_config(home, model)

    def _begin(self, environ: dict[str, str]) -> None:
        """Start one server; raises ServerDied."""
        self._forge.start(self.config, self.storage, environ)

    def _connect(self, base_url: str) -> OpenAI:
        return OpenAI(
            base_url=base_url,
            api_key=self._forge.api_key,
            max_retries=0,
            timeout=DEADLINE,
            _strict_response_validation=True,
        )

    def _follow(self, session_id: str) -> None:
        """Open the next stream."""
        self._followers.append(Follower(self._client, session_id))

    # ---- what a client does

    def call(self, action: Callable[[OpenAI], T]) -> T:
        """The action's result; it is repeated for as long as the server dies under it."""
        while True:
            try:
                if not self._attached:
                    self._attach()
                return action(self._client)
            except APIConnectionError:
                self._bury()
                self._start()

    def create(self, text: str, *, metadata: dict[str, str] | None = None, **agent: Any) -> str:
        """Create the session."""
        headers = {"Idempotency-Key": self._key()}
        created = self.call(
            lambda client: client.beta.agents.sessions.create(
                agent=agent,  # type: ignore[arg-type]
                environment={"type": "none"},
                input=text,
                metadata=metadata or {},
                extra_headers=headers,
            )
        )
        self.session_id = created.id
        self._attached = False
        return created.id

    def send(self, *events: Json) -> None:
        """Submit input events."""
        key, session_id = self._key(), self._known()
        self.call(
            lambda client: client.beta.agents.sessions.events.create(
                session_id,
                events=events,  # type: ignore[arg-type]
                idempotency_key=key,
            )
        )

    def say(self, text: str) -> None:
        part = {"type": "input_text", "text": text}
        user = {"type": "message", "role": "user", "content": [part]}
        self.send({"type": "agent.session.input.message", "input": [user]})

    def answer(self, action: Json, output: str) -> None:
        """Post the result of a call."""
        result = {"type": "agent.session.input.tool_result", "success": True, "output": output}
        self.witness.posting = action["call_id"]
        self.send({**result, "turn_id": action["turn_id"], "call_id": action["call_id"]})
        self.witness.acknowledged[action["call_id"]] = output
        self.witness.posting = None

    def look(self) -> Seen:
        """The session as it is now."""
        session_id = self._known()

        def read(client: OpenAI) -> Seen:
            sessions = client.beta.agents.sessions
            return Seen(
                sessions.retrieve(session_id).to_dict(),
                [item.to_dict() for item in sessions.items.list(session_id, order="asc", limit=100)],
                [turn.to_dict() for turn in sessions.turns.list(session_id, order="asc", limit=100)],
            )

        seen = self.call(read)
        self.witness.note(seen)
        return seen

    def until(self, accept: Callable[[Seen], bool]) -> Seen:
        """Look until what is seen is accepted."""
        deadline = time.monotonic() + DEADLINE
        while not accept(seen := self.look()):
            assert time.monotonic() < deadline, f"not reached; last seen: {str(seen)[:4000]}"
            time.sleep(PAUSE)
        return seen

    # ---- what happens to its servers

    def check_snapshot(self) -> None:
        """A stream opened now tells what a waiting or idle session is."""
        session_id = self._known()

        def read(client: OpenAI) -> tuple[list[Json], Json] | None:
            session = client.beta.agents.sessions.retrieve(session_id).to_dict()
            follower = Follower(client, session_id)
            events = follower.wait(f"agent.session.{session['status']}")
            follower.close()
            return (events, session) if any("session" in event for event in events) else None

        told = self.call(read)
        if told is None:
            # The server died; the next request starts another one.
            return self.check_snapshot()
        check_snapshot(*told)

    def restart(self) -> int:
        """End the server with SIGTERM and start the next one; returns the exit status."""
        self.tell_to_stop()
        return self.replace()

    def tell_to_stop(self) -> None:
        """Send SIGTERM, and return when the server has begun to stop: it ends its event streams first."""
        self._forge.send_signal(signal.SIGTERM)
        self._followers[-1].wait_end()

    def replace(self) -> int:
        """Start the next server once this one has ended; returns the exit status."""
        status = self._forge.wait()
        self._client.close()
        self._start()
        return status

    def stop(self) -> int:
        """End the last server, and keep what its streams told; returns its exit status."""
        status = self._forge.stop()
        if status == KILLED and self._fault is not None:
            self.deaths.append(self._fault)
        self.collect()
        return status

    def collect(self) -> None:
        """Close the streams and keep what they told."""
        for follower in self._followers:
            follower.close()
        self.witness.streams = [follower.events for follower in self._followers]

    def _start(self) -> None:
        while True:
            self._fault = self._left.pop(0) if self._left else None
            environ = {**self._environ, "PERDURE_FAULT": self._fault or ""}
            try:
                self._begin(environ)
                break
            except ServerDied as death:
                self._note_death(death.status)
        self._client = self._connect(self._forge.base_url)
        self._attached = False

    def _bury(self) -> None:
        self._note_death(self._forge.wait())
        self._client.close()

    def _note_death(self, status: int) -> None:
        assert self._fault, f"the server ended with {status}; it logged:\n{self._forge.stderr()}"
        assert status == KILLED, f"the server ended with {status}; it logged:\n{self._forge.stderr()}"
        self.deaths.append(self._fault)

    def _attach(self) -> None:
        """Follow the session on the present server, and see what it asks for."""
        if self.session_id is not None:
            self._follow(self.session_id)
            session = self._client.beta.agents.sessions.retrieve(self.session_id)
            self.witness.check_owed(session.to_dict())
        self._attached = True

    def _known(self) -> str:
        assert self.session_id is not None
        return self.session_id

    def _key(self) -> str:
        self._keys += 1
        return f"key-{self._keys}"
