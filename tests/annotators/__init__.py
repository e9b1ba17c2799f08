"""Tests of the annotators."""
