"""Servers on loopback that tests and benchmarks talk to over real HTTP."""
