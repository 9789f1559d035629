// The page of the service: plain DOM, no build step. Text from the service is only ever set as text, never as HTML.

import { ENDED, element, few, mark, short, table, verdict, when } from "./elements.js";
import { compare, robotForm, validate } from "./forms.js";
import { call, clear, json, main, post, problem, Refused, say, show } from "./service.js";

const REFRESH_MS = 2000;
let leave = () => {};

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
        clear();
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
  ["result", (job) => job.result?.document.outcome ? verdict(job.result.document) : (job.error ?? "")],
  ["submitted", (job) => when(job.created)],
], jobs, "No jobs yet. Validate a policy here, or submit one with: physai sim validate RUN --server URL");

const PAGE = 100;

// The newest jobs, or those that were submitted before one.
function jobs(before) {
  const link = (href, text) => element("a", { href }, text);
  live(() => json(`/v1/jobs?limit=${PAGE}${before ? `&before=${before}` : ""}`), (found) =>
    show("Jobs", jobTable(found), element("p", {}, before ? link("#/jobs", "Newest jobs") : "", " ",
      found.length === PAGE ? link(`#/jobs/before/${found.at(-1).id}`, "Older jobs") : "")));
}

function job(id) {
  const log = element("pre", { "aria-label": "progress", tabindex: "0" });
  const facts = element("div"), results = element("div");
  const act = async (verb) => {
    try { await post(`/v1/jobs/${id}/${verb}`, {}); say(`${verb} requested`); } catch (error) { say(error.message); }
  };
  const cancel = element("button", { onclick: () => act("cancel") }, "Cancel");
  const retry = element("button", { onclick: async () => { await act("retry"); location.reload(); } }, "Retry");
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
  const report = names.find((name) => name.endsWith(".html"));
  if (report) {
    const text = await (await call(`/v1/jobs/${found.id}/artefacts/${report}`)).text();
    // Sandboxed: a report repeats names that a client chose, so nothing in it may run.
    place.append(element("h2", {}, "Report"), element("iframe", { title: "report", sandbox: "", srcdoc: text }));
  }
  const results = names.filter((name) => !name.startsWith("record/")), record = names.filter((name) => name.startsWith("record/"));
  place.append(element("h2", {}, "Files"), ...nextStep(found),
    results.length ? element("p", { class: "files" }, ...results.slice(0, 50).flatMap((name) => [link(name), " "]))
      : element("p", { class: "hint" }, "This job wrote no files."));
  if (record.length) {
    place.append(element("details", {}, element("summary", {}, `Record of the run: ${record.length} files`),
      element("p", { class: "files" }, ...record.slice(0, 200).flatMap((name) => [link(name), " "]))));
  }
}

// What a finished job was for: its policy or twin, registered with one button.
function nextStep(found) {
  const hash = (ending) => found.artefacts.find((artefact) => artefact.name.endsWith(ending))?.sha256;
  const button = (text, work) => element("p", {}, element("button", { onclick: async (event) => {
    event.target.disabled = true;
    try { location.hash = await work(); } catch (error) { say(error.message); event.target.disabled = false; }
  } }, text));
  if (found.state !== "succeeded") return [];
  if (found.kind === "train" && hash("policy.onnx")) {
    return [button("Register and validate this policy", async () => {
      const golden = hash("golden.npz"), sha256 = hash("policy.onnx");
      await post("/v1/registry/policy", { sha256, ...(golden && { golden }) });
      return `#/validate/${sha256}`;
    })];
  }
  if (found.kind === "calibrate" && hash("twin.json")) {
    const robot = /^[0-9a-f]{64}$/.test(found.spec.robot) ? { robot: found.spec.robot } : {};
    return [button("Register this twin", async () => {
      await post("/v1/registry/twin", { sha256: hash("twin.json"), ...robot });
      return "#/twins";
    })];
  }
  return [];
}

async function download(id, name) {
  const blob = await (await call(`/v1/jobs/${id}/artefacts/${encodeURIComponent(name)}`)).blob();
  const url = URL.createObjectURL(blob);
  element("a", { href: url, download: name.split("/").pop() }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// The latest finished validation of each policy that has one.
async function validations(policies) {
  const found = [];
  for (let start = 0; start < policies.length; start += 100) {
    const query = policies.slice(start, start + 100).map((policy) => `policy=${policy}`).join("&");
    found.push(...await json(`/v1/jobs/validations?${query}`));
  }
  return found;
}

function policies() {
  const fetchData = async () => {
    const [entries, units] = await Promise.all(["/v1/registry/policy", "/v1/installations/latest"].map((path) => json(path)));
    return [entries, await validations(entries.map((entry) => entry.sha256)), units];
  };
  live(fetchData, ([entries, verdicts, units]) => {
    const latest = new Map(verdicts.map((found) => [found.spec.policy, found]));
    const outcome = (entry) => {
      const found = latest.get(entry.sha256);
      return found ? element("a", { href: `#/jobs/${found.id}` }, verdict(found.result.document)) : "not validated";
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
    ], entries, "No twins yet. The page of a finished calibration registers its twin, and so does: physai sim validate RUN --twin FILE --server URL"));
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
    ], found, "No sessions. A program opens one with physai.service.client.RemoteSession.create."));
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
      ["name", (entry) => element("a", { href: `#/robots/${entry.sha256}` }, `${entry.name}, version ${entry.version}`)],
      ["base", (entry) => entry.base],
      ["mass", (entry) => (entry.mass_kg == null ? "" : `${Number(entry.mass_kg).toPrecision(3)} kg`)],
      ["registered", (entry) => when(entry.created)],
    ], entries, "No robots yet."), element("p", {}, element("a", { href: "#/robots/upload" }, "Upload a robot")),
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

async function robot(id) {
  leave = () => {};
  if (id === "upload") { show("Upload a robot", robotForm()); return; }
  try {
    const found = await json(`/v1/robots/${id}`);
    const limit = (value) => (value == null ? "none" : Number(value).toPrecision(4));
    show(`Robot ${found.name}`, element("p", {}, element("code", {}, found.sha256)),
      element("p", {}, `${found.description}; ${found.base} base, ${Number(found.mass_kg).toPrecision(3)} kg`),
      table([
        ["joint", (joint) => joint.name],
        ["kind", (joint) => joint.kind],
        ["position", (joint) => `${limit(joint.position_lower)} … ${limit(joint.position_upper)}`],
        ["speed", (joint) => limit(joint.velocity_limit)],
        ["effort", (joint) => limit(joint.effort_limit)],
      ], found.joints, ""),
      element("h2", {}, "Files"), element("p", {}, found.files.map((file) => file.path).join(", ")));
  } catch (error) { main.replaceChildren(problem(error)); }
}

const VIEWS = { jobs, policies, twins, robots, sessions };

function route() {
  leave();
  const [, name = "jobs", id, older] = location.hash.split("/");
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.replaceChildren(element("p", { class: "hint" }, "Loading …"));
  if (name === "jobs" && id === "before") jobs(older);
  else if (name === "jobs" && id) job(id);
  else if (name === "sessions" && id) watch(id);
  else if (name === "robots" && id) robot(id);
  else if (name === "validate") { leave = () => {}; validate(id); }
  else if (name === "compare") { leave = () => {}; compare(); }
  else (VIEWS[name] ?? jobs)();
}

addEventListener("hashchange", () => { route(); main.focus({ preventScroll: true }); });
route();
