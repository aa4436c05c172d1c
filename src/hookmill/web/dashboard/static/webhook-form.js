// Forms about webhooks and secrets: only what applies is shown. Without this script everything is, and works.
"use strict";

for (const form of document.querySelectorAll("form[data-webhook-form]")) {
  const value = (name) => {
    if (name === "handshakes") {
      const chosen = form.elements.scheme.selectedOptions[0];
      return chosen && "handshakes" in chosen.dataset ? "yes" : "no";
    }
    return form.elements[name] ? form.elements[name].value : "";
  };
  const holds = (condition) => {
    const [name, wanted] = condition.split("=");
    return value(name) === wanted;
  };
  const show = () => {
    for (const element of form.querySelectorAll("[data-when]")) element.hidden = !holds(element.dataset.when);
    for (const element of form.querySelectorAll("[data-unless]")) element.hidden = holds(element.dataset.unless);
  };
  form.addEventListener("change", show);
  for (const element of form.querySelectorAll("[data-hidden-by-script]")) element.hidden = true;
  show();

  const name = form.elements.name, secretName = form.elements.secret_name;
  if (name && secretName) {
    const suggest = () => {
      const middle = name.value.toUpperCase().replace(/[^A-Z0-9]+/g, "_").replace(/^_+|_+$/g, "");
      const part = middle.slice(0, 48).replace(/_+$/, "") || (name.value.trim() ? "UNNAMED" : "NAME");
      secretName.placeholder = `WEBHOOK_${part}_SECRET`;
    };
    name.addEventListener("input", suggest);
    suggest();
  }
}

// A link to a part of the page that is folded opens it.
const unfold = () => {
  const wanted = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (wanted && wanted.tagName === "DETAILS") { wanted.open = true; wanted.scrollIntoView(); }
};
addEventListener("hashchange", unfold);
unfold();
