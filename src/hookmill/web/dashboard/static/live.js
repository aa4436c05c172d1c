// The live log: rows arrive by htmx's stream, each goes to its place, and the page stays as long as it was.
"use strict";

(() => {
  const live = document.getElementById("live");
  const body = document.getElementById("log");
  const button = document.getElementById("live-pause");
  const state = document.getElementById("live-state");
  const status = document.getElementById("live-status");
  const older = document.getElementById("older");
  const ROWS_MAX = 50;
  const waiting = new Map();
  let isPaused = false;
  let unannounced = 0;

  function rows() {
    return body.querySelectorAll("tr[data-key]");
  }

  // After a break the stream goes back a little, so that no row is missed.
  function isNews(key) {
    const there = rows();
    if (document.getElementById(key) || waiting.has(key)) return false;
    return there.length < ROWS_MAX || key > there[there.length - 1].dataset.key;
  }

  function add(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    const row = template.content.querySelector("tr[data-key]");
    if (!row) return;
    // A body that took its time belongs below those that overtook it.
    const next = [...rows()].find((other) => other.dataset.key < row.dataset.key);
    const isNewest = next === undefined ? rows().length === 0 : next === rows()[0];
    if (isNewest) body.prepend(row);
    else if (next) next.before(row);
    else body.append(row);
    while (rows().length > ROWS_MAX) {
      body.lastElementChild.remove();
      older.hidden = false;
    }
    older.href = older.dataset.href + rows()[rows().length - 1].dataset.key;
    document.getElementById("log-table").hidden = false;
    const empty = document.getElementById("log-empty");
    if (empty) empty.remove();
    unannounced += 1;
  }

  function show() {
    if (isPaused) state.textContent = waiting.size ? `Paused, ${waiting.size} waiting` : "Paused";
    else state.textContent = "Live";
  }

  document.body.addEventListener("htmx:sseBeforeMessage", (event) => {
    event.preventDefault();
    const { data, lastEventId } = event.detail;
    if (!isNews(lastEventId)) return;
    if (isPaused) {
      waiting.set(lastEventId, data);
      if (waiting.size > ROWS_MAX) waiting.delete(waiting.keys().next().value);
    } else {
      add(data);
    }
    show();
  });

  document.body.addEventListener("htmx:sseOpen", show);
  document.body.addEventListener("htmx:sseError", () => { state.textContent = "Connecting"; });
  document.body.addEventListener("htmx:sseClose", (event) => {
    if (event.detail.type !== "message") return;
    state.textContent = "Live updates ended: reload the page";
    button.hidden = true;
  });

  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Resume" : "Pause";
    if (!isPaused) {
      for (const html of waiting.values()) add(html);
      waiting.clear();
    }
    show();
  });

  // Who listens to the page is told how many came, and not more often than they can hear.
  setInterval(() => {
    if (unannounced) status.textContent = unannounced === 1 ? "1 new delivery" : `${unannounced} new deliveries`;
    unannounced = 0;
  }, 5000);
  live.hidden = false;
})();
