// Draws an evaluation from the JSON of `nnpipe eval --html`: what was right, classes, confusions, calibration, and the
// images with the highest losses; of labels that are several classes or numbers, the figures of each.
"use strict";

const MATRIX = 40; // classes up to which the whole matrix is shown
const CONFUSIONS = 20; // of the list

function section(id, title, hint, ...children) {
  const made = block("section", "", element("h2", title), hint ? element("p", hint, "hint") : null, ...children);
  made.id = id;
  return made;
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function head(data, title, lead) {
  const made = block("header", "", element("b", data.name), element("span", `${data.set} set`), element("span", data.weights),
    element("span", `${data.precision} on ${data.device}${data.tta === "none" ? "" : `, mean over views: ${data.tta}`}`));
  return [made, block("section", "", element("h1", title), element("p", `loss ${fixed(data.loss, 4)}, ${lead}`, "lead"))];
}

function classHead(data) {
  const top = data.top_accuracy;
  return head(data, `${percent(top[0], 2)} of ${whole(data.images)} images are right`,
    `${top.length > 4 ? `top 5 ${percent(top[4], 2)}, ` : ""}mean F1 of the classes ${percent(data.macro.f1, 2)}, calibration error ${percent(data.calibration.error, 2)}`);
}

// A table of rows that a click on a column sorts, by the column of key first. Columns: [key, title, text of a cell].
function sortable(columns, rows, key) {
  const table = element("table", null, "facts"), body = element("tbody"), line = element("tr");
  const order = (a, b) => typeof a === "string" ? a.localeCompare(b) : (a ?? Infinity) - (b ?? Infinity);
  const fill = by => body.replaceChildren(...[...rows].sort((a, b) => order(a[by], b[by])).map(row =>
    block("tr", "", ...columns.map(([name, , text], i) => element(i ? "td" : "th", text(row[name]))))));
  for (const [name, title] of columns) {
    const button = element("button", title), cell = element("th");
    button.addEventListener("click", () => fill(name));
    cell.append(button);
    line.append(cell);
  }
  table.append(block("thead", "", line), body);
  fill(key);
  return block("div", "wide", table);
}

// --- classes --------------------------------------------------------------------------------------------

const share = value => percent(value);
const COLUMNS = [["class", "class", String], ["images", "images", whole], ["predicted", "predicted", whole], ["precision", "precision", share],
  ["recall", "recall", share], ["f1", "F1", share]];
const LABEL_COLUMNS = [...COLUMNS, ["average_precision", "AP", share]];

function classes(data) {
  const means = ["macro", "weighted"].map(kind => `${kind} mean: precision ${percent(data[kind].precision)}, recall ${percent(data[kind].recall)}, F1 ${percent(data[kind].f1)}`);
  return section("classes", "Classes", means.join("; ") + ". The lowest F1 first; a click on a column sorts by it.", sortable(COLUMNS, data.classes, "f1"));
}

// Of images with several classes.
const labels = data => section("classes", "Classes",
  "A class is predicted with a probability above 50%. The lowest average precision first; a click on a column sorts by it.",
  sortable(LABEL_COLUMNS, data.classes, "average_precision"));

// --- confusions -------------------------------------------------------------------------------------------

function matrix(data) {
  const names = data.classes.map(row => row.class), table = element("table", null, "matrix"), body = element("tbody");
  const cells = new Map(data.confusion.map(([label, predicted, images]) => [`${label},${predicted}`, images]));
  table.append(block("thead", "", block("tr", "", element("th"), ...names.map(name => element("th", name)))));
  names.forEach((name, label) => {
    const line = block("tr", "", element("th", name));
    names.forEach((_, predicted) => {
      const images = cells.get(`${label},${predicted}`) || 0, cell = element("td", images || "");
      const share = data.classes[label].images ? images / data.classes[label].images : 0;
      if (images) cell.style.background = `color-mix(in srgb, var(${label === predicted ? "--read" : "--bad"}) ${Math.round(15 + 70 * share)}%, transparent)`;
      cell.title = `${name} as ${names[predicted]}: ${whole(images)}`;
      line.append(cell);
    });
    body.append(line);
  });
  table.append(body);
  return block("div", "wide", table);
}

function confusions(data) {
  const names = data.classes.map(row => row.class), table = element("table", null, "facts");
  const wrong = data.confusion.filter(([label, predicted]) => label !== predicted).sort((a, b) => b[2] - a[2]);
  table.append(block("thead", "", block("tr", "", ...["is", "taken for", "images", "of the class"].map(title => element("th", title)))),
    block("tbody", "", ...wrong.slice(0, CONFUSIONS).map(([label, predicted, images]) => block("tr", "", element("th", names[label]), element("td", names[predicted]),
      element("td", whole(images)), element("td", percent(images / data.classes[label].images))))));
  return section("confusion", "Confusions", names.length <= MATRIX ? "A row for each class, a column for each answer." : "The most frequent ones.",
    names.length <= MATRIX ? matrix(data) : null, wrong.length ? block("div", "wide", element("h3", "Most frequent"), table) : element("p", "None.", "hint"));
}

// --- calibration ------------------------------------------------------------------------------------------

function calibration(data) {
  const { bins, error, max_error } = data.calibration, size = 300, n = bins.length, wide = size / n;
  const most = Math.max(1, ...bins.map(bin => bin.images));
  const plot = svg("svg", { class: "plot", role: "img", width: "100%", height: 420, viewBox: `-40 -10 ${size + 60} 420` });
  plot.setAttribute("aria-label", `Accuracy over confidence; expected calibration error ${percent(error, 2)}`);
  bins.forEach((bin, i) => {
    if (!bin.images) return;
    const low = Math.min(bin.accuracy, bin.confidence), high = Math.max(bin.accuracy, bin.confidence);
    const hint = svg("title", {}, `${whole(bin.images)} images: confidence ${percent(bin.confidence)}, accuracy ${percent(bin.accuracy)}`);
    plot.append(svg("g", {}, hint,
      svg("rect", { class: "got", x: i * wide + 1, width: wide - 2, y: size * (1 - bin.accuracy), height: size * bin.accuracy }),
      svg("rect", { class: "gap", x: i * wide + 1, width: wide - 2, y: size * (1 - high), height: size * (high - low) }),
      svg("rect", { class: "rates", x: i * wide + 1, width: wide - 2, y: 325, height: 60 * bin.images / most })));
  });
  plot.append(svg("line", { class: "ideal", x1: 0, y1: size, x2: size, y2: 0 }), svg("line", { class: "axis", x1: 0, y1: size, x2: size, y2: size }));
  for (const share of [0, 0.5, 1]) {
    plot.append(svg("text", { class: "tick", x: -6, y: size * (1 - share) + 4, "text-anchor": "end" }, percent(share, 0)));
    plot.append(svg("text", { class: "tick", x: size * share, y: size + 18, "text-anchor": "middle" }, percent(share, 0)));
  }
  return section("calibration", "Calibration", `Accuracy (bars) of images whose answer had this probability; below, how many they are. On the dashed line a probability means what it says. Expected error ${percent(error, 2)}, largest ${percent(max_error, 1)}.`, plot);
}

// --- numbers ----------------------------------------------------------------------------------------------

const PLOTS = 12; // numbers that are drawn
const short = value => known(value) ? String(Number(value.toPrecision(4))) : "–";
const VALUE_COLUMNS = [["value", "value", String], ["mae", "MAE", short], ["rmse", "RMSE", short], ["r2", "R²", value => fixed(value, 4)]];

const values = data => section("values", "Numbers", "The lowest R² first; a click on a column sorts by it.", sortable(VALUE_COLUMNS, data.values, "r2"));

// Answers over labels, and below how often an answer is too low or too high.
function valuePlot(row) {
  const size = 260, all = row.points.flat(), least = all.reduce((a, b) => Math.min(a, b), Infinity), most = all.reduce((a, b) => Math.max(a, b), -Infinity);
  const at = value => most > least ? size * (value - least) / (most - least) : size / 2;
  const { images } = row.errors, highest = Math.max(1, ...images), wide = size / images.length;
  const plot = svg("svg", { class: "plot", role: "img", width: "100%", height: 420, viewBox: `-60 -10 ${size + 80} 420` });
  plot.setAttribute("aria-label", `Answers over labels of ${row.value}; mean absolute error ${short(row.mae)}`);
  plot.append(svg("line", { class: "ideal", x1: 0, y1: size, x2: size, y2: 0 }), svg("line", { class: "axis", x1: 0, y1: size, x2: size, y2: size }));
  for (const [label, answer] of row.points)
    plot.append(svg("circle", { class: "got", cx: at(label), cy: size - at(answer), r: 2 }, svg("title", {}, `${short(label)}, answer ${short(answer)}`)));
  for (const value of least < most ? [least, most] : [least]) {
    plot.append(svg("text", { class: "tick", x: -6, y: size - at(value) + 4, "text-anchor": "end" }, short(value)));
    plot.append(svg("text", { class: "tick", x: at(value), y: size + 18, "text-anchor": "middle" }, short(value)));
  }
  images.forEach((n, i) => plot.append(svg("g", {}, svg("title", {}, `${whole(n)} images`),
    svg("rect", { class: "rates", x: i * wide + 1, width: wide - 2, y: 370 - 70 * n / highest, height: 70 * n / highest }))));
  for (const [x, text] of [[0, short(-row.errors.most)], [size / 2, "0"], [size, short(row.errors.most)]])
    plot.append(svg("text", { class: "tick", x, y: 388, "text-anchor": "middle" }, text));
  return block("figure", "", element("figcaption", row.value), plot);
}

const answers = data => section("answers", "Answers over labels",
  `On the dashed line an answer is right; below, how many images have an answer that is too low (left) or too high.${data.values.length > PLOTS ? ` The first ${PLOTS} numbers.` : ""}`,
  block("div", "gallery plots", ...data.values.filter(row => row.points.length).slice(0, PLOTS).map(valuePlot)));

// --- worst ------------------------------------------------------------------------------------------------

const answer = row => row.label === row.predicted ? [`${row.label}, right, but with ${percent(row.probability)} only`]
  : [`${row.label}, taken for `, element("b", row.predicted), ` (${percent(row.probability)})`];

const list = names => names.length ? names.join(", ") : "no class";
const labelAnswer = row => [`${list(row.label)}, taken for `, element("b", list(row.predicted))];

// The difference of each number; of many, the first.
const valueAnswer = data => row => data.values.slice(0, PLOTS).map((value, i) =>
  block("div", "", `${value.value} ${short(row.label[i])}, answer `, element("b", short(row.predicted[i]))));

function worst(data, title, hint, answer, measure) {
  const figures = data.worst.map(row => {
    const made = element("figure"), image = element("img");
    image.alt = row.path;
    if (row.picture) image.src = row.picture;
    made.append(image, block("figcaption", "", element("div", row.path), block("div", "", ...answer(row)), element("div", `${measure} ${fixed(row[measure], 3)}`)));
    return made;
  });
  return section("worst", title, `As the network saw them, reduced. Wrong labels are often among them.${hint}`, block("div", "gallery", ...figures));
}

const DRAWN = {
  class: data => [...classHead(data), classes(data), confusions(data), calibration(data), worst(data, "Highest losses", "", answer, "loss")],
  multi: data => [...head(data, `mean average precision ${percent(data.map, 2)} over ${whole(data.images)} images`,
    `mean F1 of the classes ${percent(data.f1, 2)}, of all answers ${percent(data.f1_micro, 2)}; ${percent(data.accuracy, 2)} of the images have all classes right`),
  labels(data), worst(data, "Highest losses", "", labelAnswer, "loss")],
  value: data => [...head(data, `root mean square error ${short(data.rmse)} over ${whole(data.images)} images`,
    `mean absolute error ${short(data.mae)}, R² ${fixed(data.r2, 4)}`), values(data), answers(data),
  worst(data, "Furthest answers", " A distance of 1 is a standard deviation of the labels.", valueAnswer(data), "distance")],
};

function drawEvaluation(data, into) {
  document.title = `${data.name}: ${data.set}`;
  into.replaceChildren(...DRAWN[data.label_type || "class"](data));
}
