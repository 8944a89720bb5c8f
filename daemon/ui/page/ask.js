// What both parts of the page use: asking the service (the same HTTP API as the commands, docs/SERVICE.md),
// the token, elements, and numbers as people read them.
"use strict";

const $ = id => document.getElementById(id);
const OVER = ["done", "failed", "stopped", "timeout"];
const PATIENCE_MS = 15000;

// --- asking -------------------------------------------------------------------------------------

const token = {
  get: () => sessionStorage.getItem("nnpipe-token") || "",
  set: text => text ? sessionStorage.setItem("nnpipe-token", text) : sessionStorage.removeItem("nnpipe-token"),
};

// An answer of the service, or an Error: with a status where it said no, without where it does not answer.
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

// The same for what the service marks: while nothing has changed there it does not make the answer anew.
const marked = new Map(); // by path: the mark and the answer
async function askMarked(path) {
  const last = marked.get(path), answer = await ask("GET", path, last ? { "If-None-Match": last.mark } : {});
  if (answer.status === 304) return last.value;
  const value = await answer.json();
  if (answer.headers.get("ETag")) marked.set(path, { mark: answer.headers.get("ETag"), value });
  return value;
}

// --- words --------------------------------------------------------------------------------------

const known = value => value !== null && value !== undefined && !Number.isNaN(value);
const fixed = (value, digits) => known(value) ? value.toFixed(digits) : "–";
const whole = value => known(value) ? Math.round(value).toLocaleString("en") : "–";
const percent = (value, digits = 1) => known(value) ? (100 * value).toFixed(digits) + "%" : "–";
const clock = seconds => known(seconds) ? new Date(1000 * seconds).toLocaleString("sv") : "–";

function duration(seconds) {
  if (!known(seconds)) return "–";
  const s = Math.max(0, Math.round(seconds)), pad = n => String(n).padStart(2, "0");
  return s >= 3600 ? `${Math.floor(s / 3600)}:${pad(Math.floor(s / 60) % 60)}:${pad(s % 60)}` : `${Math.floor(s / 60)}:${pad(s % 60)}`;
}

// An element with text, never markup: names, paths and reasons come from users.
function element(tag, text, className) {
  const made = document.createElement(tag);
  if (known(text)) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Changes what differs alone, so that focus, selection and a click under way stay.
function put(node, text, className) {
  if (node.textContent !== String(text)) node.textContent = text;
  if (className !== undefined && node.className !== className) node.className = className;
}
