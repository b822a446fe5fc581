"""Which programs that run language models are at work on this machine? Pure functions of text that never raise.

They hold memory and the GPU, and a benchmark beside one measures both. A program counts by what is executed, never by
what its arguments mention: `tail -f ollama.log` is no model.
"""

from __future__ import annotations

import re

PROCESSES = ("/bin/ps", "-axww", "-o", "pid=,command=")
"""Every process with its whole command line; the same words on macOS and Linux."""

MODEL_PROGRAMS: dict[str, str] = {
    "exo": "exo",
    "jan": "Jan",
    "koboldcpp": "koboldcpp",
    "llama-bench": "llama-bench",
    "llama-cli": "llama-cli",
    "llama-server": "llama-server",
    "lm studio": "LM Studio",
    "mlx_lm": "mlx_lm",
    "mlx_vlm": "mlx_vlm",
    "ollama": "ollama",
    "omlx": "omlx",
    "text-generation-server": "text-generation-server",
    "vllm": "vllm",
}
"""Program or Python module, in lower case and without a suffix, and its name for people."""

_LINE = re.compile(r"[ \t]*([0-9]{1,10})[ \t]+(\S.*)", re.ASCII)
_BUNDLE = re.compile(r"(?:/[^/ ]+)*/([^/]+)\.app/Contents/")
_INTERPRETER = re.compile(r"\S*[Pp]ython[0-9.]*(?:[ ]-[A-Za-z]+)*[ ](?=\S)")


def parse_model_processes(text: str | None) -> tuple[str, ...] | None:
    """The names of the model programs in ps's output, each once; None when it lists no process at all."""
    commands = [found[2] for line in (text or "").splitlines() if (found := _LINE.fullmatch(line))]
    if not commands:
        return None
    return tuple(sorted({name for command in commands if (name := _program(command))}))


def _program(command: str) -> str | None:
    """The model program that a command line executes.

    A macOS application's path may hold spaces; its Python is an application too, which executes something else.
    """
    bundle = _BUNDLE.match(command)
    if bundle and bundle[1] != "Python":
        return MODEL_PROGRAMS.get(bundle[1].lower())
    interpreter = _INTERPRETER.match(command)
    executed = (command[interpreter.end() :] if interpreter else command).split(" ")[0].rsplit("/", 1)[-1]
    name = executed.lower()
    module = name.split(".")[0]
    return MODEL_PROGRAMS.get(name) or (MODEL_PROGRAMS.get(module) if module.startswith("mlx_") else None)
