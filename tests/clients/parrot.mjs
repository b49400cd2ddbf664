// Says each line that it hears, until "bye"; fails when told to.
import { createInterface } from "node:readline";

console.log(`${process.argv[2]} listens`);
for await (const line of createInterface({ input: process.stdin })) {
  if (line === "fail") throw new Error(`${process.argv[2]} was told to fail`);
  console.log(line);
  if (line === "bye") process.exit();
}
