// The page of the service: plain DOM, no build step. Text from the service is only ever set as text, never as HTML.

import { element, few, mark, short, table, when } from "./elements.js";

const main = document.getElementById("main");
const status = document.getElementById("status");
const TOKEN_KEY = "physai-token";
const REFRESH_MS = 2000;
const ENDED = ["succeeded", "failed", "cancelled"];
let leave = () => {};

class Refused extends Error {}

async function call(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN_KEY);
  const headers = { ...options.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch {
    throw new Refused("The service does not answer. It may be stopped, or the connection is down.");
  }
  if (answer.status === 401) {
    await login();
    return call(path, options);
  }
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({ detail: answer.statusText }));
    throw new Refused(problem.detail);
  }
  return answer;
}

const json = async (path, options) => (await call(path, options)).json();
const post = (path, body) =>
  json(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

function login() {
  const dialog = document.getElementById("login");
  const input = document.getElementById("token");
  input.value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => { sessionStorage.setItem(TOKEN_KEY, input.value.trim()); resolve(); },
      { once: true });
  });
}

function show(title, ...content) {
  document.title = `${title} · physai`;
  main.replaceChildren(element("h1", {}, title), ...content);
}

function say(text) {
  status.textContent = text;
  setTimeout(() => { if (status.textContent === text) status.textContent = ""; }, 6000);
}

const problem = (error) => element("p", { class: "bad", role: "alert" }, error.message);

// Fetches and shows, again and again as long as the view is open; keeps what is shown when the service does not answer.
function live(fetchData, view) {
  let open = true, shown = "";
  leave = () => { open = false; };
  (async () => {
    while (open) {
      try {
        const data = await fetchData(), text = JSON.stringify(data);
        // Unchanged, it stays: a new table would take the selection and the click of whoever reads it.
        if (open && text !== shown) redraw(() => view(data));
        shown = text;
        status.textContent = "";
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        if (!open) return;
        if (main.querySelector("table, pre")) say(error.message);
        else main.replaceChildren(problem(error));
      }
      await new Promise((resolve) => setTimeout(resolve, REFRESH_MS));
    }
  })();
}

// Keeps the keyboard's place: the link that had the focus is another element after the drawing.
function redraw(view) {
  const focused = main.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  view();
  if (focused) main.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}

const jobTable = (jobs) => table([
  ["job", (job) => element("a", { href: `#/jobs/${job.id}` }, job.id)],
  ["kind", (job) => job.kind],
  ["state", (job) => mark(job.state)],
  ["result", (job) => job.result?.document.outcome ? mark(job.result.document.outcome) : (job.error ?? "")],
  ["submitted", (job) => when(job.created)],
], jobs, "No jobs yet. Validate a policy here, or submit one with: physai sim validate RUN --server URL");

function jobs() {
  live(() => json("/v1/jobs"), (found) => show("Jobs", jobTable(found)));
}

function job(id) {
  const log = element("pre", { "aria-label": "progress", tabindex: "0" });
  const facts = element("div"), results = element("div");
  const act = async (verb) => {
    try { await post(`/v1/jobs/${id}/${verb}`, {}); say(`${verb} requested`); } catch (error) { say(error.message); }
  };
  const cancel = element("button", { onclick: () => act("cancel") }, "Cancel");
  const retry = element("button", { onclick: () => { act("retry"); location.reload(); } }, "Retry");
  let shown = "";
  show(`Job ${id}`, facts, element("p", {}, cancel, " ", retry), element("h2", {}, "Progress"), log, results);
  const stop = follow(id, log);
  live(() => json(`/v1/jobs/${id}`), (found) => {
    facts.replaceChildren(element("p", {}, `${found.kind}, `, mark(found.state),
      found.state === "running" ? `, attempt ${found.attempt}` : "", `, submitted ${when(found.created)}`,
      found.error ? element("span", { class: "bad" }, ` — ${found.error}`) : null));
    cancel.hidden = ENDED.includes(found.state);
    cancel.disabled = found.cancel_requested;
    retry.hidden = !["failed", "cancelled"].includes(found.state);
    if (shown !== found.state && ENDED.includes(found.state)) showResults(found, results);
    shown = found.state;
  });
  const stopLive = leave;
  leave = () => { stopLive(); stop(); };
}

// Server-sent events over fetch, because EventSource cannot send a token.
function follow(id, log) {
  const abort = new AbortController();
  (async () => {
    let last = 0;
    for (;;) {
      try {
        const answer = await call(`/v1/jobs/${id}/events`, { headers: { "last-event-id": `${last}` }, signal: abort.signal });
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let rest = "";
        for (;;) {
          const { done, value } = await reader.read();
          if (done) return;
          const lines = (rest + value).split("\n");
          rest = lines.pop();
          for (const line of lines.filter((text) => text.startsWith("data: "))) {
            const event = JSON.parse(line.slice(6));
            last = event.id;
            log.append(`${new Date(event.time * 1000).toLocaleTimeString()}  ${event.text}\n`);
            log.scrollTop = log.scrollHeight;
          }
        }
      } catch {
        if (abort.signal.aborted) return;
        await new Promise((resolve) => setTimeout(resolve, REFRESH_MS));
      }
    }
  })();
  return () => abort.abort();
}

async function showResults(found, place) {
  const names = found.artefacts.map((artefact) => artefact.name);
  const link = (name) => element("button", { onclick: () => download(found.id, name) }, name);
  place.replaceChildren(element("h2", {}, "Files"),
    names.length ? element("p", {}, ...names.slice(0, 50).flatMap((name) => [link(name), " "]))
      : element("p", { class: "hint" }, "This job wrote no files."));
  const report = names.find((name) => name.endsWith(".html"));
  if (!report) return;
  const text = await (await call(`/v1/jobs/${found.id}/artefacts/${report}`)).text();
  // Sandboxed: a report repeats names that a client chose, so nothing in it may run.
  place.append(element("h2", {}, "Report"), element("iframe", { title: "report", sandbox: "", srcdoc: text }));
}

async function download(id, name) {
  const blob = await (await call(`/v1/jobs/${id}/artefacts/${encodeURIComponent(name)}`)).blob();
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name.split("/").pop() }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function policies() {
  const paths = ["/v1/registry/policy", "/v1/jobs?state=succeeded", "/v1/installations/latest"];
  live(() => Promise.all(paths.map((path) => json(path))), ([entries, verdicts, units]) => {
    const latest = new Map();
    for (const found of [...verdicts].reverse()) if (found.kind === "validate") latest.set(found.spec.policy, found);
    const outcome = (entry) => {
      const found = latest.get(entry.sha256);
      return found ? element("a", { href: `#/jobs/${found.id}` }, found.result.document.outcome) : "not validated";
    };
    show("Policies", table([
      ["policy", (entry) => short(entry.sha256)],
      ["task", (entry) => `${entry.name}, version ${entry.version}`],
      ["robot", (entry) => entry.robot],
      ["verdict", outcome],
      ["runs on", (entry) => few(units.filter(({ runs }) => runs?.policy === entry.sha256).map(({ unit }) => unit))],
      ["registered", (entry) => when(entry.created)],
    ], entries, "No policies yet. A validation registers its policy."));
  });
}

function twins() {
  live(() => json("/v1/registry/twin"), (entries) => {
    show("Twins", table([
      ["twin", (entry) => short(entry.sha256)],
      ["robot", (entry) => `${entry.robot}, version ${entry.version}`],
      ["credibility", (entry) => element("span", {}, mark(entry.credible ? "credible" : "not credible"),
        element("br"), element("span", { class: "hint" }, entry.reasons.join("; ")))],
      ["evidence", (entry) => `${entry.recordings} recordings, from ${entry.origin}`],
      ["registered", (entry) => when(entry.created)],
    ], entries, "No twins yet. Create one with: physai sim calibrate ROBOT LOGS"));
  });
}

function sessions() {
  live(() => json("/v1/sessions"), (found) => {
    show("Sessions", table([
      ["session", (entry) => element("a", { href: `#/sessions/${entry.id}` }, element("code", {}, entry.id))],
      ["task", (entry) => entry.task],
      ["worlds", (entry) => `${entry.worlds}`],
      ["steps", (entry) => `${entry.steps}`],
      ["clients", (entry) => `${entry.connections}`],
      ["since", (entry) => when(entry.created)],
    ], found, "No sessions. A program opens one with physai.sim.client.RemoteSession.create."));
  });
}

async function watch(id) {
  leave = () => {};
  try {
    const [session, view] = await Promise.all([json(`/v1/sessions/${id}`), post(`/v1/sessions/${id}/view`, {})]);
    const shown = view.worlds < session.worlds ? `, ${view.worlds} of ${session.worlds} worlds shown` : "";
    show(`Session ${id}`, element("p", {}, `${session.task}${shown}. Drag to turn, scroll to zoom.`),
      element("iframe", { src: view.url, title: `3-D view of ${session.task}`, class: "view" }),
      element("p", {}, element("a", { href: "#/sessions" }, "All sessions")));
  } catch (error) { main.replaceChildren(problem(error)); }
}

async function validate() {
  leave = () => {};
  let known;
  try { known = await json("/v1/registry/twin"); } catch (error) { main.replaceChildren(problem(error)); return; }
  const file = (id, label, accept, required) =>
    element("label", { for: id }, label, element("input", { id, type: "file", accept, required }));
  const options = known.map((entry) => element("option", { value: entry.sha256 },
    `${entry.robot}, version ${entry.version}${entry.credible ? "" : " (not credible)"}`));
  const choice = element("select", { id: "twin" }, element("option", { value: "" }, "nominal robot: no policy can pass"),
    ...options);
  const submit = element("button", {}, "Validate");
  const problems = element("div");
  const form = element("form", {},
    file("policy", "Policy (policy.onnx)", ".onnx", true),
    file("golden", "Its reference outputs (golden.npz), if there are any", ".npz", false),
    element("label", { for: "twin" }, "Twin", choice),
    file("twinfile", "or upload one (twin.json)", ".json", false), submit, problems);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    submit.textContent = "Uploading …";
    try {
      const upload = async (id) => {
        const [chosen] = document.getElementById(id).files;
        return chosen && (await json("/v1/blobs", { method: "POST", body: chosen })).sha256;
      };
      const [policy, golden, uploaded] = await Promise.all(["policy", "golden", "twinfile"].map(upload));
      await post("/v1/registry/policy", { sha256: policy, ...(golden && { golden }) });
      if (uploaded) await post("/v1/registry/twin", { sha256: uploaded });
      const twin = uploaded || choice.value;
      const spec = { policy, ...(golden && { golden }), ...(twin && { twin }) };
      location.hash = `#/jobs/${(await post("/v1/jobs", { kind: "validate", spec })).id}`;
    } catch (error) {
      problems.replaceChildren(problem(error));
      submit.disabled = false;
      submit.textContent = "Validate";
    }
  });
  show("Validate a policy", form);
}

// What a unit runs, and below it what became of a later flash that did not change it.
function installed({ runs, latest }) {
  const line = (report, prefix) => element("div", {}, prefix, mark(report.outcome), element("br"),
    element("span", { class: "hint" }, report.reason && `${report.reason}; `, `reported by ${report.reported_by}`));
  const isLatest = runs?.time === latest.time;
  return element("div", {}, runs && line(runs, ""),
    isLatest ? null : line(latest, `version ${latest.version}, ${when(latest.time)}: `));
}

function robots() {
  live(() => Promise.all([json("/v1/robots"), json("/v1/installations/latest")]), ([entries, units]) => {
    show("Robots", table([
      ["robot", (entry) => short(entry.sha256)],
      ["name", (entry) => `${entry.name}, version ${entry.version}`],
      ["base", (entry) => entry.base],
      ["mass", (entry) => (entry.mass_kg == null ? "" : `${Number(entry.mass_kg).toPrecision(3)} kg`)],
      ["registered", (entry) => when(entry.created)],
    ], entries, "No robots yet. Upload one: curl --data-binary @robot.zip …/v1/robots"),
    element("h2", {}, "What robots run"),
    element("p", { class: "hint" }, "As reported by those who flashed them, not by the robots: one on trial may have gone",
      " back since, and a flash without --server is not listed."),
    table([
      ["unit", ({ unit }) => unit],
      ["policy", ({ runs }) => (runs ? short(runs.policy) : "unknown")],
      ["task", ({ runs }) => runs?.task ?? ""],
      ["version", ({ runs }) => `${runs?.version ?? ""}`],
      ["outcome", installed],
      ["since", ({ runs }) => when(runs?.since)],
    ], units, "No flash was reported yet. Report one with: physai flash HOST BUNDLE --server URL"));
  });
}

async function play(ids, tell) {
  for (const id of ids) {
    for (;;) {
      const found = await json(`/v1/jobs/${id}`);
      if (found.state === "succeeded") break;
      if (ENDED.includes(found.state)) throw new Refused(`Job ${id} is ${found.state}. ${found.error ?? ""}`);
      tell(`Playing: job ${id} is ${found.state} …`);
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }
  return post("/v1/replays", { jobs: ids });
}

function outcomes(replay) {
  const sum = (episodes, name) => episodes.reduce((total, episode) => total + episode[name], 0);
  return table([
    ["policy", ([name]) => name],
    ["return of each episode", ([, episodes]) => episodes.map((episode) => Number(episode.return).toFixed(1)).join(", ")],
    ["succeeded", ([, episodes]) => `${sum(episodes, "succeeded")} of ${sum(episodes, "judged")}`],
  ], replay.outcomes.map((episodes, index) => ["AB"[index], episodes]), "");
}

async function compare() {
  leave = () => {};
  let known;
  try { known = await json("/v1/registry/policy"); } catch (error) { main.replaceChildren(problem(error)); return; }
  if (!known.length) {
    show("Compare", element("p", { class: "hint" }, "No policies yet. A validation registers its policy."));
    return;
  }
  const choose = (id, label) => element("label", { for: id }, label, element("select", { id }, ...known.map((entry) =>
    element("option", { value: entry.sha256 }, `${entry.name}, version ${entry.version} (${entry.sha256.slice(0, 8)})`))));
  const submit = element("button", {}, "Play both");
  const below = element("div", { "aria-live": "polite" });
  const seed = element("input", { id: "seed", type: "number", min: 0, max: 1048575, value: 0, required: true });
  const form = element("form", {}, choose("a", "Policy A"), choose("b", "Policy B"),
    element("label", { for: "seed" }, "Seed", seed), submit);
  if (known.length > 1) form.querySelector("#b").selectedIndex = 1;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    try {
      const chosen = ["a", "b"].map((id) => form.querySelector(`#${id}`).value);
      const ids = [];
      for (const policy of chosen) {
        ids.push((await post("/v1/jobs", { kind: "play", spec: { policy, seed: Number(seed.value) } })).id);
      }
      const replay = await play(ids, (text) => below.replaceChildren(element("p", { class: "hint" }, text)));
      below.replaceChildren(outcomes(replay),
        element("iframe", { src: replay.url, title: "3-D view of both policies", class: "view" }));
    } catch (error) { below.replaceChildren(problem(error)); }
    submit.disabled = false;
  });
  show("Two policies on the same seeds", form, below);
}

const VIEWS = { jobs, policies, twins, robots, sessions, compare, validate };

function route() {
  leave();
  const [, name = "jobs", id] = location.hash.split("/");
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren(element("p", { class: "hint" }, "Loading …"));
  if (name === "jobs" && id) job(id);
  else if (name === "sessions" && id) watch(id);
  else (VIEWS[name] ?? jobs)();
}

addEventListener("hashchange", () => { route(); main.focus({ preventScroll: true }); });
route();
