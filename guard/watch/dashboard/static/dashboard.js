"use strict";

function newElement(tag, text, attributes) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  return element;
}

function reveal(button) {
  const hidden = [...button.closest("[data-kept]").querySelectorAll(".blurred")];
  for (const one of hidden) {
    one.classList.remove("blurred");
    one.removeAttribute("aria-hidden");
    one.inert = false;
  }
  button.remove();
  const last = hidden[hidden.length - 1];
  last.tabIndex = -1;
  last.focus();
  // Who asked for one text in a review has asked for those that follow.
  for (const field of document.querySelectorAll("input[name=shown]")) field.value = "1";
}

for (const button of document.querySelectorAll("button.reveal")) {
  button.addEventListener("click", () => reveal(button));
}
for (const choice of document.querySelectorAll("select[data-submit]")) {
  choice.addEventListener("change", () => choice.form.requestSubmit());
}

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
  if (event.target.closest("input, select, textarea")) return;
  const key = event.key.toLowerCase();
  const button = [...document.querySelectorAll("[data-key]")].find(one => one.dataset.key.includes(key));
  if (!button || key.length !== 1) return;
  event.preventDefault();
  button.click();
});
const item = document.getElementById("item");
if (item) item.focus();

const FIGURES = ["judged", "found", "mitigated", "unjudged"];

class Live {
  constructor(table) {
    this.body = table.querySelector("tbody");
    this.most = Number(table.dataset.most);
    this.state = document.getElementById("state");
    this.pause = document.getElementById("pause");
    this.pause.addEventListener("click", () => this.toggle());
    this.listen();
  }

  listen() {
    this.source = new EventSource("/live/events");
    this.source.addEventListener("responses", event => {
      this.showState("Up to date.", false);
      for (const row of JSON.parse(event.data)) this.add(row);
    });
    this.source.addEventListener("trouble", event => this.showState(JSON.parse(event.data), true));
    this.source.addEventListener("error", () => {
      const over = this.source.readyState === EventSource.CLOSED;
      this.showState(over ? "The dashboard refuses: reload this page." : "The dashboard cannot be reached; trying again.", true);
    });
  }

  toggle() {
    const paused = this.pause.getAttribute("aria-pressed") !== "true";
    this.pause.setAttribute("aria-pressed", String(paused));
    if (!paused) { this.listen(); return; }
    this.source.close();
    this.showState("Paused.", false);
  }

  showState(text, trouble) {
    if (this.state.textContent !== text) this.state.textContent = text;
    this.state.classList.toggle("trouble", trouble);
  }

  add(row) {
    const line = newElement("tr", undefined, { "data-id": row.id }), first = newElement("th", undefined, { scope: "row" });
    first.append(newElement("a", row.time, { href: "/responses/" + encodeURIComponent(row.id) }));
    line.append(first);
    for (const name of ["model", "door", "outcome", "types"]) line.append(newElement("td", row[name] || "–"));
    for (const name of FIGURES) line.append(newElement("td", row[name].toLocaleString("en"), { class: "figure" }));
    const known = [...this.body.children].find(one => one.dataset.id === row.id);
    if (known) known.replaceWith(line); else this.body.prepend(line);
    while (this.body.children.length > this.most) this.body.lastElementChild.remove();
  }
}

const table = document.getElementById("live");
if (table) new Live(table);
document.documentElement.dataset.ready = "true";
