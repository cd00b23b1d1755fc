"""A disk that is full: nothing is accepted, nothing is lost, and work goes on when there is space."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import httpx2
import pytest

from .database import check_database
from .drive import DEADLINE, Drive
from .forge import Forge
from .model import MODEL, STEERING, Model
from .scenario import TOOLS, kind_of, whole

pytestmark = pytest.mark.slow


class Disk(Protocol):
    """Where the data directory is. `fill` takes the space away, `clear` gives it back."""

    home: Path

    def fill(self, pid: int) -> None: ...

    def clear(self, pid: int) -> None: ...


class SmallFilesystem:
    """A file system of a few MiB, filled by another file."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def fill(self, pid: int) -> None:
        with (self.home / "ballast").open("wb", buffering=0) as ballast:
            for size in (65536, 4096):
                try:
                    while True:
                        ballast.write(bytes(size))
                except OSError:
                    pass

    def clear(self, pid: int) -> None:
        (self.home / "ballast").unlink()


class FileSizeLimit:
    """No file of the process can be written, as under an exhausted quota."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def fill(self, pid: int) -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def clear(self, pid: int) -> None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.fixture(params=["full file system", "no file can grow"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    if request.param == "no file can grow":
        if not hasattr(resource, "prlimit"):
            pytest.skip("needs prlimit")
        yield FileSizeLimit(tmp_path)
        return
    home = tmp_path / "disk"
    home.mkdir()
    options = ["-t", "tmpfs", "-o", "size=6m,mode=0700", "none", str(home)]
    try:
        subprocess.run(["mount", *options], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a file system")
    try:
        yield SmallFilesystem(home)
    finally:
        subprocess.run(["umount", "-l", str(home)], check=True)


def test_a_full_disk_refuses_clearly_and_the_session_goes_on_afterwards(
    disk: Disk, forge: Forge, model: Model
) -> None:
    drive = Drive(forge, model, disk.home)
    session_id = drive.create("Hold the line.", model=MODEL, tools=TOOLS)
    before = drive.until(lambda seen: kind_of(seen.items[-1]) == "assistant")
    headers = {"Authorization": f"Bearer {forge.api_key}", "OpenAI-Beta": "agents=v1"}
    part = {"type": "input_text", "text": STEERING}
    message = {"type": "message", "role": "user", "content": [part]}
    batch: Any = {"events": [{"type": "agent.session.input.message", "input": [message]}]}
    new: Any = {"agent": {"model": MODEL}, "environment": {"type": "none"}, "input": "Thanks."}
    with httpx2.Client(base_url=forge.base_url, headers=headers, timeout=DEADLINE) as raw:

        def post(path: str, body: Any, key: str) -> httpx2.Response:
            return raw.post(f"/agents/sessions{path}", json=body, headers={"Idempotency-Key": key})

        def refused(response: httpx2.Response) -> None:
            assert response.status_code == 503, response.text
            error = response.json()["error"]
            assert "storage" in error["message"]
            assert str(disk.home) not in error["message"]

        disk.fill(forge.pid)
        for _ in range(2):
            refused(post(f"/{session_id}/events", batch, "message"))
            refused(post("", new, "new"))
        assert drive.look() == before
        model.hold.release()
        # The log tells that the step could not be saved.
        drive.until(lambda _: session_id in forge.stderr())
        disk.clear(forge.pid)
        assert post(f"/{session_id}/events", batch, "message").status_code == 202
        assert post("", new, "new").status_code == 201
        assert len(raw.get("/agents/sessions").json()["data"]) == 2
    final = drive.until(lambda seen: seen.status == "idle")
    assert drive.stop() == 0
    drive.witness.check(final)
    check_database(drive.storage, session_id, drive.witness.streams)
    assert model.provider.violations == []
    # The message comes in before the step that could not be saved is repeated.
    assert final.ended == ["completed"]
    assert final.messages("user") == ["Hold the line.", STEERING]
    kinds = [kind_of(item) for item in final.items if whole(item)]
    assert kinds == ["user", "user", "assistant", "function_call", "function_call_output", "assistant"]
