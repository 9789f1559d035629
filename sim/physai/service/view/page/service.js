// Requests to the service with the reader's token, and the parts of the page that every view shares.

import { element } from "./elements.js";

export const main = document.getElementById("main");
const status = document.getElementById("status");
const TOKEN_KEY = "physai-token";

export class Refused extends Error {}

export async function call(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN_KEY);
  const headers = { ...options.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch {
    throw new Refused("The service does not answer. It may be stopped, or the connection is down.");
  }
  if (answer.status === 401) {
    const said = await answer.json().catch(() => ({}));
    await login(token ? said.detail : "");
    return call(path, options);
  }
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({ detail: answer.statusText }));
    throw Object.assign(new Refused(problem.detail), { status: answer.status });
  }
  return answer;
}

export const json = async (path, options) => (await call(path, options)).json();
export const post = (path, body) =>
  json(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

function login(refusal) {
  document.getElementById("refusal").textContent = refusal ?? "";
  const dialog = document.getElementById("login");
  const input = document.getElementById("token");
  input.value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => { sessionStorage.setItem(TOKEN_KEY, input.value.trim()); resolve(); },
      { once: true });
  });
}

export function show(title, ...content) {
  document.title = `${title} · physai`;
  main.replaceChildren(element("h1", {}, title), ...content);
}

export function say(text) {
  status.textContent = text;
  setTimeout(() => { if (status.textContent === text) status.textContent = ""; }, 6000);
}

export const problem = (error) => element("p", { class: "bad", role: "alert" }, error.message);

export const clear = () => { status.textContent = ""; };
