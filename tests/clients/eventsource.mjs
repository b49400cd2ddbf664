// Several EventSources at once, of the package `eventsource`: says each event, and that one was closed for good.
// Arguments: the address of the server; JSON of names and the queries that they ask with. Those whose names begin
// with "cancel" stop their turns when they hear the first token.
import { EventSource } from "eventsource";

const [url, turns] = process.argv.slice(2);
const NAMES = [
  "turn_start", "token", "thinking", "specialist_start", "specialist_progress", "specialist_result",
  "specialist_error", "approval_required", "notice", "usage", "error", "done", "message",
];
const say = (value) => console.log(JSON.stringify(value));
const waits = setInterval(() => {}, 1000); // one that is about to come back does not keep Node alive
let open = 0;

for (const [name, query] of Object.entries(JSON.parse(turns))) {
  open += 1;
  const source = new EventSource(`${url}/v1/chat/stream?${new URLSearchParams(query)}`);
  for (const type of NAMES) {
    source.addEventListener(type, (event) => {
      if (event.data === undefined) return; // the source's own "error"
      say({ turn: name, type: event.type, data: event.data, id: event.lastEventId });
      const stop = name.startsWith("cancel") && type === "token";
      if (stop) fetch(`${url}/v1/turns/${event.lastEventId.split(".")[0]}/cancel`, { method: "POST" });
    });
  }
  source.onerror = (event) => {
    if (event.data !== undefined || source.readyState !== EventSource.CLOSED) return;
    say({ turn: name, closed: event.code ?? 0 });
    if (!--open) clearInterval(waits);
  };
}
