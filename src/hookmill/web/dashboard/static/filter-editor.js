// The filter editor. The service evaluates and changes the filter; htmx inserts its responses into the page. This script
// updates the parts that htmx does not replace: the text fields, the checkboxes and the pressed buttons.
"use strict";

(() => {
  const form = document.getElementById("editor");
  const filter = document.getElementById("filter");
  const events = document.getElementById("events");
  const result = document.getElementById("result");
  let openDetailsIds = [];

  const rememberOpenDetails = () => {
    openDetailsIds = [...form.querySelectorAll("#outcome details[open]")].map((details) => details.id);
  };

  // The texts at the time of each element's last request.
  const sentTexts = new WeakMap();
  const currentTexts = () => JSON.stringify([filter.value, events && events.value]);
  form.addEventListener("htmx:configRequest", (event) => sentTexts.set(event.detail.elt, currentTexts()));
  form.addEventListener("htmx:beforeSwap", rememberOpenDetails);

  // A webhook that was created after the page was loaded has no checkbox yet.
  const selectWebhook = (uid) => {
    let box = [...form.querySelectorAll("input[name=webhook]")].find((each) => each.value === uid);
    if (!box) {
      box = Object.assign(document.createElement("input"), { type: "checkbox", name: "webhook", value: uid, hidden: true });
      form.append(box);
    }
    box.checked = true;
  };

  form.addEventListener("htmx:afterOnLoad", (event) => {
    // A click changes the texts, unless the member has typed since the click.
    const newFilter = document.getElementById("filter-new");
    const newEvents = document.getElementById("events-new");
    const isUnchanged = sentTexts.get(event.detail.elt) === currentTexts();
    if (newFilter && isUnchanged) filter.value = newFilter.textContent;
    if (newEvents && isUnchanged) events.value = newEvents.textContent;

    filter.setAttribute("aria-invalid", String(Boolean(document.getElementById("filter-faults"))));
    if (events) events.setAttribute("aria-invalid", String(Boolean(document.getElementById("event-faults"))));
    const isEventInFilter = document.getElementById("event-chosen");
    const eventButton = document.getElementById("sample-event");
    if (isEventInFilter && eventButton) eventButton.setAttribute("aria-pressed", isEventInFilter.textContent);
    const webhookToSelect = document.getElementById("webhook-chosen");
    if (webhookToSelect) selectWebhook(webhookToSelect.textContent);
    const chosenFields = document.getElementById("fields-chosen");
    if (chosenFields) {
      const numbers = new Set(chosenFields.textContent.split(" "));
      for (const field of form.querySelectorAll("button[name=add]")) {
        field.setAttribute("aria-pressed", String(numbers.has(field.value)));
      }
    }
    // The button that selects a webhook disappears when it is pressed. The focus moves to the result that replaces it.
    if (event.detail.requestConfig.elt.name === "choose" && document.activeElement === document.body) result.focus();
    for (const id of openDetailsIds) document.getElementById(id)?.setAttribute("open", "");
  });

  // After the session has ended, a redirect to the sign-in page would discard the input.
  form.addEventListener("htmx:beforeOnLoad", (event) => {
    if (!event.detail.xhr.getResponseHeader("HX-Redirect")) return;
    event.preventDefault();
    result.textContent = "You are signed out. Copy your changes, and sign in again.";
  });

  for (const failure of ["htmx:responseError", "htmx:sendError"]) {
    form.addEventListener(failure, () => { result.textContent = "The filter could not be checked. Press Check to try again."; });
  }
})();
