// Every request of the service, from its OpenAPI document.

import { element, table } from "./elements.js";

const main = document.getElementById("main");

function typeOf(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  const options = schema.anyOf ?? schema.oneOf;
  if (options) return options.map(typeOf).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.length > 12 ? "text" : schema.enum.map((value) => JSON.stringify(value)).join(", ");
  if (schema.type === "array") return `list of ${typeOf(schema.items ?? {})}`;
  return { string: "text", integer: "whole number", null: "null" }[schema.type] ?? schema.type ?? "any";
}

const rows = (schema, required = []) => Object.entries(schema.properties ?? {}).map(([name, value]) => ({
  name, type: typeOf(value), required: (schema.required ?? required).includes(name), text: value.description ?? "" }));

const fields = (entries) => table([
  ["name", (entry) => element("code", {}, entry.name)],
  ["type", (entry) => entry.type],
  ["", (entry) => (entry.required ? "required" : "")],
  ["meaning", (entry) => entry.text],
], entries, "");

function operation(method, path, found) {
  const parameters = (found.parameters ?? []).map((entry) => ({ name: entry.name, required: entry.required,
    type: `${typeOf(entry.schema)} in the ${entry.in}`, text: entry.description ?? "" }));
  const body = found.requestBody?.content?.["application/json"]?.schema;
  const command = `curl -X ${method.toUpperCase()} ${location.origin}${path}`
    + (body ? " -H 'content-type: application/json' -d '{…}'" : "");
  return element("details", {}, element("summary", {}, element("strong", {}, method.toUpperCase()), ` ${path}`),
    element("p", {}, found.description ?? found.summary ?? ""), element("pre", {}, command),
    ...(parameters.length ? [fields(parameters)] : []),
    ...(body ? [element("p", {}, `Body: ${typeOf(body)}`)] : []));
}

try {
  const { paths, components } = await (await fetch("/openapi.json")).json();
  const groups = new Map();
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, found] of Object.entries(methods)) {
      const tag = found.tags?.[0] ?? "service";
      groups.set(tag, [...(groups.get(tag) ?? []), operation(method, path, found)]);
    }
  }
  main.replaceChildren(element("h1", {}, "Requests"),
    ...[...groups].flatMap(([tag, made]) => [element("h2", {}, tag), ...made]), element("h2", {}, "Bodies"),
    ...Object.entries(components.schemas).filter(([, schema]) => schema.properties).map(([name, schema]) =>
      element("details", {}, element("summary", {}, name), element("p", {}, schema.description ?? ""), fields(rows(schema)))));
} catch {
  main.replaceChildren(element("p", { class: "bad", role: "alert" }, "The service does not answer. Reload to try again."));
}
