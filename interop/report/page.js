"use strict";
// A click on a cell shows the cases of that cell only; the page works without this too.
const entries = [...document.querySelectorAll(".entry")];
const bar = document.getElementById("choice");
let chosen = null;

function choose(cell) {
  if (chosen) chosen.classList.remove("chosen");
  chosen = cell;
  const { row, column } = cell ? cell.dataset : {};
  for (const entry of entries) {
    const fits = (!row || entry.dataset.row === row) && (!column || entry.dataset.columns.split(" ").includes(column));
    entry.hidden = !fits;
  }
  for (const section of document.querySelectorAll("section.list")) {
    const shown = section.querySelectorAll(".entry:not([hidden])").length;
    section.hidden = !shown;
    section.querySelector(".number").textContent = shown;
    if (section.querySelector("details.fold")) section.querySelector("details.fold").open = Boolean(cell);
  }
  bar.hidden = !cell;
  if (!cell) return;
  cell.classList.add("chosen");
  bar.querySelector("span").textContent = cell.title.split("\n")[0];
}

document.querySelector(".matrix").addEventListener("click", (event) => {
  const cell = event.target.closest("a");
  if (cell) choose(cell);
});
bar.querySelector("button").addEventListener("click", () => choose(null));

function openTarget() {
  const target = location.hash && document.getElementById(location.hash.slice(1));
  if (!target) return;
  if (target.hidden) choose(null);
  if (target.closest("details.fold")) target.closest("details.fold").open = true;
  if (target.tagName === "DETAILS") target.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", openTarget);
openTarget();
