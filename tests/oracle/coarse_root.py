"""Brent's root finder with R's loose default tolerance, to recover the digits that fisher.test prints."""

from collections.abc import Callable

import numpy as np

EPSILON = float(np.finfo(float).eps)
TOLERANCE = EPSILON**0.25


def coarse_root(f: Callable[[float], float], lower: float, upper: float) -> float:
    """Zero of f between two points of unlike sign: Brent's method (1973) as in Netlib's zeroin, tolerance 1.22e-4.

    b is the best point, a the one before, c the one across the zero.
    """
    a, b = lower, upper
    f_a, f_b = f(a), f(b)
    c, f_c = a, f_a
    if f_a == 0:
        return a
    while True:
        moved = b - a
        if abs(f_c) < abs(f_b):
            a, b, c = b, c, b
            f_a, f_b, f_c = f_b, f_c, f_b
        near = 2 * EPSILON * abs(b) + TOLERANCE / 2
        step = (c - b) / 2
        if abs(step) <= near or f_b == 0:
            return b
        if abs(moved) >= near and abs(f_a) > abs(f_b):
            across = c - b
            if a == c:
                ratio = f_b / f_a
                top, bottom = across * ratio, 1 - ratio
            else:
                s, r, u = f_a / f_c, f_b / f_c, f_b / f_a
                top = u * (across * s * (s - r) - (b - a) * (r - 1))
                bottom = (s - 1) * (r - 1) * (u - 1)
            bottom, top = (-bottom, top) if top > 0 else (bottom, -top)
            if top < 0.75 * across * bottom - abs(near * bottom) / 2 and top < abs(moved * bottom / 2):
                step = top / bottom
        if abs(step) < near:
            step = near if step > 0 else -near
        a, f_a = b, f_b
        b += step
        f_b = f(b)
        if (f_b > 0) == (f_c > 0) and f_b != 0 and f_c != 0:
            c, f_c = a, f_a
