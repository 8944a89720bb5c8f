// Elements and formatted numbers, for the service's page and for profile.html.
"use strict";

const $ = id => document.getElementById(id);

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

// Text is never markup: names, paths and reasons come from users.
function element(tag, text, className) {
  const made = document.createElement(tag);
  if (known(text)) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// The same with children, elements or text: block("p", "hint", "at ", element("b", "5")).
function block(tag, className, ...children) {
  const made = element(tag, null, className);
  made.append(...children.filter(known));
  return made;
}

// Changes only what differs, so that focus, selection and a started click stay.
function put(node, text, className) {
  if (node.textContent !== String(text)) node.textContent = text;
  if (className !== undefined && node.className !== className) node.className = className;
}
