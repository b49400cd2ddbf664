// An agent of @ag-ui/client: runs as each line of JSON tells it to, and says every event, every warning, and the end.
import { createInterface } from "node:readline";
import { HttpAgent } from "@ag-ui/client";

const agent = new HttpAgent({ url: process.argv[2], threadId: process.argv[3] });
const say = (value) => console.log(JSON.stringify(value));
console.warn = (...words) => say({ warning: words.join(" ") });
console.error = () => {}; // what failed comes with the end
process.on("unhandledRejection", () => {}); // a connection that was cut rejects twice: the run, and nobody's promise

for await (const line of createInterface({ input: process.stdin })) {
  const { messages = [], abortAt, ...parameters } = JSON.parse(line);
  agent.addMessages(messages);
  const end = {};
  try {
    const { result, newMessages } = await agent.runAgent(parameters, {
      onEvent: ({ event }) => {
        say(event);
        if (event.type === abortAt) agent.abortRun();
      },
      onRunFinishedEvent: ({ outcome, pendingToolCallIds }) => Object.assign(end, { outcome, pendingToolCallIds }),
      onRunFailed: ({ error }) => Object.assign(end, { failed: error.message, status: error.status }),
    });
    Object.assign(end, { result, newMessages });
  } catch (error) {
    end.failed ??= error.message;
  }
  say({ end: { ...end, messages: agent.messages, pendingInterrupts: agent.pendingInterrupts } });
}
