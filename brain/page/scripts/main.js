// Roof: the page. Each part of it finds its own elements; here they are brought together, and started.

import { loadMarkdown } from "./answer/text.js";
import { startComposer, startWriting } from "./composer/composer.js";
import { startConversation } from "./conversation/navigation.js";
import { startChoices } from "./dialogs/choices.js";
import { startMemory } from "./dialogs/memory.js";
import { startSettings } from "./dialogs/settings.js";
import { startSigningIn } from "./dialogs/signin.js";
import { button, find, make } from "./ground/dom.js";
import { Refused, request, told } from "./ground/server.js";
import { fill, t } from "./ground/texts.js";
import { startHistory } from "./list/history.js";

const log = find("log", HTMLElement), composer = find("composer", HTMLFormElement);

/**
 * What the server says of itself and of who asks, as soon as it can be reached.
 * @returns {Promise<import("./ground/types.js").Start>}
 */
async function asked() {
  for (;;) {
    try {
      return await request("GET", "page/start");
    } catch (error) {
      await wished(told(error), error instanceof Refused && error.status === 401 ? "signIn" : "retry");
    }
  }
}

/**
 * Shows what went wrong, until the person wants to try again, or to send something.
 * @param {string} problem
 * @param {"retry" | "signIn"} remedy
 * @returns {Promise<void>}
 */
function wished(problem, remedy) {
  return new Promise((resolve) => {
    const again = button(t(remedy), goOn, remedy === "retry" ? { icon: "retry", text: true } : {});
    const line = make("div", "error", make("p", "", problem), again);
    line.setAttribute("role", "alert");
    log.replaceChildren(line);
    again.focus();
    composer.addEventListener("submit", goOn, { once: true });
    function goOn() {
      composer.removeEventListener("submit", goOn);
      log.replaceChildren();
      resolve();
    }
  });
}

fill();
startSigningIn();
startWriting();
const start = await asked();
startSettings(start);
startChoices(start);
startHistory();
startMemory();
startConversation();
startComposer(start);
(window.requestIdleCallback ?? setTimeout)(() => loadMarkdown().catch(() => {})); // else the first answer does
