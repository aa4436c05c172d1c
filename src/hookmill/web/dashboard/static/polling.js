// Parts of a page that are polled. They are not polled while the page is hidden, and are updated when it is shown again.
"use strict";

(() => {
  const state = document.querySelector("[data-poll-state]");
  const isPolled = (element) => element.hasAttribute("data-polls");

  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden && isPolled(event.detail.elt)) event.preventDefault();
  });

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    for (const part of document.querySelectorAll("[data-polls]")) htmx.trigger(part, "page-shown");
  });

  document.body.addEventListener("htmx:afterRequest", (event) => {
    if (state && isPolled(event.detail.elt)) state.textContent = event.detail.successful ? "Live" : "Connecting";
  });
})();
