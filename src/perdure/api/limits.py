"""The ceilings of sessions and agents as requests meet them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.api.keyring import Caller
from perdure.api.services import Services
from perdure.config.prices import find_price
from perdure.harness import limits
from perdure.models.registry import UnknownModel
from perdure.wire.errors import InvalidRequest
from perdure.wire.limits import SCOPE, LimitRules, Value


def configured_limits(services: Services) -> Mapping[str, Value]:
    """The server's own ceilings by name."""
    return limits.configured_limits(services.settings.limits)


def limit_rules(services: Services, caller: Caller) -> LimitRules:
    """What decides about the ceilings that a request sets."""
    return LimitRules(configured_limits(services), may_raise=SCOPE in caller.scopes)


def check_priced(
    services: Services,
    model: str,
    metadata: Mapping[str, str] | None,
    kept: Mapping[str, Any] | None,
    param: str,
) -> None:
    """Refuse a ceiling on money for a model of which no price is known: it could not be kept.

    Raises:
        InvalidRequest: `param` is where the request names the model or the ceiling.
    """
    ceilings = limits.ceilings_of(services.settings.limits, metadata or {}, kept)
    limited = ceilings.on_spend
    if limited is None:
        return
    try:
        resolved = services.registry.resolve(model)
    except UnknownModel:
        return  # said by the check of the model itself
    if find_price(services.settings.prices, resolved.provider, resolved.upstream, model) is None:
        raise InvalidRequest(
            f"Invalid '{param}': the limit {limited} needs the price of the model '{model[:64]}', which is "
            "not known. Add a [[price]] table for it to the server's configuration.",
            param=param,
        )
