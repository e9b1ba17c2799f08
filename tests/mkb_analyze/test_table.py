"""Tables as files: every format holds the same cells, and no cell becomes a formula, a command or markup."""

import csv
import io
import re

import pandas as pd
import pytest

from mkb_analyze.stats.rates import wilson
from mkb_analyze.table import Column, Table
from runner.errors import UserError

HOSTILE = [
    '=HYPERLINK("http://x","y")',
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    " =1",
    "x\r=1",
    "a|b",
    "<script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "`code` *bold* _it_",
    r"\input{/etc/passwd} $x^2$ 50% #1 & {a} ~",
    "line\nbreak",
    "\x1b[2J",
    "half \ud800 pair",
    "漢字, α ≥ κ → 3×",
]


def table(cells):
    rows = tuple({"name": c, "n": k, "share": wilson(k, 20)} for k, c in enumerate(cells))
    columns = (Column("name", "Name"), Column("n", "n", "number"), Column("share", "Share", "share"))
    return Table("t", "Title", "Read it so.", columns, rows)


def test_no_cell_of_a_csv_is_a_formula():
    rows = list(csv.reader(io.StringIO(table(HOSTILE).csv())))
    assert len(rows) == len(HOSTILE) + 1
    for row in rows[1:]:
        assert not any(cell.lstrip().startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row[:1])
        assert float(row[1]) >= 0 and 0 <= float(row[2]) <= 1


def test_negative_numbers_of_a_csv_stay_numbers():
    made = Table("t", "", "", (Column("x", "x", "number"),), ({"x": -1.5},))
    assert made.csv() == "x\n-1.5\n"


def test_a_cell_cannot_leave_its_column_in_markdown():
    lines = table(HOSTILE).markdown().splitlines()
    assert len(lines) == len(HOSTILE) + 2
    for line in lines:
        assert len(re.findall(r"(?<!\\)\|", line)) == 4
        assert "<script" not in line.replace(r"\<", "") and not re.search(r"(?<!\\)\[x", line)


def test_latex_prints_what_stands_there():
    text = table(HOSTILE).latex()
    body = text.split(r"\midrule" + "\n")[1].split(r"\bottomrule")[0].splitlines()
    assert len(body) == len(HOSTILE)
    for line in body:
        assert line.endswith(r" \\") and len(re.findall(r"(?<!\\)&", line)) == 2
        assert not re.search(r"(?<!\\)[#%_]", line.removesuffix(r"\\"))
        assert "\\input" not in line.replace(r"\textbackslash{}input", "") and "\x1b" not in line
    assert r"$\alpha$ $\geq$ $\kappa$ $\rightarrow$ 3$\times$" in text


def test_parquet_holds_the_flat_table(tmp_path):
    made = table(HOSTILE)
    made.parquet(tmp_path / "t.parquet")
    back, flat = pd.read_parquet(tmp_path / "t.parquet"), made.frame()
    assert list(back.columns) == list(flat.columns) and len(back) == len(HOSTILE)
    assert back["share"].tolist() == flat["share"].tolist() and back["n"].tolist() == list(range(len(HOSTILE)))
    assert back["name"][15] == "half \\ud800 pair" and back["name"][16] == HOSTILE[16]


def test_parquet_takes_columns_that_mix_kinds(tmp_path):
    made = Table("t", "", "", (Column("x", "x"),), ({"x": 1}, {"x": "one"}, {"x": None}))
    made.parquet(tmp_path / "t.parquet")
    back = pd.read_parquet(tmp_path / "t.parquet")["x"]
    assert back.tolist()[:2] == ["1", "one"] and back.isna().tolist() == [False, False, True]


def test_without_pyarrow_the_cure_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"pyarrow is missing; pip install 'mkb-analyze\[parquet\]'$"):
        table(["a"]).parquet(tmp_path / "t.parquet")
    assert not (tmp_path / "t.parquet").exists()


def test_html_escapes_everything():
    text = table(HOSTILE).html()
    assert "<script" not in text and text.count("<tr>") == len(HOSTILE) + 1
