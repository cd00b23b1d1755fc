"""A real `perdure serve` or `perdure worker` in a process of its own, for tests of the public surface.

config = scripted_config(tmp_path, {"greeter": SCRIPT})
with ServerProcess(config, tmp_path / "data") as server:
    openai.OpenAI(base_url=server.base_url, api_key=server.api_key)
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.process import START_TIMEOUT, GuardedProcess

LISTENING = re.compile(r"^perdure listening on (http://\S+)$")
WORKING = "perdure worker ready"


def scripted_config(directory: Path, scripts: Mapping[str, str], extra: str = "") -> Path:
    """Writes a settings file in which each model of `scripts` is served by its own script; returns its path.

    `extra` is TOML of other tables (`[server] …`), put before the providers.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tables = [extra.strip()] if extra.strip() else []
    for model, script in scripts.items():
        path = directory / f"{model}.script.toml"
        path.write_text(script, encoding="utf-8")
        tables.append(
            "\n".join(
                (
                    "[[provider]]",
                    f'name = "{model}"',
                    'protocol = "scripted"',
                    f'script = "{path}"',
                    f'models = ["{model}"]',
                )
            )
        )
    config = directory / "perdure.toml"
    config.write_text("\n\n".join(tables) + "\n", encoding="utf-8")
    return config


class PerdureProcess(GuardedProcess):
    """A `perdure` command over one configuration, data directory and database.

    Without `database`, the database is the one in the data directory. `arguments` are more options of the
    command, `environ` more variables; variables of this process that configure perdure are not inherited.
    """

    def __init__(
        self,
        name: str,
        log: Path,
        config: Path,
        data_dir: Path,
        *,
        database: str | None,
        api_key: str,
        arguments: Sequence[str],
        environ: Mapping[str, str] | None,
    ) -> None:
        super().__init__(name, log)
        self.config = config
        self.data_dir = data_dir
        self.database = database
        self.api_key = api_key
        self._arguments = tuple(arguments)
        self._environ = dict(environ or {})

    def start(self) -> Self:
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        return super().start()

    def _perdure(self, *command: str) -> list[str]:
        place = ["--config", str(self.config), "--data-dir", str(self.data_dir)]
        if self.database is not None:
            place += ["--database", self.database]
        return [sys.executable, "-m", "perdure.cli.main", *command, *place]

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        return {**inherited, "PERDURE_API_KEY": self.api_key, **self._environ}


class ServerProcess(PerdureProcess):
    """One server process; it can be stopped, killed and started again over the same data."""

    def __init__(
        self,
        config: Path,
        data_dir: Path,
        *,
        database: str | None = None,
        api_key: str = "test-key",
        arguments: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            "the server",
            data_dir.with_name(data_dir.name + ".stderr"),
            config,
            data_dir,
            database=database,
            api_key=api_key,
            arguments=arguments,
            environ=environ,
        )
        self.url = ""

    @property
    def base_url(self) -> str:
        """What an official client takes as `base_url`."""
        return f"{self.url}/v1"

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def create_key(self, *options: str) -> str:
        """Creates another API key with `perdure keys create`; returns its text."""
        made = subprocess.run(
            self._perdure("keys", "create", *options),
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT,
            env=self._environment(),
            check=False,
        )
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    def _command(self) -> list[str]:
        return [*self._perdure("serve", "--host", "127.0.0.1", "--port", "0"), *self._arguments]

    def _is_ready(self, line: str | None) -> bool:
        match = LISTENING.match(line or "")
        assert match is not None, f"no listening line but {line!r}; {self._name} logged:\n{self.stderr()}"
        self.url = match[1].rstrip("/")
        return True


class WorkerProcess(PerdureProcess):
    """One worker process, which runs the sessions of a database that servers and workers share."""

    def __init__(
        self,
        config: Path,
        data_dir: Path,
        *,
        database: str,
        api_key: str = "test-key",
        arguments: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            "the worker",
            data_dir.with_name(data_dir.name + ".worker.stderr"),
            config,
            data_dir,
            database=database,
            api_key=api_key,
            arguments=arguments,
            environ=environ,
        )

    def _command(self) -> list[str]:
        return [*self._perdure("worker"), *self._arguments]

    def _is_ready(self, line: str | None) -> bool:
        assert line == WORKING, f"not {WORKING!r} but {line!r}; {self._name} logged:\n{self.stderr()}"
        return True
