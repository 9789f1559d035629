// The forms: validate a policy, upload a robot, compare two policies.

import { ENDED, element, table } from "./elements.js";
import { json, main, post, problem, Refused, show } from "./service.js";

const ORIGINS = { robot: "a robot", "stand-in": "a stand-in", computer: "another computer", unknown: "unknown" };

const choice = (id, label, none, entries, text, chosen) => element("label", { for: id }, label, element("select", { id },
  element("option", { value: "" }, none), ...entries.map((entry) =>
    element("option", { value: entry.sha256, selected: entry.sha256 === chosen }, text(entry)))));
const versioned = (entry) => `${entry.name}, version ${entry.version} (${entry.sha256.slice(0, 8)})`;
const robotChoice = (robots) => choice("robot", "Robot", "that of the task, or of the twin", robots, versioned);
const ofRobot = (form) => (form.querySelector("#robot").value ? { robot: form.querySelector("#robot").value } : {});

async function upload(id) {
  const [chosen] = document.getElementById(id).files;
  return chosen && (await json("/v1/blobs", { method: "POST", body: chosen })).sha256;
}

export async function validate(policy) {
  let known;
  try {
    known = await Promise.all(["/v1/registry/policy", "/v1/registry/twin", "/v1/robots"].map((path) => json(path)));
  } catch (error) { main.replaceChildren(problem(error)); return; }
  const [policies, twins, robots] = known;
  const file = (id, label, accept) =>
    element("label", { for: id }, label, element("input", { id, type: "file", accept }));
  const submit = element("button", {}, "Validate"), problems = element("div");
  const origins = Object.entries(ORIGINS).map(([value, text]) => element("label", { class: "inline" },
    element("input", { type: "checkbox", name: "accept", value, checked: value === "robot" }), ` ${text}`));
  const form = element("form", {},
    choice("known", "Policy", "upload one below", policies, versioned, policy),
    file("policy", "or upload one (policy.onnx)", ".onnx"),
    file("golden", "Its reference outputs (golden.npz), if there are any", ".npz"),
    choice("twin", "Twin", "nominal robot: no policy can pass", twins, (entry) =>
      `${entry.robot}, version ${entry.version}${entry.credible ? "" : " (not credible)"}`),
    file("twinfile", "or upload one (twin.json)", ".json"), robotChoice(robots),
    file("latency", "Tick durations measured on the target computer; without them no policy can pass", ".json"),
    element("fieldset", {}, element("legend", {}, "Accept evidence from"), ...origins), submit, problems);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    submit.textContent = "Uploading …";
    try {
      location.hash = `#/jobs/${await submitted(form, policies)}`;
    } catch (error) {
      problems.replaceChildren(problem(error));
      submit.disabled = false;
      submit.textContent = "Validate";
    }
  });
  show("Validate a policy", form);
}

async function submitted(form, policies) {
  const [file, goldenFile, twinFile, latency] = await Promise.all(["policy", "golden", "twinfile", "latency"].map(upload));
  const chosen = policies.find((entry) => entry.sha256 === form.querySelector("#known").value);
  const policy = file ?? chosen?.sha256, golden = goldenFile ?? (file ? undefined : chosen?.golden);
  if (!policy) throw new Refused("Choose a policy, or a file.");
  const robot = ofRobot(form), twin = twinFile ?? form.querySelector("#twin").value;
  if (file) await post("/v1/registry/policy", { sha256: policy, ...(golden && { golden }) });
  if (twinFile) await post("/v1/registry/twin", { sha256: twinFile, ...robot });
  const accept = [...form.querySelectorAll("[name=accept]:checked")].map((box) => box.value).join(",") || "robot";
  const spec = { policy, accept, ...robot, ...(golden && { golden }), ...(twin && { twin }), ...(latency && { latency }) };
  return (await post("/v1/jobs", { kind: "validate", spec })).id;
}

export function robotForm() {
  const input = element("input", { id: "robotfile", type: "file", accept: ".zip,.xml,.mjcf,.urdf", required: true });
  const submit = element("button", {}, "Upload"), problems = element("div");
  const form = element("form", {}, element("label", { for: "robotfile" },
    "MJCF or URDF, or a zip of one with its meshes", input), submit, problems);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    problems.replaceChildren(element("p", { class: "hint" }, "Uploading and compiling …"));
    const [file] = input.files, name = file.name.replace(/\.[^.]*$/, "").replace(/[^A-Za-z0-9_-]/g, "_");
    try {
      const entry = await json(`/v1/robots?name=${encodeURIComponent(name)}`, { method: "POST", body: file });
      location.hash = `#/robots/${entry.sha256}`;
    } catch (error) { problems.replaceChildren(problem(error)); }
    submit.disabled = false;
  });
  return form;
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

export async function compare() {
  let known, robots;
  try { [known, robots] = await Promise.all([json("/v1/registry/policy"), json("/v1/robots")]); } catch (error) { main.replaceChildren(problem(error)); return; }
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
    element("label", { for: "seed" }, "Seed", seed), robotChoice(robots), submit);
  if (known.length > 1) form.querySelector("#b").selectedIndex = 1;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    try {
      const chosen = ["a", "b"].map((id) => form.querySelector(`#${id}`).value);
      const ids = [];
      for (const policy of chosen) {
        ids.push((await post("/v1/jobs", { kind: "play", spec: { policy, seed: Number(seed.value), ...ofRobot(form) } })).id);
      }
      const replay = await play(ids, (text) => below.replaceChildren(element("p", { class: "hint" }, text)));
      below.replaceChildren(outcomes(replay),
        element("iframe", { src: replay.url, title: "3-D view of both policies", class: "view" }));
    } catch (error) { below.replaceChildren(problem(error)); }
    submit.disabled = false;
  });
  show("Two policies on the same seeds", form, below);
}
