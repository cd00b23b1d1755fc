"""What the audience sees: acts, events as they come, streamed text, and claims that are checked."""

from __future__ import annotations

from collections.abc import Sequence

from openai.types.beta.agent_session_event import AgentSessionEvent
from rich.console import Console, RenderableType
from rich.panel import Panel
from rich.text import Text

from story.wording import Item, describe_event, describe_item


class ClaimBroken(Exception):
    """Something the demo says about the server did not hold."""


class Stage:
    """A terminal, in colour if it is one and plain otherwise."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._act = 0
        self._in_text = False
        self.checked = 0

    def act(self, title: str, about: str) -> None:
        """Announce the next act."""
        self._act += 1
        self._print()
        if self._console.is_terminal:
            self._print(Panel(Text(about), title=f"{self._act}. {title}", title_align="left", style="cyan"))
        else:
            self._print(f"{self._act}. {title}", "bold")
            self._print(about)

    def tell(self, text: str) -> None:
        """One line of narration."""
        self._print(f"  {text}")

    def quote(self, line: str) -> None:
        """A line that another process printed."""
        self._print(f"  │ {line}", "magenta")

    def event(self, event: AgentSessionEvent) -> None:
        """One event of a stream, as it comes; the deltas of a text run together."""
        if event.type == "agent.session.turn.output_text.delta":
            self.delta(event.delta)
        else:
            described = describe_event(event)
            if described is not None:
                self._print(f"  ← {described}", "dim")

    def delta(self, text: str) -> None:
        """More of the text that is being written."""
        start = "" if self._in_text else "      "
        self._console.print(Text(start + text, "green"), end="", soft_wrap=True)
        self._in_text = True

    def items(self, items: Sequence[Item]) -> None:
        """Saved items, one line each."""
        for item in items:
            self._print(f"  · {describe_item(item)}".replace("\n", "\n      "))

    def show(self, renderable: RenderableType) -> None:
        """Anything rich can draw."""
        self._print(renderable)

    def check(self, claim: str, holds: bool) -> None:
        """State something about the server. Raises ClaimBroken when it is not so."""
        if not holds:
            raise ClaimBroken(claim)
        self.checked += 1
        self._print(f"  ✓ {claim}", "bold green")

    def _print(self, shown: RenderableType = "", style: str = "") -> None:
        if self._in_text:
            self._console.print()
            self._in_text = False
        self._console.print(
            Text(shown, style) if isinstance(shown, str) else shown, soft_wrap=isinstance(shown, str)
        )
