"""Tests of human review."""
