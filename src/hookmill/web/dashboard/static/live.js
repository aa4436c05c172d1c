// The live log. htmx receives rows as server-sent events. This script inserts each row in order, and keeps at most
// `ROWS_MAX` rows on the page.
"use strict";

(() => {
  const controls = document.getElementById("live");
  const body = document.getElementById("log");
  const button = document.getElementById("live-pause");
  const state = document.getElementById("live-state");
  const status = document.getElementById("live-status");
  const older = document.getElementById("older");
  const ROWS_MAX = 50;
  // While the log is paused: the HTML of each received row, by the delivery's id, oldest first.
  const pausedRows = new Map();
  let isPaused = false;
  let unannouncedCount = 0;

  function rows() {
    return body.querySelectorAll("tr[data-key]");
  }

  // After a reconnection, the stream also sends rows that the page has, or that belong to an older page.
  function isNew(key) {
    const shownRows = rows();
    if (document.getElementById(key) || pausedRows.has(key)) return false;
    return shownRows.length < ROWS_MAX || key > shownRows[shownRows.length - 1].dataset.key;
  }

  function add(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    const row = template.content.querySelector("tr[data-key]");
    if (!row) return;
    // Rows are ordered by the time at which their request began. So the row of a slow request is inserted below newer
    // rows.
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
    unannouncedCount += 1;
  }

  function showState() {
    if (isPaused) state.textContent = pausedRows.size ? `Paused, ${pausedRows.size} waiting` : "Paused";
    else state.textContent = "Live";
  }

  document.body.addEventListener("htmx:sseBeforeMessage", (event) => {
    // Keeps htmx from inserting the row.
    event.preventDefault();
    const { data, lastEventId } = event.detail;
    if (!isNew(lastEventId)) return;
    if (isPaused) {
      pausedRows.set(lastEventId, data);
      if (pausedRows.size > ROWS_MAX) pausedRows.delete(pausedRows.keys().next().value);
    } else {
      add(data);
    }
    showState();
  });

  document.body.addEventListener("htmx:sseOpen", showState);
  document.body.addEventListener("htmx:sseError", () => { state.textContent = "Connecting"; });
  document.body.addEventListener("htmx:sseClose", (event) => {
    // Only the service's event `end` ends the updates permanently.
    if (event.detail.type !== "message") return;
    state.textContent = "Live updates ended: reload the page";
    button.hidden = true;
  });

  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Resume" : "Pause";
    if (!isPaused) {
      for (const html of pausedRows.values()) add(html);
      pausedRows.clear();
    }
    showState();
  });

  // Screen readers announce the number of new rows, at most every 5 seconds.
  setInterval(() => {
    if (unannouncedCount) {
      status.textContent = unannouncedCount === 1 ? "1 new delivery" : `${unannouncedCount} new deliveries`;
    }
    unannouncedCount = 0;
  }, 5000);
  controls.hidden = false;
})();
