// Forms about webhooks and secrets. Shows only the fields that the current choices use. Without this script, all fields
// are shown, and the form works. `data-when="NAME=VALUE"` shows an element if the field has the value, and
// `data-unless="NAME=VALUE"` hides it.
"use strict";

for (const form of document.querySelectorAll("form[data-webhook-form]")) {
  const value = (name) => {
    // "yes" if the selected scheme can answer handshakes. This is no field of the form.
    if (name === "handshakes") {
      const scheme = form.elements["/signature_scheme"].selectedOptions[0];
      return scheme && "handshakes" in scheme.dataset ? "yes" : "no";
    }
    return form.elements[name] ? form.elements[name].value : "";
  };
  const isMet = (condition) => {
    const [name, requiredValue] = condition.split("=");
    return value(name) === requiredValue;
  };
  const updateVisibility = () => {
    for (const element of form.querySelectorAll("[data-when]")) element.hidden = !isMet(element.dataset.when);
    for (const element of form.querySelectorAll("[data-unless]")) element.hidden = isMet(element.dataset.unless);
  };
  form.addEventListener("change", updateVisibility);
  for (const element of form.querySelectorAll("[data-hidden-by-script]")) element.hidden = true;
  updateVisibility();

  const name = form.elements["/name"], secretName = form.elements["/secret_name"];
  if (name && secretName) {
    // Like `suggested_secret_name` on the server. `NAME` stands for a name that is not typed yet.
    const suggestSecretName = () => {
      const middle = name.value.toUpperCase().replace(/[^A-Z0-9]+/g, "_").replace(/^_+|_+$/g, "");
      const part = middle.slice(0, 48).replace(/_+$/, "") || (name.value.trim() ? "UNNAMED" : "NAME");
      secretName.placeholder = `WEBHOOK_${part}_SECRET`;
    };
    name.addEventListener("input", suggestSecretName);
    suggestSecretName();
  }
}

// If the URL's fragment names a collapsed section, opens it.
const openLinkedSection = () => {
  const section = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (section && section.tagName === "DETAILS") { section.open = true; section.scrollIntoView(); }
};
addEventListener("hashchange", openLinkedSection);
openLinkedSection();
