// Tables that sort and filter, small files made on the spot, a menu that folds on phones. Without scripts all text is there.
"use strict";

// A heading sorts its column: up, then down. What was not measured stays last either way.
function sortable(table) {
  const body = table.tBodies[0], heads = table.querySelectorAll("thead th");
  if (body.rows.length < 2) return;
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column]?.dataset.value ?? row.cells[column]?.textContent.trim() ?? "";
      const rows = [...body.rows].map((row) => [key(row), row]);
      rows.sort(([x], [y]) => {
        if (x === "" || y === "") return (x === "") - (y === "");
        const p = Number(x), q = Number(y);
        const order = Number.isNaN(p) || Number.isNaN(q) ? x.localeCompare(y, "en", { numeric: true }) : p - q;
        return up ? order : -order;
      });
      body.append(...rows.map(([, row]) => row));
    });
  });
}

// A search field over a long table: a row stays when it holds every word.
function filterable(table) {
  const body = table.tBodies[0];
  if (body.rows.length <= 12) return;
  const label = document.createElement("label"), input = document.createElement("input");
  const count = document.createElement("span"), name = table.caption?.textContent.trim() ?? "table";
  label.className = "filter";
  input.type = "search";
  input.placeholder = "words that a row must hold";
  input.setAttribute("aria-label", `Filter: ${name}`);
  count.setAttribute("role", "status");
  label.append("Filter ", input, " ", count);
  table.parentElement.before(label);
  const texts = [...body.rows].map((row) => [row, row.textContent.toLowerCase()]);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const [row, text] of texts) {
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = words.length ? `${shown} of ${texts.length} rows` : "";
  });
}

function save(name, parts, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const pageName = () => location.pathname.split("/").pop().replace(/\.html$/, "") || "report";

function files(place, made) {
  const span = document.createElement("span");
  span.className = "files";
  made.forEach(([text, what, act], i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.setAttribute("aria-label", `${text} of ${what}`);
    button.addEventListener("click", act);
    span.append(i ? " · " : "", button);
  });
  place.append(" ", span);
}

// A text that a spreadsheet would run as a formula gets an apostrophe in front, as in the files that come with the report.
function csvCell(cell) {
  const text = cell.dataset.value ?? cell.textContent.trim();
  const plain = /^\s*[=+\-@]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return `"${plain.replaceAll('"', '""')}"`;
}

function tableFile(table) {
  const lines = [...table.rows].map((row) => [...row.cells].map(csvCell).join(","));
  save(`${pageName()}-${table.dataset.name}.csv`, [lines.join("\n") + "\n"], "text/csv");
}

// A chart of the page as a file of its own: what the sheet says is written into its elements.
function standalone(svg) {
  const copy = svg.cloneNode(true), from = [svg, ...svg.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const what of ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-family", "text-anchor"]) {
      to[i].setAttribute(what, style.getPropertyValue(what));
    }
  });
  const [, , width, height] = svg.getAttribute("viewBox").split(" ");
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  return [new XMLSerializer().serializeToString(copy), Number(width), Number(height)];
}

function chartPicture(svg, name) {
  const [text, width, height] = standalone(svg), image = new Image();
  image.addEventListener("load", () => {
    const canvas = document.createElement("canvas"), paint = canvas.getContext("2d");
    canvas.width = 2 * width;
    canvas.height = 2 * height;
    paint.fillStyle = getComputedStyle(document.body).backgroundColor;
    paint.fillRect(0, 0, canvas.width, canvas.height);
    paint.drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => save(`${name}.png`, [blob], "image/png"));
  });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}

document.querySelectorAll("table[data-name]").forEach((table) => {
  sortable(table);
  filterable(table);
  const reading = table.parentElement.nextElementSibling;
  if ("own" in table.dataset && reading) files(reading, [["CSV", table.dataset.name, () => tableFile(table)]]);
});

document.querySelectorAll("figure.own").forEach((figure) => {
  const svg = figure.querySelector("svg"), name = `${pageName()}-chart`;
  const table = figure.nextElementSibling?.querySelector("table") ?? document.querySelector("table[data-name]");
  files(figure.querySelector("figcaption"), [
    ["SVG", "the chart", () => save(`${name}.svg`, [standalone(svg)[0]], "image/svg+xml")],
    ["PNG", "the chart", () => chartPicture(svg, name)],
    ...(table ? [["CSV", "the chart", () => tableFile(table)]] : []),
  ]);
});

// A figure wider than a phone scrolls in its own box, which a keyboard can reach.
document.querySelectorAll(".wide").forEach((box) => {
  if (box.scrollWidth <= box.clientWidth) return;
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "figure, scrolls sideways");
});

// A link into a folded part opens it.
function unfold() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = target && target.closest("details:not([open])");
  if (folded) {
    folded.open = true;
    target.scrollIntoView();
  }
}
addEventListener("hashchange", unfold);
unfold();

const menu = document.querySelector("details.menu");
if (menu && matchMedia("(max-width: 64rem)").matches) menu.open = false;
