"""perdure: durable sessions for long-running AI agents that you host yourself."""

__version__ = "0.1.0"
