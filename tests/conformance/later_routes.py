"""Routes of the official client that this version does not serve yet, each with its reason.

A route leaves this list in the change that serves it; `test_routes.py` fails when a route is both
served and listed, or neither.
"""

from __future__ import annotations

from .sdk_routes import Route

ARTIFACTS = "needs an environment that publishes files"
TRACES = "needs recorded spans of a turn"
ENVIRONMENTS = "needs an executable environment"
AUTOMATIONS = "needs schedules"
VAULTS = "needs secrets that tools can use"
WEBHOOKS = "needs outgoing deliveries"

SESSION = "/agents/sessions/{}"
ARTIFACT = f"{SESSION}/artifacts/{{}}"
ENVIRONMENT = "/agents/environments/{}"
TEMPLATES = "/agents/environments/templates"
AUTOMATION = "/agents/automations/{}"
VAULT = "/vaults/{}"
WEBHOOK = "/webhook_endpoints/{}"

LATER: dict[Route, str] = {
    ("GET", f"{SESSION}/artifacts"): ARTIFACTS,
    ("GET", ARTIFACT): ARTIFACTS,
    ("GET", f"{ARTIFACT}/content"): ARTIFACTS,
    ("DELETE", ARTIFACT): ARTIFACTS,
    ("GET", f"{SESSION}/traces"): TRACES,
    ("POST", "/agents/environments"): ENVIRONMENTS,
    ("GET", "/agents/environments"): ENVIRONMENTS,
    ("GET", ENVIRONMENT): ENVIRONMENTS,
    ("POST", f"{ENVIRONMENT}/files"): ENVIRONMENTS,
    ("GET", f"{ENVIRONMENT}/files"): ENVIRONMENTS,
    ("POST", TEMPLATES): ENVIRONMENTS,
    ("GET", TEMPLATES): ENVIRONMENTS,
    ("GET", f"{TEMPLATES}/{{}}"): ENVIRONMENTS,
    ("POST", f"{TEMPLATES}/{{}}"): ENVIRONMENTS,
    ("DELETE", f"{TEMPLATES}/{{}}"): ENVIRONMENTS,
    ("POST", "/agents/automations"): AUTOMATIONS,
    ("GET", "/agents/automations"): AUTOMATIONS,
    ("GET", AUTOMATION): AUTOMATIONS,
    ("POST", AUTOMATION): AUTOMATIONS,
    ("DELETE", AUTOMATION): AUTOMATIONS,
    ("POST", f"{AUTOMATION}/pause"): AUTOMATIONS,
    ("POST", f"{AUTOMATION}/resume"): AUTOMATIONS,
    ("POST", f"{AUTOMATION}/invocations"): AUTOMATIONS,
    ("GET", f"{AUTOMATION}/invocations"): AUTOMATIONS,
    ("GET", f"{AUTOMATION}/invocations/{{}}"): AUTOMATIONS,
    ("POST", "/vaults"): VAULTS,
    ("GET", "/vaults"): VAULTS,
    ("GET", VAULT): VAULTS,
    ("POST", VAULT): VAULTS,
    ("DELETE", VAULT): VAULTS,
    ("POST", f"{VAULT}/credentials"): VAULTS,
    ("GET", f"{VAULT}/credentials"): VAULTS,
    ("GET", f"{VAULT}/credentials/{{}}"): VAULTS,
    ("POST", f"{VAULT}/credentials/{{}}"): VAULTS,
    ("DELETE", f"{VAULT}/credentials/{{}}"): VAULTS,
    ("POST", "/webhook_endpoints"): WEBHOOKS,
    ("GET", "/webhook_endpoints"): WEBHOOKS,
    ("GET", WEBHOOK): WEBHOOKS,
    ("POST", WEBHOOK): WEBHOOKS,
    ("DELETE", WEBHOOK): WEBHOOKS,
    ("POST", f"{WEBHOOK}/rotate_secret"): WEBHOOKS,
    ("POST", f"{WEBHOOK}/test"): WEBHOOKS,
    ("GET", "/webhook_event_types"): WEBHOOKS,
}
