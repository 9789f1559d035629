// What the views are built of. Text is only ever set as text, never as HTML.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

export const ENDED = ["succeeded", "failed", "cancelled"];

// The service wants all 64 digits; a click copies them.
export const short = (sha256) => element("button", { class: "hash", title: `copy ${sha256}`, type: "button",
  onclick: () => navigator.clipboard?.writeText(sha256) }, element("code", {}, sha256.slice(0, 12)));
export const when = (seconds) => (seconds == null ? "" : new Date(seconds * 1000).toLocaleString());
const LOOKS = { succeeded: "good", PASS: "good", credible: "good", failed: "bad", FAIL: "bad", "not credible": "bad",
  committed: "good", unchanged: "good", "rolled-back": "bad" };
export const mark = (word) => element("span", { class: LOOKS[word] ?? "wait" }, word);

// As `Verdict.shown` in Python: a PASS on evidence that no robot accepts by default says so wherever it stands.
export function verdict({ outcome, evidence }) {
  const kinds = ["twin", "latency"].map((what) => evidence?.[what]?.kind ?? "unknown");
  const foreign = [...new Set(kinds)].filter((kind) => kind !== "robot").sort();
  if (outcome !== "PASS" || !foreign.length) return mark(outcome);
  return element("span", { class: "wait" }, `PASS, only accepting ${foreign.join(", ")}`);
}

export function table(columns, rows, empty) {
  if (!rows.length) return element("p", { class: "hint" }, empty);
  const head = element("tr", {}, ...columns.map(([name]) => element("th", { scope: "col" }, name)));
  const body = rows.map((row) =>
    element("tr", {}, ...columns.map(([name, cell]) => element("td", { "data-label": name }, cell(row)))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}

export const few = (names) => names.slice(0, 5).join(", ") + (names.length > 5 ? ` and ${names.length - 5} more` : "");
