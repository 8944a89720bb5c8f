// Draws a profile from profile.json (docs/PROFILING.md): all of profile.html, and the bars of a run on the service's
// page. Widths are in percent and heights in pixels, so that one picture fits a wide screen and a telephone.
// A null in the JSON means "no limit".
"use strict";

const STAGES = ["read", "decompress", "decode", "augment", "batch", "copy", "step", "checkpoint"];
const READERS = ["decompress", "decode", "augment"]; // share the readers' threads, and one ceiling

// --- numbers, as the terminal has them (daemon/analysis/words.c) ------------------------------------

const finite = value => typeof value === "number" && Number.isFinite(value);
const clamp = (part, all) => finite(part) && all > 0 ? Math.max(0, Math.min(100, 100 * part / all)) : 0;
const loud = stage => stage.toUpperCase();
const short = value => String(Number(value.toPrecision(3)));
const digits = value => value < 9.95 ? value.toFixed(1) : value < 1e9 ? value.toFixed(0) : short(value);
const inTime = s => s < 1e-3 ? `${digits(1e6 * s)} µs` : s < 1 ? `${digits(1e3 * s)} ms` : `${digits(s)} s`;
const inGain = gain => !finite(gain) || gain >= 1e6 ? "no limit" : `${gain.toFixed(gain < 9.995 ? 2 : 0)}x`;
const inShare = share => !finite(share) || Math.abs(share) >= 1e4 ? "-" : `${(100 * share).toFixed(Math.abs(share) < 0.0995 && share !== 0 ? 1 : 0)}%`;

function inRate(rate) {
  if (!finite(rate)) return "no limit";
  return rate < 0 || rate >= 1e12 ? short(rate) : rate < 99.95 ? rate.toFixed(rate < 9.995 ? 2 : 1) : whole(rate);
}

function inSize(bytes) {
  let unit = 0;
  for (; bytes >= 999.5 && unit < 6; unit++) bytes /= 1024;
  return `${unit ? digits(bytes) : bytes} ${["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit]}`;
}

// --- elements -----------------------------------------------------------------------------------

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A picture 1000 units wide whose lines stretch with it. Words and marks lie outside, and do not stretch.
const wide = (y, height, ...children) => svg("svg", { y, height, width: "100%", viewBox: `0 0 1000 ${height}`, preserveAspectRatio: "none" }, ...children);
const words = (x, y, text, className = "tick", more = {}) =>
  svg("text", { class: className, x: `${x}%`, y, "text-anchor": x > 98 ? "end" : x < 2 ? "start" : "middle", ...more }, text);
// A picture whose label for screen readers is its words.
function picture(name, height, ...children) {
  const made = svg("svg", { class: "plot " + name, role: "img", width: "100%", height }, ...children);
  made.setAttribute("aria-label", [...made.querySelectorAll("text")].map(text => text.textContent).filter(Boolean).join("; "));
  return made;
}
const section = (id, title, hint, ...children) => {
  const made = block("section", "", element("h2", title), hint ? element("p", hint, "hint") : null, ...children);
  made.id = id;
  return made;
};

function headed(tag, scope, text) {
  const made = element(tag, text);
  made.scope = scope;
  return made;
}

// --- bars ---------------------------------------------------------------------------------------

// The readers' stages have one bar: the limiter's or the busiest's.
function rowsOf(stages, limiter) {
  const shared = stages.filter(stage => READERS.includes(stage.name));
  const named = shared.find(stage => stage.name === limiter) || shared.reduce((a, b) => !a || b.busy > a.busy ? b : a, null);
  return stages.map(stage => {
    const other = READERS.includes(stage.name) && stage !== named;
    return { ...stage, limit: stage.name === limiter, could: other ? null : stage.ceiling_images_per_second,
      note: stage.note ?? (other ? `with ${named.name}, in the same threads` : "") };
  });
}

const scaleOf = (rows, rate) => Math.min(5 * rate, Math.max(rate, ...rows.map(row => row.could).filter(finite))) || 1;

function barOf(row, rate, scale, balanced) {
  const made = element("tr", null, row.limit ? "bar limit" : balanced && row.could < 1.05 * rate ? "bar near" : "bar");
  const cell = element("td", null, "picture"), now = element("div", null, "now"), reach = clamp(finite(row.could) ? row.could : rate, scale);
  made.dataset.stage = row.name;
  if (finite(row.could)) {
    const fill = element("div", row.could > 1.001 * scale ? "»" : null, "fill");
    fill.style.width = reach + "%";
    cell.append(fill);
  }
  now.style.left = clamp(rate, scale) + "%";
  if (row.limit || (!finite(row.could) && row.note)) {
    const note = block("div", reach > 60 ? "note inside" : "note", row.limit ? element("b", "◄ LIMIT ") : null,
      row.name === "checkpoint" ? `${inShare(row.busy)} of the time` : row.note);
    note.style[reach > 60 ? "right" : "left"] = (reach > 60 ? 100 - reach : reach) + "%";
    cell.append(note);
  }
  cell.append(now);
  const level = element("i");
  level.style.height = clamp(row.queue, 1) + "%";
  made.append(headed("th", "row", row.name), cell, element("td", finite(row.could) ? inRate(row.could) : "", "could"),
    element("td", percent(clamp(row.busy, 1) / 100, 0), "busy"), block("td", "queue", ...known(row.queue) ? [block("span", "trough", level), " " + percent(clamp(row.queue, 1) / 100, 0)] : []));
  return made;
}

// A bar for each stage's ceiling, and a line at the run's rate across all of them.
function barsOf(stages, limiter, rate, balanced) {
  const rows = rowsOf(stages, limiter), scale = scaleOf(rows, rate), at = clamp(rate, scale);
  const label = element("div", `now ${inRate(rate)}`, at > 85 ? "label left" : at < 12 ? "label right" : "label");
  label.style.left = at + "%";
  const head = block("tr", "", element("td"), block("td", "picture", label), ...["img/s", "busy", "queue"].map(name => headed("th", "col", name)));
  const made = block("table", "bars", block("thead", "", head), block("tbody", "", ...rows.map(row => barOf(row, rate, scale, balanced))));
  return { made, beyond: rows.some(row => finite(row.could) && row.could > 1.001 * scale) };
}

const limiterOf = profile => profile.finding.kind === "limited" ? profile.finding.limiter : null;

function ceilingsOf(profile) {
  const { made, beyond } = barsOf(profile.stages, limiterOf(profile), profile.model.rate, profile.finding.kind === "balanced");
  const saves = profile.stages.find(stage => stage.name === "checkpoint");
  return section("ceilings", "What each stage could do", "Images per second of each stage alone. The shortest bar is the limit; the line is the rate of the run.", made,
    beyond ? element("p", "» longer bar: the scale ends at 5 times the present rate.", "hint") : null, saves ? element("p", `checkpoints: ${saves.note}`, "hint") : null);
}

// --- before and after ---------------------------------------------------------------------------

const changeText = change => Math.abs(change) < 0.0005 ? "same" : change >= 1 ? inGain(change + 1) : (change > 0 ? "+" : "") + inShare(change);

function pairOf(profile) {
  if (!profile.before) return null;
  const sides = [profile.before, profile].map(side => new Map(rowsOf(side.stages, limiterOf(side)).map(row => [row.name, row])));
  const pairs = [["the run", { could: profile.before.model.rate }, { could: profile.model.rate }], ...STAGES.map(name => [name, ...sides.map(side => side.get(name) || {})])]
    .filter(([, ...two]) => two.some(one => finite(one.could)));
  const most = 5 * Math.max(profile.model.rate, profile.before.model.rate);
  const scale = Math.min(most, Math.max(...pairs.flatMap(([, a, b]) => [a.could, b.could]).filter(finite)));
  const body = pairs.map(([name, ...two]) => {
    const change = two.every(one => finite(one.could)) ? two[1].could / two[0].could - 1 : NaN;
    const halves = two.map((one, i) => {
      const half = element("div", null, "fill" + (one.limit ? " limit" : "") + (i ? "" : " before"));
      half.style.width = clamp(one.could, scale) + "%";
      return half;
    });
    return block("tr", "", headed("th", "row", name), block("td", "picture", ...halves), element("td", two.map(one => finite(one.could) ? inRate(one.could) : "none").join(" → "), "could"),
      element("td", finite(change) ? changeText(change) : "", change < -0.02 ? "change worse" : "change"));
  });
  return section("pair", "Before and after", `The upper bar is ${profile.before.config} ${profile.before.started_at}, the lower one this profile; red is the limit of each.`,
    block("table", "bars", block("tbody", "", ...body)));
}

// --- waits over time ----------------------------------------------------------------------------

const COLUMNS = 200, RATE_PX = 52, WAIT_TOP = 96, WAIT_PX = 150;
const causeClass = (profile, stage) => stage === limiterOf(profile) ? "s-limit" : "s-" + stage;

// A row is a tenth of a second; a column is the mean of several rows.
function columnsOf(rows) {
  const n = Math.min(COLUMNS, rows.length), each = (rows.length > 1 && (rows.at(-1)[0] - rows[0][0]) / (rows.length - 1)) || 0.1;
  const columns = Array.from({ length: n }, (_, i) => {
    const some = rows.slice(Math.floor(i * rows.length / n), Math.floor((i + 1) * rows.length / n));
    const mean = value => some.reduce((sum, row) => sum + value(row), 0) / some.length;
    return { rate: mean(row => Math.max(0, finite(row[1]) ? row[1] : 0)), waits: STAGES.map((_, s) => mean(row => clamp(row[2 + s], each) / 100)) };
  });
  return { columns, seconds: each * rows.length };
}

// A path along the tops of a band's columns, and back along their feet; y from 0 to 1.
function bandPath(tops, feet, height) {
  const y = value => (height * (1 - value)).toFixed(1), x = i => (1000 * i / tops.length).toFixed(1);
  return `M0 ${y(feet[0])}` + tops.map((top, i) => `V${y(top)}H${x(i + 1)}`).join("") + feet.map((foot, i) => `V${y(foot)}H${x(i)}`).reverse().join("") + "Z";
}

function ribbonOf(profile) {
  const { columns, seconds } = columnsOf(profile.ribbon), fastest = Math.max(...columns.map(column => column.rate));
  const none = columns.map(() => 0), limiter = STAGES.indexOf(profile.finding.limiter), bands = [];
  let feet = none;
  for (const stage of [limiter, ...STAGES.keys()].filter((s, i) => i === 0 || s !== limiter)) { // the limiter's at the bottom, where it is seen best
    const tops = feet.map((foot, i) => Math.min(1, foot + columns[i].waits[stage]));
    if (tops.some((top, i) => top > feet[i]))
      bands.push(svg("path", { class: `band ${causeClass(profile, STAGES[stage])}`, d: bandPath(tops, feet, WAIT_PX) }));
    feet = tops;
  }
  return picture("ribbon", WAIT_TOP + WAIT_PX + 26,
    wide(18, RATE_PX, svg("path", { class: "rates", d: bandPath(columns.map(column => clamp(column.rate, 1.05 * fastest) / 100), none, RATE_PX) })),
    wide(WAIT_TOP, WAIT_PX, svg("rect", { class: "compute", width: 1000, height: WAIT_PX }), ...bands),
    words(0, 12, `images a second, up to ${inRate(fastest)}`), words(0, WAIT_TOP - 6, "share of the time, up to 100%"),
    ...[0, 25, 50, 75, 100].map(x => words(x, WAIT_TOP + WAIT_PX + 18, `${short(seconds * x / 100)} s`)));
}

function waitsOf(profile) {
  const names = { compute: ["computing", "compute"], wait: ["waiting for "], checkpoints: ["checkpoints"], else: ["else", "else"] };
  const parts = profile.report.parts.filter(part => part.share >= 0.0005).map(part => {
    const [name, className] = names[part.where];
    return block("li", "", element("i", null, className || causeClass(profile, part.stage)), name + (part.where === "wait" ? part.stage : "") + " ", element("b", inShare(part.share)));
  });
  return section("waits", "What the trainer waits for", "Shares of its time; a wait counts for the stage in which the reader of the late batch was.",
    block("ul", "legend", ...parts), profile.ribbon.length ? ribbonOf(profile) : null);
}

// --- what if ------------------------------------------------------------------------------------

const CURVE_PX = 220, CURVE_TOP = 10;

function scalesOf(profile) {
  const points = profile.curve, finding = profile.finding, next = finding.next_images_per_second;
  const faster = Math.max(1, ...points.map(point => point[0]).filter(finite)), endless = points.some(point => !finite(point[0]));
  let most = Math.max(profile.model.rate, ...points.map(point => point[1]).filter(finite));
  const far = !(next <= 2.5 * most) || !finite(next);
  if (!far) most = Math.max(most, next);
  return { faster, endless, far, next, limited: finding.kind === "limited" && finite(next),
    // doublings; the last tenth of the width is for a stage without cost
    x: times => finite(times) ? clamp(Math.log2(Math.max(1, times)), Math.log2(faster)) * (endless ? 0.9 : 1) : 100,
    y: rate => CURVE_TOP + (CURVE_PX - CURVE_TOP) * (1 - clamp(finite(rate) ? rate : most, 1.18 * most) / 100) };
}

function levelOf(y, className, text, above) {
  return [svg("line", { class: `level-line ${className}`, x1: 0, x2: "100%", y1: y, y2: y }), words(100, above || y + 22 > CURVE_PX ? y - 7 : y + 16, text, "words")];
}

// The first point at the next limit: a faster stage gains nothing more.
function kneeOf(profile, scales) {
  const knee = profile.curve.find(point => finite(scales.next) && point[1] >= 0.995 * scales.next);
  if (!knee) return [];
  const x = scales.x(knee[0]), y = scales.y(knee[1]), left = x > 60;
  const text = finite(knee[0]) ? `${inGain(knee[0])} faster is enough` : "", anchor = { dx: left ? -12 : 12, "text-anchor": left ? "end" : "start" };
  return [svg("line", { class: "drop", x1: `${x}%`, x2: `${x}%`, y1: y, y2: CURVE_PX }), svg("circle", { class: "knee", cx: `${x}%`, cy: y, r: 6 }),
    words(x, y + 26, text, "words strong", anchor)];
}

function whatIfOf(profile) {
  const points = profile.curve, finding = profile.finding, scales = scalesOf(profile), now = scales.y(profile.model.rate);
  if (finding.kind === "inconclusive" || points.length < 2 || scales.faster <= 1) return null;
  const line = points.map(([times, rate]) => [10 * scales.x(times), scales.y(rate)]), ticks = [], next = `next limit: ${loud(finding.next)}`;
  for (let times = 1; times <= 1.001 * scales.faster && times < 1e6; times *= scales.faster > 16 ? 4 : 2) ticks.push(words(scales.x(times), CURVE_PX + 18, `${times}x`));
  if (scales.endless) ticks.push(words(100, CURVE_PX + 18, "free"));
  return section("whatif", `What if ${loud(finding.limiter)} were faster`, `Images a second of the whole run; to the right ${finding.limiter} so many times faster.`,
    picture("whatif", CURVE_PX + 26,
      svg("line", { class: "axis", x1: 0, x2: "100%", y1: CURVE_PX, y2: CURVE_PX }),
      wide(0, CURVE_PX, svg("path", { class: "gain", d: `M0 ${now}` + line.map(([x, y]) => `L${x} ${Math.min(now, y)}`).join("") + `V${now}Z` })),
      ...levelOf(now, "at-now", `now ${inRate(profile.model.rate)}`, false),
      ...!scales.limited ? [] : scales.far ? [words(0, CURVE_TOP + 4, `${next}, far above, at ${inRate(scales.next)}`, "words")]
        : levelOf(scales.y(scales.next), "at-next", `${next} ${inRate(scales.next)}`, true),
      wide(0, CURVE_PX, svg("polyline", { class: "curve", points: line.map(point => point.join()).join(" ") })), ...kneeOf(profile, scales), ...ticks));
}

// --- numbers ------------------------------------------------------------------------------------

function stagesOf(profile) {
  const columns = [["items", stage => stage.items, whole], ["bytes", stage => stage.bytes, inSize],
    ["p50", stage => stage.p50_seconds, inTime], ["p99", stage => stage.p99_seconds, inTime], ["threads' time", stage => stage.work_seconds, inTime]];
  if (profile.deep) columns.push(["without it, img/s", (stage, name) => profile.stubbed[name], inRate]);
  const body = Object.entries(profile.observation.stages).filter(([, stage]) => stage.items > 0 || stage.work_seconds > 0).map(([name, stage]) =>
    block("tr", "", headed("th", "row", name), ...columns.map(([, value, text]) => element("td", value(stage, name) > 0 ? text(value(stage, name)) : ""))));
  const table = block("table", "facts", block("thead", "", block("tr", "", ...["stage", ...columns.map(([name]) => name)].map(name => headed("th", "col", name)))), block("tbody", "", ...body));
  return block("div", "wide", table);
}

const factsOf = (title, facts) => block("div", "", element("h3", title), block("dl", "", ...facts.filter(Boolean).map(([name, text]) => block("div", "", element("dt", name), element("dd", text)))));

function numbersOf(profile) {
  const { ceilings: parts, observation: seen, knobs } = profile, all = seen.readers * seen.seconds;
  const share = seconds => inShare(seconds / all), rate = (name, value) => value > 0 ? [name, inRate(value)] : null;
  const states = Object.entries({ work: "working", starved: "nothing to do", blocked: "no free slot", io_wait: "waiting for reads" });
  return section("numbers", "Numbers", null, stagesOf(profile), block("div", "columns",
    factsOf("Parts alone, img/s", [rate("disk, cold", parts.read_cold), rate("disk, warm", parts.read_warm),
      rate("whole loader", parts.loader), rate("copies", parts.copy), rate("steps", parts.step)]),
    factsOf(`Time of the ${seen.readers} reader${seen.readers === 1 ? "" : "s"}`, all > 0 ?
      [...states.map(([state, name]) => [name, share(seen.reader_seconds[state])]), ["of it ready, without a core", share(seen.reader_delay_seconds)]] : []),
    factsOf("The run", [["loader", `${knobs.readers} readers, depth ${knobs.depth}, prefetch ${knobs.prefetch}`], ["reads", `${knobs.io}, cache ${knobs.cache}`],
      ["data", `${inRate(knobs.samples)} images, ${inSize(knobs.set_bytes)}`], ["box", `${short(knobs.cores ?? 0)} cores, ${inSize(knobs.free_bytes)} free of ${inSize(knobs.memory_bytes)}`]])));
}

// --- the verdict --------------------------------------------------------------------------------

const tile = (title, className, ...children) => block("div", "tile " + className, element("h2", title), ...children);
const strong = text => element("b", text);

function adviceOf({ finding, model, report }) {
  const { key, from, to, text, images_per_second: rate } = finding.advice;
  if (!key && !text) return null;
  return tile("Do", "do", ...key ? [block("p", "key", block("code", "", `${key}: `, element("s", from), " → ", strong(to))),
    block("p", "", "brings ", strong(inRate(rate)), ` img/s (${inGain(rate / model.rate)})${report.cost ? "; needs " + report.cost : ""}`)] : [], text ? element("p", text, "why") : null);
}

function thenOf({ finding: { next, next_images_per_second: rate, headroom } }) {
  if (!finite(rate)) return tile("Then", "", element("p", "nothing else limits", "key"));
  return tile("Then", "", block("p", "key", strong(loud(next)), " limits"), block("p", "", "at ", strong(inRate(rate)), ` img/s${!finite(headroom) || headroom > 0 ? ": headroom " + inShare(headroom) : ""}`));
}

function triedOf(profile) {
  if (profile.verify_cache_fills) return tile("Tried", "", element("p", "the cache's first epoch took longer than a trial waits; it is faster from the second on"));
  if (!profile.verified) return null;
  const rate = profile.verified_images_per_second;
  return tile("Tried", "", block("p", "key", strong(inRate(rate)), " img/s"),
    element("p", `measured with it: ${inGain(rate / profile.model.rate)}, predicted ${inRate(profile.finding.advice.images_per_second)}`));
}

function verdictOf(profile) {
  const { finding, model, noise } = profile, now = strong(inRate(model.rate)), made = element("section");
  const spread = noise > 0 && finite(finding.gain) && finite(noise) ? ` ±${Math.min(finding.gain * noise, 1e6).toFixed(finding.gain < 9.995 ? 2 : 0)}` : "";
  made.id = "verdict";
  if (finding.kind === "limited")
    made.append(block("h1", "", element("em", loud(finding.limiter)), " is the limit"),
      block("p", "lead", now, " img/s now, ", strong(inRate(finding.next_images_per_second)), ` (${inGain(finding.gain)}${spread}) once it is fixed.`),
      block("div", "tiles", adviceOf(profile), thenOf(profile), triedOf(profile)));
  else made.append(element("h1", finding.kind === "balanced" ? "Balanced" : "Inconclusive"), block("p", "lead", now, ` img/s now; ${finding.reason}.`));
  return made;
}

// The whole report into `place`; the title into the tab.
function drawProfile(profile, place) {
  const { finding, knobs, config } = profile, device = [knobs.device, knobs.precision].filter(Boolean).join(" ");
  document.title = `${finding.kind === "limited" ? loud(finding.limiter) + " limits " : finding.kind + ": "}${config} - nnpipe profile`;
  place.replaceChildren(...[
    block("header", "", strong("nnpipe profile"), ...[config, `${device}, batch ${knobs.batch}`, `${inRate(profile.model.rate)} img/s`, profile.started_at].map(text => element("span", text))),
    verdictOf(profile), ceilingsOf(profile), pairOf(profile), waitsOf(profile), whatIfOf(profile), numbersOf(profile),
    block("footer", "", block("p", "", strong("Trust"), profile.report.trust), element("p", `${config} on ${knobs.device}, nnpipe ${profile.version}; the profile took ${inTime(profile.seconds)}`)),
  ].filter(Boolean));
}
