// Requests to the service by its HTTP API (docs/SERVICE.md), and the token.
"use strict";

const OVER = ["done", "failed", "stopped", "timeout"];
const PATIENCE_MS = 15000;

const token = {
  get: () => sessionStorage.getItem("nnpipe-token") || "",
  set: text => text ? sessionStorage.setItem("nnpipe-token", text) : sessionStorage.removeItem("nnpipe-token"),
};

// Returns the response, or throws an Error: with a status if the service refused, without if it is away.
async function ask(method, path, more = {}) {
  const headers = token.get() ? { Authorization: "Bearer " + token.get(), ...more } : more;
  const answer = await fetch(path, { method, headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (!answer.ok && answer.status !== 304) {
    let text = answer.status + " " + answer.statusText;
    try { text = (await answer.json()).error.text; } catch { /* not ours */ }
    throw Object.assign(new Error(text), { status: answer.status });
  }
  return answer;
}

const askJson = async path => (await ask("GET", path)).json();

// The same for responses with an ETag: while nothing has changed, the service does not send them again.
const marked = new Map(); // by path: the ETag and the value
async function askMarked(path) {
  const last = marked.get(path), answer = await ask("GET", path, last ? { "If-None-Match": last.mark } : {});
  if (answer.status === 304) return last.value;
  const value = await answer.json();
  if (answer.headers.get("ETag")) marked.set(path, { mark: answer.headers.get("ETag"), value });
  return value;
}
