"""The problem set: 74 computations in six families, each in one file against the array module handed in."""
