"""Pure statistics: arrays in, a named result with n, estimate, interval and method out."""
