// Roof: the page. Each part of it finds its own elements; here they are brought together, and started.

import { fill } from "./texts.js";
import { startChoices } from "./choices.js";
import { startComposer } from "./composer.js";
import { startConversation } from "./conversation.js";
import { startHistory } from "./history.js";
import { startMemory } from "./memory.js";
import { startSettings } from "./settings.js";
import { startSigningIn } from "./signin.js";
import { Refused, Unreachable, request } from "./server.js";

fill();
startSigningIn();

/** What the server says of itself and of who asks: `GET page/start`. @type {import("./types.js").Start} */
const start = await request("GET", "page/start");
startSettings(start);
startChoices(start);
startConversation(start);
startComposer(start);
startHistory(start);
startMemory(start);
