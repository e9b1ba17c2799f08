"""Rows of the report's tables: transfers and labels in, estimates out."""
