// Start the page: ask the server who is signed in and what it offers, then start each part.

import { loadMarkdown } from "./answer/text.js";
import { find, make, makeButton } from "./base/dom.js";
import { Refused, errorText, request } from "./base/server.js";
import { startTasks } from "./base/tasks.js";
import { fillTexts, t } from "./base/texts.js";
import { startComposer, startWriting } from "./composer/composer.js";
import { startConversation } from "./conversation/conversation.js";
import { startChoices } from "./dialogs/choices.js";
import { startMemory } from "./dialogs/memory.js";
import { startSettings } from "./dialogs/settings.js";
import { startSigningIn } from "./dialogs/signin.js";
import { startHistory } from "./list/history.js";
import { startTaskList } from "./list/tasks.js";

const log = find("log", HTMLElement), composer = find("composer", HTMLFormElement);

/**
 * What the server offers. Retries until the server answers.
 * @returns {Promise<import("./base/types.js").Start>}
 */
async function fetchStart() {
  for (;;) {
    try {
      return await request("GET", "page/start");
    } catch (error) {
      await waitForRetry(errorText(error), error instanceof Refused && error.status === 401 ? "signIn" : "retry");
    }
  }
}

/**
 * Shows a problem until the person retries or sends a message.
 * @param {string} problem
 * @param {"retry" | "signIn"} remedy
 * @returns {Promise<void>}
 */
function waitForRetry(problem, remedy) {
  return new Promise((resolve) => {
    const again = makeButton(t(remedy), goOn, remedy === "retry" ? { icon: "retry", text: true } : {});
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

fillTexts();
startSigningIn();
startWriting();
const start = await fetchStart();
startSettings(start);
startChoices(start);
startHistory();
startTaskList();
startMemory();
startConversation();
startTasks();
startComposer(start);
(window.requestIdleCallback ?? setTimeout)(() => loadMarkdown().catch(() => {})); // else the first answer loads it
