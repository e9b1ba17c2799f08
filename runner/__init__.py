"""Paired attempts: records, the study on disk, evaluation and the agent."""
