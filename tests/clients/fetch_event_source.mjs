// Several turns at once with @microsoft/fetch-event-source, as written for browsers: says each event, and each end.
// Arguments: the address of the server; JSON of names and the bodies that they post. One that is named "cancel" stops
// its turn when it hears the first token; one that is named "abort" hangs up there.
globalThis.window = globalThis;
globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };
const { fetchEventSource } = await import("@microsoft/fetch-event-source");

const [url, turns] = process.argv.slice(2);
const say = (value) => console.log(JSON.stringify(value));

const run = async (name, body) => {
  const hangUp = new AbortController();
  await fetchEventSource(`${url}/v1/chat/stream`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-turn": `turn-${name}.` },
    body: JSON.stringify(body),
    signal: hangUp.signal,
    onmessage({ event, data, id }) {
      if (!event) return; // a comment
      say({ turn: name, type: event, data, id });
      if (event !== "token") return;
      if (name === "cancel") fetch(`${url}/v1/turns/${id.split(".")[0]}/cancel`, { method: "POST" });
      if (name === "abort") hangUp.abort();
    },
    onerror(error) {
      say({ turn: name, again: error.message });
    },
  });
  say({ turn: name, closed: 0 });
};

await Promise.all(Object.entries(JSON.parse(turns)).map(([name, body]) => run(name, body)));
