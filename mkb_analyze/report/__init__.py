"""The report: one folder of pages that opens from disk."""
