"""How much room a model has: when to compact, what to keep, how much of one result to show."""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.config.settings import Settings
from perdure.harness.tokens import text_of_size
from perdure.models.capabilities import window_named
from perdure.models.errors import ModelError
from perdure.models.registry import Resolved

LEAST_RESULT_BYTES = 1 << 10
LEARNED = 0.8
"""Part of a refused request that is taken for the window, where the provider names none."""


@dataclass(slots=True)
class Windows:
    """Context windows that providers taught this process by refusing a request."""

    learned: dict[tuple[str, str], int] = field(default_factory=dict)

    def learn(self, resolved: Resolved, error: ModelError, tokens: int) -> None:
        """Note what a refusal of a request with about so many tokens tells."""
        named = window_named(error.message, max(tokens * 5 // 4, 1024))
        target = (resolved.provider, resolved.upstream)
        window = named or int(tokens * LEARNED)
        self.learned[target] = max(1024, min(window, self.learned.get(target, window)))


@dataclass(frozen=True, slots=True)
class Room:
    """The room of one model, in tokens; `result_bytes` is how much of one result it is shown.

    Args:
        window: what it reads and writes together. `is_known`: told by settings, name or provider.
        begin: requests from here on are worth compacting beside the turn, in asynchronous mode.
        trigger: no request is larger, if compacting can help it.
        most: larger requests are refused by the provider.
        keep: how much of the newest steps stays as it is.
        gain: the least that a compaction has to be about.
        summary, requests, pins: the longest parts of the note.
    """

    window: int
    is_known: bool
    begin: int
    trigger: int
    most: int
    keep: int
    gain: int
    summary: int
    requests: int
    pins: int
    result_bytes: int
    image_count: int
    image_bytes: int
    shows_images: bool

    @classmethod
    def of(cls, resolved: Resolved, settings: Settings, windows: Windows, tightness: int = 0) -> Room:
        """The room of a model.

        Args:
            tightness: how often the provider has refused the conversation as too large; results and
                images take a quarter of the room each time.
        """
        wanted, known = settings.context, resolved.capabilities
        learned = windows.learned.get((resolved.provider, resolved.upstream))
        told = min((size for size in (known.context_window, learned) if size is not None), default=None)
        window = told or wanted.default_window
        reserve = min(known.max_output_tokens or window // 8, window // 3)
        trigger = max(256, min(int(window * wanted.trigger), window - reserve))
        quarter = 4**tightness
        result_bytes = min(settings.limits.model_result_bytes, text_of_size(window // 4)) // quarter
        return cls(
            window=window,
            is_known=told is not None,
            begin=int(trigger * 0.8),
            trigger=trigger,
            most=max(trigger, window - window // 16),
            keep=min(int(window * wanted.keep), trigger // 2),
            gain=window // 10,
            summary=min(wanted.summary_tokens, window // 10),
            requests=window // 20,
            pins=min(wanted.pin_tokens, window // 12),
            result_bytes=max(LEAST_RESULT_BYTES, result_bytes),
            image_count=wanted.images // quarter,
            image_bytes=wanted.image_bytes // quarter,
            shows_images=known.images,
        )
