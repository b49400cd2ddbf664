"""Text in pieces, however far the server is: what can be read is the beginning of the whole, and nothing twice."""

import random
import re

import pytest
from playwright.sync_api import expect

from page.chat import Chat
from page.recording import recorded
from page.stage import Stage
from page.test_speed import say_at_speed

pytestmark = [pytest.mark.chromium, pytest.mark.alone]

WHOLE = """\
Some words with **bold**, *stress*, _more_ of it, `code(1)`, ~~gone~~ and [a link](https://example.org/a/path) in it.
The next line (1) is of the same paragraph, 2 * 3 is 6.

## A **heading** of words

- one `x[0]`
- [two](https://example.org/two)
  - deeper, **bold**
- [x] done

```python
const = "a1"  # it's `code`

for n in range(10):
    print(n, "**", [n], "|")
# the end
```

1. first
2. second

| name | much | more |
|------|-----:|:----:|
| tea | **7** | a b |
| milk | 3 | `c` |

> A quotation with *stress*
> and a formula \\(x + 1\\).

---

Last <https://example.org/b>, 3 < 4.
"""
BARE = re.compile(r"\s+")


def faraway(chat: Chat, milliseconds: int) -> None:
    """Each request takes so long at least."""
    conditions = {"offline": False, "latency": milliseconds, "downloadThroughput": -1, "uploadThroughput": -1}
    session = chat.page.context.new_cdp_session(chat.page)
    session.send("Network.enable")
    session.send("Network.emulateNetworkConditions", conditions)


def pieces(text: str, seed: int) -> list[str]:
    """The text in pieces of up to eight characters."""
    chance, found, start = random.Random(seed), [], 0
    while start < len(text):
        end = start + chance.randint(1, 8)
        found.append(text[start:end])
        start = end
    return found


@pytest.mark.parametrize(("latency", "speed"), [(0, 60), (60, 60), (150, 60), (400, 30)])
def test_what_can_be_read_is_the_beginning_of_the_whole(chat: Chat, stage: Stage, latency: int, speed: int) -> None:
    answer = chat.ask()
    faraway(chat, latency)
    with recorded(answer.locator(".flow").first) as states:
        say_at_speed(stage, pieces(WHOLE, latency), speed)
        stage.model.ends()
        chat.is_idle()
        expect(answer).to_contain_text("3 < 4.")
    whole = BARE.sub("", states[-1])
    assert len(states) > 8
    assert 'print(n,"**",[n],"|")' in whole
    assert [state for state in states if not whole.startswith(BARE.sub("", state))] == []
