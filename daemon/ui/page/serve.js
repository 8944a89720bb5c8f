// The page of `nnpipe serve`: sends each picture as it is, and shows the answer beside it.
"use strict";

const PATIENCE_MS = 60000, SIDE = 288;
const byId = id => document.getElementById(id);

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

async function ask(path, options = {}) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS), ...options });
  const value = await answer.json();
  if (!answer.ok) throw new Error(value.error.text);
  return value;
}

// Browsers do not know every format that the decoder knows: then there is no preview.
async function preview(file, canvas) {
  try {
    const image = await createImageBitmap(file), scale = Math.min(1, SIDE / Math.max(image.width, image.height));
    canvas.width = Math.max(1, Math.round(image.width * scale));
    canvas.height = Math.max(1, Math.round(image.height * scale));
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  } catch { canvas.width = canvas.height = 1; }
}

function rows(top) {
  const table = make("table");
  for (const one of top) {
    const row = table.insertRow(), head = make("th", one.class), meter = make("meter");
    head.scope = "row";
    row.append(head);
    meter.value = one.probability;
    meter.textContent = "";
    row.insertCell().append(meter);
    row.insertCell().textContent = (100 * one.probability).toFixed(2) + " %";
  }
  return table;
}

// Of a network for numbers: { name: value }.
function numbers(values) {
  const table = make("table");
  for (const [name, value] of Object.entries(values)) {
    const row = table.insertRow(), head = make("th", name);
    head.scope = "row";
    row.append(head);
    row.insertCell().textContent = String(Number(value.toPrecision(6)));
  }
  return table;
}

// Of a network for several classes: those with a probability above 50 %.
const found = classes => make("p", classes.length ? classes.join(", ") : "no class", "found");

async function predict(file) {
  const item = make("li"), canvas = make("canvas"), side = make("div"), head = make("h2", file.name || "pasted picture");
  side.append(head);
  item.append(canvas, side);
  byId("answers").prepend(item);
  preview(file, canvas);
  const from = performance.now();
  try {
    const answer = await ask("/predict", { method: "POST", body: file, headers: { "Content-Type": "application/octet-stream" } });
    head.append(" ", make("small", Math.round(performance.now() - from) + " ms"));
    if (answer.classes) side.append(found(answer.classes));
    side.append(answer.values ? numbers(answer.values) : rows(answer.top));
  } catch (error) {
    side.append(make("p", error.message, "failed"));
  }
}

function take(files) {
  for (const file of files) predict(file);
}

function listen() {
  const drop = byId("drop");
  byId("files").addEventListener("change", event => { take(event.target.files); event.target.value = ""; });
  addEventListener("paste", event => take(event.clipboardData.files));
  for (const name of ["dragenter", "dragover", "dragleave", "drop"])
    addEventListener(name, event => {
      event.preventDefault();
      drop.classList.toggle("over", name === "dragenter" || name === "dragover");
      if (name === "drop") take(event.dataTransfer.files);
    });
}

async function begin() {
  listen();
  try {
    const model = await ask("/model");
    byId("model").textContent = `${model.weights}: ${model.classes.length} ${model.label_type === "value" ? "values" : "classes"}, ${model.width} x ${model.height}, ` +
      `${model.precision} on ${model.device}, batches of up to ${model.max_batch}`;
  } catch (error) {
    byId("problem").textContent = "the server does not answer: " + error.message;
    byId("problem").hidden = false;
  }
}
begin();
