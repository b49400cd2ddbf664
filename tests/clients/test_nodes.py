"""The packages of Node's clients, in the versions that Brain is tested with."""

import pytest
from node_clients import Clients

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
