"""How a half-precision operand is described to cuBLAS, read back by the column-major rule that cuBLAS applies."""

import numpy as np
import pytest

from problems import tensor_cores

BASE = np.arange(4 * 6 * 8, dtype=np.float16).reshape(4, 6, 8)

VIEWS = {
    "dense": BASE,
    "transposed": BASE.transpose(0, 2, 1),
    "heads of tokens": BASE.transpose(1, 0, 2),
    "keys of heads": BASE.transpose(1, 2, 0),
    "scattered": BASE.transpose(2, 0, 1),
    "sliced columns": BASE[:, :, 2:5],
    "sliced rows": BASE[:, 1::2],
    "every other column": BASE[:, :, ::2],
    "one row": BASE[:, 2:3],
    "one column": BASE[:, :, 3:4],
    "one row of a transposed": BASE.transpose(0, 2, 1)[:, 2:3],
    "backwards": BASE[:, ::-1],
    "repeated": np.broadcast_to(BASE[1], (3, 6, 8)),
    "repeated rows": np.broadcast_to(BASE[:, :1], (4, 5, 8)),
    "one matrix": BASE[2:3],
}


def read_back(x: np.ndarray, operation: int, leading: int, step: int, shape: tuple) -> np.ndarray:
    """The [batch, r, c] matrix that cuBLAS takes from `x`'s memory: column-major, then transposed if so told."""
    batch, rows, columns = shape
    item = x.itemsize
    height, width = (columns, rows) if operation == 0 else (rows, columns)  # by columns, [r, c] by rows is [c, r]
    strides = (step * item, item, leading * item)
    seen = np.lib.stride_tricks.as_strided(x, (batch, height, width), strides, writeable=False)
    return seen.transpose(0, 2, 1) if operation == 0 else seen


@pytest.mark.parametrize("name", VIEWS)
def test_every_view_is_read_as_it_is_meant(name):
    x = VIEWS[name]
    array, operation, leading, step = tensor_cores.operand(np, x)
    np.testing.assert_array_equal(read_back(array, operation, leading, step, x.shape), x)
    assert leading >= (x.shape[2] if operation == 0 else x.shape[1])


@pytest.mark.parametrize("name", ("dense", "transposed", "heads of tokens", "keys of heads", "sliced columns"))
def test_dense_rows_or_columns_are_not_copied(name):
    assert np.shares_memory(tensor_cores.operand(np, VIEWS[name])[0], BASE)


def test_leading_axes_are_widened_and_made_one():
    x = np.arange(2 * 3 * 4).reshape(2, 1, 3, 4)
    got = tensor_cores.flat(np, x, (2, 5))
    assert got.shape == (10, 3, 4)
    np.testing.assert_array_equal(got[7], x[1, 0])
