// Sort and filter the table of submissions. Without this script it is a table like any other.
"use strict";
{
  const table = document.getElementById("everyone");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const texts = new Map(rows.map(row => [row, row.cells[0].textContent.toLowerCase()]));
  const heads = [...table.tHead.rows[0].cells];

  const filter = () => {
    const words = document.getElementById("find").value.toLowerCase().trim();
    const kind = document.getElementById("show").value;
    let count = 0;
    for (const row of rows) {
      const is = !kind || row.dataset.is.split(" ").includes(kind);
      row.hidden = !(is && texts.get(row).includes(words));
      count += !row.hidden;
    }
    document.getElementById("shown").textContent = `${count} of ${rows.length}`;
  };

  const sort = place => {
    const head = heads[place];
    const numeric = head.classList.contains("number");
    const first = numeric ? "descending" : "ascending";
    const other = numeric ? "ascending" : "descending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    for (const each of heads) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const values = new Map(rows.map(row => [row, row.cells[place].textContent.trim()]));
    rows.sort((a, b) => {
      const one = values.get(a), two = values.get(b);
      return sign * (numeric ? parseFloat(one) - parseFloat(two) : one.localeCompare(two));
    });
    body.append(...rows);
  };

  heads.forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(place));
    head.append(button);
  });
  document.getElementById("find").addEventListener("input", filter);
  document.getElementById("show").addEventListener("change", filter);
  document.getElementById("controls").hidden = false;
  filter();
  document.body.dataset.ready = "";
}
