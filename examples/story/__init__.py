"""The acts of the demo. Each module shows one thing an application does with a session."""
