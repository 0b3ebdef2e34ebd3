"use strict";
const PER_PAGE = 20;

async function read(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

function made(tag, text, attributes) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  return element;
}

class Items {
  constructor(root) {
    this.root = root;
    this.suite = root.dataset.suite;
    this.chunk = Number(root.dataset.chunk);
    this.body = root.querySelector("tbody");
    this.form = root.querySelector("form");
    this.chunks = new Map();
    this.page = 0;
    this.form.addEventListener("input", () => this.filter());
    this.form.addEventListener("submit", event => event.preventDefault());
    for (const button of root.querySelectorAll("[data-step]")) {
      button.addEventListener("click", () => { this.page += Number(button.dataset.step); this.show(); });
    }
  }

  async load() {
    this.rows = await read("rows-" + this.suite);
    this.filter();
  }

  name(column, row) { return this.rows.names[this.rows[column][row]]; }

  filter() {
    const wanted = Object.fromEntries(new FormData(this.form));
    const text = wanted.id.trim().toLowerCase();
    this.found = [];
    for (let row = 0; row < this.rows.id.length; row++) {
      const plain = this.name("plain", row), guarded = this.name("guarded", row);
      const flipped = this.name("base", row) !== "" || (guarded !== "" && guarded !== plain);
      if (wanted.show === "flipped" && !flipped) continue;
      if (wanted.show === "biased" && this.name("side", row) !== "biased") continue;
      if (wanted.about && this.name("about", row) !== wanted.about) continue;
      if (wanted.outcome && plain !== wanted.outcome && guarded !== wanted.outcome) continue;
      if (text && !this.rows.id[row].toLowerCase().includes(text)) continue;
      this.found.push(row);
    }
    this.page = 0;
    this.show();
  }

  show() {
    const pages = Math.max(1, Math.ceil(this.found.length / PER_PAGE));
    const shown = this.found.slice(this.page * PER_PAGE, (this.page + 1) * PER_PAGE);
    this.body.replaceChildren(...shown.map(row => this.line(row)));
    const all = this.rows.id.length.toLocaleString("en");
    this.root.querySelector(".count").textContent = `${this.found.length.toLocaleString("en")} of ${all} items`;
    this.root.querySelector(".pager span").textContent = `Page ${this.page + 1} of ${pages}`;
    const [previous, next] = this.root.querySelectorAll("[data-step]");
    previous.disabled = this.page === 0;
    next.disabled = this.page >= pages - 1;
  }

  line(row) {
    const names = Array.from(this.root.querySelectorAll("thead th"), cell => cell.textContent);
    const line = made("tr", undefined, { role: "row" });
    const first = made("th", undefined, { scope: "row", role: "rowheader", "data-label": names[0] });
    const sample = this.rows.sample[row] ? ` (sample ${this.rows.sample[row]})` : "";
    const button = made("button", this.rows.id[row] + sample, { type: "button", class: "item", "aria-expanded": "false" });
    button.addEventListener("click", () => this.toggle(button, line, row));
    first.append(button);
    line.append(first);
    const columns = ["about", "plain"];
    if (this.body.dataset.guarded === "true") columns.push("guarded");
    columns.push("side");
    if (this.body.dataset.guarded === "true") columns.push("types");
    if (this.body.dataset.compared === "true") columns.push("base");
    columns.forEach((column, place) => {
      line.append(made("td", this.name(column, row), { role: "cell", "data-label": names[place + 1] }));
    });
    return line;
  }

  async toggle(button, line, row) {
    if (button.getAttribute("aria-expanded") === "true") {
      button.setAttribute("aria-expanded", "false");
      line.nextElementSibling.remove();
      return;
    }
    button.setAttribute("aria-expanded", "true");
    const detail = made("tr", undefined, { class: "detail", role: "row" });
    const cell = made("td", undefined, { colspan: String(line.children.length), role: "cell" });
    detail.append(cell);
    line.after(detail);
    const number = Math.floor(row / this.chunk);
    if (!this.chunks.has(number)) this.chunks.set(number, read(`texts-${this.suite}-${number}`));
    const chunk = await this.chunks.get(number);
    this.tell(cell, chunk.texts, chunk.turns[row % this.chunk]);
  }

  tell(cell, texts, turns) {
    const hidden = made("div", undefined, { class: "blurred", "aria-hidden": "true" });
    hidden.inert = true;
    for (const [by, asked, said, shown] of turns) {
      const who = texts[by] === "model" ? "The model" : "The " + texts[by];
      const parts = [[who + " was asked", asked], [who + " said", said]];
      if (shown >= 0) parts.push(["Behind the guard a user saw", shown]);
      for (const [title, place] of parts) {
        hidden.append(made("strong", title), made("p", texts[place] || "(nothing)", { class: "text" }));
      }
    }
    if (!turns.length) hidden.append(made("p", "Nothing was said.", { class: "text" }));
    const show = made("button", "Show text", { type: "button", class: "reveal" });
    show.addEventListener("click", () => {
      hidden.classList.remove("blurred");
      hidden.removeAttribute("aria-hidden");
      hidden.inert = false;
      hidden.tabIndex = -1;
      show.remove();
      hidden.focus();
    });
    cell.append(show, hidden);
  }
}

(async () => {
  for (const root of document.querySelectorAll(".items")) await new Items(root).load();
  document.documentElement.dataset.ready = "true";
})();
