// Asks which of two motions is better. Answers are kept in this browser until the service has stored them: an answer that
// was given is neither lost nor counted twice if the service stops in between.

import { element } from "./elements.js";
import { decoded, floats, Orbit, Player } from "./motion.js";
import { json, main, post, problem, Refused, say, show } from "./service.js";

const API = "/v1/preferences";
const RATER = "physai-rater", UNSENT = "physai-unsent-answers";
const CHOICES = [
  ["left", "← Left", "ArrowLeft"], ["equal", "↑ Equal", "ArrowUp"],
  ["cannot_tell", "↓ Cannot tell", "ArrowDown"], ["right", "Right →", "ArrowRight"],
];

const orbit = new Orbit();
const cache = new Map();
let rater = localStorage.getItem(RATER) ?? "", own = null;
let scene, pair, motions, players, asked, history = [];
let playing = true, start = 0, frame = 0, busy = false;

const stored = () => JSON.parse(localStorage.getItem(UNSENT) ?? "[]");
// With tokens, the answers of someone else who used this browser wait for their token.
const sendable = () => stored().filter((answer) => own == null || answer.rater === own);
const keep = (answers) => localStorage.setItem(UNSENT, JSON.stringify(answers));

/** Sends what is not stored yet, oldest first; each has a key by which the service knows one that it has already. */
async function send() {
  for (let waiting = sendable(); waiting.length; waiting = sendable()) {
    const { key } = waiting[0];
    try { await post(`${API}/answers`, waiting[0]); } catch (error) {
      // Refused for good, as when another tab answered the pair: it must not hold up what was given after it.
      if (error.status !== 409 && error.status !== 422) throw error;
      history = history.filter((given) => given !== key);
      say(`An answer was not stored: ${error.message}`);
    }
    keep(stored().filter((answer) => answer.key !== key));
  }
}

async function patiently(work) {
  for (let wait = 500; ; wait = Math.min(8000, 2 * wait)) {
    try { return await work(); } catch (error) {
      if (!(error instanceof Refused) || !/does not answer/.test(error.message)) throw error;
      say(`${error.message} Trying again …`);
      await new Promise((resolve) => { setTimeout(resolve, wait); });
    }
  }
}

function motion(id) {
  if (!cache.has(id)) {
    const loaded = json(`${API}/segments/${id}`).then((s) => ({ ...s, poses: floats(s.poses) }));
    loaded.catch(() => cache.delete(id));
    cache.set(id, loaded);
    if (cache.size > 12) cache.delete(cache.keys().next().value);
  }
  return cache.get(id);
}

const side = (name) => element("figure", { class: "motion" },
  element("canvas", { role: "img", "aria-label": `motion on the ${name.toLowerCase()}` }),
  element("figcaption", {}, name));

function layout() {
  const left = side("Left"), right = side("Right");
  const scrub = element("input", { id: "scrub", type: "range", min: 0, max: 1, value: 0, "aria-label": "time",
    oninput: (event) => { frame = Number(event.target.value); setPlaying(false); draw(); } });
  const play = element("button", { id: "play", type: "button", onclick: () => setPlaying(!playing) }, "Pause");
  const undo = element("button", { id: "undo", type: "button", disabled: true, onclick: takeBack }, "Undo");
  const choices = CHOICES.map(([value, text]) =>
    element("button", { class: "choice", type: "button", "data-answer": value, onclick: () => answer(value) }, text));
  show("Which motion is better?",
    element("p", { class: "hint", id: "progress" }),
    element("progress", { id: "bar", max: 1, value: 0, "aria-labelledby": "progress" }),
    element("div", { class: "pair" }, left, right),
    element("div", { class: "transport" }, play, scrub, element("output", { id: "clock" })),
    element("div", { class: "choices" }, ...choices),
    element("p", {}, undo, " ", element("span", { class: "hint" },
      "Keys: ← → ↑ ↓ answer, space plays and pauses, U takes the last answer back. Drag a motion to turn both.")),
    element("section", { id: "learnt", "aria-live": "polite" }));
  const canvases = [left, right].map((figure) => figure.querySelector("canvas"));
  for (const canvas of canvases) {
    canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons) { orbit.turn(event.movementX, event.movementY); draw(); }
    });
  }
  players = canvases.map((canvas) => new Player(canvas, scene, orbit));
}

function setPlaying(on) {
  playing = on;
  start = performance.now() - 1000 * frame * (motions?.[0].dt ?? 0);
  document.getElementById("play").textContent = on ? "Pause" : "Play";
}

function draw() {
  if (!motions) return;
  players.forEach((player, index) => player.draw(motions[index], frame));
  const { dt, frames } = motions[0];
  document.getElementById("scrub").value = frame;
  document.getElementById("clock").textContent = `${(frame * dt).toFixed(2)} of ${((frames - 1) * dt).toFixed(2)} s`;
}

function tick(now) {
  if (playing && motions) {
    const { dt, frames } = motions[0];
    // The last picture stands for half a second before both begin anew.
    const at = Math.floor((now - start) / (1000 * dt)) % (frames + Math.ceil(0.5 / dt));
    frame = Math.min(at, frames - 1);
    draw();
  }
  requestAnimationFrame(tick);
}

async function next() {
  const found = await patiently(async () => { await send(); return json(`${API}/next?rater=${encodeURIComponent(rater)}`); });
  pair = found.pair;
  if (pair == null) { await finished(found); return; }
  motions = await patiently(() => Promise.all([motion(pair.left), motion(pair.right)]));
  document.getElementById("scrub").max = motions[0].frames - 1;
  document.getElementById("progress").textContent = `Pair ${found.answered + 1} of ${found.total}`;
  Object.assign(document.getElementById("bar"), { max: found.total, value: found.answered });
  orbit.frame(scene, motions);
  frame = 0;
  setPlaying(true);
  asked = performance.now();
  for (const id of found.upcoming ?? []) motion(id).catch(() => {});
}

/** One thing after another; keys that come in between do nothing, for the pair that they are about is not shown. */
async function alone(work) {
  if (busy) return;
  busy = true;
  main.setAttribute("aria-busy", "true");
  try { await work(); } catch (error) { main.append(problem(error)); }
  busy = false;
  main.setAttribute("aria-busy", "false");
  const undo = document.getElementById("undo");
  if (undo) undo.disabled = !history.length;
  learnt().catch(() => {});
}

const answer = (value) => pair && alone(async () => {
  const key = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  keep([...stored(), { key, pair: pair.id, rater, answer: value, latency_s: Math.min(1e6, (performance.now() - asked) / 1000) }]);
  history.push(key);
  say(`Answered: ${value.replace("_", " ")}.`);
  await next();
});

const takeBack = () => history.length && alone(async () => {
  await patiently(async () => { await send(); await post(`${API}/undo`, { key: history.at(-1) }); });
  history.pop();
  say("The last answer is taken back.");
  if (!document.querySelector(".pair")) layout();
  await next();
});

async function learnt() {
  const { model, agreement } = await json(`${API}/status`);
  const lines = [];
  if (model) {
    const foretold = model.accuracy == null ? "" : `, and predicts ${Math.round(100 * model.accuracy)} % of those held out`;
    lines.push(`The reward model has learnt from ${model.answers} answers${foretold}.`);
    const strongest = (numbers) => Object.entries(numbers ?? {}).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 3);
    const likes = strongest(model.weights).map(([name, w]) => `${w > 0 ? "more" : "less"} ${name} (${Math.round(100 * Math.abs(w))} %)`);
    const along = strongest(model.correlations).map(([name, r]) => `${name} (${r > 0 ? "+" : "−"}${Math.abs(r).toFixed(2)})`);
    if (likes.length) lines.push(`It likes ${likes.join(", ")}.`);
    else if (along.length) lines.push(`What it likes goes along with ${along.join(", ")}.`);
  }
  if (agreement?.repeated) lines.push(`${agreement.same} of ${agreement.repeated} repeated pairs were answered alike.`);
  document.getElementById("learnt")?.replaceChildren(...lines.map((line) => element("p", { class: "hint" }, line)));
}

async function finished({ answered }) {
  motions = null;
  const undo = element("button", { id: "undo", type: "button", disabled: !history.length, onclick: takeBack }, "Undo");
  show("Thank you", element("p", {}, `${answered} pairs are answered; there is none left for ${rater}.`), undo,
    element("section", { id: "learnt" }));
}

function ask() {
  return new Promise((resolve) => {
    const input = element("input", { id: "rater", required: true, maxlength: 64, value: rater, autocomplete: "username" });
    show("Which motion is better?", element("form", { onsubmit: (event) => { event.preventDefault(); resolve(input.value.trim()); } },
      element("label", { for: "rater" }, "Your name, under which answers are stored", input),
      element("button", {}, "Begin")));
    input.focus();
  });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !pair || /^(INPUT|SELECT)$/.test(event.target.tagName) && event.target.type !== "range") return;
  const choice = CHOICES.find(([, , key]) => key === event.key);
  if (choice && !event.repeat) { event.preventDefault(); answer(choice[0]); }
  else if (event.key === " " && event.target.tagName !== "BUTTON") { event.preventDefault(); setPlaying(!playing); }
  else if (/^(u|z|Backspace)$/i.test(event.key)) { event.preventDefault(); takeBack(); }
});

try {
  scene = decoded(await patiently(() => json(`${API}/scene`)));
  own = (await patiently(() => json(`${API}/rater`))).rater;
  rater = own ?? await ask();
  if (own == null) localStorage.setItem(RATER, rater);
  layout();
  requestAnimationFrame(tick);
  await alone(next);
} catch (error) { main.replaceChildren(problem(error)); }
