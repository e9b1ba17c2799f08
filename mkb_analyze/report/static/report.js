// Tables that sort by a click (or Enter) on a heading and filter as one types; without scripts they are plain tables.
"use strict";
document.querySelectorAll("table[data-sort]").forEach((table) => {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("thead th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      const rows = [...body.rows].sort((a, b) => {
        const x = key(a), y = key(b);
        const p = Number(x), q = Number(y);
        const bothNumbers = x !== "" && y !== "" && !Number.isNaN(p) && !Number.isNaN(q);
        if (x === "" || y === "") return (x === "") - (y === "");  // what was not measured stays last
        const order = bothNumbers ? p - q : x.localeCompare(y);
        return up ? order : -order;
      });
      body.append(...rows);
    });
  });
  if (body.rows.length > 8) {
    const label = document.createElement("label");
    label.className = "filter";
    label.append("Filter: ");
    const input = document.createElement("input");
    input.type = "search";
    label.append(input);
    const count = document.createElement("span");
    count.setAttribute("role", "status");
    label.append(" ", count);
    table.parentElement.before(label);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of body.rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = words.length ? `${shown} of ${body.rows.length} rows` : "";
    });
  }
});
