// useChat of the Vercel AI SDK without React: its transport and its state, told what to do line by line.
// Arguments: the package, and the address of the chat. Each line in and out is a JSON object.
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";

const [name, api] = process.argv.slice(2);
const ai = await import(name);
const tell = (what) => console.log(JSON.stringify(what));

// The state that @ai-sdk/react keeps, which tells of its changes.
class State {
  #status = "ready";
  #text = "";
  constructor(messages) {
    this.messages = messages;
    this.error = undefined;
  }
  get status() {
    return this.#status;
  }
  set status(status) {
    if (status !== this.#status) tell({ status });
    this.#status = status;
  }
  pushMessage = (message) => {
    this.messages = [...this.messages, message];
    this.#tellText(message);
  };
  popMessage = () => {
    this.messages = this.messages.slice(0, -1);
  };
  replaceMessage = (index, message) => {
    this.messages = this.messages.with(index, structuredClone(message));
    this.#tellText(message);
  };
  snapshot = (value) => structuredClone(value);
  #tellText(message) {
    if (message.role !== "assistant") return;
    const text = message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
    if (text !== this.#text) tell({ text });
    this.#text = text;
  }
}

class Chat extends ai.AbstractChat {
  open = 0;
  constructor({ id, messages = [], body = {} }) {
    const transport = new ai.DefaultChatTransport({ api, body, fetch: (...request) => this.#fetch(...request) });
    super({
      id,
      state: new State(messages),
      transport,
      onData: (part) => tell({ data: part }),
      onToolCall: ({ toolCall }) => tell({ toolCall }),
      onError: (error) => tell({ error: error.message }),
      onFinish: ({ isAbort, isError, finishReason }) => tell({ finish: { isAbort, isError, finishReason } }),
      sendAutomaticallyWhen: (chat) =>
        ai.lastAssistantMessageIsCompleteWithToolCalls(chat) ||
        Boolean(ai.lastAssistantMessageIsCompleteWithApprovalResponses?.(chat)),
    });
  }
  async #fetch(url, options) {
    tell({ request: options.method });
    const response = await fetch(url, options);
    tell({ response: response.status });
    return response;
  }
  // An approval is sent by itself, by nobody who could be waited for.
  async settled() {
    do await pause(50);
    while (this.status === "submitted" || this.status === "streaming");
  }
}

let chat;
const doing = {
  new: (options) => void (chat = new Chat(options)),
  send: ({ message }) => chat.sendMessage(message),
  stop: () => chat.stop(),
  regenerate: () => chat.regenerate(),
  resume: () => chat.resumeStream(),
  approve: async ({ id, approved }) => {
    await chat.addToolApprovalResponse({ id, approved });
    await chat.settled();
  },
};

async function follow({ to, ...options }) {
  tell({ doing: to });
  await doing[to](options);
  tell({ did: to, status: chat.status, error: chat.error?.message, messages: chat.messages });
}

for await (const line of createInterface({ input: process.stdin })) void follow(JSON.parse(line));
