"""Rows of the report's tables: transfers and labels in, estimates out."""

# Every table's name, in the order of the report; a test holds it to what an analysis makes.
TABLES = (
    "outcomes",
    "families",
    "standing",
    "reverse",
    "attainment",
    "attempts",
    "content",
    "categories",
    "causes",
    "adherence",
    "propagation",
    "fates",
    "corrected",
    "rule",
    "generations",
    "agreement",
    "doubtful",
    "cost",
    "effort",
    "noise",
    "sensitivity",
    "quality",
    "variance",
    "transfers",
)
