// OpenAI's client for JavaScript: asks what each line of JSON tells it to, and says what comes of it.
import { createInterface } from "node:readline";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const say = (value) => console.log(JSON.stringify(value));

for await (const line of createInterface({ input: process.stdin })) {
  const { request, until } = JSON.parse(line);
  try {
    const answer = await client.chat.completions.create(request);
    if (!request.stream) {
      say(answer);
      continue;
    }
    for await (const chunk of answer) {
      say(chunk);
      if (until && chunk.choices[0].delta.content?.includes(until)) answer.controller.abort();
    }
    say("end");
  } catch (error) {
    const { status, code, param, message } = error;
    say({ name: error.constructor.name, status, code, param, message });
  }
}
