// Loads every package of package.json, and says its version.
import { readFileSync } from "node:fs";

const read = (path) => JSON.parse(readFileSync(new URL(path, import.meta.url)));

for (const name of Object.keys(read("package.json").dependencies)) {
  await import(name);
  console.log(name, read(`node_modules/${name}/package.json`).version);
}
