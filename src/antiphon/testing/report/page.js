"use strict";
const tests = [...document.querySelectorAll(".test")];
const switches = [...document.querySelectorAll("button[data-status]")];
const search = document.querySelector("#search");
const none = document.querySelector(".none");

function show() {
  const wanted = new Set(switches.filter(on => on.getAttribute("aria-pressed") === "true").map(on => on.dataset.status));
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const test of tests) {
    const told = test.textContent.toLowerCase();
    const fits = wanted.has(test.dataset.status) && words.every(word => told.includes(word));
    test.classList.toggle("hidden", !fits);
    shown += fits;
  }
  for (const suite of document.querySelectorAll("section")) {
    suite.classList.toggle("hidden", !suite.querySelector(".test:not(.hidden)"));
  }
  none.classList.toggle("hidden", shown > 0);
  document.querySelector("#shown").textContent = `${shown} of ${tests.length} tests shown`;
}

for (const on of switches) {
  on.addEventListener("click", () => {
    on.setAttribute("aria-pressed", String(on.getAttribute("aria-pressed") !== "true"));
    show();
  });
}
search.addEventListener("input", show);
const all = open => tests.forEach(test => { if (!test.classList.contains("hidden")) test.open = open; });
document.querySelector("#open").addEventListener("click", () => all(true));
document.querySelector("#close").addEventListener("click", () => all(false));
document.addEventListener("keydown", event => {
  const typing = event.target === search;
  if (event.key === "/" && !typing) { event.preventDefault(); search.focus(); }
  if (event.key === "Escape" && typing) { search.value = ""; show(); search.blur(); }
  if ((event.key === "j" || event.key === "k") && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const heads = tests.filter(test => !test.classList.contains("hidden")).map(test => test.querySelector("summary"));
    const here = heads.indexOf(document.activeElement);
    heads[event.key === "j" ? Math.min(here + 1, heads.length - 1) : Math.max(here - 1, 0)]?.focus();
  }
});
document.querySelector(".tools").classList.remove("hidden");
