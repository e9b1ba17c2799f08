"""Smallest kernels, one file a DSL, that show whether it compiles and runs here: y = 2x + 1 over 256 floats."""
