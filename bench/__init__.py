"""Benchmarks: our numbers beside their limits and beside a bare client, measured in the same run."""
