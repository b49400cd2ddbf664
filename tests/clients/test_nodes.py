"""The packages of Node's clients are installed once, and a script's lines come as it writes them."""

import pytest
from nodes import Clients

pytestmark = pytest.mark.node


def test_every_client_can_be_loaded(clients: Clients) -> None:
    assert clients.run("load.mjs") == [
        "@ag-ui/client 1.0.0",
        "@microsoft/fetch-event-source 2.0.1",
        "ai5 5.0.277",
        "ai5.0.0 5.0.0",
        "ai5.0.80 5.0.80",
        "ai6 6.0.326",
        "ai6.0.0 6.0.0",
        "ai7 7.0.173",
        "axe-core 4.14.1",
        "eventsource 5.1.5",
        "ollama 0.6.4",
        "openai 7.55.0",
        "typescript 7.0.2",
        "zod 4.6.7",
    ]


def test_lines_come_as_they_are_written(clients: Clients) -> None:
    with clients.running("parrot.mjs", "polly") as script:
        assert script.line() == "polly listens"
        script.say("hello")
        assert script.line() == "hello"
        script.say("bye")
        assert script.rest() == ["bye"]


def test_a_script_that_fails_says_why(clients: Clients) -> None:
    with clients.running("parrot.mjs", "polly") as script:
        assert script.line() == "polly listens"
        script.say("fail")
        with pytest.raises(AssertionError, match=r"(?s)exit code 1: .*polly was told to fail"):
            script.rest()


def test_a_script_that_never_ends_is_killed(clients: Clients) -> None:
    with clients.running("parrot.mjs", "polly") as script:
        assert script.line() == "polly listens"
        with pytest.raises(AssertionError, match="wrote no line in time; it runs: True"):
            script.line(0.05)
