"""Adapters: each turns the types of one library into a schema contract, and imports the library only then."""
