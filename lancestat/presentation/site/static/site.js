"use strict";

(() => {
  const page = document.documentElement;
  const root = page.dataset.root;

  // Theme: what the system has, until the button says otherwise.
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const theme = () => page.dataset.theme || (system.matches ? "dark" : "light");
  const label = () => {
    const other = theme() === "dark" ? "light" : "dark";
    button.textContent = other === "dark" ? "Dark" : "Light";
    button.setAttribute("aria-label", `Switch to the ${other} theme`);
    document.dispatchEvent(new CustomEvent("lancestat-theme"));
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    page.dataset.theme = theme() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("lancestat-theme", page.dataset.theme);
    } catch {
      // It holds for this page alone.
    }
    label();
  });
  system.addEventListener("change", label);
  label();

  // Ages as they are now; without scripts a page has the moments themselves.
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const ago = (moment) => {
    const seconds = Math.floor((Date.now() - Date.parse(moment)) / 1000);
    const unit = UNITS.find(([length]) => seconds >= length);
    if (!unit) return "just now";
    return `${Math.floor(seconds / unit[0]).toLocaleString("en")} ${unit[1]} ago`;
  };
  const times = [...document.querySelectorAll("time[data-age]")];
  for (const time of times) time.dataset.moment = time.textContent;
  const tell = () => {
    for (const time of times) {
      const { moment, age } = time.dataset;
      const words = ago(time.dateTime);
      time.textContent = age === "ago" ? words : `${moment}, ${words}`;
      time.title = moment;
    }
  };
  tell();
  setInterval(tell, 30000);

  // Search: names before columns before other words.
  const nodes = window.lancestatNodes || [];
  const input = document.getElementById("search");
  const list = document.getElementById("found");
  const key = document.querySelector(".search .key");
  const MOST = 12;
  let chosen = -1;
  input.hidden = key.hidden = false;

  const rank = (node, words) => {
    let total = 0;
    let column = null;
    for (const word of words) {
      const name = node.name.toLowerCase();
      const at = name.indexOf(word);
      if (at >= 0) {
        total += name === word ? 0 : at === 0 ? 1 : 2;
        continue;
      }
      const hit = node.columns.find((each) => each.toLowerCase().includes(word));
      if (hit !== undefined) {
        column = column ?? hit;
        total += 4;
      } else if (node.words.toLowerCase().includes(word)) {
        total += 6;
      } else {
        return null;
      }
    }
    return { node, total, column };
  };

  const item = (found, place) => {
    const link = document.createElement("a");
    link.href = root + found.node.page;
    link.tabIndex = -1;
    const name = document.createElement("bdi");
    name.textContent = found.node.name;
    const kind = document.createElement("span");
    kind.className = "note";
    const what = found.node.kind === "table" ? "table" : "KNN join";
    kind.textContent = found.column === null ? what : `${what}, column ${found.column}`;
    link.append(name, kind);
    const row = document.createElement("li");
    row.id = `found-${place}`;
    row.setAttribute("role", "option");
    row.append(link);
    return row;
  };

  const choose = (place) => {
    chosen = place;
    [...list.children].forEach((row, at) => {
      if (row.hasAttribute("role")) row.setAttribute("aria-selected", String(at === place));
    });
    if (place >= 0) {
      input.setAttribute("aria-activedescendant", `found-${place}`);
      list.children[place].scrollIntoView({ block: "nearest" });
    } else {
      input.removeAttribute("aria-activedescendant");
    }
  };

  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    choose(-1);
  };

  const search = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    list.replaceChildren();
    if (!words.length) return close();
    const found = nodes.map((node) => rank(node, words)).filter(Boolean);
    found.sort((a, b) => a.total - b.total || a.node.name.localeCompare(b.node.name));
    list.append(...found.slice(0, MOST).map(item));
    const left = found.length - MOST;
    if (!found.length || left > 0) {
      const rest = document.createElement("li");
      rest.className = "note";
      rest.textContent = found.length ? `${left} more` : "Nothing found";
      list.append(rest);
    }
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    choose(found.length ? 0 : -1);
  };

  input.addEventListener("input", search);
  input.addEventListener("focus", search);
  input.addEventListener("keydown", (event) => {
    const last = list.querySelectorAll("[role=option]").length - 1;
    if (event.key === "Escape") {
      input.value = "";
      close();
      input.blur();
    } else if (last >= 0 && event.key === "ArrowDown") {
      choose(chosen >= last ? 0 : chosen + 1);
    } else if (last >= 0 && event.key === "ArrowUp") {
      choose(chosen <= 0 ? last : chosen - 1);
    } else if (event.key === "Enter" && chosen >= 0) {
      list.children[chosen].querySelector("a").click();
    } else {
      return;
    }
    event.preventDefault();
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".search")) close();
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      input.focus();
      input.select();
    }
  });

  // Long lists get a filter; short ones need none. A list may be in two tables, the second folded.
  const lists = {};
  for (const table of document.querySelectorAll("table[data-filter]")) {
    (lists[table.dataset.filter] ??= []).push(table);
  }
  for (const [name, tables] of Object.entries(lists)) {
    const rows = tables.flatMap((table) => [...table.tBodies[0].rows]);
    if (rows.length < 15) continue;
    const filter = document.createElement("input");
    filter.type = "search";
    filter.className = "filter";
    filter.placeholder = `Filter ${rows.length.toLocaleString("en")} ${name}`;
    filter.setAttribute("aria-label", filter.placeholder);
    let texts = null;
    filter.addEventListener("input", () => {
      texts ??= rows.map((row) => row.textContent.toLowerCase());
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      rows.forEach((row, at) => {
        row.hidden = !words.every((word) => texts[at].includes(word));
      });
      const rest = tables.at(-1).closest("details");
      if (rest) rest.open = words.length > 0;
    });
    tables[0].parentElement.before(filter);
  }

  // A link may lead to what is folded.
  const unfold = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    const folded = target && target.closest("details");
    if (folded) folded.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();
})();
