// Ollama's client for JavaScript: calls what each line of JSON tells it to, and says what comes of it.
import { createInterface } from "node:readline";
import { Ollama } from "ollama";

const client = new Ollama({ host: process.argv[2] });
const say = (value) => console.log(JSON.stringify(value));

for await (const line of createInterface({ input: process.stdin })) {
  const { method, request, until } = JSON.parse(line);
  try {
    const answer = await client[method](request);
    if (!request?.stream) {
      say(answer);
      continue;
    }
    for await (const part of answer) {
      say(part);
      if (until && part.message.content.includes(until)) answer.abort();
    }
    say("end");
  } catch (error) {
    say({ name: error.name, message: error.message, status: error.status_code });
  }
}
