// The page of nnpipe's service: the token, devices, the table of runs, and the clock that updates them.
"use strict";

const EVERY_MS = 1000;
const SOME_OVER = 5; // finished runs shown by default

let service = null; // the response of /v1/service
let runs = [];
let trouble = false; // the message shown is the clock's, and goes with its next success
let lost = 0; // time in ms since which the service has not answered; 0: it answers
let picked = new Set(); // ids of the runs that are compared
const rows = new Map(); // by id: the row and its cells
const asked = new Map(); // by id: the run's state when the user pressed a button

const mayChange = run => Boolean(service) && !lost && (service.caller.all_runs || (known(run.uid) && service.caller.uid === run.uid));

function complain(text) {
  put($("problem"), text);
  $("problem").hidden = !text;
}

function showTokenState(refused) {
  const needs = !service.caller.all_runs && !service.caller.token;
  $("token-form").hidden = !needs;
  $("token-taken").hidden = !service.caller.token;
  $("token-hint").hidden = !needs;
  put($("token-hint"), refused ? "That is not the token: `nnpipe token` prints yours."
    : "To see curves and logs of your runs, and to pause, resume and stop them, give your token: `nnpipe token` prints it.");
}

$("token-form").addEventListener("submit", async event => {
  event.preventDefault();
  token.set($("token").value.trim());
  try {
    service = await askJson("/v1/service");
    const refused = !service.caller.token;
    if (refused) token.set("");
    showTokenState(refused);
    $("token").value = "";
  } catch (error) {
    complain(error.message);
  }
  refresh();
});

$("forget").addEventListener("click", () => {
  token.set("");
  location.reload();
});

function isSure(run) {
  return new Promise(resolve => {
    const dialog = $("sure");
    put($("sure-text"), `Stop run ${run.id}, ${run.name}? It writes a checkpoint and ends.`);
    dialog.returnValue = "no";
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
    dialog.showModal();
  });
}

async function change(id, verb) {
  const run = runs.find(one => one.id === id);
  if (!run || (verb === "stop" && !await isSure(run))) return;
  asked.set(id, run.state);
  showActions();
  try {
    await ask("POST", `/v1/runs/${id}/${verb}`);
    complain("");
  } catch (error) {
    asked.delete(id);
    complain(error.status ? `Run ${id}: ${error.message}` : "The service does not answer: nothing was changed.");
  }
  refresh();
}

function verbsOf(run) {
  if (OVER.includes(run.state) || run.state === "stopping") return [];
  const verbs = run.state === "paused" || run.state === "pausing" ? ["resume"] : ["pause"];
  return [...verbs, "stop"];
}

// Keeps buttons with the same meaning, so that a redraw does not lose a press.
function putActions(cell, run) {
  const verbs = verbsOf(run), off = !mayChange(run) || asked.get(run.id) === run.state;
  if ([...cell.children].map(button => button.dataset.verb).join() !== verbs.join())
    cell.replaceChildren(...verbs.map(verb => {
      const made = element("button", verb);
      made.type = "button";
      made.dataset.verb = verb;
      made.setAttribute("aria-label", `${verb} run ${run.id}`);
      made.addEventListener("click", event => {
        event.stopPropagation();
        change(run.id, verb);
      });
      return made;
    }));
  for (const button of cell.children) {
    button.disabled = off;
    button.title = mayChange(run) ? "" : "needs the token";
  }
}

function showActions() {
  for (const run of runs) if (rows.has(run.id)) putActions(rows.get(run.id).actions, run);
  const one = runs.find(run => run.id === chosen());
  if (one) putActions($("one-actions"), one);
}

// The address holds the open run: a reload keeps it open, and back closes it.
function chosen() {
  const found = /^#run-(\d+)$/.exec(location.hash);
  return found ? Number(found[1]) : null;
}

function newRow(run) {
  const made = element("tr"), row = { made };
  for (const name of ["id", "name", "state", "owner", "device", "progress", "loss", "accuracy", "rate", "stall", "actions"]) {
    row[name] = element("td", null, name);
    made.append(row[name]);
  }
  row.link = element("a");
  row.link.href = `#run-${run.id}`;
  row.pick = element("input");
  row.pick.type = "checkbox";
  row.pick.setAttribute("aria-label", `compare run ${run.id}`);
  row.pick.addEventListener("change", () => {
    if (!pick(runs, run.id, row.pick.checked)) complain(`At most ${MOST_BESIDE} runs are compared.`);
    refresh();
  });
  row.sweep = element("a", run.sweep, "sweep");
  row.sweep.href = `#sweep-${run.sweep}`;
  row.sweep.title = "the runs of this sweep";
  row.sweep.hidden = !run.sweep;
  row.name.append(row.pick, row.link, " ", row.sweep);
  row.bar = element("progress");
  row.bar.setAttribute("aria-label", "progress");
  row.words = element("span");
  row.progress.append(row.bar, row.words);
  for (const [name, label] of [["loss", "loss"], ["accuracy", "acc."], ["rate", "img/s"], ["stall", "stall"], ["device", "on"], ["owner", "by"]]) row[name].dataset.label = label;
  made.addEventListener("click", event => {
    if (!event.target.closest("a, button, input") && !String(getSelection())) location.hash = run.id === chosen() ? "" : `run-${run.id}`;
  });
  return row;
}

// "cpu", "cpu x4", "cuda:0-3", "cuda:0,2-3": ranges of GPUs.
function deviceWords(run) {
  if (run.devices.length < 2) return (run.assigned || run.device) + (run.processes > 1 ? ` x${run.processes}` : "");
  const ranges = [];
  for (const number of run.devices.map(name => Number(name.slice(5)))) {
    const range = ranges.at(-1);
    if (range && number === range[1] + 1) range[1] = number;
    else ranges.push([number, number]);
  }
  return "cuda:" + ranges.map(([first, last]) => first === last ? first : `${first}-${last}`).join(",");
}

function progressWords(run, p, goes) {
  if (run.reason && !goes) return run.reason;
  if (!known(p.step) || !p.total_steps) return goes ? p.doing || "starting" : run.state === "queued" ? "waits for a device" : "";
  const steps = `${whole(p.step)} of ${whole(p.total_steps)}`;
  return goes && known(p.eta_seconds) ? `${steps}, ${duration(p.eta_seconds)} to go` : steps;
}

function putRow(row, run) {
  const p = run.progress || {}, goes = run.state === "running";
  put(row.id, run.id);
  put(row.link, run.name);
  row.pick.checked = picked.has(run.id);
  put(row.state, run.state, "state " + run.state);
  put(row.owner, run.owner);
  put(row.device, deviceWords(run));
  const measured = known(p.step) && p.total_steps > 0;
  row.bar.hidden = !measured;
  if (measured) {
    row.bar.max = p.total_steps;
    row.bar.value = p.step;
  }
  put(row.words, progressWords(run, p, goes));
  put(row.loss, fixed(p.loss, 4));
  put(row.accuracy, percent(p.accuracy));
  put(row.rate, goes ? whole(p.images_per_second) : "–");
  put(row.stall, goes && known(p.stall_ratio) ? percent(p.stall_ratio, 0) + (p.cause ? " " + p.cause : "") : "–");
  row.made.classList.toggle("chosen", run.id === chosen());
  row.made.dataset.id = run.id;
  row.made.dataset.state = run.state;
  putActions(row.actions, run);
}

// Unfinished runs first, then finished ones; the newest first of each.
function showRuns() {
  const over = runs.filter(run => OVER.includes(run.state)).reverse(), active = runs.filter(run => !OVER.includes(run.state)).reverse();
  picked = new Set(besideIds(runs) ?? []);
  const sweep = sweepShown(), isShown = run => !sweep || run.sweep === sweep;
  const all = $("all").checked || sweep;
  const shown = [...active, ...(all ? over : over.filter((run, i) => i < SOME_OVER || run.id === chosen() || picked.has(run.id)))].filter(isShown);
  const body = $("runs").tBodies[0];
  for (const [id, row] of rows)
    if (!shown.some(run => run.id === id)) {
      row.made.remove();
      rows.delete(id);
    }
  shown.forEach((run, i) => {
    if (asked.has(run.id) && asked.get(run.id) !== run.state) asked.delete(run.id);
    if (!rows.has(run.id)) rows.set(run.id, newRow(run));
    putRow(rows.get(run.id), run);
    if (body.children[i] !== rows.get(run.id).made) body.insertBefore(rows.get(run.id).made, body.children[i] || null);
  });
  $("none").hidden = runs.length > 0;
  $("runs").hidden = runs.length === 0;
  $("all").parentElement.hidden = over.length <= SOME_OVER;
  put($("all-text"), `all ${over.length} that are over`);
}

function showSummary() {
  const count = state => runs.filter(run => run.state === state).length;
  const parts = ["running", "queued", "paused", "failed"].map(state => [state, count(state)]).filter(([state, n]) => n > 0 || state === "running");
  put($("summary"), parts.map(([state, n]) => `${n} ${state}`).join(", "), "live");
  document.title = `${count("running")} running · nnpipe`;
}

function deviceOf(device) {
  const made = element("li", null, "card"), on = device.runs.map(id => runs.find(run => run.id === id)).filter(Boolean);
  const going = on.filter(run => run.state === "running" && run.progress && known(run.progress.images_per_second));
  const use = element("meter");
  use.max = device.slots;
  use.value = device.busy;
  use.setAttribute("aria-label", "use");
  made.append(element("b", device.name), use, element("span", device.busy ? `${device.busy} of ${device.slots}` : "idle"));
  if (device.reserved) made.append(element("span", `${device.reserved} kept free for ${device.reserved_for}`));
  if (going.length) {
    const rate = going.reduce((sum, run) => sum + run.progress.images_per_second, 0);
    const stall = Math.min(...going.map(run => run.progress.stall_ratio || 0));
    made.append(element("span", `${whole(rate)} img/s, ${going.length > 1 ? "at least " : ""}${percent(1 - stall, 0)} fed`, "rate"));
  }
  const list = element("span", null, "on");
  for (const run of on) {
    const link = element("a", `${run.id} ${run.name}`);
    link.href = `#run-${run.id}`;
    list.append(link, " ");
  }
  made.append(list);
  return made;
}

// Redraws on a change, unless the user is on one of its links.
function showDevices(devices) {
  const list = $("devices"), made = devices.map(deviceOf), now = made.map(one => one.outerHTML).join("");
  if (list.dataset.drawn === now || list.contains(document.activeElement)) return;
  list.dataset.drawn = now;
  list.replaceChildren(...made);
}

async function look() {
  const [about, list, devices] = await Promise.all([askJson("/v1/service"), askMarked("/v1/runs"), askJson("/v1/devices")]);
  if (service && service.version !== about.version) location.reload(); // a new version has a new page
  const changed = !service || service.caller.token !== about.caller.token;
  service = about;
  runs = list.runs;
  if (changed) showTokenState(false);
  showRuns();
  showDevices(devices.devices);
  showSummary();
}

async function lookAtOne() {
  const run = runs.find(one => one.id === chosen());
  if (!run) {
    if (feed) closeRun();
    return;
  }
  if (!feed || feed.id !== run.id) {
    showRun(run);
    $("one").scrollIntoView({ block: "nearest" });
  }
  putActions($("one-actions"), run);
  await followRun(run, mayChange(run));
}

function showLost(error) {
  if (error.status) { // it answers with an error
    complain(error.message);
    trouble = true;
    return;
  }
  if (!lost) lost = Date.now();
  document.body.classList.add("lost");
  put($("summary"), "not connected", "gone");
  complain(`The service has not answered since ${new Date(lost).toLocaleTimeString("sv")}. The page shows the state before that, and continues when the service is back.`);
  showActions();
}

let busy = false, again = false;
async function refresh() {
  again = busy;
  if (busy) return;
  busy = true;
  try {
    await look();
    if (lost || trouble) complain("");
    lost = 0;
    trouble = false;
    document.body.classList.remove("lost");
    await lookAtOne();
    await followBeside(runs, mayChange);
  } catch (error) {
    showLost(error);
  }
  busy = false;
  if (again) refresh();
}

async function tick() {
  if (!document.hidden) await refresh();
  setTimeout(tick, EVERY_MS);
}

$("all").addEventListener("change", refresh);
addEventListener("hashchange", refresh);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
document.addEventListener("keydown", event => { if (event.key === "Escape" && !$("sure").open && (feed || beside)) location.hash = ""; });
tick();
